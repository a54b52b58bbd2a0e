"""How well a replay tells genuine outputs of the demo target from corrupted ones, and how often it is wrong.

Every demo prompt is answered at temperature 0 and 1. Outputs are then corrupted in one way each, scored by the target,
and judged by the law ``replayed``: with the log-probabilities recorded at generation, and without. The last column
moves the law's threshold to where 1 % of the genuine outputs are called wrong, to show what a lower one would find.

Usage: python benchmarks/replay_sensitivity.py [--seeds 4] [--prompts 40] [--commit 3bb3e1c] [--dtype D] [--sglang URL]
"""

import argparse
import asyncio
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from eagle3_assets.config import Sampling, SglangEngineSettings, TransformersEngineSettings, load_config
from eagle3_assets.contract import TokenIds
from eagle3_assets.engines.base import Engine, Request, Scores, ScoringEngine
from eagle3_assets.engines.sglang import SglangEngine
from eagle3_assets.engines.transformers import TransformersEngine
from eagle3_assets.generation.loop import RetryPolicy
from eagle3_assets.generation.rows import seed_for
from eagle3_assets.identity import canonical_json
from eagle3_assets.judging import render_rows
from eagle3_assets.partitions import all_partitions
from eagle3_assets.prompts.rows import read_partition
from eagle3_assets.replaying import calibrated, score_rows, with_scores
from eagle3_assets.target import LoadedTarget, load_target, read_model_facts
from eagle3_assets.tokens.context import Context
from eagle3_assets.tokens.judge import judge_replay
from eagle3_assets.tokens.laws.replay import read_rule, surprise

MODEL = Path("eagle3_assets/demo/model")
WEIGHTS = f"{MODEL}/model.safetensors"


@dataclass(frozen=True)
class Prompt:
    """A demo prompt in its true rendering and in wrong ones."""

    ids: list[int]
    other_mode: list[int]
    """Reasoning left to the target where it is not, and the other way round."""
    no_tools: list[int]
    """By a template that ignores the tools."""


@dataclass(frozen=True)
class Sample:
    """An output, genuine or not."""

    prompt: Prompt
    prompt_ids: list[int]
    output_ids: list[int]
    logprobs: list[float] | None
    """As recorded at generation; None where a corruption leaves none that are one for each id."""
    begins: int | None = None
    """Index in the output where a corruption of it begins."""


Corruption = Callable[[Sample, random.Random], Sample | None]
"""None where a sample cannot be corrupted in this way."""


