"""Measures a demo model on held-out prompts: `python -m eagle3_assets.demo.evaluate DIR`.

Belongs here: generating for the measurement, and its table. Does not belong here: judging one generation (`verdict`).
"""

import argparse
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby, islice
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from eagle3_assets.demo.corpus import KINDS, PROMPTS_DIR, make_samples
from eagle3_assets.demo.samples import Call, Kind, Sample, Turn, calls_made
from eagle3_assets.demo.tokenizer import STOP, STRUCTURAL, render_prompt
from eagle3_assets.demo.verdict import MalformedError, Piece, read_turn, says_the_same

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

HELD_OUT_SEED = 2
HELD_OUT_EACH = 80
BATCH_ROWS = 40
MAX_NEW_TOKENS = 640


@dataclass(frozen=True)
class Case:
    """A prompt with the turn that would be right.

    Attributes:
        sample: the conversation and its right turn.
        thinking: whether the prompt asks for reasoning.
    """

    sample: Sample
    thinking: bool = True


@dataclass(frozen=True)
class Outcome:
    """One judged generation.

    Attributes:
        case: what was asked.
        output_ids: what came, up to the stop token.
        problem: why it is malformed, empty where it is well formed.
        right: whether its calls, or its answer, are the wanted ones.
    """

    case: Case
    output_ids: list[int]
    problem: str
    right: bool


@dataclass(frozen=True)
class LoadedModel:
    """A demo model in memory.

    Attributes:
        model: the network, in float32; transformers gives it no type that knows `generate`.
        tokenizer: its tokenizer.
    """

    model: Any
    tokenizer: "PreTrainedTokenizerBase"


def held_out_cases() -> list[Case]:
    """Makes the prompts which training leaves out, every fifth with thinking off."""
    return [
        Case(sample, thinking=index % 5 != 4)
        for kind in KINDS
        for index, sample in enumerate(islice(make_samples(HELD_OUT_SEED, [kind]), HELD_OUT_EACH))
    ]


def demo_cases(kind: Kind) -> list[Case]:
    """Reads the committed demo prompts of a kind, with their right turns."""
    expected = json.loads((PROMPTS_DIR / "expected.json").read_text(encoding="utf-8"))
    cases: list[Case] = []
    for line in (PROMPTS_DIR / f"{kind}.jsonl").read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        turn = expected[row["id"]]
        calls = tuple(Call(call["name"], call["arguments"]) for call in turn["calls"])
        cases.append(Case(Sample(kind, row["messages"], Turn("", turn["content"], calls), row.get("tools") or [])))
    return cases


def generate(loaded: LoadedModel, cases: Sequence[Case], temperature: float) -> list[list[int]]:
    """Generates for all cases, in batches of similar prompt length.

    Args:
        loaded: a demo model.
        cases: what to generate for.
        temperature: 0 for greedy, else plain sampling without cuts.

    Returns:
        Output ids per case, the stop token included.
    """
    import torch

    model, tokenizer = loaded.model, loaded.tokenizer
    stop_id = tokenizer.get_vocab()[STOP]
    sampling = (
        {"do_sample": True, "temperature": temperature, "top_k": 0, "top_p": 1.0}
        if temperature
        else {"do_sample": False}
    )
    prompts = [
        tokenizer.encode(
            render_prompt(tokenizer, {"messages": c.sample.messages, "tools": c.sample.tools}, thinking=c.thinking)
        )
        for c in cases
    ]
    outputs: dict[int, list[int]] = {}
    order = sorted(range(len(cases)), key=lambda index: (cases[index].sample.kind, len(prompts[index])))
    for start in range(0, len(order), BATCH_ROWS):
        rows = order[start : start + BATCH_ROWS]
        padded = tokenizer.pad({"input_ids": [prompts[row] for row in rows]}, padding_side="left", return_tensors="pt")
        with torch.inference_mode():
            generated = model.generate(**padded, max_new_tokens=MAX_NEW_TOKENS, eos_token_id=stop_id, **sampling)
        width = padded["input_ids"].shape[1]
        for row, ids in zip(rows, generated[:, width:].tolist(), strict=True):
            outputs[row] = ids[: ids.index(stop_id) + 1] if stop_id in ids else ids
    return [outputs[index] for index in range(len(cases))]


