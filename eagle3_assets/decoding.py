"""Outputs decoded for a person's eyes: exactly from their ids, and safe to show on a terminal.

What belongs here: text of ids, the form in which one sample is shown. Not here: choosing samples, reading files
and partitions, colours and streams (``cli``), what is right or wrong about a sample (``tokens``).

Model text is not to be trusted: whatever leaves :func:`sample_lines` has gone through :func:`shown_pieces`
or :func:`shown_line`. Nothing is dropped: an id that the tokenizer does not know is shown as ``<id 999999>``.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby, pairwise
from operator import itemgetter
from typing import Any, Literal, Protocol

from eagle3_assets.tokens.anatomy import SectionKind, sections
from eagle3_assets.tokens.batch import CUT_OFF
from eagle3_assets.tokens.codec import marked
from eagle3_assets.tokens.profile import TargetProfile
from eagle3_assets.tokens.safe_text import visible

Kind = Literal["text", "reasoning", "tools", "structural", "unknown", "heading"]

_SHOWN_AS: dict[SectionKind, Kind] = {"reasoning": "reasoning", "tools": "tools", "answer": "text", "stop": "text"}

# How byte-level BPE spells the bytes that are not printable, from GPT-2 on: the first free code points above 255.
_PRINTABLE_BYTES = (*range(33, 127), *range(161, 173), *range(174, 256))
_BYTE_OF = {chr(b): b for b in _PRINTABLE_BYTES} | {
    chr(256 + i): b for i, b in enumerate(b for b in range(256) if b not in _PRINTABLE_BYTES)
}
_HEADING = re.compile(r"^(?:===== sample_id=|----- .* -----$)", re.MULTILINE)
"""Lines by which a reader of a pipe tells samples and their parts apart."""
_BYTE_FALLBACK = re.compile(r"<0x([0-9A-Fa-f]{2})>")


class ReadableTokenizer(Protocol):
    """The part of a transformers tokenizer that decoding uses."""

    @property
    def added_tokens_decoder(self) -> Mapping[int, Any]:
        """Tokens beside the trained vocabulary, by id."""
        ...

    def get_vocab(self) -> dict[str, int]:
        """Every token's text and id."""
        ...

    def decode(
        self, token_ids: Sequence[int], *, skip_special_tokens: bool = ..., clean_up_tokenization_spaces: bool = ...
    ) -> Any:  # noqa: ANN401 - a str
        """The text of ids."""
        ...

    def convert_ids_to_tokens(self, ids: int) -> Any:  # noqa: ANN401 - a str
        """One token as the vocabulary spells it."""
        ...


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of what is shown, and what it is."""

    text: str
    kind: Kind


@dataclass(frozen=True, slots=True)
class Token:
    """One token by itself. Not yet safe to show."""

    id: int
    kind: Kind
    text: str
    """Empty where it is but a part of a character that is not complete with it."""
    part: bytes | None = None
    """Its bytes where it is a part of characters."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One output to show."""

    sample_id: str
    output_ids: Sequence[int]
    prompt_ids: Sequence[int] | None = None
    """None where the prompt was not recorded."""
    finish_type: str | None = None
    """None where it was not recorded."""


