"""How many rows a source has, told from a part of it."""

import gzip
import json
import random
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest
import zstandard

from eagle3_assets.prompts.sources import PromptSourceError, estimate, estimate_rows, find


def lines(count: int) -> bytes:
    words = random.Random(0)  # noqa: S311 - the same rows every time
    rows = ({"id": n, "text": f"{words.random()}" * words.randrange(1, 40)} for n in range(count))
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


def array(count: int) -> bytes:
    return b"[" + b",".join(lines(count).splitlines()) + b"]"


PACKINGS: dict[str, Callable[[int], bytes]] = {
    "a.jsonl": lines,
    "a.json": array,
    "a.jsonl.gz": lambda count: gzip.compress(lines(count)),
    "a.jsonl.zst": lambda count: zstandard.compress(lines(count)),
}


@pytest.mark.parametrize("name", PACKINGS)
def test_a_small_source_is_counted_and_a_large_one_extrapolated(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / name).write_bytes(PACKINGS[name](9_000))
    files = find([str(tmp_path / name)]).files
    assert estimate_rows(files) == estimate.RowEstimate(9_000, exact=True)
    monkeypatch.setattr(estimate, "LOOKED_AT_BYTES", 1_500_000)
    guessed = estimate_rows(files)
    assert not guessed.exact
    assert guessed.rows == pytest.approx(9_000, rel=0.15)


def test_parquet_says_it_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pl.DataFrame({"a": range(5_000)}).write_parquet(tmp_path / "a.parquet")
    monkeypatch.setattr(estimate, "LOOKED_AT_BYTES", 1)
    assert estimate_rows(find([str(tmp_path)]).files) == estimate.RowEstimate(5_000, exact=True)


def test_of_many_files_some_are_opened(tmp_path: Path) -> None:
    for number in range(20):
        (tmp_path / f"{number:02}.jsonl").write_bytes(lines(100) + b"\n")
    guessed = estimate_rows(find([str(tmp_path)]).files)
    assert not guessed.exact
    assert guessed.rows == pytest.approx(2_000, rel=0.05)


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(lines(100))[:-20])
    with pytest.raises(PromptSourceError, match=r"a\.jsonl\.gz: is damaged"):
        estimate_rows(find([str(tmp_path)]).files)
