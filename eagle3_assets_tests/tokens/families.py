"""Genuine samples of every built-in profile's targets, written as text, and small tokenizers which have their tokens.

Texts are as the targets' tokenizers decode them, special tokens shown, so that encoding them with any tokenizer which
has the names gives ids as the target writes them. Each family's odd habits are in.
"""

# ruff: noqa: RUF001 - DeepSeek writes its tokens with a wide bar.

import json
from dataclasses import dataclass
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


@dataclass(frozen=True)
class Sample:
    """One prompt and what the target wrote after it."""

    prompt: str
    output: str
    thinking: bool = True
    cut: bool = False


@dataclass(frozen=True)
class Family:
    """Targets of one profile."""

    special: tuple[str, ...]
    """Tokens that ``skip_special_tokens`` drops."""
    kept: tuple[str, ...]
    """Added tokens that it keeps."""
    template: str
    """A chat template of our own for one user message, with the target's generation suffix."""
    samples: dict[str, Sample]
    bos: str | None = None


ARGUMENTS = '{"city": "Oslo"}'

KIMI_SPECIAL = ("[BOS]", "[EOS]", "<|im_end|>", "<|im_user|>", "<|im_assistant|>", "<|im_system|>", "<|im_middle|>")
KIMI_TOOLS = (
    "<|tool_calls_section_begin|>",
    "<|tool_calls_section_end|>",
    "<|tool_call_begin|>",
    "<|tool_call_argument_begin|>",
    "<|tool_call_end|>",
)
KIMI_ASK = "<|im_user|>user<|im_middle|>What is 2+2?<|im_end|><|im_assistant|>assistant<|im_middle|>"
KIMI_RESULT = (
    "<|im_user|>user<|im_middle|>Cold?<|im_end|><|im_assistant|>assistant<|im_middle|><think>See.</think>"
    f"<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0<|tool_call_argument_begin|>{ARGUMENTS}"
    "<|tool_call_end|><|tool_calls_section_end|><|im_end|><|im_system|>tool<|im_middle|>## Return of"
    " functions.get_weather:0\ncold<|im_end|><|im_assistant|>assistant<|im_middle|>"
)
KIMI_TEMPLATE = (
    "{% for m in messages %}<|im_user|>user<|im_middle|>{{ m.content }}<|im_end|>{% endfor %}"
    "{% if add_generation_prompt %}<|im_assistant|>assistant<|im_middle|>SUFFIX{% endif %}"
)


def kimi_calls(count: int) -> str:
    """A tool section with that many calls."""
    calls = (
        f"<|tool_call_begin|>functions.get_weather:{n}<|tool_call_argument_begin|>{ARGUMENTS}<|tool_call_end|>"
        for n in range(count)
    )
    return f"<|tool_calls_section_begin|>{''.join(calls)}<|tool_calls_section_end|>"


CHATML_ASK = "<|im_start|>user\nWhat is 2+2?<|im_end|>\n<|im_start|>assistant\n"
CHATML_TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\nSUFFIX{% endif %}"
)
QWEN_CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Oslo"}}\n</tool_call>'
QWEN_RESULT = (
    f"<|im_start|>user\nCold?<|im_end|>\n<|im_start|>assistant\n{QWEN_CALL}<|im_end|>\n"
    "<|im_start|>user\n<tool_response>\ncold\n</tool_response><|im_end|>\n<|im_start|>assistant\n"
)
QWEN_SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
QWEN_KEPT = ("<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<think>", "</think>")

BOS, EOS = "<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>"
DEEPSEEK_SPECIAL = (BOS, EOS, "<｜▁pad▁｜>", "<｜place▁holder▁no▁0｜>")
DEEPSEEK_KEPT = (
    "<｜User｜>",
    "<｜Assistant｜>",
    "<｜tool▁calls▁begin｜>",
    "<｜tool▁calls▁end｜>",
    "<｜tool▁call▁begin｜>",
    "<｜tool▁call▁end｜>",
    "<｜tool▁outputs▁begin｜>",
    "<｜tool▁outputs▁end｜>",
    "<｜tool▁output▁begin｜>",
    "<｜tool▁output▁end｜>",
    "<｜tool▁sep｜>",
    "<think>",
    "</think>",
)
DEEPSEEK_ASK = f"{BOS}You are helpful.<｜User｜>What is 2+2?<｜Assistant｜>"
DEEPSEEK_TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}<｜User｜>{{ m.content }}{% endfor %}"
    "{% if add_generation_prompt %}<｜Assistant｜>SUFFIX{% endif %}"
)


