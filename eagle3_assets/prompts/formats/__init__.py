"""The formats prompt datasets come in: named, recognised by their keys, read into one normal form.

What belongs here: the table of formats, reading by name, recognising. Not here: files, which turn is to be generated.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

from eagle3_assets.prompts.dialogue import Dialogue, Json, RefusedRowError
from eagle3_assets.prompts.formats import (
    alpaca,
    glaive,
    mixture_of_thoughts,
    openai,
    openthoughts,
    own_prompts,
    plain,
    sharegpt,
)
from eagle3_assets.prompts.formats.messages import SPEAKS, TRAJECTORY, is_message_list
from eagle3_assets.tokens.safe_text import quoted

_READERS: dict[str, Callable[[Any], Dialogue]] = {
    "openai": openai.read,
    "sharegpt": sharegpt.read,
    "glaive": glaive.read,
    "mixture-of-thoughts": openai.read,
    "openthoughts": sharegpt.read,
    "alpaca": alpaca.read,
    "plain": plain.read,
    "prompts": own_prompts.read,
}

FORMAT_NAMES: tuple[str, ...] = tuple(_READERS)

# The first that recognises a row has it: narrow formats before those that they are made of.
_RECOGNISED: dict[str, Callable[[dict[str, Any]], bool]] = {
    "prompts": own_prompts.recognises,
    "glaive": glaive.recognises,
    "mixture-of-thoughts": mixture_of_thoughts.recognises,
    "openai": openai.recognises,
    "openthoughts": openthoughts.recognises,
    "sharegpt": sharegpt.recognises,
    "alpaca": alpaca.recognises,
    "plain": plain.recognises,
}

_A_MESSAGE = ' (a message, not a conversation: write each as {"messages": [...]})'

LOOKED_AT = 100
"""Rows that :func:`detect` looks at."""


def read(format: str, row: Any) -> Dialogue:  # noqa: A002, ANN401 - the config's word; parsed JSON
    """Reads one parsed row.

    Args:
        format: one of :data:`FORMAT_NAMES`.
        row: any JSON value, or a row of a parquet file as Python values.

    Raises:
        RefusedRowError: the row is none of this format; the text names the key and what is allowed there.
        KeyError: there is no such format.
    """
    try:
        found = _READERS[format](row)
        _require_one_conversation(row)
    except RecursionError:
        raise RefusedRowError("the row is nested too deeply") from None
    return found


def _require_one_conversation(row: Any) -> None:  # noqa: ANN401 - parsed JSON
    """Refuses a row that has two conversations which differ."""
    if not isinstance(row, dict):
        return
    found: list[tuple[str, list[Json]]] = []
    if row.get("messages"):
        found.append(("messages", openai.normal_messages(row)))
    if any(row.get(key) for key in sharegpt.KEYS):
        found.append(("conversations", sharegpt.normal_messages(row)))
    if found and is_message_list(row.get(TRAJECTORY)):
        alone = {TRAJECTORY: row[TRAJECTORY]}
        found.append((TRAJECTORY, sharegpt.normal_messages(alone)))
    for key, messages in found[1:]:
        if messages != found[0][1]:
            raise RefusedRowError(
                f"`{found[0][0]}` and `{key}` are both there and differ: leave one out with the dataset's `ignore_keys`"
            )


@dataclass(frozen=True, slots=True)
class Detection:
    """What the first rows of a source look like."""

    counts: Mapping[str, int]
    """Rows by the name of their format, the most frequent first."""
    unknown: int
    """Rows that no format recognises."""
    unknown_keys: tuple[str, ...]
    """The keys of the first such row."""
    hint: str
    """What that row may be instead, in words; empty where nothing tells."""

    @property
    def format(self) -> str | None:
        """The format of all recognised rows, the most frequent name of it; None where there are several, or none."""
        return next(iter(self.counts)) if len({_READERS[name] for name in self.counts}) == 1 else None

    def report(self) -> str:
        """What was found, in one sentence for a person."""
        rows = sum(self.counts.values()) + self.unknown
        if not rows:
            return "no row to tell the format by"
        found = ", ".join(f"{name} ({count})" for name, count in self.counts.items()) or "no known format"
        keys = f" with the keys {', '.join(map(repr, self.unknown_keys))}" if self.unknown_keys else ""
        first = f"{keys or ' is no object'}{self.hint}"
        unknown = f"; {self.unknown} in no known format, the first{first}" if self.unknown else ""
        choice = "" if self.format else f"; name one of {', '.join(FORMAT_NAMES)}"
        return f"of the first {rows} rows: {found}{unknown}{choice}"


def detect(rows: Iterable[Any]) -> Detection:
    """Tells the format of a source by the keys of its first rows.

    Args:
        rows: parsed rows; no more than :data:`LOOKED_AT` are taken.
    """
    counts: Counter[str] = Counter()
    unknown: list[Any] = []
    for row in islice(rows, LOOKED_AT):
        name = _name(row)
        if name is None:
            unknown.append(row)
        else:
            counts[name] += 1
    seen = unknown[0] if unknown else None
    if isinstance(seen, list) and seen:  # messages without a row around them
        seen = seen[0]
    keys = tuple(str(key)[:40] for key in islice(seen, 12)) if isinstance(seen, dict) else ()
    return Detection(dict(counts.most_common()), len(unknown), keys, _hint(seen) if isinstance(seen, dict) else "")


def _hint(row: dict[str, Any]) -> str:
    if not SPEAKS.isdisjoint(row):
        return _A_MESSAGE
    for key, value in row.items():
        if isinstance(value, dict) and (name := _name(value)):  # a request, as OpenAI's batch files have them
            return f" (its {quoted(key)} is {name}: write what is in it as the row)"
        if isinstance(value, bytes) and _name({key: ""}):
            return f" (its {quoted(key)} is binary: write it as text)"
    return ""


def _name(row: Any) -> str | None:  # noqa: ANN401 - parsed JSON
    if isinstance(row, str):
        return "plain"
    if not isinstance(row, dict):
        return None
    return next((name for name, recognises in _RECOGNISED.items() if recognises(row)), None)
