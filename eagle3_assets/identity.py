"""What decides a target's tokens, hashed: identities, request keys, and the hash of captured ids.

What belongs here: the canonical forms and their hashes, and telling two identities apart in words. Not here: finding
the facts that go into an identity (engines and the tokenizer know those).
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict

from eagle3_assets.config import Sampling


def canonical_json(value: Any) -> str:  # noqa: ANN401 - any JSON value
    """One text for one JSON value: sorted keys, no spaces, unicode kept."""
    return json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"))


def digest(value: Any, length: int = 16) -> str:  # noqa: ANN401 - any JSON value
    """First ``length`` hex digits of the sha256 of a JSON value's canonical form."""
    return hashlib.sha256(canonical_json(value).encode("utf-8", "surrogatepass")).hexdigest()[:length]


def files_sha256(paths: Sequence[Path]) -> str:
    """Sha256 over the names and contents of files, in the order of their names."""
    total = hashlib.sha256()
    for path in sorted(paths, key=lambda p: p.name):
        total.update(path.name.encode() + b"\0")
        with path.open("rb") as file:
            total.update(hashlib.file_digest(file, "sha256").digest())
    return total.hexdigest()


def ids_sha256(prompt_ids: Sequence[int] | NDArray[Any], output_ids: Sequence[int] | NDArray[Any]) -> str:
    """Sha256 of one sample's prompt and output ids as little-endian int32, the prompt's length first.

    The length keeps ``([1], [2])`` and ``([1, 2], [])`` apart. Taken when the reply is captured, compared after
    read-back.
    """
    prompt = np.ascontiguousarray(prompt_ids, dtype="<i4")
    output = np.ascontiguousarray(output_ids, dtype="<i4")
    return stored_ids_sha256(prompt.data.cast("B"), output.data.cast("B"))


def stored_ids_sha256(prompt: memoryview, output: memoryview) -> str:
    """The same of ids that lie in memory as little-endian int32: their bytes."""
    total = hashlib.sha256((len(prompt) // 4).to_bytes(8, "little"))
    total.update(prompt)
    total.update(output)
    return total.hexdigest()


class Identity(BaseModel):
    """Everything that decides the tokens of a partition. Two identities are never mixed in one partition."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    weights: str
    """``sha256:...`` over the weight files where they are at hand, else the path and version that the server names."""
    tokenizer: str
    """Sha256 over the tokenizer's files."""
    chat_template: str
    """Sha256 of the chat template's text and extra arguments."""
    thinking: bool
    sampling: Sampling
    stop_token_ids: tuple[int, ...]
    """The whole stop set, sorted: the request's, and those of the model's configs and tokenizer."""
    remote_code: dict[str, str] = {}
    """Sha256 of each Python file that came with the target and was trusted to run, by name."""

    @property
    def fingerprint(self) -> str:
        """Sixteen hex digits which name this identity in file names and rows."""
        # Without code the name is what it was before there was such a field.
        return digest(self.model_dump(mode="json", exclude=None if self.remote_code else {"remote_code"}))

    def differences(self, other: "Identity") -> list[str]:
        """One line for each fact in which ``other`` differs, as ``key: ours -> theirs``."""
        return differences(self.model_dump(mode="json"), other.model_dump(mode="json"))


def differences(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> list[str]:
    """One line for each fact in which two nested mappings differ, as ``key: ours -> theirs``."""
    left, right = _flat(ours), _flat(theirs)
    return [
        f"{key}: {left.get(key)} -> {right.get(key)}"
        for key in sorted(left.keys() | right.keys())
        if left.get(key) != right.get(key)
    ]


def request_key(sample_id: str, prompt_ids: Sequence[int] | NDArray[Any], identity_fingerprint: str) -> str:
    """The name of one request, 32 hex digits: equal prompts of different samples are different requests."""
    return digest([sample_id, ids_sha256(prompt_ids, ()), identity_fingerprint], length=32)


def _flat(value: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, item in value.items():
        if isinstance(item, Mapping):
            flat |= _flat(item, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = item
    return flat