def v3_calls(count: int) -> str:
    """DeepSeek-V3.1's tool section: name and arguments, nothing between calls."""
    call = f"<｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>{ARGUMENTS}<｜tool▁call▁end｜>"
    return f"<｜tool▁calls▁begin｜>{call * count}<｜tool▁calls▁end｜>"


def r1_calls(count: int) -> str:
    """DeepSeek-R1's tool section: type, then name and fenced arguments, a newline between calls."""
    call = f"<｜tool▁call▁begin｜>function<｜tool▁sep｜>get_weather\n```json\n{ARGUMENTS}\n```<｜tool▁call▁end｜>"
    return f"<｜tool▁calls▁begin｜>{chr(10).join([call] * count)}<｜tool▁calls▁end｜>"


R1_RESULT = (
    f"{BOS}<｜User｜>Cold?<｜Assistant｜>{r1_calls(1)}{EOS}<｜tool▁outputs▁begin｜><｜tool▁output▁begin｜>cold"
    "<｜tool▁output▁end｜><｜tool▁outputs▁end｜>"
)

HARMONY_ASK = (
    "<|start|>system<|message|>You are ChatGPT.\nReasoning: medium<|end|>"
    "<|start|>user<|message|>What is 2+2?<|end|><|start|>assistant"
)
HARMONY_RESULT = (
    "<|start|>user<|message|>Cold?<|end|>"
    "<|start|>assistant to=functions.get_weather<|channel|>commentary json<|message|>"
    f"{ARGUMENTS}<|call|><|start|>functions.get_weather to=assistant<|channel|>commentary<|message|>cold<|end|>"
    "<|start|>assistant"
)
ANALYSIS = "<|channel|>analysis<|message|>Two and two.<|end|>"
FINAL = "<|start|>assistant<|channel|>final<|message|>It is 4.<|return|>"
HARMONY_CALL = (
    f"<|start|>assistant<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>{ARGUMENTS}<|call|>"
)

LLAMA_ASK = (
    "<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\nWhat is 2+2?<|eot_id|>"
    "<|start_header_id|>assistant<|end_header_id|>\n\n"
)
LLAMA_SEARCH = '<|python_tag|>brave_search.call(query="Oslo")<|eom_id|>'
LLAMA_RESULT = (
    f"{LLAMA_ASK}{LLAMA_SEARCH}<|start_header_id|>ipython<|end_header_id|>\n\ncold<|eot_id|>"
    "<|start_header_id|>assistant<|end_header_id|>\n\n"
)
LLAMA_TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}<|start_header_id|>{{ m.role }}<|end_header_id|>\n\n{{ m.content }}"
    "<|eot_id|>{% endfor %}{% if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>\n\n{% endif %}"
)


def switched(name: str, on: str, off: str) -> str:
    """A template's end that depends on the switch for reasoning."""
    return f"{{% if {name} is defined and not {name} %}}{off}{{% else %}}{on}{{% endif %}}"


