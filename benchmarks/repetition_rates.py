"""How often the law ``repetition`` finds loops where there are some, and where there are none.

What belongs here: genuine text, text with loops, and the law's rates on both. Not here: the law and its thresholds.

Usage: python -m benchmarks.repetition_rates [--write]
It needs the tokenizers of ``scripts/fetch-tokenizers`` and the demo target's outputs (``make demo``).
"""

import argparse
import inspect
import json
import pkgutil
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from pydoc_data.topics import topics

import numpy as np
import polars as pl
from numpy.typing import NDArray

from benchmarks.page import machine, write_part
from eagle3_assets.target import load_tokenizer
from eagle3_assets.tokens.batch import Batch
from eagle3_assets.tokens.context import Context
from eagle3_assets.tokens.laws.repetition import judge_repetition
from eagle3_assets.tokens.profile import TargetProfile

ROOT = Path(__file__).parent.parent
TOKENIZERS = ROOT / ".cache" / "tokenizers"
DEMO_OUTPUTS = ROOT / ".eagle3" / "data" / "raw_generations"
LOOPS_WITH = "qwen3"
"""Whose tokenizer writes the texts with loops."""
LENGTHS = (200, 500, 1_000, 4_000)
PERIODS = (1, 2, 3, 7, 20, 64, 150, 400)
COUNTING_PERIODS = (7, 20, 64, 150, 400)
LOOPED = (100, 200, 400, 1_000, 2_000)
"""Ids that a loop takes, all its rounds together."""
LOOPS_EACH = 100
PART = """\
## The law `repetition`

How often the law finds a loop where there is none and where there is one. Written by `benchmarks/repetition_rates.py`:

```bash
python -m benchmarks.repetition_rates --write
```

{machine}

Genuine text cut into outputs of {lengths} ids, each length anew, with each of the tokenizers
{tokenizers};
and what the demo target wrote:

| genuine | outputs | remarked on | quarantined |
|---|--:|--:|--:|
{genuine}

The JSON is one list of the signatures of Python's functions, about as repetitive as a tool's genuine reply gets.

Genuine English and code which ends in a loop, {each} outputs each, with the tokenizer of {looped_with}: in how many the
law finds it (remarked on or quarantined / quarantined), by the loop's period and the ids that all its rounds take
together. In a *counting* loop one id of each round is another one:

| period | {heads} |
|---|{rules}
{loops}

Not found are loops of fewer than three rounds, unless half of the output is repetition, and short counting loops, which
look like genuine lists.
"""
PROFILE = TargetProfile("any", 300_000, frozenset(), {})

Ids = NDArray[np.int32]


def corpora() -> dict[str, list[str]]:
    """Genuine texts by kind, all of them part of Python."""
    stdlib = Path(sysconfig.get_paths()["stdlib"])
    tables = stdlib / "encodings"
    return {
        "English": ["\n\n".join(topics.values())],
        "code": [f.read_text(encoding="utf-8") for f in sorted(stdlib.glob("*.py"))],
        "JSON": [json.dumps(list(_signatures()), indent=indent) for indent in (None, 2)],
        "code that is a table": [f.read_text(encoding="utf-8") for f in sorted(tables.glob("cp*.py"))],
    }


def _signatures() -> Iterator[dict[str, object]]:
    """What functions of Python look like, as a tool would say it."""
    for name in ("json", "pathlib", "statistics", "textwrap", "shutil", "tarfile", "random", "logging", "argparse"):
        for label, value in inspect.getmembers(pkgutil.resolve_name(name), callable):
            doc = inspect.getdoc(value) or ""
            yield {"module": name, "name": label, "summary": doc.split("\n")[0], "length": len(doc)}


def flagged(outputs: list[Ids]) -> dict[str, NDArray[np.bool_]]:
    """Which outputs the law remarks on or quarantines (``remark``), and which of them it quarantines (``extreme``)."""
    found = {kind: np.zeros(len(outputs), np.bool_) for kind in ("remark", "extreme")}
    frame = pl.DataFrame(
        {"sample_id": "s", "output_ids": pl.Series([ids.tolist() for ids in outputs], dtype=pl.List(pl.Int32))}
    )
    for one in judge_repetition(Batch(frame, Context(PROFILE))).found:
        found["remark"][one.rows] = True
        if one.severity == "error":
            found["extreme"][one.rows] = True
    return found


