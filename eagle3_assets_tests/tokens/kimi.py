"""A small tokenizer with Kimi's real structural ids, and genuine samples of that target.

The vocabulary is sparse: 256 byte tokens, a few words, and the structural tokens where Kimi has them (163584-163839).
"""

import json
from pathlib import Path
from typing import Any

import polars as pl
import transformers  # noqa: TID253 - tests need not load fast
from tokenizers import AddedToken, decoders, models, pre_tokenizers  # noqa: TID253
from tokenizers import Tokenizer as FastTokenizer  # noqa: TID253

from eagle3_assets.config import Sampling
from eagle3_assets.contract import RAW_GENERATIONS, TOKENIZED_PROMPTS
from eagle3_assets.identity import canonical_json, ids_sha256
from eagle3_assets.tokens.profile import Tokenizer

VOCAB_SIZE = 163_840
BOS, EOS, IM_END, IM_USER, IM_ASSISTANT, IM_SYSTEM, IM_MIDDLE = 163584, 163585, 163586, 163587, 163588, 163594, 163601
SECTION_BEGIN, SECTION_END, CALL_BEGIN, ARG_BEGIN, CALL_END = 163595, 163596, 163597, 163598, 163599
THINK, END_THINK, UNK, PAD = 163606, 163607, 163838, 163839
MEDIA, RESERVED = 163605, 163700
USER, ASSISTANT, SYSTEM, HELLO = 2482, 69702, 14062, 22931

SPECIAL = {
    "[BOS]": BOS,
    "[EOS]": EOS,
    "<|im_end|>": IM_END,
    "<|im_user|>": IM_USER,
    "<|im_assistant|>": IM_ASSISTANT,
    "<|im_system|>": IM_SYSTEM,
    "<|im_middle|>": IM_MIDDLE,
    "<|media_begin|>": 163602,
    "<|media_content|>": 163603,
    "<|media_end|>": 163604,
    "<|media_pad|>": 163605,
    "[UNK]": UNK,
    "[PAD]": PAD,
}
NOT_SPECIAL = {
    "<|tool_calls_section_begin|>": SECTION_BEGIN,
    "<|tool_calls_section_end|>": SECTION_END,
    "<|tool_call_begin|>": CALL_BEGIN,
    "<|tool_call_argument_begin|>": ARG_BEGIN,
    "<|tool_call_end|>": CALL_END,
    "<think>": THINK,
    "</think>": END_THINK,
}
WORDS = {"user": USER, "assistant": ASSISTANT, "system": SYSTEM, "hello": HELLO, "You": 3900, ".": 13, "0": 15}

# As other vocabularies have them: what is written in one piece where these pieces stand alone.
WORDS |= {"Ċ": 198, "ĊĊ": 271, "12": 310, "\u00e4\u00b8\u0138": 4812}
"""A newline, two of them, a number, a Chinese character."""

BYTES = {character: 1000 + n for n, character in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}

SUFFIX = [IM_ASSISTANT, ASSISTANT, IM_MIDDLE, THINK]
THINKING_PROMPT = [IM_USER, USER, IM_MIDDLE, HELLO, IM_END, *SUFFIX]
"""``T`` of the reported faults."""
PLAIN_PROMPT = [*THINKING_PROMPT, END_THINK]
"""``N`` of the reported faults."""

CAP = 64
SAMPLING = Sampling(max_new_tokens=CAP)


def save_tokenizer(directory: Path) -> None:
    """Writes the tokenizer as a checkpoint would have it."""
    used = {*SPECIAL.values(), *NOT_SPECIAL.values()}
    reserved = {f"<|reserved_token_{i}|>": i for i in range(163584, VOCAB_SIZE) if i not in used}
    vocabulary = BYTES | WORDS | SPECIAL | NOT_SPECIAL | reserved
    tokenizer = FastTokenizer(models.BPE(vocabulary, [], ignore_merges=True))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(t, normalized=False, special=True) for t in (*SPECIAL, *reserved)])
    tokenizer.add_tokens([AddedToken(t, normalized=False, special=False) for t in NOT_SPECIAL])
    names = {"bos_token": "[BOS]", "eos_token": "[EOS]", "pad_token": "[PAD]", "unk_token": "[UNK]"}
    fast: Any = transformers.PreTrainedTokenizerFast
    fast(tokenizer_object=tokenizer, **names).save_pretrained(directory)


def load_tokenizer(directory: Path) -> Tokenizer:
    """The saved tokenizer, loaded as a user's would be."""
    loaded: Tokenizer = transformers.AutoTokenizer.from_pretrained(directory)
    return loaded


TOOL = "f"
"""The tool that prompts declare."""


def call(number: int = 0, name: str = TOOL, arguments: str = "{}") -> list[int]:
    """One well-formed tool call."""
    return [CALL_BEGIN, *letters(f"functions.{name}:{number}"), ARG_BEGIN, *letters(arguments), CALL_END]


def letters(text: str) -> list[int]:
    """Ordinary ids, one for each byte."""
    pieces = pre_tokenizers.ByteLevel(add_prefix_space=False).pre_tokenize_str(text)
    return [(BYTES | WORDS)[character] for piece, _ in pieces for character in piece]