FAMILIES: dict[str, Family] = {
    "kimi": Family(
        special=(*KIMI_SPECIAL, "<|media_begin|>", "[UNK]", "[PAD]", "<|reserved_token_1|>"),
        kept=(*KIMI_TOOLS, "<think>", "</think>"),
        template=KIMI_TEMPLATE.replace("SUFFIX", switched("thinking", "<think>", "<think></think>")),
        samples={
            "answer": Sample(f"{KIMI_ASK}<think>", "Two and two.</think>It is 4.<|im_end|>"),
            "implicit-end": Sample(f"{KIMI_ASK}<think>", f"I ask.{kimi_calls(1)}<|im_end|>"),
            "parallel-calls": Sample(f"{KIMI_ASK}<think>", f"I ask.</think>Let me see.{kimi_calls(2)}<|im_end|>"),
            "thinking-off": Sample(f"{KIMI_ASK}<think></think>", "It is 4.<|im_end|>", thinking=False),
            "after-tool": Sample(f"{KIMI_RESULT}<think>", "Cold it is.</think>Yes.<|im_end|>"),
            "cut": Sample(f"{KIMI_ASK}<think>", "Two and", cut=True),
        },
    ),
    "kimi-k2-thinking": Family(
        special=(*KIMI_SPECIAL, "[UNK]", "[PAD]"),
        kept=(*KIMI_TOOLS, "<think>", "</think>"),
        template=KIMI_TEMPLATE.replace("SUFFIX", ""),
        samples={
            "answer": Sample(KIMI_ASK, "<think>Two and two.</think>It is 4.<|im_end|>"),
            "implicit-end": Sample(KIMI_ASK, f"<think>I ask.{kimi_calls(1)}<|im_end|>"),
            "after-tool": Sample(KIMI_RESULT, "<think>Cold it is.</think>Yes.<|im_end|>"),
            "cut": Sample(KIMI_ASK, "<think>Two and", cut=True),
        },
    ),
    "kimi-k2": Family(
        special=(*KIMI_SPECIAL, "[UNK]", "[PAD]", "<|reserved_token_163606|>", "[EOT]", "<|start_header_id|>"),
        kept=KIMI_TOOLS,
        template=KIMI_TEMPLATE.replace("SUFFIX", ""),
        samples={
            "answer": Sample(KIMI_ASK, "It is 4.<|im_end|>"),
            "parallel-calls": Sample(KIMI_ASK, f"Let me see.{kimi_calls(2)}<|im_end|>", thinking=False),
            "cut": Sample(KIMI_ASK, "It is", cut=True),
        },
    ),
    "qwen3": Family(
        special=QWEN_SPECIAL,
        kept=QWEN_KEPT,
        template=CHATML_TEMPLATE.replace("SUFFIX", switched("enable_thinking", "", "<think>\n\n</think>\n\n")),
        samples={
            "answer": Sample(CHATML_ASK, "<think>\nTwo and two.\n</think>\n\nIt is 4.<|im_end|>"),
            "empty-reasoning": Sample(CHATML_ASK, "<think>\n\n</think>\n\nIt is 4.<|im_end|>"),
            "parallel-calls": Sample(CHATML_ASK, f"<think>\nI ask.\n</think>\n\n{QWEN_CALL}\n{QWEN_CALL}<|im_end|>"),
            "after-tool": Sample(QWEN_RESULT, "<think>\nCold it is.\n</think>\n\nYes.<|im_end|>"),
            "thinking-off": Sample(f"{CHATML_ASK}<think>\n\n</think>\n\n", "It is 4.<|im_end|>", thinking=False),
            "cut": Sample(CHATML_ASK, "<think>\nTwo and", cut=True),
        },
    ),
    "qwen3-thinking": Family(
        special=QWEN_SPECIAL,
        kept=QWEN_KEPT,
        template=CHATML_TEMPLATE.replace("SUFFIX", "<think>\n"),
        samples={
            "answer": Sample(f"{CHATML_ASK}<think>\n", "Two and two.\n</think>\n\nIt is 4.<|im_end|>"),
            "call": Sample(f"{CHATML_ASK}<think>\n", f"I ask.\n</think>\n\n{QWEN_CALL}<|im_end|>"),
            "cut": Sample(f"{CHATML_ASK}<think>\n", "Two and", cut=True),
        },
    ),
    "qwen3-instruct": Family(
        special=QWEN_SPECIAL,
        kept=QWEN_KEPT,
        template=CHATML_TEMPLATE.replace("SUFFIX", ""),
        samples={
            "answer": Sample(CHATML_ASK, "It is 4.<|im_end|>", thinking=False),
            "parallel-calls": Sample(CHATML_ASK, f"{QWEN_CALL}\n{QWEN_CALL}<|im_end|>"),
        },
    ),
    "deepseek-v3.1": Family(
        special=DEEPSEEK_SPECIAL,
        kept=(*DEEPSEEK_KEPT, "<｜search▁begin｜>", "<｜search▁end｜>"),
        bos=BOS,
        template=DEEPSEEK_TEMPLATE.replace("SUFFIX", "{{ '<think>' if thinking else '</think>' }}"),
        samples={
            "answer": Sample(f"{DEEPSEEK_ASK}<think>", f"Two and two.</think>It is 4.{EOS}"),
            "thinking-off": Sample(f"{DEEPSEEK_ASK}</think>", f"It is 4.{EOS}", thinking=False),
            "parallel-calls": Sample(f"{DEEPSEEK_ASK}</think>", f"I ask.{v3_calls(2)}{EOS}", thinking=False),
            "after-tool": Sample(
                f"{BOS}<｜User｜>Cold?<｜Assistant｜></think>{v3_calls(1)}{EOS}<｜tool▁output▁begin｜>cold<｜tool▁output▁end｜>",
                f"Yes.{EOS}",
                thinking=False,
            ),
            "later-turn": Sample(
                f"{BOS}<｜User｜>Cold?<｜Assistant｜></think>{v3_calls(1)}{EOS}<｜tool▁output▁begin｜>cold<｜tool▁output▁end｜>"
                f"Yes.{EOS}<｜User｜>What is 2+2?<｜Assistant｜><think>",
                f"Two and two.</think>It is 4.{EOS}",
            ),
            "cut": Sample(f"{DEEPSEEK_ASK}<think>", "Two and", cut=True),
        },
    ),
    "deepseek-r1": Family(
        special=DEEPSEEK_SPECIAL,
        kept=DEEPSEEK_KEPT,
        bos=BOS,
        template=DEEPSEEK_TEMPLATE.replace("SUFFIX", "<think>\n"),
        samples={
            "answer": Sample(f"{DEEPSEEK_ASK}<think>\n", f"Two and two.\n</think>\n\nIt is 4.{EOS}"),
            "parallel-calls": Sample(f"{DEEPSEEK_ASK}<think>\n", f"I ask.\n</think>\n\n{r1_calls(2)}{EOS}"),
            "after-tool": Sample(R1_RESULT, f"Yes.{EOS}"),
            "later-turn": Sample(
                f"{R1_RESULT}Yes.{EOS}<｜User｜>What is 2+2?<｜Assistant｜><think>\n",
                f"Two and two.\n</think>\n\nIt is 4.{EOS}",
            ),
            "cut": Sample(f"{DEEPSEEK_ASK}<think>\n", "Two and", cut=True),
        },
    ),
    "deepseek-r1-0528": Family(
        special=DEEPSEEK_SPECIAL,
        kept=DEEPSEEK_KEPT,
        bos=BOS,
        template=DEEPSEEK_TEMPLATE.replace("SUFFIX", ""),
        samples={
            "answer": Sample(DEEPSEEK_ASK, f"<think>\nTwo and two.\n</think>\n\nIt is 4.{EOS}"),
            "empty-reasoning": Sample(DEEPSEEK_ASK, f"<think>\n\n</think>\n\nIt is 4.{EOS}"),
            "parallel-calls": Sample(DEEPSEEK_ASK, f"<think>\nI ask.\n</think>\n\n{r1_calls(2)}{EOS}"),
            "after-tool": Sample(R1_RESULT, f"Yes.{EOS}"),
        },
    ),
    "gpt-oss": Family(
        special=(
            "<|startoftext|>",
            "<|endoftext|>",
            "<|reserved_200000|>",
            "<|return|>",
            "<|constrain|>",
            "<|channel|>",
            "<|start|>",
            "<|end|>",
            "<|message|>",
            "<|call|>",
            "<|endofprompt|>",
        ),
        kept=(),
        template="{% for m in messages %}<|start|>{{ m.role }}<|message|>{{ m.content }}<|end|>{% endfor %}"
        "{% if add_generation_prompt %}<|start|>assistant{% endif %}",
        samples={
            "answer": Sample(HARMONY_ASK, f"{ANALYSIS}{FINAL}"),
            "thinks-twice": Sample(HARMONY_ASK, f"{ANALYSIS}<|start|>assistant{ANALYSIS}{FINAL}"),
            "no-analysis": Sample(HARMONY_ASK, FINAL.removeprefix("<|start|>assistant"), thinking=False),
            "call": Sample(HARMONY_ASK, f"{ANALYSIS}{HARMONY_CALL}"),
            "preamble": Sample(
                HARMONY_ASK, f"{ANALYSIS}<|start|>assistant<|channel|>commentary<|message|>I look.<|end|>{HARMONY_CALL}"
            ),
            "recipient-first": Sample(
                HARMONY_ASK, f" to=functions.get_weather<|channel|>commentary json<|message|>{ARGUMENTS}<|call|>"
            ),
            "after-tool": Sample(HARMONY_RESULT, f"{ANALYSIS}{FINAL}"),
            "end-of-text": Sample(HARMONY_ASK, f"{ANALYSIS}{FINAL}".replace("<|return|>", "<|endoftext|>")),
            "cut": Sample(HARMONY_ASK, "<|channel|>analysis<|message|>Two and", cut=True),
        },
    ),
    "llama3": Family(
        special=(
            "<|begin_of_text|>",
            "<|end_of_text|>",
            "<|start_header_id|>",
            "<|end_header_id|>",
            "<|eot_id|>",
            "<|eom_id|>",
            "<|python_tag|>",
            "<|reserved_special_token_0|>",
        ),
        kept=(),
        bos="<|begin_of_text|>",
        template=LLAMA_TEMPLATE,
        samples={
            "answer": Sample(LLAMA_ASK, "It is 4.<|eot_id|>"),
            "call": Sample(
                LLAMA_ASK, '{"name": "get_weather", "parameters": {"city": "Oslo"}}<|eot_id|>', thinking=False
            ),
            "built-in-tool": Sample(LLAMA_ASK, LLAMA_SEARCH),
            "after-tool": Sample(LLAMA_RESULT, "Yes.<|eot_id|>"),
            "cut": Sample(LLAMA_ASK, "It is", cut=True),
        },
    ),
    "chatml": Family(
        special=("<|im_start|>", "<|im_end|>"),
        kept=(),
        template=CHATML_TEMPLATE.replace("SUFFIX", ""),
        samples={
            "answer": Sample(CHATML_ASK, "It is 4.<|im_end|>"),
            "cut": Sample(CHATML_ASK, "It is", cut=True),
        },
    ),
}
"""By the name of the profile."""