def pieces(texts: list[Ids], length: int) -> list[Ids]:
    """Each text in outputs of that many ids."""
    return [ids[at : at + length] for ids in texts for at in range(0, len(ids) - length + 1, length)]


def loops(texts: list[Ids], period: int, looped: int, *, counting: bool) -> list[Ids]:
    """Genuine beginnings that end in a loop, cut anywhere; of counting loops one id is another one in each round."""
    random = np.random.default_rng(period * 10_000 + looped)
    whole = np.concatenate(texts)
    made = []
    for _ in range(LOOPS_EACH):
        start, before = random.integers(0, len(whole) - 3_000), random.integers(50, 1_500)
        body = whole[start + before : start + before + period]
        loop = np.resize(body, looped)
        if counting:
            loop[period // 2 :: period] = random.integers(0, 100_000, len(loop[period // 2 :: period]))
        made.append(np.concatenate([whole[start : start + before], loop]))
    return made


def genuine_rates(texts: list[Ids]) -> tuple[int, int, int]:
    """The number of outputs that texts are cut into, of those remarked on or quarantined, and of those quarantined."""
    of_each_length = [_rates(pieces(texts, length)) for length in LENGTHS]
    outputs, remarks, extremes = (sum(counts) for counts in zip(*of_each_length, strict=True))
    return outputs, remarks, extremes


def _rates(outputs: list[Ids]) -> tuple[int, int, int]:
    found = flagged(outputs)
    return len(outputs), int(found["remark"].sum()), int(found["extreme"].sum())


def main() -> None:
    """Measures, and writes the report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="write the report into docs/benchmarks.md as well")
    arguments = parser.parse_args()
    texts = corpora()
    total: dict[str, list[tuple[int, int, int]]] = {}
    looped: list[str] = []
    folders, files = sorted(TOKENIZERS.glob("*")), sorted(DEMO_OUTPUTS.glob("*/*.parquet"))
    outputs = [row.to_numpy() for file in files for row in pl.read_parquet(file)["output_ids"].drop_nulls()]
    if not folders or not outputs:
        raise SystemExit("something is missing; run scripts/fetch-tokenizers and make demo first")
    for folder in folders:
        tokenizer = load_tokenizer(folder, trust_remote_code=False)
        ids = {
            kind: [np.array(tokenizer.encode(text, add_special_tokens=False), np.int32) for text in written]
            for kind, written in texts.items()
        }
        for kind, of_kind in ids.items():
            total.setdefault(kind, []).append(genuine_rates(of_kind))
        if folder.name.startswith(LOOPS_WITH):
            either = ids["English"] + ids["code"]
            looped = [_loop_line(either, period, counting=False) for period in PERIODS]
            looped += [_loop_line(either, period, counting=True) for period in COUNTING_PERIODS]
    total["the demo target's outputs"] = [_rates(outputs)]
    rows = []
    for kind, counts in total.items():
        of, remarks, extremes = (sum(c) for c in zip(*counts, strict=True))
        rows.append(f"| {kind} | {of:,} | {remarks} ({remarks / of:.2%}) | {extremes} |")
    part = PART.format(
        machine=machine(("tokenizers", "transformers", "numpy")),
        lengths=", ".join(f"{length:,}" for length in LENGTHS),
        tokenizers=", ".join(folder.name for folder in folders),
        genuine="\n".join(rows),
        each=LOOPS_EACH,
        looped_with=LOOPS_WITH,
        heads=" | ".join(f"{looped:,} ids" for looped in LOOPED),
        rules="--:|" * len(LOOPED),
        loops="\n".join(looped),
    )
    print(part)
    if arguments.write:
        write_part("repetition_rates", part)


def _loop_line(texts: list[Ids], period: int, *, counting: bool) -> str:
    found = [flagged(loops(texts, period, looped, counting=counting)) for looped in LOOPED]
    rates = " | ".join(f"{each['remark'].mean():.0%} / {each['extreme'].mean():.0%}" for each in found)
    return f"| {period}{', counting' if counting else ''} | {rates} |"


if __name__ == "__main__":
    main()
