"""Samples as compact JSON for a page: one vocabulary for all of them, and each sample's ids as numbers of its tokens.

What belongs here: what the page's script reads. Not here: choosing samples (``inspecting``), HTML (``page``).

The text of a sample is not written down where its tokens give it: the script joins them. Where decoding looks across
tokens, and joining gives another text than decoding, that text is written down as pieces. Everything that leaves here
is safe to show: control and bidirectional characters are made visible.
"""

import base64
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any
from urllib.parse import quote

import numpy as np
import polars as pl

from eagle3_assets.decoding import Decoder, Kind, Token
from eagle3_assets.tokens.columns import Ints
from eagle3_assets.tokens.safe_text import visible

KINDS: tuple[Kind, ...] = ("text", "structural", "unknown")
"""What a token or piece is; written as its number here."""


def samples_json(samples: pl.DataFrame, findings: pl.DataFrame, quarantined: frozenset[str], decoder: Decoder) -> str:
    """All samples as one JSON text that can stand inside a ``script`` element: it holds no ``<``, ``>`` or ``&``.

    Args:
        samples: ``inspecting.Inspection.samples``.
        findings: ``contract.SAMPLE_FINDINGS`` of the partition.
        quarantined: ids of the samples that are never exported.
        decoder: of the target that made them.
    """
    rows = samples.to_dicts()
    outputs = [row["output_ids"] for row in rows]
    prompts = [row["prompt_ids"] for row in rows]
    vocabulary = _Vocabulary((*outputs, *(prompt for prompt in prompts if prompt is not None)), decoder)
    found = findings.filter(pl.col("sample_id").is_in(samples["sample_id"].to_list())).partition_by(
        "sample_id", as_dict=True
    )
    data = {
        "vocabulary": [_entry(token) for token in vocabulary.tokens],
        "samples": [
            {
                **_names(row["sample_id"]),
                "stratum": row["stratum"],
                "finish": None if row["finish_type"] is None else visible(row["finish_type"]),
                "length": len(output),
                "reasoningOpened": row["reasoning_opened"],
                "reasoningEnd": row["reasoning_end"],
                "findings": [_finding(f) for f in found.get((row["sample_id"],), findings.clear()).to_dicts()],
                "quarantined": row["sample_id"] in quarantined,
                "spans": [[s["kind"], s["start"], s["end"]] for s in row["spans"]],
                "output": vocabulary.encoded(output, [(s["start"], s["end"]) for s in row["spans"]]),
                # Null where it was not recorded, which is not the same as an empty one.
                "prompt": None if prompt is None else vocabulary.encoded(prompt, [(0, len(prompt))]),
            }
            for row, output, prompt in zip(rows, outputs, prompts, strict=True)
        ],
    }
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


class _Vocabulary:
    """The tokens that occur, the most frequent first, so that most of them have a number of one byte."""

    def __init__(self, sequences: Iterable[Sequence[int]], decoder: Decoder) -> None:
        self.decoder = decoder
        counts = Counter(token_id for ids in sequences for token_id in ids)
        self.tokens = [decoder.token(token_id) for token_id, _ in sorted(counts.items(), key=lambda c: (-c[1], c[0]))]
        self.number = {token.id: number for number, token in enumerate(self.tokens)}
        self.shown = [_shown(token) for token in self.tokens]

    def encoded(self, ids: Sequence[int], sections: Sequence[tuple[int, int]]) -> dict[str, Any]:
        """Ids as numbers of tokens, and what the tokens by themselves do not tell.

        ``completed`` are the characters that several tokens make up, each as the index of the last of them and its
        text. ``pieces`` is there where joining tokens does not give the text as it is shown, as with an emoji that has
        its joiner in a token of its own: for each section its pieces.
        """
        numbers = np.array([self.number[token_id] for token_id in ids], np.int64)
        alone = [self.tokens[number] for number in numbers]
        tokens = list(self.decoder.tokens(ids)) if any(token.part is not None for token in alone) else alone
        shown = [self.shown[number] for number in numbers]
        completed = {i: _shown(token) for i, token in enumerate(tokens) if token.text != alone[i].text}
        for i, text in completed.items():
            shown[i] = text
        made: dict[str, Any] = {"tokens": base64.b64encode(varints(numbers)).decode()}
        if completed:
            made["completed"] = [*completed.items()]
        if "".join(shown) != visible(self.decoder.text(ids), keep_lines=True):
            made["pieces"] = [self._pieces(ids[start:end], start) for start, end in sections]
        return made

    def _pieces(self, ids: Sequence[int], first: int) -> list[list[object]]:
        """A section as kind, text and index; a token that is no text is a piece by itself, and alone has an index."""
        pieces: list[tuple[Kind, str, int | None]] = []
        for kind, run in groupby(enumerate(ids, first), key=lambda place: self.tokens[self.number[place[1]]].kind):
            if kind == "text":
                pieces.append((kind, self.decoder.text([token_id for _, token_id in run]), None))
            else:
                pieces += [(kind, self.tokens[self.number[token_id]].text, index) for index, token_id in run]
        whole = self.decoder.text(ids)
        if "".join(text for _, text, _ in pieces) != whole:
            pieces = [("text", whole, None)]
        return [[KINDS.index(kind), visible(text, keep_lines=True), index] for kind, text, index in pieces]


def varints(numbers: Ints) -> bytes:
    """Numbers below 2**28 as LEB128: seven bits a byte, the lowest first, the high bit set on all but the last."""
    sizes = np.ones(len(numbers), np.int64)
    for bits in (7, 14, 21):
        sizes += numbers >= 1 << bits
    starts = np.cumsum(sizes) - sizes
    out = np.zeros(int(sizes.sum()), np.uint8)
    for place in range(4):
        has = sizes > place
        more = (sizes[has] > place + 1).astype(np.int64) << 7
        out[starts[has] + place] = (numbers[has] >> 7 * place & 127) | more
    return out.tobytes()


def _shown(token: Token) -> str:
    return visible(token.text, keep_lines=True)


def _entry(token: Token) -> list[object]:
    """Id, kind, text, and for a part of a character its bytes."""
    entry: list[object] = [token.id, KINDS.index(token.kind), _shown(token)]
    if token.part is not None:
        entry.append("".join(f"\\x{byte:02X}" for byte in token.part))
    return entry


def _names(sample_id: str) -> dict[str, str]:
    """A sample's id as it is shown, and where that is another text also itself, percent-encoded as it is not safe."""
    shown = visible(sample_id)
    return {"id": shown} if shown == sample_id else {"id": shown, "exactId": quote(sample_id)}


def _finding(finding: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "law": finding["law"],
        "error": finding["severity"] == "error",
        "index": finding["index"],
        "detail": visible(finding["detail"] or ""),
    }