def judge(tokenizer: "PreTrainedTokenizerBase", case: Case, output_ids: list[int]) -> Outcome:
    """Judges one generation.

    Args:
        tokenizer: the demo tokenizer.
        case: what was asked.
        output_ids: what came.

    Returns:
        The verdict.
    """
    try:
        turn = read_output(tokenizer, case, output_ids)
    except MalformedError as error:
        return Outcome(case, output_ids, str(error), right=False)
    return Outcome(case, output_ids, "", says_the_same(turn, case.sample.turn))


def read_output(tokenizer: "PreTrainedTokenizerBase", case: Case, output_ids: list[int]) -> Turn:
    """Reads one generation.

    Args:
        tokenizer: the demo tokenizer.
        case: what was asked.
        output_ids: what came.

    Raises:
        MalformedError: it breaks the demo's format.
    """
    return read_turn(
        _pieces(tokenizer, output_ids),
        thinking=case.thinking,
        declared=[tool["function"]["name"] for tool in case.sample.tools],
        first_call=calls_made(case.sample.messages),
    )


def _pieces(tokenizer: "PreTrainedTokenizerBase", output_ids: list[int]) -> list[Piece]:
    vocabulary = tokenizer.get_vocab()
    names = {vocabulary[name]: name for name in STRUCTURAL}
    pieces: list[Piece] = []
    for structural, run in groupby(output_ids, key=names.__contains__):
        if structural:
            pieces += [Piece(True, names[token_id]) for token_id in run]
        else:
            # The bytes of one character may lie in two tokens, so a run is decoded as a whole.
            pieces.append(Piece(False, str(tokenizer.decode(list(run)))))
    return pieces


def load(model_dir: Path) -> LoadedModel:
    """Loads a demo model in float32, from local files only.

    Args:
        model_dir: the model directory.

    Returns:
        Model and tokenizer, ready to generate.
    """
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(model_dir, dtype=torch.float32, local_files_only=True)
    model.eval()  # type: ignore[no-untyped-call]
    return LoadedModel(model, AutoTokenizer.from_pretrained(model_dir, local_files_only=True))


def evaluate(model_dir: Path) -> str:
    """Measures a model on one thread.

    Args:
        model_dir: the model directory.

    Returns:
        A Markdown table, and the first malformed generations below it.
    """
    import torch

    torch.set_num_threads(1)
    torch.manual_seed(0)
    loaded = load(model_dir)
    sets = {f"demo {kind}": demo_cases(kind) for kind in KINDS if (PROMPTS_DIR / f"{kind}.jsonl").exists()}
    sets |= {f"held-out {kind}": [c for c in held_out_cases() if c.sample.kind == kind] for kind in KINDS}
    lines = [
        "| prompts | number | temperature | well formed | right | output tokens median (5 %, 95 %) | tokens/s |",
        "|---|---|---|---|---|---|---|",
    ]
    problems: list[str] = []
    for name, cases in sets.items():
        for temperature in (0.0, 1.0):
            started = time.monotonic()
            outputs = generate(loaded, cases, temperature)
            seconds = time.monotonic() - started
            outcomes = [judge(loaded.tokenizer, case, ids) for case, ids in zip(cases, outputs, strict=True)]
            lines.append(f"| {name} | {len(cases)} | {temperature:g} | {_figures(outcomes, seconds)} |")
            problems += [f"- {name}, temperature {temperature:g}: {o.problem}" for o in outcomes if o.problem]
    return "\n".join([*lines, "", *problems[:20]])


def _figures(outcomes: Sequence[Outcome], seconds: float) -> str:
    lengths = sorted(len(outcome.output_ids) for outcome in outcomes)
    formed = sum(not outcome.problem for outcome in outcomes) / len(outcomes)
    # Without reasoning there is no working-out, so only prompts that ask for it count as right or wrong.
    reasoned = [outcome.right for outcome in outcomes if outcome.case.thinking]
    low, high = lengths[len(lengths) // 20], lengths[-1 - len(lengths) // 20]
    speed = sum(lengths) / seconds
    return f"{formed:.1%} | {sum(reasoned) / len(reasoned):.1%} | {median(lengths):.0f} ({low}, {high}) | {speed:.0f}"


def main() -> None:
    """Runs the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model_dir", type=Path)
    sys.stdout.write(evaluate(parser.parse_args().model_dir) + "\n")


if __name__ == "__main__":
    main()
