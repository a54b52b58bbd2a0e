"""The demo target's own outputs as training data, and what is left of them after the usual ways over text.

What belongs here: making and exporting the data, damaging rows, and how much of them is damaged. Not here: drafters.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eagle3_assets.demo.corpus import PROMPTS_DIR, demo_prompt_texts, make_samples
from eagle3_assets.demo.evaluate import Case, read_output
from eagle3_assets.demo.samples import Message, Sample, ToolSchema, Turn
from eagle3_assets.demo.tokenizer import encode_sample
from eagle3_assets.demo.verdict import MalformedError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

ROOT = Path(__file__).parent.parent
SEED = 20
"""Of the conversations; the demo's training, its held-out prompts and its demo prompts have others."""
EVAL_SHARE = 0.15
CONFIG = """\
target: {{model: demo}}
engine: {{kind: transformers, batch_size: 64, threads: 1}}
export: {{format: jsonl, eval_share: {eval_share}}}
datasets:
  - name: data
    source: prompts.jsonl
    sampling: {{max_new_tokens: 512, temperature: {temperature}, seed: 1}}
    # An output that goes astray is left out; at temperature 1 there are more of them than a good target would have.
    quarantine_limit: 0.5
"""


@dataclass(frozen=True, slots=True)
class Row:
    """What a trainer reads of a sample."""

    id: str
    prompt_ids: list[int]
    output_ids: list[int]
    """What has a loss."""

    def line(self) -> str:
        """As an export of the format ``jsonl`` has it, as far as it is trained on."""
        mask = [0] * len(self.prompt_ids) + [1] * len(self.output_ids)
        return json.dumps({"id": self.id, "input_ids": self.prompt_ids + self.output_ids, "loss_mask": mask})


Damage = Callable[["PreTrainedTokenizerBase", Sample, Row], Row]
"""Given the conversation, without its answer. It raises ``MalformedError`` for an output that cannot be read."""


def conversations(count: int) -> dict[str, Sample]:
    """Conversations by id, all of different texts; the id begins with the kind."""
    taken: dict[str, Sample] = {}
    texts = set(demo_prompt_texts(PROMPTS_DIR))
    for sample in make_samples(SEED):
        if len(taken) == count:
            break
        if sample.text_key() not in texts:
            texts.add(sample.text_key())
            taken[f"{sample.kind}-{len(taken):04d}"] = sample
    return taken


@dataclass(frozen=True, slots=True)
class Making:
    """An export that commands of this project are making."""

    folder: Path
    commands: subprocess.Popen[bytes]

    def rows(self, side: str) -> list[Row]:
        """The rows of one side of the split, as soon as the export is there.

        Raises:
            RuntimeError: it could not be made; the text is what the commands said.
        """
        if self.commands.wait():
            raise RuntimeError((self.folder / "log").read_text(encoding="utf-8"))
        lines = (
            line
            for path in sorted((self.folder / "export" / side).glob("*.jsonl"))
            for line in path.read_text(encoding="utf-8").splitlines()
        )
        return [_row(json.loads(line)) for line in lines]


