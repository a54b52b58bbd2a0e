"""CPU seconds of judging a partition, compared with reading its file.

Usage: python benchmarks/law_speed.py [--rows 100000] [--tokens 1000] [--each]
"""

import argparse
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
import polars as pl

from eagle3_assets.config import Sampling
from eagle3_assets.contract import RAW_GENERATIONS, ROW_GROUP_ROWS
from eagle3_assets.identity import canonical_json, ids_sha256
from eagle3_assets.tokens.anatomy import anatomy
from eagle3_assets.tokens.batch import Batch
from eagle3_assets.tokens.context import Context, PromptIndex
from eagle3_assets.tokens.judge import judge_generations
from eagle3_assets.tokens.laws import LAWS, RowLaw
from eagle3_assets.tokens.profile import TargetProfile, ToolIds

STOP, THINK, END_THINK, VOCAB_SIZE = 163_586, 163_606, 163_607, 163_840
SUFFIX = (163_588, 69_702, 163_601, THINK)
TOKENS = dict.fromkeys(range(163_584, VOCAB_SIZE), "token")
PROFILE = TargetProfile(
    name="kimi",
    vocab_size=VOCAB_SIZE,
    stop_ids=frozenset({STOP}),
    suffixes={"thinking": SUFFIX, "no_thinking": (*SUFFIX, END_THINK)},
    reasoning_start=THINK,
    reasoning_end=END_THINK,
    tools=ToolIds(163_595, 163_597, 163_598, 163_599, 163_596),
    prompt_only_ids=frozenset({163_587, 163_588, 163_594, 163_601}),
    bos=163_584,
    pad=163_839,
    unk=163_838,
    media_ids=frozenset(range(163_602, 163_606)),
    reserved_ids=frozenset(range(163_608, 163_838)),
    tool_call_id="functions.{name}:{number}",
    tokens=TOKENS,
)


def write_rows(path: Path, rows: int, tokens: int) -> None:
    """Writes a sealed partition: a fifth of each row is prompt, every other output calls a tool."""
    random = np.random.default_rng(0)
    prompt_tokens, sampling = tokens // 5, canonical_json(Sampling(max_new_tokens=100_000).model_dump(mode="json"))
    parts = []
    for start in range(0, rows, ROW_GROUP_ROWS):
        count = min(ROW_GROUP_ROWS, rows - start)
        prompts = _text(random, count, prompt_tokens)
        prompts[:, -4:] = SUFFIX
        outputs = _text(random, count, tokens - prompt_tokens)
        outputs[:, tokens // 2], outputs[:, -1] = END_THINK, STOP
        outputs[::2, [-9, -8, -6, -4, -2]] = [163_595, 163_597, 163_598, 163_599, 163_596]
        outputs[::2, -3] = 163_599
        outputs[::2, -4] = 7
        fixed = {
            "status": "generated", "finish_type": "stop", "matched_stop": str(STOP), "sampling": sampling,
            "completion_tokens": tokens - prompt_tokens, "server_prompt_tokens": prompt_tokens,
            "cached_tokens": prompt_tokens // 2, "weight_version": "default", "endpoint": "http://127.0.0.1:30000",
        }  # fmt: skip
        parts.append(
            pl.DataFrame(
                {
                    "sample_id": [f"conversation-{n}:0:0" for n in range(start, start + count)],
                    "prompt_ids": pl.Series(prompts).arr.to_list(),
                    "output_ids": pl.Series(outputs).arr.to_list(),
                    "ids_sha256": [ids_sha256(p, o) for p, o in zip(prompts, outputs, strict=True)],
                }
            ).with_columns(pl.lit(value).alias(name) for name, value in fixed.items())
        )
    empty = pl.DataFrame(schema=RAW_GENERATIONS)
    pl.concat([empty, *parts], how="diagonal_relaxed").cast(dict(RAW_GENERATIONS)).write_parquet(  # type: ignore[arg-type]
        path, compression="zstd", compression_level=3, row_group_size=ROW_GROUP_ROWS
    )


def batches(path: Path) -> Iterator[pl.DataFrame]:
    """The rows as an asset check reads them."""
    return iter(pl.scan_parquet(path).collect_batches(chunk_size=ROW_GROUP_ROWS, maintain_order=True))


def cpu_seconds(work: Callable[[], object]) -> float:
    """CPU seconds of all threads while ``work`` runs."""
    start = time.process_time()
    work()
    return time.process_time() - start


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--tokens", type=int, default=1_000)
    parser.add_argument("--each", action="store_true", help="also measure each row law alone")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "raw_generations.parquet"
        write_rows(path, arguments.rows, arguments.tokens)
        print(f"{arguments.rows:,} rows of {arguments.tokens:,} tokens, {path.stat().st_size / 1e6:,.0f} MB")
        read = cpu_seconds(lambda: sum(len(batch) for batch in batches(path)))
        prompts = pl.scan_parquet(path).select("sample_id", "prompt_ids", status=pl.lit("ready"))
        index = PromptIndex.of(iter(prompts.collect_batches(chunk_size=ROW_GROUP_ROWS)))
        context = Context(PROFILE, current_prompts=index)
        report = []
        judged = cpu_seconds(lambda: report.append(judge_generations(batches(path), context)))
        sections = cpu_seconds(lambda: [anatomy(batch, PROFILE) for batch in batches(path)])
        print(f"read {read:.2f} CPU-s; read and judge {judged:.2f}, {judged / read:.1f} times; anatomy {sections:.2f}")
        print(", ".join(f"{v.law.name} {v.status}" for v in report[0].verdicts))
        for law in LAWS if arguments.each else ():
            if isinstance(law, RowLaw) and law.asset == "raw_generations" and law.unless(context) is None:
                frames = [Batch(batch, context) for batch in batches(path)]
                print(f"  {law.name:24}{cpu_seconds(partial(_each, law, frames)):.2f}")


def _each(law: RowLaw, frames: list[Batch]) -> None:
    for frame in frames:
        law.judge(frame)


def _text(random: np.random.Generator, rows: int, tokens: int) -> np.ndarray[tuple[int, int], np.dtype[np.int32]]:
    # Token frequencies fall off like those of language, so that the file compresses as a real one does.
    return np.minimum(random.zipf(1.2, (rows, tokens)), 160_000).astype(np.int32)


if __name__ == "__main__":
    main()
