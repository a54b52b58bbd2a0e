"""What generating would cost: prompts, tokens and time, estimated from what was counted.

What belongs here: the arithmetic of an estimate, and how sure it is. Not here: counting (``survey``), words (``cli``).
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import polars as pl

from eagle3_assets.config import Band

Basis = Literal["measured", "band", "cap"]
"""What an expectation rests on: outputs of the same dataset, a configured band's middle, or nothing but the cap."""


@dataclass(frozen=True, slots=True)
class PromptTokens:
    """How long prompts are, in tokens. Quantiles are the nearest real length at or below."""

    p50: int
    p95: int
    longest: int
    total: int


@dataclass(frozen=True, slots=True)
class Outputs:
    """Outputs that are there: how many, and their tokens in all."""

    count: int = 0
    tokens: int = 0

    def __add__(self, other: "Outputs") -> "Outputs":
        return Outputs(self.count + other.count, self.tokens + other.tokens)

    @property
    def mean(self) -> float | None:
        """Tokens per output; None without outputs."""
        return self.tokens / self.count if self.count else None


@dataclass(frozen=True, slots=True)
class Expected:
    """Output tokens to be generated."""

    tokens: int
    """An expectation; where ``basis`` is ``cap``, nothing but the limit."""
    basis: Basis
    limit: int
    """What they cannot exceed: every output as long as the cap."""

    def seconds(self, tokens_per_s: float) -> float:
        """How long generating takes.

        Args:
            tokens_per_s: output tokens per second, above 0.
        """
        return self.tokens / tokens_per_s


def prompt_tokens(lengths: pl.Series) -> PromptTokens | None:
    """Figures over the lengths of prompts.

    Args:
        lengths: integers, tokens of each prompt.

    Returns:
        None without prompts.
    """
    if lengths.is_empty():
        return None
    ordered = lengths.sort()
    p50, p95 = (int(ordered[-(-len(ordered) * percent // 100) - 1]) for percent in (50, 95))  # nearest rank
    return PromptTokens(p50, p95, int(ordered[-1]), int(ordered.cast(pl.Int64).sum()))


def tokens_per_output(outputs: Outputs, median_band: Band | None, cap: int) -> tuple[float, Basis]:
    """How long one output is expected to be.

    Args:
        outputs: of the same dataset, generated with the same settings.
        median_band: the band that the dataset's config expects the median in.
        cap: ``max_new_tokens``.

    Returns:
        tokens, never above the cap, and what they rest on.
    """
    if outputs.mean is not None:
        return min(outputs.mean, cap), "measured"
    if median_band is not None:
        return min((median_band.low + median_band.high) / 2, cap), "band"
    return cap, "cap"


def expected_output(prompts: int, outputs: Outputs, median_band: Band | None, cap: int) -> Expected:
    """Output tokens of so many prompts; see :func:`tokens_per_output`."""
    each, basis = tokens_per_output(outputs, median_band, cap)
    return Expected(round(prompts * each), basis, prompts * cap)


def expected_in_all(parts: Iterable[Expected]) -> Expected:
    """The sum, as sure as the least sure part of it; where of one part only the limit is known, the limit of all.

    Args:
        parts: those of which nothing is to be generated have no part in how sure it is.
    """
    added = [part for part in parts if part.limit]
    bases, limit = {part.basis for part in added}, sum(part.limit for part in added)
    if "cap" in bases:
        return Expected(limit, "cap", limit)
    return Expected(sum(part.tokens for part in added), "band" if "band" in bases else "measured", limit)