def corruptions(target: LoadedTarget) -> dict[str, Corruption]:
    """Every way of corrupting a single sample."""
    tokenizer, structural = target.tokenizer, target.profile.structural_ids | target.profile.stop_ids
    pieces = {i: tokenizer.decode([i]) for i in range(len(tokenizer)) if i not in structural}
    by_text = {text: i for i, text in pieces.items()}

    def without(sample: Sample, index: int) -> Sample:
        logprobs = sample.logprobs and sample.logprobs[:index] + sample.logprobs[index + 1 :]
        ids = sample.output_ids[:index] + sample.output_ids[index + 1 :]
        return replace(sample, output_ids=ids, logprobs=logprobs, begins=index)

    def dropped(where: Callable[[Sample, random.Random], int | None]) -> Corruption:
        def corrupt(sample: Sample, draw: random.Random) -> Sample | None:
            index = where(sample, draw)
            return None if index is None or index >= len(sample.output_ids) - 1 else without(sample, index)

        return corrupt

    def first_space(sample: Sample, _: random.Random) -> int | None:
        places = (i for i, t in enumerate(sample.output_ids) if t in pieces and pieces[t].isspace())
        return next(places, None)

    def encoded_again(sample: Sample, _: random.Random) -> Sample | None:
        text = tokenizer.decode(sample.output_ids, skip_special_tokens=False)
        ids = tokenizer.encode(text, add_special_tokens=False)
        if ids == sample.output_ids:
            return None
        begins = next(i for i, (a, b) in enumerate(zip([*ids, -1], sample.output_ids, strict=False)) if a != b)
        return replace(sample, output_ids=ids, logprobs=None, begins=begins)

    def split_token(sample: Sample, draw: random.Random) -> Sample | None:
        ways = [
            (index, by_text[text[:cut]], by_text[text[cut:]])
            for index, token in enumerate(sample.output_ids)
            if len(text := pieces.get(token, "")) > 1
            for cut in range(1, len(text))
            if text[:cut] in by_text and text[cut:] in by_text
        ]
        if not ways:
            return None
        index, left, right = draw.choice(ways)
        ids = [*sample.output_ids[:index], left, right, *sample.output_ids[index + 1 :]]
        return replace(sample, output_ids=ids, logprobs=None, begins=index)

    def prompted(prompt_ids: Callable[[Prompt], list[int]]) -> Corruption:
        def corrupt(sample: Sample, _: random.Random) -> Sample | None:
            ids = prompt_ids(sample.prompt)
            return None if ids == sample.prompt_ids else replace(sample, prompt_ids=ids)

        return corrupt

    newline = by_text["\n"]
    suffix = len(next(iter(target.profile.suffixes.values())))
    return {
        "first token dropped": dropped(lambda *_: 0),
        "first whitespace token dropped": dropped(first_space),
        "token in the middle dropped": dropped(lambda sample, _: len(sample.output_ids) // 2),
        "token near the end dropped": dropped(lambda sample, _: len(sample.output_ids) - 3),
        "decoded and encoded again": encoded_again,
        "one word in two tokens": split_token,
        "template: other reasoning mode": prompted(lambda prompt: prompt.other_mode),
        "template: tools not rendered": prompted(lambda prompt: prompt.no_tools),
        "template: newline before the suffix": prompted(lambda p: [*p.ids[:-suffix], newline, *p.ids[-suffix:]]),
    }


def demo_prompts(target: LoadedTarget, each: int) -> list[Prompt]:
    """The first demo prompts of each partition."""
    config = load_config()
    prompts: list[Prompt] = []
    for partition in (p for p in all_partitions(config).values() if not p.trial):
        rows = read_partition(partition, config.trial_rows).rows.head(each)
        thinking = partition.dataset.thinking
        ways = (
            render_rows(target, rows, thinking=thinking),
            render_rows(target, rows, thinking=not thinking),
            render_rows(target, rows.with_columns(tools=pl.lit(None, pl.String)), thinking=thinking),
        )
        prompts += [Prompt(*ids) for ids in zip(*(way["prompt_ids"].to_list() for way in ways), strict=True)]
    return prompts


def embedded(model: Path, dtype: str) -> TransformersEngine:
    """The embedded engine, on one thread."""
    settings = TransformersEngineSettings.model_validate({"threads": 1, "device": "cpu", "dtype": dtype})
    return TransformersEngine(model, settings)


async def generated(engine: Engine, prompts: list[Prompt], sampling: Sampling, seeds: int) -> list[Sample]:
    """Genuine outputs of a model."""
    await engine.start()
    requests = [
        Request(f"{n}-{seed}", f"{n}", prompt.ids, sampling, seed_for(seed, str(n)), want_logprobs=True)
        for seed in range(seeds)
        for n, prompt in enumerate(prompts)
    ]
    replies = await asyncio.gather(*map(engine.generate, requests))
    return [
        Sample(prompt, prompt.ids, reply.output_ids, reply.output_logprobs)
        for prompt, reply in zip(prompts * seeds, replies, strict=True)
    ]


def frame(samples: list[Sample], sampling: Sampling) -> pl.DataFrame:
    """Samples as rows of ``raw_generations``."""
    return pl.DataFrame(
        {
            "sample_id": [str(n) for n in range(len(samples))],
            "prompt_ids": pl.Series([s.prompt_ids for s in samples], dtype=TokenIds),
            "output_ids": pl.Series([s.output_ids for s in samples], dtype=TokenIds),
            "output_logprobs": pl.Series([s.logprobs for s in samples], dtype=pl.List(pl.Float32)),
            "logprob_kind": "model",
            "sampling": canonical_json(sampling.model_dump(mode="json")),
        }
    )


def statistic(rows: pl.DataFrame, context: Context) -> list[float]:
    """What the law compares with its threshold, without recorded log-probabilities: the higher, the less genuine."""
    rule = read_rule(rows["sampling"][0], context.profile.vocab_size)
    if rule is None:
        raise ValueError("this sampling has no rule")
    values = []
    for scored, best in zip(rows["scored_logprobs"].to_list(), rows["scored_best"].to_list(), strict=True):
        logprobs, likeliest = np.array(scored), np.array(best)
        if rule.temperature == 0:
            values.append(float((likeliest - logprobs).max()))
        else:
            total = np.concatenate(([0.0], np.cumsum(surprise(logprobs, likeliest, rule))))
            values.append(float((total - np.minimum.accumulate(total)).max() - np.log(len(logprobs))))
    return values


@dataclass(frozen=True)
class Result:
    """One line of the table."""

    samples: int
    recorded: tuple[float, float | None] | None
    """Share found with recorded log-probabilities, and share of those at the very index."""
    alone: tuple[float, float | None]
    """The same by likelihood alone."""
    statistics: list[float]


def found(rows: pl.DataFrame, begins: list[int | None], context: Context) -> tuple[float, float | None]:
    """Share of samples found, and share of those at the very index; None where there is no such index."""
    findings = judge_replay([rows], context).findings.select("sample_id", "index").rows()
    exact = [index == begins[int(sample)] for sample, index in findings if begins[int(sample)] is not None]
    return len(findings) / len(rows), sum(exact) / len(exact) if exact else None


async def measured(engine: ScoringEngine, samples: list[Sample], sampling: Sampling, context: Context) -> Result:
    """Scores and judges samples."""
    rows = frame(samples, sampling)
    scores = await score_rows(engine, rows, RetryPolicy())
    unscored = [one for one in scores if not isinstance(one, Scores)]
    if unscored:
        raise ValueError(unscored[0])
    rows = with_scores(rows, scores)
    begins = [sample.begins for sample in samples]
    bare = rows.with_columns(output_logprobs=pl.lit(None, pl.List(pl.Float32)))
    known = all(sample.logprobs is not None for sample in samples)
    return Result(
        len(samples),
        found(rows, begins, context) if known else None,
        found(bare, begins, context),
        statistic(rows, context),
    )


def other_model(commit: str, folder: Path) -> Path:
    """The demo with the weights that it had at another commit."""
    shutil.copytree(MODEL, folder / "other")
    with (folder / "other" / "model.safetensors").open("wb") as file:
        subprocess.run(["git", "show", f"{commit}:{WEIGHTS}"], stdout=file, check=True)  # noqa: S603, S607 - our own
    return folder / "other"


def noisy_model(folder: Path, noise: float) -> Path:
    """The demo with each weight changed by a little: as close as another model can be."""
    import torch
    from safetensors.torch import load_file, save_file

    shutil.copytree(MODEL, folder / f"noisy-{noise:g}")
    draw = torch.Generator().manual_seed(0)
    weights = load_file(MODEL / "model.safetensors")
    changed = {
        name: (w.float() * (1 + noise * torch.randn(w.shape, generator=draw))).to(w.dtype)
        for name, w in weights.items()
    }
    save_file(changed, folder / f"noisy-{noise:g}" / "model.safetensors", metadata={"format": "pt"})
    return folder / f"noisy-{noise:g}"


async def study(arguments: argparse.Namespace, folder: Path) -> Iterator[str]:
    """The lines of the report."""
    target = load_target(load_config().target)
    prompts = demo_prompts(target, arguments.prompts)
    others = {
        "another model: an earlier training stage": other_model(arguments.commit, folder),
        "another model: weights changed by 5 %": noisy_model(folder, 0.05),
        "another model: weights changed by 1 %": noisy_model(folder, 0.01),
    }
    ours = embedded(MODEL, arguments.dtype)
    scorer: Any = ours
    if arguments.sglang:
        scorer = SglangEngine(SglangEngineSettings(endpoints=(arguments.sglang,)), read_model_facts(MODEL))
        await scorer.start()
    lines = []
    for temperature in (0.0, 1.0):
        sampling = Sampling(max_new_tokens=512, temperature=temperature)
        seeds = arguments.seeds if temperature else 1
        genuine = await generated(ours, prompts, sampling, seeds)
        tolerance = await calibrated(scorer, frame(genuine, sampling), RetryPolicy())
        context = Context(target.profile, replay_tolerance=tolerance)
        control = await measured(scorer, genuine, sampling, context)
        cases: dict[str, list[Sample]] = {}
        for name, corrupt in corruptions(target).items():
            draw = random.Random(0)  # noqa: S311 - a study, nothing secret
            cases[name] = [bad for sample in genuine if (bad := corrupt(sample, draw)) is not None]
        for name, model in others.items():
            engine = embedded(model, arguments.dtype)
            made = await generated(engine, prompts, sampling, seeds)
            await engine.close()
            cases[name] = made
        tokens = sum(len(sample.output_ids) for sample in genuine)
        lines += [
            f"\nTemperature {temperature:g}: {len(genuine):,} genuine outputs, {tokens:,} tokens;"
            f" tolerance {tolerance:.1e}.\n",
            "| what was done | samples | found with recorded log-probabilities | at the very index |"
            " found by likelihood alone | at the very index | at 1 % false alarms |",
            "|---|---|---|---|---|---|---|",
            line("nothing: false alarms", control, None),
        ]
        level = float(np.quantile(control.statistics, 0.99))
        for name, changed in cases.items():
            if changed:
                lines.append(line(name, await measured(scorer, changed, sampling, context), level))
            else:
                lines.append(f"| {name} | 0 |  |  |  |  |  |")
    for engine in {ours, scorer}:
        await engine.close()
    return iter(lines)


def line(name: str, result: Result, level: float | None) -> str:
    """A result as a row of Markdown."""
    recorded = "no longer comparable |" if result.recorded is None else _pair(*result.recorded)
    above = "" if level is None else f"{sum(value > level for value in result.statistics) / result.samples:.1%}"
    return f"| {name} | {result.samples:,} | {recorded} | {_pair(*result.alone)} | {above} |"


def _pair(share: float, exact: float | None) -> str:
    return f"{share:.1%} | {'' if exact is None else f'{exact:.0%}'}"


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=4, help="outputs of each prompt at temperature 1")
    parser.add_argument("--prompts", type=int, default=40, help="most prompts of each demo partition")
    parser.add_argument("--commit", default="3bb3e1c", help="whose demo weights are the other model")
    parser.add_argument("--dtype", default="float32", help="in which the models run")
    parser.add_argument("--sglang", help="a server of the demo model that scores, instead of the embedded engine")
    with tempfile.TemporaryDirectory() as folder, suppress(BrokenPipeError):
        for text in asyncio.run(study(parser.parse_args(), Path(folder))):
            sys.stdout.write(text + "\n")


if __name__ == "__main__":
    main()
