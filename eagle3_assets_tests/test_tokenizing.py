"""Prompts rendered in several processes are the same in the same order; what happens to a process is said in words."""

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from eagle3_assets import tokenizing
from eagle3_assets.config import Dataset, Eagle3Config, Target
from eagle3_assets.frames import batches
from eagle3_assets.judging import tokenize
from eagle3_assets.partitions import dataset_partitions
from eagle3_assets.project import Project
from eagle3_assets.prompts.rows import read_partition
from eagle3_assets.target import TargetError, load_target
from eagle3_assets_tests import own_code
from eagle3_assets_tests.conftest import DEMO, demo_rows, write_jsonl


def job(folder: Path, model: Path, rows: int = 40) -> tuple[Any, Any, Any, pl.LazyFrame]:
    """What ``tokenized`` is called with, of the demo's prompts."""
    dataset = Dataset(name="d", source=str(write_jsonl(folder / "prompts.jsonl", demo_rows("function_calling", rows))))
    project = Project(Eagle3Config(target=Target(model=str(model), trust_remote_code=True), datasets=(dataset,)))
    partition = dataset_partitions(dataset)[0]
    return project, partition, load_target(project.config.target), read_partition(partition, 20).rows.lazy()


@pytest.fixture
def in_two(monkeypatch: pytest.MonkeyPatch) -> None:
    """However small the partition is."""
    monkeypatch.setattr(tokenizing, "WORTH_BYTES", 0)
    monkeypatch.setattr(tokenizing, "_cores", lambda: 2)
    monkeypatch.setattr(tokenizing, "_ROWS", 3)


@pytest.mark.parametrize(
    ("model", "worth", "cores", "processes"),
    [
        ("own", 0, 2, 2),
        ("own", 0, 64, 8),
        ("own", 0, 1, 1),
        ("own", 1 << 40, 64, 1),
        ("demo", 0, 64, 1),
    ],
)
def test_only_a_slow_tokenizer_and_much_to_do_are_worth_processes(
    model: str, worth: int, cores: int, processes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tokenizing, "WORTH_BYTES", worth)
    monkeypatch.setattr(tokenizing, "_cores", lambda: cores)
    directory = own_code.save_target(tmp_path / "own") if model == "own" else DEMO / "model"
    *_, target, prompts = job(tmp_path, directory, rows=2)
    assert tokenizing._processes(target, prompts) == processes


@pytest.mark.slow
@pytest.mark.usefixtures("in_two")
def test_two_processes_give_what_one_gives_in_its_order(tmp_path: Path) -> None:
    project, partition, target, prompts = job(tmp_path, own_code.save_target(tmp_path / "own"))
    one = pl.concat(tokenize(project, partition, target, rows) for rows in batches(prompts))
    parts = list(tokenizing.tokenized(project, partition, target, prompts))
    assert [len(part) for part in parts] == [3] * 13 + [1]
    assert pl.concat(parts).equals(one)
    assert one["status"].unique().to_list() == ["ready"]


@pytest.mark.slow
@pytest.mark.usefixtures("in_two")
def test_a_target_that_is_changed_meanwhile_is_an_error_of_the_run(tmp_path: Path) -> None:
    model = own_code.save_target(tmp_path / "own")
    project, partition, target, prompts = job(tmp_path, model)
    (model / own_code.HELPER).write_text(own_code.HELPER_CODE + "\n", encoding="utf-8")
    with pytest.raises(TargetError, match="was changed meanwhile"):
        list(tokenizing.tokenized(project, partition, target, prompts))


@pytest.mark.slow
@pytest.mark.usefixtures("in_two")
def test_a_process_that_is_killed_is_an_error_of_the_run_and_none_is_left(tmp_path: Path) -> None:
    project, partition, target, prompts = job(tmp_path, own_code.save_target(tmp_path / "own"))
    parts = tokenizing.tokenized(project, partition, target, prompts)
    assert len(next(parts)) == 3
    children = multiprocessing.active_children()
    assert len(children) == 2
    os.kill(children[0].pid or 0, signal.SIGKILL)
    with pytest.raises(TargetError, match="one of the 2 processes that render prompts was ended from outside"):
        list(parts)
    for child in children:
        child.join(30)
    assert not any(child.is_alive() for child in children)


ABANDONED = """
import multiprocessing, os, signal, sys
from pathlib import Path
from eagle3_assets import tokenizing
from eagle3_assets_tests.test_tokenizing import job
tokenizing.WORTH_BYTES, tokenizing._cores, tokenizing._ROWS = 0, lambda: 2, 3
parts = tokenizing.tokenized(*job(Path(sys.argv[1]), Path(sys.argv[1]) / "own"))
next(parts)
print(*(child.pid for child in multiprocessing.active_children()), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.slow
def test_none_is_left_of_a_run_that_was_killed(tmp_path: Path) -> None:
    own_code.save_target(tmp_path / "own")
    done = subprocess.run([sys.executable, "-c", ABANDONED, str(tmp_path)], capture_output=True, text=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    children = [Path("/proc", pid) for pid in done.stdout.split()]
    assert len(children) == 2
    end = time.monotonic() + 60
    while any(child.exists() for child in children) and time.monotonic() < end:
        time.sleep(0.2)
    assert not any(child.exists() for child in children)
