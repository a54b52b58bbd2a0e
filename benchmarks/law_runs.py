"""What judging is measured on, and the runs that are measured, each a process of its own that measures itself.

What belongs here: generated partitions, and judging them as the asset checks do. Not here: comparing, the report
(``law_speed``).

Usage: python -m benchmarks.law_runs write DIRECTORY ROWS TOKENS
       python -m benchmarks.law_runs {read,outputs,prompts,calls,sample} DIRECTORY
The latter print one JSON object.
"""

import argparse
import json
import sysconfig
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from benchmarks.usage import cpu_s, peak_mib
from eagle3_assets import demo
from eagle3_assets.config import LengthBand, Sampling
from eagle3_assets.contract import RAW_GENERATIONS, ROW_GROUP_ROWS, TOKENIZED_PROMPTS
from eagle3_assets.frames import batches
from eagle3_assets.identity import canonical_json, ids_sha256
from eagle3_assets.partitions import stable_rank
from eagle3_assets.target import load_tokenizer
from eagle3_assets.tokens.context import SAMPLE_ROWS, Context, PromptIndex
from eagle3_assets.tokens.judge import Judge
from eagle3_assets.tokens.known_ids import known_profile
from eagle3_assets.tokens.laws import PartitionLaw, RowLaw, laws_of, tool_texts
from eagle3_assets.tokens.laws.base import Asset
from eagle3_assets.tokens.profile import TargetProfile, Tokenizer, resolve_profile
from eagle3_assets.tokens.verdict import Verdict

IDS, TEXTS = "ids", "texts"
"""The two pairs of files: one for the laws on ids alone, one for those that decode."""

TOOL = "get_weather"
MODEL = Path(demo.__file__).parent / "model"

Matrix = NDArray[np.int32]


@dataclass(frozen=True)
class Target:
    """Whose outputs are made up."""

    profile: TargetProfile
    opening: tuple[int, ...]
    """Begins a prompt's one turn."""
    head: tuple[int, ...]
    """Of a tool call: what stands before its arguments."""
    arguments: tuple[int, ...]
    words: Callable[[np.random.Generator, int, int], Matrix]
    """Ordinary ids: so many rows of so many."""
    text: Callable[[list[int]], str] | None = None


def kimi() -> Target:
    """A target of 163,840 ids, no tokenizer; ids are as frequent as words, so files pack as real ones."""

    def words(random: np.random.Generator, rows: int, tokens: int) -> Matrix:
        return np.minimum(random.zipf(1.2, (rows, tokens)), 160_000).astype(np.int32)

    profile = known_profile("kimi")
    names = {name: number for number, name in profile.tokens.items()}
    user = (names["<|im_user|>"], 2482, names["<|im_middle|>"])
    return Target(profile, user, (7,), (8, 9), words)


def demo_target() -> Target:
    """The demo target with its tokenizer, writing pieces of the standard library's sources."""
    tokenizer = load_tokenizer(MODEL, trust_remote_code=False)
    sources = sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py"))[:40]
    encoded = [tokenizer.encode(file.read_text(encoding="utf-8"), add_special_tokens=False) for file in sources]
    pool = np.array([i for ids in encoded for i in ids], np.int32)

    def words(random: np.random.Generator, rows: int, tokens: int) -> Matrix:
        taken: Matrix = pool[random.integers(0, len(pool) - tokens, rows)[:, None] + np.arange(tokens)]
        return taken

    def ids(text: str) -> tuple[int, ...]:
        return tuple(tokenizer.encode(text, add_special_tokens=False))

    def text(ids: list[int]) -> str:
        return str(tokenizer.decode(ids, skip_special_tokens=False))

    return Target(demo_profile(tokenizer), (), ids(f"functions.{TOOL}:0"), ids('{"city": "Zürich"}'), words, text)


def demo_profile(tokenizer: Tokenizer) -> TargetProfile:
    """The profile of the demo target."""
    stop = tokenizer.convert_tokens_to_ids("<|im_end|>")
    return resolve_profile(tokenizer, vocab_size=len(tokenizer.get_vocab()), stop_token_ids=[stop])


