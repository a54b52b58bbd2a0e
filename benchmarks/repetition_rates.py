"""How often the law ``repetition`` finds loops where there are some, and where there are none.

What belongs here: genuine text, text with loops, and the law's rates on both. Not here: the law and its thresholds.

Usage: python -m benchmarks.repetition_rates [--write] [--tokenizers FOLDER] [OUTPUTS.parquet ...]
The tokenizers are those of ``scripts/fetch-tokenizers``. OUTPUTS are sealed generations that count as genuine, too.
"""

import argparse
import inspect
import json
import pkgutil
import sys
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
from eagle3_assets.tokens.profile import TargetProfile, Tokenizer

ROOT = Path(__file__).parent.parent
LENGTHS = (200, 500, 1_000, 4_000)
PERIODS = (1, 2, 3, 7, 20, 64, 150, 400)
LOOPED = (100, 200, 400, 1_000, 2_000)
"""Ids that a loop takes, all its rounds together."""
LOOPS_EACH = 100
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