@dataclass(frozen=True)
class Decoder:
    """A tokenizer, and which of its ids have a meaning of their own."""

    tokenizer: ReadableTokenizer
    profile: TargetProfile | None
    """None where no profile describes the tokenizer."""

    @cached_property
    def known_ids(self) -> frozenset[int]:
        """Ids that have a text."""
        return frozenset(self.tokenizer.get_vocab().values()) | frozenset(self.tokenizer.added_tokens_decoder)

    @cached_property
    def structural_ids(self) -> frozenset[int]:
        """Added tokens and those that the profile names."""
        named = frozenset(self.profile.tokens) if self.profile else frozenset()
        return frozenset(self.tokenizer.added_tokens_decoder) | named

    @property
    def reasoning_end_id(self) -> int | None:
        """Id of the end-of-reasoning token, where the profile has one."""
        return self.profile.reasoning_end if self.profile else None

    def reasoning_end(self, output_ids: Sequence[int]) -> int:
        """Index of the first end-of-reasoning id, -1 where there is none. Ids count: plain tokens can spell it, too."""
        end = self.reasoning_end_id
        return output_ids.index(end) if end is not None and end in output_ids else -1

    def text(self, ids: Sequence[int]) -> str:
        """The whole text, structural tokens included, unknown ids marked. Not yet safe to show."""
        runs = groupby(ids, key=self.known_ids.__contains__)
        return "".join(self._decoded(list(run)) if known else marked(run) for known, run in runs)

    def pieces(self, ids: Sequence[int]) -> list[Piece]:
        """The same text, cut around structural and unknown tokens."""
        return self._cut(ids, ["text"] * len(ids))

    def output_pieces(self, ids: Sequence[int], prompt_ids: Sequence[int] | None = None) -> list[Piece]:
        """The same of an output, its reasoning and its tool calls told apart from other text, as ``anatomy`` has them.

        Args:
            ids: of the output.
            prompt_ids: of its prompt, None where they were not recorded.
        """
        if self.profile is None:
            return self.pieces(ids)
        kinds = [
            kind
            for part in sections(ids, prompt_ids, self.profile)
            for kind in [_SHOWN_AS[part.kind]] * (part.end - part.start)
        ]
        return self._cut(ids, kinds)

    def rows(self, ids: Sequence[int], first: int = 0) -> Iterator[Piece]:
        """One line for each token, made safe: index, id, and its text or bytes as a Python literal.

        Args:
            ids: the tokens.
            first: index of the first of them.
        """
        index_width, id_width = len(str(first + len(ids))), max((len(str(i)) for i in ids), default=1)
        for index, token in enumerate(self.tokens(ids), start=first):
            yield Piece(f"{index:>{index_width}}  {token.id:>{id_width}}  {_literal(token)}", token.kind)

    def tokens(self, ids: Iterable[int]) -> Iterator[Token]:
        """Each token by itself; characters that several tokens make up belong to the last of them."""
        pending = b""
        for token_id in ids:
            token = self.token(token_id)
            if token.part is None:
                pending = b""
                yield token
                continue
            try:
                completed = (pending + token.part).decode()
            except UnicodeDecodeError:
                pending += token.part
                yield token
            else:
                yield replace(token, text=completed, part=token.part if pending else None)
                pending = b""

    def token(self, token_id: int) -> Token:
        """One token, whatever stands before it."""
        kind = self._kind(token_id)
        if kind == "unknown":
            return Token(token_id, kind, marked([token_id]))
        text = self._decoded([token_id])
        part = _token_bytes(str(self.tokenizer.convert_ids_to_tokens(token_id))) if "\ufffd" in text else None
        return Token(token_id, kind, text if part is None else "", part)

    def _cut(self, ids: Sequence[int], text_kinds: Sequence[Kind]) -> list[Piece]:
        """Runs of ids of one kind, where plain text is of the kind that is named for its index."""
        kinds = [
            text_kind if (kind := self._kind(i)) == "text" else kind
            for i, text_kind in zip(ids, text_kinds, strict=True)
        ]
        pieces = []
        for kind, run in groupby(zip(kinds, ids, strict=True), key=itemgetter(0)):
            part = [token_id for _, token_id in run]
            pieces.append(Piece(marked(part) if kind == "unknown" else self._decoded(part), kind))
        # Some decoders look across tokens, for a leading space or a character in several: the whole text is the truth.
        whole = self.text(ids)
        return pieces if "".join(piece.text for piece in pieces) == whole else [Piece(whole, "text")]

    def _kind(self, token_id: int) -> Kind:
        if token_id not in self.known_ids:
            return "unknown"
        return "structural" if token_id in self.structural_ids else "text"

    def _decoded(self, ids: list[int]) -> str:
        return str(self.tokenizer.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False))


def shown_text(text: str) -> str:
    """Text with everything a terminal would act on made visible; line feeds and tabs stay."""
    return visible(text, keep_lines=True)


def shown_line(text: str) -> str:
    """Text made safe in one line: line feeds and tabs are made visible, too."""
    return visible(text)


