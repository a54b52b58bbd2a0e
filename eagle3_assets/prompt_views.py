"""Rendered prompts for a person's eyes: text and ids by message, and why one is refused.

What belongs here: choosing stored prompts, telling which ids each message became, the form in which one is shown. Not
here: rendering (``prompts``), decoding (``decoding``), laws, colours and streams (``cli``).

Prompts are text that others wrote: whatever leaves :func:`prompt_lines` is safe to show.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import polars as pl

from eagle3_assets.decoding import Decoder, Piece, shown_line, shown_pieces, shown_text
from eagle3_assets.partitions import Partition, stable_rank
from eagle3_assets.project import Project
from eagle3_assets.prompts.dialogue import RefusedRowError
from eagle3_assets.prompts.message_parts import TextPart, message_parts
from eagle3_assets.prompts.render import prompt_ids, render_text, template_fault
from eagle3_assets.prompts.template_forms import call_form, formed, has_calls, other_ids
from eagle3_assets.sample_sources import Choice, SourceError, named_by, not_among, shown_ids
from eagle3_assets.storage.files import StorageError, scan_parquet
from eagle3_assets.target import LoadedTarget
from eagle3_assets.tokens.codec import Codec
from eagle3_assets.tokens.quantiles import spread

SUFFIX = "generation prompt"
"""The part after the last message: where the target goes on."""


@dataclass(frozen=True, slots=True)
class IdPart:
    """The ids that one message became: ``prompt_ids[begin:end]``, empty where the template leaves it out."""

    what: str
    """The message's role, or ``SUFFIX``."""
    begin: int
    end: int
    sure: bool
    """False where the template treats the message otherwise without those after it: then the end is approximate."""


@dataclass(frozen=True, slots=True)
class PromptView:
    """One prompt as it is stored, and what its messages became."""

    sample_id: str
    status: str
    reason: str | None
    prompt_ids: Sequence[int] | None
    """None where the template refused it."""
    messages: Sequence[dict[str, Any]]
    declared: Sequence[dict[str, Any]]
    """The declared tools."""
    parts: tuple[IdPart, ...] | None
    """In order, the last one the generation prompt; None where they cannot be told."""
    remark: str | None = None
    """Why they cannot."""
    changed: bool = False
    """Whether source, template or tokenizer now give other ids than the stored ones."""
    call_ids: str | None = None
    """The form of the ids that its calls and results have in the prompt, where those of ``messages`` are others."""

    @property
    def tools(self) -> list[str]:
        """Names of the declared tools."""
        return [tool["function"]["name"] for tool in self.declared]

    @property
    def call_ids_said(self) -> str | None:
        """That calls and results have other ids in the prompt than the source gives them, in words."""
        if self.call_ids is None:
            return None
        return f"its calls and results are rendered with ids of the form {self.call_ids}, not the source's"


def stored_prompts(
    project: Project, partition: Partition, target: LoadedTarget, choice: Choice
) -> Iterator[PromptView]:
    """The chosen prompts of a partition, in its order; those spread over the lengths from the shortest to the longest.

    Raises:
        StorageError: ``prompts`` or ``tokenized_prompts`` of it are not there.
        SourceError: it has no prompts, or none of an id that was asked for; after those that are there.
    """
    prompts, tokenized = (
        scan_parquet(project.layout.asset_file(asset, partition.key), asset=asset)
        for asset in ("prompts", "tokenized_prompts")
    )
    chosen = _chosen(tokenized, choice)
    if not chosen and not choice.ids:
        raise SourceError(
            f"{partition.key}: has no prompts; prompts/{partition.key}.refused.jsonl says what was refused"
        )
    made = tokenized.filter(pl.col("sample_id").is_in(chosen)).collect()
    if choice.spread:
        made = pl.DataFrame({"sample_id": chosen}).join(made, on="sample_id", maintain_order="left")
    rows = prompts.filter(pl.col("sample_id").is_in(chosen)).collect()
    sources = {row["sample_id"]: row for row in rows.iter_rows(named=True)}
    for row in made.iter_rows(named=True):
        yield prompt_view(target, row, sources.get(row["sample_id"]))
    if missing := sorted(not_among(choice.ids, made["sample_id"])):
        raise SourceError(_no_sample(partition, missing, tokenized))