def spelled(ids: list[int]) -> str | None:
    """The text of ids as an engine gives it with every token; None where one has no text."""
    names = {i: name for name, i in (BYTES | WORDS | SPECIAL | NOT_SPECIAL).items()}
    alphabet = {character: byte for byte, character in enumerate(_byte_alphabet())}
    if any(i not in names for i in ids):
        return None
    return b"".join(
        names[i].encode() if i >= BOS else bytes(alphabet[character] for character in names[i]) for i in ids
    ).decode(errors="replace")


def _byte_alphabet() -> list[str]:
    """How byte-level BPE writes each byte: printable ones as they are, the others from U+0100 on."""
    printable = {*range(33, 127), *range(161, 173), *range(174, 256)}
    others = iter(range(256, 512))
    return [chr(byte) if byte in printable else chr(next(others)) for byte in range(256)]


def genuine() -> dict[str, dict[str, Any]]:
    """Outputs as the target writes them, by sample id: what each row has besides the defaults.

    Each answers another prompt; that of ``answer`` is ``THINKING_PROMPT``.
    """
    a, b, c, d = letters("abcd")
    emoji = letters("😀")
    full = letters("x" * CAP)
    rows = {
        "answer": _row(THINKING_PROMPT, [a, b, END_THINK, c, d, IM_END]),
        "parallel-calls": _row(
            THINKING_PROMPT, [a, END_THINK, b, SECTION_BEGIN, *call(0), *call(1), *call(2), SECTION_END, IM_END]
        ),
        "implicit-end": _row(THINKING_PROMPT, [a, b, SECTION_BEGIN, *call(), SECTION_END, IM_END]),
        "cut-in-reasoning": _row(THINKING_PROMPT, full, cut=True),
        "cut-in-arguments": _row(
            THINKING_PROMPT, [a, END_THINK, SECTION_BEGIN, CALL_BEGIN, b, ARG_BEGIN, *full[: CAP - 6]], cut=True
        ),
        "empty-reasoning": _row(THINKING_PROMPT, [END_THINK, c, IM_END]),
        "thinking-off": _row(PLAIN_PROMPT, [c, d, IM_END]),
        "long-prompt": _row([IM_SYSTEM, SYSTEM, IM_MIDDLE, a, b, c, IM_END, *THINKING_PROMPT], [END_THINK, c, d, EOS]),
        "emoji": _row(THINKING_PROMPT, [*emoji, END_THINK, *emoji, IM_END]),
        "cut-in-call-id": _row(PLAIN_PROMPT, [*full[: CAP - 3], SECTION_BEGIN, CALL_BEGIN, a], cut=True),
        "tools-then-text": _row(PLAIN_PROMPT, [SECTION_BEGIN, *call(), SECTION_END, c, IM_END]),
        "last": _row(THINKING_PROMPT, [a, END_THINK, b, IM_END]),
    }
    for number, row in enumerate(rows.values()):
        if number:
            prompt = row["prompt_ids"]
            prompt[prompt.index(HELLO)] = letters("ABCDEFGHIJKLM")[number]
    return rows


def generations(rows: dict[str, dict[str, Any]] | None = None) -> pl.DataFrame:
    """The genuine samples as ``raw_generations``, with the hash that their ids have now."""
    rows = genuine() if rows is None else rows
    data = [_defaults(sample) | row | {"ids_sha256": _sha(row)} for sample, row in rows.items()]
    return pl.DataFrame(data, schema=RAW_GENERATIONS)


def prompts(rows: dict[str, dict[str, Any]] | None = None) -> pl.DataFrame:
    """The prompts of the samples as ``tokenized_prompts``."""
    rows = genuine() if rows is None else rows
    data = [
        {
            "sample_id": sample,
            "prompt_ids": row["prompt_ids"],
            "prompt_tokens": len(row["prompt_ids"]),
            "thinking": row["prompt_ids"][-1:] == [THINK],
            "status": "ready",
            "reason": None,
        }
        for sample, row in rows.items()
    ]
    return pl.DataFrame(data, schema=TOKENIZED_PROMPTS)


def _row(prompt: list[int], output: list[int], *, cut: bool = False) -> dict[str, Any]:
    return {
        "prompt_ids": list(prompt),
        "output_ids": list(output),
        "completion_tokens": len(output),
        "server_prompt_tokens": len(prompt),
        "cached_tokens": 1,
        "finish_type": "length" if cut else "stop",
        "matched_stop": None if cut else json.dumps(output[-1]),
        "finish_length": CAP if cut else None,
        "output_logprobs": [-0.5] * len(output),
        "text": spelled(output),
        "sampling": canonical_json(SAMPLING.model_dump(mode="json")),
    }


def _defaults(sample: str) -> dict[str, Any]:
    return {
        "sample_id": sample,
        "status": "generated",
        "attempts": 1,
        "endpoint": "embedded",
        "weight_version": "v7",
        "logprob_kind": "sampled",
        "identity": "0" * 16,
    }


def _sha(row: dict[str, Any]) -> str | None:
    return ids_sha256(row["prompt_ids"], row["output_ids"]) if row.get("output_ids") is not None else None
