r"""Alpaca: ``{instruction, input?, output?, history?, system?, tools?}``.

The user says the instruction, and the input on the next line, as LLaMA-Factory puts them together. ``history`` is pairs
(user, assistant) before that. Dolly's ``context`` and ``response`` are the same things. An answer that is no text is
none: the target gives its own.
"""

from typing import Any

from eagle3_assets.prompts.dialogue import Dialogue, Json, RefusedRowError
from eagle3_assets.prompts.formats.messages import dialogue
from eagle3_assets.prompts.formats.plain import require_prompt
from eagle3_assets.prompts.formats.values import first, from_text, kind, object_row, only_one, text

_READ = ("instruction", "input", "context", "output", "response", "history")

_BESIDE = ("input", "context")

_NO_INPUT = "<noinput>"
"""What sets made as Alpaca was have where there is none."""


def recognises(row: Json) -> bool:
    """Whether the row's keys are this format's."""
    return isinstance(row.get("instruction"), str)


def read(row: Any) -> Dialogue:  # noqa: ANN401 - parsed JSON
    """Reads one row; see :func:`formats.read`."""
    row = object_row(row, "instruction")
    asked = [text(row.get("instruction"), "instruction")]
    extra = only_one({key: row.get(key) for key in _BESIDE if row.get(key) != _NO_INPUT}, _BESIDE)
    if extra is not None:
        asked.append(text(extra, "input"))
    said = "\n".join(part for part in asked if part.strip())
    if not said:
        raise RefusedRowError("`instruction` and `input` are empty")
    require_prompt(said)
    messages = [*_history(row.get("history")), {"role": "user", "content": said}]
    answer = first(row, "output", "response")
    if answer and isinstance(answer, str):
        messages.append({"role": "assistant", "content": answer})
    return dialogue(row, messages, _READ, one_prompt=True)


def _history(given: Any) -> list[Json]:  # noqa: ANN401 - parsed JSON
    if given is None or given == "":
        return []
    pairs = from_text(given, "history")
    if not isinstance(pairs, list):
        raise RefusedRowError(f"`history` is {kind(pairs)}, not a list of pairs")
    messages: list[Json] = []
    for i, pair in enumerate(pairs):
        if not isinstance(pair, list) or len(pair) != 2 or not all(isinstance(said, str) for said in pair):
            raise RefusedRowError(f"`history[{i}]` is no pair of texts (user, assistant)")
        messages += [{"role": role, "content": said} for role, said in zip(("user", "assistant"), pair, strict=True)]
    return messages