def partition_of(project: Project, sample_id: str) -> Partition:
    """The partition that has the prompt of a sample; a trial only where no other has it.

    Raises:
        SourceError: none has it, or several have.
    """
    found = [partition for partition in project.partitions.values() if _has(project, partition, sample_id)]
    found = [partition for partition in found if not partition.trial] or found
    asked = repr(shown_line(sample_id))
    keys = ", ".join(partition.key for partition in found or project.partitions.values())
    if not found:
        raise SourceError(
            f"{asked} is neither a partition nor a sample of one whose tokenized_prompts are made; partitions: {keys}"
        )
    if len(found) > 1:
        raise SourceError(f"several partitions have a sample {asked}: {keys}; name one, and the sample with --id")
    return found[0]


def prompt_view(target: LoadedTarget, row: dict[str, Any], source: dict[str, Any] | None) -> PromptView:
    """One prompt.

    Args:
        target: its template and tokenizer.
        row: of ``contract.TOKENIZED_PROMPTS``.
        source: the same sample's of ``contract.PROMPTS``; None where it is not there any more.
    """
    messages = json.loads(source["messages"]) if source else []
    tools = json.loads(source["tools"]) if source and source["tools"] else None
    view = partial(PromptView, row["sample_id"], row["status"], row["reason"], row["prompt_ids"], messages, tools or ())
    if source is None:
        return view(None, "prompts has no such sample any more: materialize tokenized_prompts again", changed=True)
    if row["prompt_ids"] is None:
        return view(None)
    render = partial(
        render_text,
        target.tokenizer,
        tools=tools,
        thinking=row["thinking"],
        chat_template=target.chat_template,
        arguments=target.settings.template_arguments,
    )

    def probe(given: list[dict[str, Any]], declared: list[dict[str, Any]]) -> str:
        return render(given, tools=declared)

    given, call_ids = messages, None
    try:
        if has_calls(messages):
            form, id_form = call_form(probe), target.profile.tool_call_id
            given = formed(messages, form, id_form)
            call_ids = id_form if other_ids(messages, form, id_form) else None
        text = render(given)
    except RefusedRowError as error:
        return view(None, f"it is refused now: {error}", changed=True)
    except Exception as error:  # noqa: BLE001 - a template is data: whatever it raises is about this row
        return view(None, f"the chat template refuses it now: {template_fault(error)}", changed=True)
    if prompt_ids(target.tokenizer, [text]) != [list(row["prompt_ids"])]:
        remark = "rendered now it has other ids: materialize tokenized_prompts again to see what messages become"
        return view(None, remark, changed=True)
    codec = Codec(target.tokenizer, target.profile)
    if codec.text(list(row["prompt_ids"])) != text:
        remark = "which ids a message became cannot be told: this tokenizer's ids give another text back"
        return view(None, remark, call_ids=call_ids)
    found = message_parts(partial(render, generation_prompt=False), given, text)
    parts = _id_parts(codec, list(row["prompt_ids"]), text, [m["role"] for m in messages], found)
    return view(parts, call_ids=call_ids)


def prompt_lines(view: PromptView, decoder: Decoder, *, ids: bool = False) -> Iterator[Piece]:
    """All that is shown of a prompt, safe as it is, line ends included.

    Args:
        view: what to show.
        decoder: of its target.
        ids: a row for each token instead of the text.
    """
    count = "none" if view.prompt_ids is None else len(view.prompt_ids)
    yield Piece(f"===== sample_id={shown_line(view.sample_id)} tokens={count} status={view.status} =====\n", "heading")
    if view.reason:
        yield Piece(f"----- {view.status}: {shown_line(view.reason)} -----\n", "heading")
    for said in filter(None, (view.remark, view.call_ids_said)):
        yield Piece(f"----- {shown_line(said)} -----\n", "heading")
    if view.prompt_ids is None:
        for number, message in enumerate(view.messages):
            yield Piece(f"----- message {number}: {message['role']}, not rendered -----\n", "heading")
            yield Piece(f"{shown_text(json.dumps(message, ensure_ascii=False, indent=1))}\n", "text")
        return
    for number, part in enumerate(parts_of(view)):
        if view.parts:
            yield Piece(f"----- {part_title(view, number, part)} -----\n", "heading")
        some = view.prompt_ids[part.begin : part.end]
        if ids:
            yield from (Piece(f"{line.text}\n", line.kind) for line in decoder.rows(some, part.begin))
        elif some:
            yield from shown_pieces(decoder.pieces(some))


def abridged(pieces: Iterable[Piece], most: int) -> Iterator[Piece]:
    """The same with no more than so many characters of text between two headings; what is left out is counted."""
    room = most
    for piece in pieces:
        if piece.kind == "heading":
            if room < 0:
                yield Piece(f" [{-room:,} characters more]\n", "heading")
            room = most
            yield piece
            continue
        if room > 0:
            yield Piece(piece.text[:room], piece.kind)
        room -= len(piece.text)
    if room < 0:
        yield Piece(f" [{-room:,} characters more]\n", "heading")