def shown_pieces(pieces: Iterable[Piece]) -> Iterator[Piece]:
    """Pieces that begin a line, made safe, and the line's end after them.

    A line of theirs that reads like a heading has its first character shown by name, so that only ours are headings.
    """
    shown = [Piece(shown_text(piece.text), piece.kind) for piece in pieces]
    forged = {match.start() for match in _HEADING.finditer("".join(piece.text for piece in shown))}
    start = 0
    for piece in shown:
        end = start + len(piece.text)
        here = [place - start for place in sorted(forged) if start <= place < end]
        cuts = [0, *(cut for place in here for cut in (place, place + 1)), len(piece.text)]
        parts = [piece.text[a:b] for a, b in pairwise(cuts)]
        yield Piece("".join(f"<U+{ord(part):04X}>" if n % 2 else part for n, part in enumerate(parts)), piece.kind)
        start = end
    yield Piece("\n", "text")


def header(sample: Sample, decoder: Decoder) -> str:
    """A sample's first line."""
    cut_off = " cut off" if sample.finish_type == CUT_OFF else ""
    return (
        f"===== sample_id={shown_line(sample.sample_id)} tokens={len(sample.output_ids)}"
        f" response@{decoder.reasoning_end(sample.output_ids)}{cut_off} ====="
    )


def sample_lines(sample: Sample, decoder: Decoder, *, ids: bool = False, prompt: bool = False) -> Iterator[Piece]:
    """All that is shown of a sample, safe as it is, line ends included.

    Args:
        sample: what to show.
        decoder: of the target that made it.
        ids: a row for each token instead of the text.
        prompt: the prompt before the output, both under a heading.
    """
    yield Piece(f"{header(sample, decoder)}\n", "heading")
    if prompt:
        if sample.prompt_ids is None:
            yield Piece("----- prompt: not recorded -----\n", "heading")
        else:
            yield Piece(f"----- prompt: tokens={len(sample.prompt_ids)} -----\n", "heading")
            yield from _rows(sample.prompt_ids, decoder) if ids else shown_pieces(decoder.pieces(sample.prompt_ids))
        yield Piece("----- output -----\n", "heading")
    yield from (
        _rows(sample.output_ids, decoder)
        if ids
        else shown_pieces(decoder.output_pieces(sample.output_ids, sample.prompt_ids))
    )


def sample_json(sample: Sample, decoder: Decoder, *, ids: bool = False, prompt: bool = False) -> str:
    """The same in one line of JSON for a program: texts as they are, everything but ASCII escaped.

    ``sample_id``, ``tokens``, ``reasoning_end``, ``finish_type`` (null where not recorded) and ``text``; with ``ids``
    also ``output_ids``; with ``prompt`` also ``prompt``, and with both ``prompt_ids``, null where the prompt was not
    recorded.
    """
    known = sample.prompt_ids is not None
    return json.dumps(
        {
            "sample_id": sample.sample_id,
            "tokens": len(sample.output_ids),
            "reasoning_end": decoder.reasoning_end(sample.output_ids),
            "finish_type": sample.finish_type,
            "text": decoder.text(sample.output_ids),
            **({"output_ids": list(sample.output_ids)} if ids else {}),
            **({"prompt": decoder.text(sample.prompt_ids or ()) if known else None} if prompt else {}),
            **({"prompt_ids": list(sample.prompt_ids or ()) if known else None} if prompt and ids else {}),
        }
    )


def _rows(ids: Sequence[int], decoder: Decoder) -> Iterator[Piece]:
    return (Piece(f"{row.text}\n", row.kind) for row in decoder.rows(ids))


def _literal(token: Token) -> str:
    """A token's text as Python writes it; of a part of a character its bytes, and with the last part the character."""
    if token.kind == "unknown":
        return token.text
    if token.part is None:
        return visible(repr(token.text))  # Python escapes less, such as no letter that nothing is drawn for
    return visible(f"{token.part!r} completes {token.text!r}") if token.text else repr(token.part)


def _token_bytes(spelled: str) -> bytes | None:
    """The bytes of a token as byte-level BPE or byte fallback (``<0xE4>``) spell them, None in other spellings."""
    if fallback := _BYTE_FALLBACK.fullmatch(spelled):
        return bytes.fromhex(fallback[1])
    if all(character in _BYTE_OF for character in spelled):
        return bytes(_BYTE_OF[character] for character in spelled)
    return None
