"""A partition of few outputs, some of them hostile: what a page must show and must not do."""

from functools import cache

import polars as pl

from eagle3_assets.config import Dataset, LengthBand, Target
from eagle3_assets.contract import RAW_GENERATIONS
from eagle3_assets.inspecting import Inspection, inspect_rows
from eagle3_assets.partitions import Partition
from eagle3_assets.target import LoadedTarget, load_target
from eagle3_assets.tokens.context import Context
from eagle3_assets.tokens.facts import OUTPUT_COLUMNS
from eagle3_assets.tokens.judge import judge_generations
from eagle3_assets_tests.conftest import DEMO

HOSTILE = (
    "<script>window.ran = 1</script></script><img src=x onerror='window.ran = 2'> &lt;b&gt; <!-- ]]> "
    "**bold** [link](javascript:window.ran=3) ![x](http://example.com/x.png)\n"
    "\x1b[2J\x1b[31mred\x07 abc\u202ecba\u2066x\u2069 zero\u200bwidth \u2028 {{ 7 * 7 }} {% raw %}\n"
    "\u4e2d\u6587 \U0001f469\u200d\U0001f52c end"
)

SHOWN = ("<U+001B>[2J", "<U+0007>", "abc<U+202E>cba<U+2066>x<U+2069>", "zero<U+200B>width", "<U+2028>", "{{ 7 * 7 }}")
"""What of it has to be seen."""

OUTPUTS = {
    "c0:1:0": ("Let me think.</think>It is four.<|im_end|>", "stop"),
    "c1:1:0": (f"{HOSTILE}</think>{HOSTILE}<|im_end|>", "stop"),
    "c2:1:0": (
        "I call.</think><|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{}"
        "<|tool_call_end|><|tool_calls_section_end|><|im_end|>",
        "stop",
    ),
    "c3:3:0": ("I never stop " * 40, "length"),
    "c4:3:0": ("Two.</think>a</think>b<|im_end|>", "stop"),
}

PROMPT = "<|im_user|>user<|im_middle|><b>What?</b><|im_end|><|im_assistant|>assistant<|im_middle|><think>"


@cache
def target() -> LoadedTarget:
    return load_target(Target(model=str(DEMO / "model")))


def encoded(text: str) -> list[int]:
    return list(target().tokenizer.encode(text, add_special_tokens=False))


def inspection(outputs: dict[str, tuple[list[int], str]] | None = None, prompt: str = PROMPT) -> Inspection:
    if outputs is None:
        outputs = {name: (encoded(text), finish) for name, (text, finish) in OUTPUTS.items()}
    frame = pl.DataFrame(
        [
            {
                "sample_id": name,
                "status": "generated",
                "prompt_ids": encoded(prompt),
                "output_ids": ids,
                "finish_type": finish,
            }
            for name, (ids, finish) in outputs.items()
        ],
        schema={name: RAW_GENERATIONS[name] for name in ("status", *OUTPUT_COLUMNS)},
    )
    report = judge_generations([frame], Context(target().profile, tokenizer=target().tokenizer))
    band = LengthBand.model_validate({"median": [10, 100]})
    dataset = Dataset(name="hostile", source="none.jsonl", length_band=band)
    return inspect_rows(Partition("hostile", dataset, 0, trial=False), target(), frame.lazy(), report)