def write(directory: Path, name: str, target: Target, rows: int, tokens: int) -> None:
    """Writes prompts and sealed outputs: a fifth of each row is prompt, every other output calls a tool.

    Rows that laws draw for their sample have the engine's text, if the target has texts.
    """
    random = np.random.default_rng(0)
    profile, tools = target.profile, target.profile.tools
    end = profile.reasoning_end
    if tools is None or tools.section_begin is None or tools.section_end is None or tools.argument_begin is None:
        raise ValueError(f"the profile {profile.name} has no sections of tool calls")
    if end is None:
        raise ValueError(f"the profile {profile.name} has no end of reasoning")
    stop, suffix = max(profile.stop_ids), profile.suffixes["thinking"]
    call = (tools.section_begin, tools.call_begin, *target.head, tools.argument_begin, *target.arguments)
    call += (tools.call_end, tools.section_end)
    turn_end = next(number for number, name in profile.tokens.items() if name == "<|im_end|>")
    prompt_tokens = tokens // 5
    output_tokens = tokens - prompt_tokens
    samples = [f"conversation-{n}:0:0" for n in range(rows)]
    drawn = frozenset(sorted(samples, key=stable_rank)[:SAMPLE_ROWS]) if target.text else frozenset()
    fixed = {
        "status": "generated", "finish_type": "stop", "matched_stop": str(stop),
        "sampling": canonical_json(Sampling(max_new_tokens=100_000).model_dump(mode="json")),
        "completion_tokens": output_tokens, "server_prompt_tokens": prompt_tokens, "cached_tokens": prompt_tokens // 2,
        "weight_version": "default", "endpoint": "http://127.0.0.1:30000",
    }  # fmt: skip
    parts = [pl.DataFrame(schema=RAW_GENERATIONS)]
    for start in range(0, rows, ROW_GROUP_ROWS):
        names = samples[start : start + ROW_GROUP_ROWS]
        prompts = target.words(random, len(names), prompt_tokens)
        prompts[:, : len(target.opening)] = target.opening
        prompts[:, -len(suffix) - 1 :] = (turn_end, *suffix)
        outputs = target.words(random, len(names), output_tokens)
        outputs[:, output_tokens // 2], outputs[:, -1] = end, stop
        outputs[::2, -len(call) - 1 : -1] = call
        texts = [
            target.text(ids.tolist()) if target.text and name in drawn else None
            for name, ids in zip(names, outputs, strict=True)
        ]
        parts.append(
            pl.DataFrame(
                {
                    "sample_id": names,
                    "prompt_ids": pl.Series(prompts).arr.to_list(),
                    "output_ids": pl.Series(outputs).arr.to_list(),
                    "text": pl.Series(texts, dtype=pl.String),
                    "ids_sha256": [ids_sha256(p, o) for p, o in zip(prompts, outputs, strict=True)],
                }
            ).with_columns(pl.lit(value).alias(name) for name, value in fixed.items())
        )
    whole = pl.concat(parts, how="diagonal_relaxed").cast(RAW_GENERATIONS)
    _store(whole, outputs_file(directory, name))
    prompt_rows = whole.select(
        "sample_id", "prompt_ids", prompt_tokens=prompt_tokens, thinking=True, status=pl.lit("ready"), reason=None
    )
    _store(prompt_rows.cast(TOKENIZED_PROMPTS), prompts_file(directory, name))


Run = Callable[[], tuple[Verdict, ...]]

SPENT: defaultdict[str, float] = defaultdict(float)
"""CPU seconds in each law's own function, by its name: of this process, whose one run it is, and of the judging thread
alone. A fact that several laws share counts for the first that asks."""


def read(directory: Path) -> Run:
    """Reads the outputs once, and does nothing with them."""

    def run() -> tuple[Verdict, ...]:
        deque(batches(pl.scan_parquet(outputs_file(directory, IDS))), maxlen=0)
        return ()

    return run


def judge_outputs(directory: Path) -> Run:
    """Every law on the ids of outputs, the index of the current prompts included."""
    columns = ("sample_id", "status", "prompt_ids")
    context = Context(kimi().profile, complete_records=True, length_band=LengthBand(median=(1, 10**6)))

    def run() -> tuple[Verdict, ...]:
        index = PromptIndex.of(batches(pl.scan_parquet(prompts_file(directory, IDS)).select(columns)))
        known = replace(context, current_prompts=index)
        outputs = batches(pl.scan_parquet(outputs_file(directory, IDS)))
        return _verdicts("raw_generations", outputs, known, laws_of("raw_generations"))

    return run


def judge_all_prompts(directory: Path) -> Run:
    """Every law on the ids of prompts; rendering them with inert text, or again, is none of it."""
    scanned = pl.scan_parquet(prompts_file(directory, IDS))
    nothing_lost = pl.lit([], pl.List(pl.String)).alias("unrendered")
    inert = list(batches(scanned.select("sample_id", "prompt_ids", nothing_lost)))
    samples = frozenset(name for batch in inert for name in batch["sample_id"])
    context = Context(kimi().profile, rerendered_prompts=inert[0].head(SAMPLE_ROWS), source_sample_ids=samples)

    def run() -> tuple[Verdict, ...]:
        known = context.with_inert_prompts(inert)
        return _verdicts("tokenized_prompts", batches(scanned), known, laws_of("tokenized_prompts"))

    return run


def judge_calls(directory: Path) -> Run:
    """The laws that decode the tool calls of every output."""
    laws = (tool_texts.TOOL_CALL_ID, tool_texts.TOOL_ARGUMENTS_JSON, tool_texts.TOOL_DECLARED)
    return _judge_texts(directory, laws.__contains__)


def judge_sample(directory: Path) -> Run:
    """The laws that decode whole outputs, of a sample; drawing it is included."""
    return _judge_texts(directory, lambda law: law.sampled)


def _judge_texts(directory: Path, chosen: Callable[[RowLaw], bool]) -> Run:
    tokenizer = load_tokenizer(MODEL, trust_remote_code=False)
    scanned = pl.scan_parquet(outputs_file(directory, TEXTS))
    samples = scanned.select("sample_id").collect()["sample_id"]
    context = Context(demo_profile(tokenizer), tokenizer=tokenizer, declared_tools=dict.fromkeys(samples, (TOOL,)))
    laws = [law for law in laws_of("raw_generations") if isinstance(law, RowLaw) and chosen(law)]

    return lambda: _verdicts("raw_generations", batches(scanned), context, laws)


def _verdicts(
    asset: Asset, frames: Iterable[pl.DataFrame], context: Context, laws: Iterable[RowLaw | PartitionLaw]
) -> tuple[Verdict, ...]:
    judge = Judge(asset, context, laws=[_timed(law) for law in laws])
    for frame in frames:
        judge.add(frame)
    return judge.report().verdicts


def _timed(law: RowLaw | PartitionLaw) -> RowLaw | PartitionLaw:
    """The same law, which adds what it took to ``SPENT``."""

    def judge(*given: Any) -> Any:  # noqa: ANN401 - whatever the law is given and says
        before = time.thread_time()
        said = law.judge(*given)
        SPENT[law.name] += time.thread_time() - before
        return said

    return replace(law, judge=judge)  # type: ignore[arg-type] # of each kind of law its own form


RUNS = {
    "read": read,
    "outputs": judge_outputs,
    "prompts": judge_all_prompts,
    "calls": judge_calls,
    "sample": judge_sample,
}


def measured(run: str, directory: Path) -> dict[str, Any]:
    """Runs one in this process.

    Returns:
        ``cpu_s``: of all threads, user and system, imports and preparing left out; ``peak_mib`` of this process, with
        all that;
        ``spent``: see :data:`SPENT`;
        ``judged``: names of laws, with the number of rows that each judged; ``not_judged``: with the reason of each.
    """
    prepared = RUNS[run](directory)
    before = cpu_s()
    verdicts = prepared()
    return {
        "cpu_s": cpu_s() - before,
        "peak_mib": peak_mib(),
        "spent": SPENT,
        "judged": {v.law.name: v.judged for v in verdicts if v.status != "not_judged"},
        "not_judged": {v.law.name: v.reason for v in verdicts if v.status == "not_judged"},
    }


def outputs_file(directory: Path, name: str) -> Path:
    """Where the outputs of a pair lie."""
    return directory / f"{name}.raw_generations.parquet"


def prompts_file(directory: Path, name: str) -> Path:
    """Where the prompts of a pair lie."""
    return directory / f"{name}.tokenized_prompts.parquet"


def _store(frame: pl.DataFrame, path: Path) -> None:
    frame.write_parquet(path, compression="zstd", compression_level=3, row_group_size=ROW_GROUP_ROWS)


def main() -> None:
    """Writes the files, or measures one run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", choices=("write", *RUNS))
    parser.add_argument("directory", type=Path)
    parser.add_argument("size", type=int, nargs="*", help="rows and tokens of each, to write")
    arguments = parser.parse_args()
    if arguments.run == "write":
        rows, tokens = arguments.size
        write(arguments.directory, IDS, kimi(), rows, tokens)
        write(arguments.directory, TEXTS, demo_target(), rows, tokens)
    else:
        print(json.dumps(measured(arguments.run, arguments.directory)))


if __name__ == "__main__":
    main()