def save_small_tokenizer(family: Family, directory: Path) -> Path:
    """A tokenizer of single bytes and the family's tokens, written as a checkpoint would have it."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {character: n for n, character in enumerate(alphabet)}
    vocabulary |= {token: 300 + n for n, token in enumerate((*family.special, *family.kept))}
    tokenizer = FastTokenizer(models.BPE(vocabulary, [], ignore_merges=True))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(t, normalized=False, special=True) for t in family.special])
    tokenizer.add_tokens([AddedToken(t, normalized=False, special=False) for t in family.kept])
    names = {"bos_token": family.bos} if family.bos else {}
    fast: Any = transformers.PreTrainedTokenizerFast
    saved = fast(tokenizer_object=tokenizer, chat_template=family.template, **names)
    saved.save_pretrained(directory)
    return directory


def prompts(tokenizer: Tokenizer, samples: dict[str, Sample]) -> pl.DataFrame:
    """The samples' prompts as ``tokenized_prompts``."""
    data = [
        {
            "sample_id": name,
            "prompt_ids": (ids := tokenizer.encode(sample.prompt, add_special_tokens=False)),
            "prompt_tokens": len(ids),
            "thinking": sample.thinking,
            "status": "ready",
        }
        for name, sample in samples.items()
    ]
    return pl.DataFrame(data, schema=TOKENIZED_PROMPTS)


