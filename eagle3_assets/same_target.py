"""Whether stored generations are of the target: one rule for everything that puts partitions together.

What belongs here: that decision. Not here: whether one target wrote a whole partition (the law ``one_target``), whether
generating may go on from what is there (``generation.plan``).
"""

from functools import cached_property
from pathlib import Path

from eagle3_assets.engines.checkpoint import weight_files, weights_hash
from eagle3_assets.identity import Identity
from eagle3_assets.target import LoadedTarget

_HASHED = "sha256:"
_REMEDY = "name the target that made it, or generate it again"


class OneTarget:
    """Lets in the partitions of one target, one after the other.

    The tokenizer must be the target's own: with another, ids mean something else. So must the weights, where they lie
    beside the target's config and those of a partition were hashed. A server's name for weights says nothing of files,
    so there all partitions must be of the same as the first that was let in.
    """

    def __init__(self, target: LoadedTarget) -> None:
        """Takes the target as the config names it now."""
        self._target = target
        self._first: tuple[str, str] | None = None

    def refusal(self, identity: Identity) -> str | None:
        """Why a partition is not of the target; None where it is.

        Args:
            identity: of its generations.
        """
        if identity.tokenizer != self._target.tokenizer_sha256:
            return f"its ids are of another tokenizer than the target's, {identity.tokenizer[:16]}; {_REMEDY}"
        try:
            here = self._weights_here if identity.weights.startswith(_HASHED) else None
        except OSError as error:
            return f"whether the target's weights made it cannot be said: {error.filename}: {error.strerror}"
        if here not in (None, identity.weights):
            return (
                f"it was made by other weights, or another config.json, than the target's: {identity.weights} and not"
                f" {here}; {_REMEDY}"
            )
        if self._first and identity.weights != self._first[1]:
            first, weights = self._first
            return (
                f"it was made by other weights than {first}, {identity.weights} and not {weights}; put partitions of"
                " one target alone together, or generate it again"
            )
        return None

    def let_in(self, partition: str, identity: Identity) -> None:
        """Takes a partition that was not refused, once nothing else keeps it out: others are held against the first."""
        self._first = self._first or (partition, identity.weights)

    @cached_property
    def _weights_here(self) -> str | None:
        """Hash of the weights in the target's directory; None where there are none, as on a machine without engine."""
        model = Path(self._target.settings.model)
        files = weight_files(model)
        return weights_hash(model, files) if files else None