def prompt_json(view: PromptView, decoder: Decoder, *, ids: bool = False) -> str:
    """The same in one line of JSON for a program: texts as they are, everything but ASCII escaped.

    ``sample_id``, ``tokens``, ``status``, ``reason``, ``remark``, ``call_ids``, ``tools``, ``text`` and ``parts``; with
    ``ids`` also ``prompt_ids``. What is not known is null.
    """
    known = view.prompt_ids
    parts = None
    if known is not None and view.parts is not None:
        parts = [
            {
                "what": part.what,
                "begin": part.begin,
                "end": part.end,
                "sure": part.sure,
                "text": decoder.text(known[part.begin : part.end]),
            }
            for part in view.parts
        ]
    return json.dumps(
        {
            "sample_id": view.sample_id,
            "tokens": None if known is None else len(known),
            "status": view.status,
            "reason": view.reason,
            "remark": view.remark,
            "call_ids": view.call_ids,
            "tools": view.tools,
            "text": None if known is None else decoder.text(known),
            "parts": parts,
            **({"prompt_ids": None if known is None else list(known)} if ids else {}),
        }
    )


def parts_of(view: PromptView) -> tuple[IdPart, ...]:
    """The parts of a prompt that has ids, in order; the whole as one where they cannot be told."""
    return view.parts or (IdPart("prompt", 0, len(view.prompt_ids or ()), sure=True),)


def part_title(view: PromptView, number: int, part: IdPart) -> str:
    """What a part is, and which ids; its role is text of others."""
    name = part.what if number == len(view.messages) else f"message {number}: {part.what}"
    if view.declared and number == 0:
        name += f", after {len(view.declared)} declared tool{'s' if len(view.declared) > 1 else ''}"
    if part.begin == part.end:
        return f"{name}, {'the template makes nothing of it' if part.sure else 'not to be told from what comes next'}"
    return f"{name}, ids {part.begin}-{'' if part.sure else 'about '}{part.end - 1}"


def _id_parts(
    codec: Codec, ids: list[int], text: str, roles: Sequence[str], found: Sequence[TextPart]
) -> tuple[IdPart, ...]:
    """Parts of the text as parts of the ids; an id with text of two of them belongs to the later one."""
    ends = [part.end for part in found]
    bounds = [0, *(codec.token_at(ids, end) if end < len(text) else len(ids) for end in ends), len(ids)]
    sure = [*(part.sure for part in found), True]
    return tuple(
        IdPart(what, begin, max(begin, end), known)
        for what, (begin, end), known in zip((*roles, SUFFIX), pairwise(bounds), sure, strict=True)
    )


def _has(project: Project, partition: Partition, sample_id: str) -> bool:
    with suppress(StorageError):  # its prompts are not made
        rows = scan_parquet(project.layout.asset_file("tokenized_prompts", partition.key), asset="tokenized_prompts")
        return not rows.select("sample_id").filter(named_by([sample_id])).collect().is_empty()
    return False


def _no_sample(partition: Partition, missing: Sequence[str], tokenized: pl.LazyFrame) -> str:
    """That samples are not there, and which are that a person may have meant: those of the conversation so named."""
    said = f"{partition.key}: tokenized_prompts has no sample {', '.join(map(repr, missing[:10]))}"
    meant = tokenized.select("sample_id").filter(shown_ids().str.starts_with(f"{shown_line(missing[0])}:")).head(5)
    ids = meant.collect()["sample_id"].to_list()
    if ids:
        return f"{said}; of this conversation it has {', '.join(map(repr, ids))}"
    first = tokenized.select("sample_id").head(1).collect()["sample_id"].to_list()
    return f"{said}; a sample's id is conversation:turn:sample, as {first[0]!r} is" if first else said


def _chosen(tokenized: pl.LazyFrame, choice: Choice) -> list[str]:
    """Ids of the chosen samples."""
    if choice.ids:
        return tokenized.filter(named_by(choice.ids)).select("sample_id").collect()["sample_id"].to_list()
    if choice.spread:
        lengths = tokenized.select("sample_id", pl.col("prompt_tokens").fill_null(0)).collect()
        ranks = [stable_rank(sample_id) for sample_id in lengths["sample_id"]]
        return lengths[spread(lengths["prompt_tokens"].to_list(), ranks, choice.count)]["sample_id"].to_list()
    return tokenized.select("sample_id").head(choice.count).collect()["sample_id"].to_list()
