"""Memory does not grow with a source, only with the partition: measured in processes of their own."""

import gzip
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest

MEASURE = """
import json, pathlib, re, sys
from eagle3_assets.config import Dataset
from eagle3_assets.partitions import dataset_partitions
from eagle3_assets.prompts.rows import read_partition
dataset = Dataset(name="d", source=sys.argv[1], shards=int(sys.argv[2]))
found = read_partition(dataset_partitions(dataset)[int(sys.argv[3])], 20)
# What getrusage says is inherited from the parent.
peak = int(re.search(r"VmHWM:\\s+(\\d+)", pathlib.Path("/proc/self/status").read_text())[1]) / 1024
print(json.dumps([found.accounts.rows, found.accounts.refused, len(found.rows), peak]))
"""
TEXT = " ".join(f"word{i * 7919 % 10_007}" for i in range(700))  # about 6 KB


def rows(count: int) -> Iterator[dict[str, object]]:
    for i in range(count):
        # Every tenth is refused: those must not be held either.
        content = None if i % 10 == 0 else f"{i} {TEXT}"
        yield {"id": f"conversation-{i:08}", "messages": [{"role": "user", "content": content}]}


def write(path: Path, count: int) -> Path:
    if path.suffix == ".parquet":
        pl.DataFrame(list(rows(count))).write_parquet(path, row_group_size=2_000)
        return path
    with gzip.open(path, "wt", compresslevel=1) if path.suffix == ".gz" else path.open("w") as file:
        array = path.suffix == ".json"
        for i, row in enumerate(rows(count)):
            file.write(("[" if i == 0 else ",") if array else "")
            file.write(json.dumps(row) + "\n")
        file.write("]" if array else "")
    return path


def peak(path: Path, shards: int, number: int) -> tuple[int, int, int, float]:
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, str(path), str(shards), str(number)], capture_output=True, check=True, text=True
    )
    read, refused, kept, mib = json.loads(done.stdout)
    return read, refused, kept, mib


# Of parquet a few row groups are read ahead: the smaller file must have more of them than that.
@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "few", "times", "room"),
    [
        ("s.jsonl", 5_000, 10, 60),
        ("s.jsonl.gz", 5_000, 10, 60),
        ("s.json", 5_000, 10, 60),
        ("s.parquet", 50_000, 3, 150),
    ],
)
def test_a_longer_source_needs_no_more_memory(name: str, few: int, times: int, room: int, tmp_path: Path) -> None:
    small, large = (write(tmp_path / f"{count}{name}", count) for count in (few, few * times))
    shards = few // 5_000
    for little, much, kept in (
        (peak(small, shards, 0), peak(large, shards * times, 0), range(4_000, 5_000)),  # shards of the same size
        (peak(small, shards, shards), peak(large, shards, shards), range(20, 21)),  # trials
    ):
        assert little[:2] == (few, few // 10)
        assert much[:2] == (few * times, few * times // 10)
        assert little[2] in kept
        assert much[2] in kept
        # What was read more is hundreds of MiB of text.
        assert much[3] - little[3] < room, (name, little, much)