def generations(tokenizer: Tokenizer, samples: dict[str, Sample], matched: str | None = None) -> pl.DataFrame:
    """The samples as ``raw_generations``; an engine says that it matched the last id, or the token ``matched``."""
    return pl.DataFrame([_row(tokenizer, *item, matched) for item in samples.items()], schema=RAW_GENERATIONS)


def _row(tokenizer: Tokenizer, name: str, sample: Sample, matched: str | None) -> dict[str, Any]:
    prompt = tokenizer.encode(sample.prompt, add_special_tokens=False)
    output = tokenizer.encode(sample.output, add_special_tokens=False)
    stop = output[-1] if matched is None else tokenizer.convert_tokens_to_ids(matched)
    cap = len(output) if sample.cut else 4096
    return {
        "sample_id": name,
        "status": "generated",
        "prompt_ids": prompt,
        "output_ids": output,
        "completion_tokens": len(output),
        "server_prompt_tokens": len(prompt),
        "finish_type": "length" if sample.cut else "stop",
        "matched_stop": None if sample.cut else json.dumps(stop),
        "finish_length": cap if sample.cut else None,
        "output_logprobs": [-0.5] * len(output),
        "logprob_kind": "sampled",
        "sampling": canonical_json(Sampling(max_new_tokens=cap).model_dump(mode="json")),
        "attempts": 1,
        "endpoint": "embedded",
        "identity": "0" * 16,
        "ids_sha256": ids_sha256(prompt, output),
    }
