"""The page of prompts: what each message became, token by token, in one HTML file that needs nothing else.

What belongs here: what the template is given. Not here: telling messages apart (``prompt_views``), templates and the
page's locks (``rendering``).

The page has no script: a token's index and id show while the pointer is on it, and stand in a list besides.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from eagle3_assets.decoding import Decoder, Kind
from eagle3_assets.pages.rendering import environment, own_file, policy
from eagle3_assets.prompt_views import IdPart, PromptView, part_title, parts_of
from eagle3_assets.tokens.safe_text import visible


@dataclass(frozen=True, slots=True)
class ShownToken:
    """One token, safe to show."""

    text: str
    kind: Kind
    tip: str
    """Its index, its id, and what it is besides text."""


@dataclass(frozen=True, slots=True)
class ShownPart:
    """What one message became."""

    title: str
    given: str | None
    """The message as the source has it, as JSON; None of the generation prompt."""
    tokens: Sequence[ShownToken]
    ids: Sequence[int]


def prompts_page(partition: str, views: Sequence[PromptView], decoder: Decoder) -> str:
    """The page as HTML; the same for the same prompts.

    Args:
        partition: key of the partition that they are of.
        views: the prompts, in order.
        decoder: of their target.
    """
    style = own_file("preview.css") + own_file("prompts.css")
    return (
        environment()
        .get_template("prompts.html.j2")
        .render(
            policy=policy(style),
            style=style,
            partition=partition,
            profile=decoder.profile.name if decoder.profile else None,
            prompts=[_prompt(view, decoder) for view in views],
        )
    )


def _prompt(view: PromptView, decoder: Decoder) -> dict[str, Any]:
    return {
        "sample_id": visible(view.sample_id),
        "status": view.status,
        "reason": view.reason and visible(view.reason),
        "remarks": [visible(said) for said in (view.remark, view.call_ids_said) if said],
        "length": None if view.prompt_ids is None else len(view.prompt_ids),
        "tools": [(visible(tool["function"]["name"]), _as_json(tool)) for tool in view.declared],
        "messages": [(visible(str(message["role"])), _as_json(message)) for message in view.messages],
        "parts": list(_parts(view, decoder)),
    }


def _parts(view: PromptView, decoder: Decoder) -> Iterator[ShownPart]:
    """None of a prompt that has no ids."""
    if view.prompt_ids is None:
        return
    tokens = _shown(view.prompt_ids, decoder)
    for number, part in enumerate(parts_of(view)):
        given = view.messages[number] if view.parts is not None and number < len(view.messages) else None
        yield ShownPart(
            title=visible(part_title(view, number, part)) if view.parts is not None else _whole(part),
            given=None if given is None else _as_json(given),
            tokens=tokens[part.begin : part.end],
            ids=view.prompt_ids[part.begin : part.end],
        )


def _whole(part: IdPart) -> str:
    return f"{part.what}, ids 0-{part.end - 1}" if part.end else part.what


def _shown(ids: Sequence[int], decoder: Decoder) -> list[ShownToken]:
    """Characters of several tokens stand at the last of them; the others show their bytes."""
    shown = []
    for index, token in enumerate(decoder.tokens(ids)):
        spelled = "".join(f"\\x{byte:02X}" for byte in token.part or b"")
        text = visible(token.text, keep_lines=True) or spelled or "\u2205"
        what = {"structural": ", structural", "unknown": ", not in the vocabulary"}.get(token.kind, "")
        what += f", {spelled}" if spelled and token.text else ", a part of a character" if spelled else ""
        shown.append(
            ShownToken(
                text.replace("\n", "\u21b5\n").replace("\t", "\u21e5\t"),
                token.kind,
                f"index {index}, id {token.id}{what}",
            )
        )
    return shown


def _as_json(value: object) -> str:
    return visible(json.dumps(value, ensure_ascii=False, indent=1), keep_lines=True)