def make_export(folder: Path, samples: dict[str, Sample], temperature: float) -> Making:
    """Starts to materialize and export what the target answers, below a new folder."""
    folder.mkdir()
    with (folder / "prompts.jsonl").open("w", encoding="utf-8") as file:
        for name, sample in samples.items():
            tools = {"tools": sample.tools} if sample.tools else {}
            file.write(json.dumps({"id": name, "messages": sample.messages, **tools}) + "\n")
    config = CONFIG.format(eval_share=EVAL_SHARE, temperature=temperature)
    (folder / "eagle3.yaml").write_text(config, encoding="utf-8")
    here = {"EAGLE3_CONFIG": "eagle3.yaml", "EAGLE3_STORAGE": "data", "DAGSTER_HOME": str(folder / "dagster")}
    commands = '"$0" -m eagle3_assets.cli materialize data && "$0" -m eagle3_assets.cli export data --to export'
    with (folder / "log").open("wb") as log:
        running = subprocess.Popen(  # noqa: S603 - our own
            ["bash", "-c", commands, sys.executable],  # noqa: S607 - our own
            cwd=folder,
            env={
                **os.environ,
                **here,
                "PYTHONPATH": str(ROOT),
                "OMP_NUM_THREADS": "1",
                "DAGSTER_DISABLE_TELEMETRY": "1",
            },
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    return Making(folder, running)


def _row(line: dict[str, Any]) -> Row:
    prompt = line["loss_mask"].index(1)
    return Row(line["id"], line["input_ids"][:prompt], line["input_ids"][prompt:])


def conversation_of(row: Row) -> str:
    """The id of a row's conversation."""
    return row.id.split(":")[0]


def kind_of(row_id: str) -> str:
    """The kind of a row's conversation."""
    return row_id.split("-")[0]


def encoded_again(tokenizer: "PreTrainedTokenizerBase", _: Sample, row: Row) -> Row:
    """Prompt and output as text, every structural token with them, and as ids again."""
    prompt, output = (_encoded(tokenizer, _text(tokenizer, ids)) for ids in (row.prompt_ids, row.output_ids))
    return Row(row.id, prompt, output)


def other_template(tokenizer: "PreTrainedTokenizerBase", sample: Sample, row: Row) -> Row:
    """The conversation in ChatML as Qwen writes it, with the target's whole answer as text."""
    prompt = chatml(sample.messages, sample.tools)
    return Row(row.id, _encoded(tokenizer, prompt), _encoded(tokenizer, _text(tokenizer, row.output_ids)))


def parsed(tokenizer: "PreTrainedTokenizerBase", sample: Sample, row: Row) -> Row:
    """What a chat endpoint that parses gives, without the reasoning, in the target's own template."""
    said = read_output(tokenizer, Case(sample), row.output_ids)
    answered = Sample(sample.kind, sample.messages, Turn("", said.content, said.calls), sample.tools)
    encoded = encode_sample(tokenizer, answered, thinking=False)
    return Row(row.id, encoded.prompt_ids, encoded.output_ids)


DAMAGES: dict[str, Damage] = {"encoded_again": encoded_again, "other_template": other_template, "parsed": parsed}


def damaged(
    tokenizer: "PreTrainedTokenizerBase", samples: dict[str, Sample], rows: Sequence[Row], names: Sequence[str]
) -> dict[str, list[Row]]:
    """The rows in each way, and as they are under the name ``exact``: the same samples, in the same order.

    An output that one of the ways cannot read is left out of all of them.
    """
    found: dict[str, list[Row]] = {"exact": [], **{name: [] for name in names}}
    for row in rows:
        try:
            ways = {name: DAMAGES[name](tokenizer, samples[conversation_of(row)], row) for name in names}
        except MalformedError:
            continue
        for name, way in {"exact": row, **ways}.items():
            found[name].append(way)
    return found


@dataclass(frozen=True, slots=True)
class Difference:
    """How far rows are from the exact ones."""

    prompts: float
    """Share of samples with another prompt."""
    outputs: float
    """Share of samples with other ids that have a loss."""
    kept: float
    """Share of the target's output tokens that are still there, in their order."""
    trained: int
    """Tokens with a loss."""


def difference(exact: Sequence[Row], rows: Sequence[Row]) -> Difference:
    """Compares the same samples, in the same order."""
    pairs = list(zip(exact, rows, strict=True))
    kept = sum(_kept(a.output_ids, b.output_ids) for a, b in pairs)
    return Difference(
        prompts=sum(a.prompt_ids != b.prompt_ids for a, b in pairs) / len(pairs),
        outputs=sum(a.output_ids != b.output_ids for a, b in pairs) / len(pairs),
        kept=kept / sum(len(row.output_ids) for row in exact),
        trained=sum(len(row.output_ids) for row in rows),
    )


def _kept(ids: Sequence[int], others: Sequence[int]) -> int:
    return sum(block.size for block in SequenceMatcher(None, ids, others, autojunk=False).get_matching_blocks())


def chatml(messages: Sequence[Message], tools: Sequence[ToolSchema]) -> str:
    """A prompt in ChatML, the target's reasoning begun: how a trainer that takes another family's template has it."""
    turns = [_chatml_turn(message) for message in messages]
    if tools:
        listed = "\n".join(json.dumps(tool) for tool in tools)
        turns = [f"<|im_start|>system\n# Tools\n\n<tools>\n{listed}\n</tools><|im_end|>\n", *turns]
    return "".join(turns) + "<|im_start|>assistant\n<think>"


def _chatml_turn(message: Message) -> str:
    role, content = message["role"], message.get("content") or ""
    if role == "tool":
        role, content = "user", f"<tool_response>\n{content}\n</tool_response>"
    calls: list[dict[str, Any]] = message.get("tool_calls") or []
    for call in calls:
        content += f"\n<tool_call>\n{json.dumps(call['function'])}\n</tool_call>"
    return f"<|im_start|>{role}\n{content}<|im_end|>\n"


def _text(tokenizer: "PreTrainedTokenizerBase", ids: Sequence[int]) -> str:
    return str(tokenizer.decode(list(ids), skip_special_tokens=False))


def _encoded(tokenizer: "PreTrainedTokenizerBase", text: str) -> list[int]:
    return list(tokenizer.encode(text, add_special_tokens=False))
