"""What tests share: small projects on the packaged demo model, and a real Dagster instance to run them on."""

import json
import os
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Any

import dagster as dg
import polars as pl
import pytest
import yaml
from hypothesis import settings
from upath import UPath

from eagle3_assets.build import build_defs
from eagle3_assets.config import CONFIG_VARIABLE, STORAGE_VARIABLE, load_config
from eagle3_assets.generation.sealed import write_identity
from eagle3_assets.identity import Identity
from eagle3_assets.jobs import PARTITION_JOB
from eagle3_assets.project import Project
from eagle3_assets.running import HOME_VARIABLE
from eagle3_assets.storage.files import sealed_generations, write_parquet

# How long an example takes says how busy the machine is.
settings.register_profile("patient", deadline=None)
settings.load_profile("patient")

DEMO = Path(str(files("eagle3_assets.demo")))

ProjectMaker = Callable[..., Project]

SHARDS = ("calls-00of02", "calls-01of02")
"""Partitions of the dataset of :func:`two_datasets` that is made whole."""


def pytest_configure(config: pytest.Config) -> None:
    """Has transformers copy the code of targets, which it reads once when it is imported, to where no user's is."""
    folder = tempfile.TemporaryDirectory(prefix="eagle3-test-modules-")
    config.add_cleanup(folder.cleanup)
    os.environ["HF_MODULES_CACHE"] = folder.name


@pytest.fixture(scope="session", autouse=True)
def _no_settings_of_the_caller() -> Iterator[None]:
    """What the person who runs the tests has set up for their own work decides no test, and is not touched by one.

    Nor does the width of their terminal, which readline writes into the environment of every process begun after it.
    """
    with pytest.MonkeyPatch.context() as patch:
        for variable in (HOME_VARIABLE, CONFIG_VARIABLE, STORAGE_VARIABLE, "COLUMNS", "LINES"):
            patch.delenv(variable, raising=False)
        yield


@pytest.fixture(scope="session", autouse=True)
def _few_threads() -> None:
    """Small models are fastest on one thread, and a machine that runs tests has other things to do."""
    import torch

    torch.set_num_threads(1)


def demo_rows(dataset: str, count: int) -> list[dict[str, Any]]:
    """The first prompts of a demo dataset."""
    lines = (DEMO / "prompts" / f"{dataset}.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines[:count]]


def write_jsonl(path: Path, rows: list[Any]) -> Path:
    """Rows as JSONL; strings are written as they are."""
    lines = (row if isinstance(row, str) else json.dumps(row) for row in rows)
    path.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    return path


def write_project(
    folder: Path, rows: list[Any] | None = None, *, dataset: dict[str, Any] | None = None, **config: Any
) -> Project:
    """A small project in a folder. Keys given replace those of the usual small config."""
    write_jsonl(folder / "prompts.jsonl", demo_rows("function_calling", 4) if rows is None else rows)
    settings: dict[str, Any] = {
        "target": {"model": "demo"},
        "engine": {"batch_size": 8, "threads": 1, "logprob_share": 1.0},
        "storage": {"root": "data"},
        "trial_rows": 2,
        "datasets": [
            {
                "name": "d",
                "source": "prompts.jsonl",
                "sampling": {"max_new_tokens": 160, "temperature": 0.0},
                **(dataset or {}),
            }
        ],
        **config,
    }
    path = folder / "eagle3.yaml"
    path.write_text(yaml.safe_dump(settings), encoding="utf-8")
    return Project(load_config(path))


def two_datasets(folder: Path, **changed: Any) -> Project:
    """A dataset of two shards, and one whose prompts are another's."""
    write_jsonl(folder / "talk.jsonl", demo_rows("chat", 3))
    sampling = {"max_new_tokens": 160, "temperature": 0.0, **changed}
    datasets = [
        {"name": "calls", "source": "prompts.jsonl", "shards": 2, "sampling": sampling},
        {"name": "talk", "source": "talk.jsonl", "sampling": {**sampling, "temperature": 0.0}},
    ]
    return write_project(folder, demo_rows("function_calling", 6), datasets=datasets)


def harm(project: Project, key: str, change: Callable[[pl.DataFrame], pl.DataFrame]) -> None:
    """Replaces the sealed rows of a partition by changed ones."""
    sealed = sealed_generations(project.layout, key)
    write_parquet(change(pl.read_parquet(str(sealed.path))), sealed.path)


def damage(path: Path, column: str | None = None) -> None:
    """Makes the pages of a parquet file unreadable and leaves its footer whole.

    Args:
        path: of the file.
        column: the only one to damage, not the first.
    """
    if column is None:
        data = bytearray(path.read_bytes())
        end = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
        data[4:end] = b"\xff" * (end - 4)
    else:
        rows = pl.read_parquet(path)
        data = bytearray(_parquet(rows, path))
        # Pages lie in the order of the columns, so a file of those before it begins alike, up to its first page.
        before = _parquet(rows[:, : rows.columns.index(column)], path)
        start = next(place for place, (one, other) in enumerate(zip(before, data, strict=False)) if one != other)
        data[start : start + 16] = b"\xff" * 16
    path.write_bytes(bytes(data))


def _parquet(rows: pl.DataFrame, beside: Path) -> bytes:
    path = beside.with_suffix(".part")
    write_parquet(rows, UPath(path))
    data = path.read_bytes()
    path.unlink()
    return data


def made_by(project: Project, key: str, identity: Identity) -> None:
    """Has a partition's record and its rows say that something else made it."""
    sealed = sealed_generations(project.layout, key)
    write_identity(sealed.directory, identity)
    pointer = sealed.pointer.model_copy(update={"fingerprint": identity.fingerprint})
    (Path(sealed.directory.path) / "current.json").write_text(pointer.model_dump_json(), encoding="utf-8")
    said = {"identity": pl.lit(identity.fingerprint), "weight_version": pl.lit(identity.weights)}
    harm(project, key, lambda rows: rows.with_columns(**said))


@pytest.fixture(scope="session")
def corpus_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder where both shards of one dataset are made, and only the trial of the other."""
    folder = tmp_path_factory.mktemp("corpus")
    project = two_datasets(folder)
    (folder / "home").mkdir()
    with dg.DagsterInstance.local_temp(str(folder / "home")) as instance:
        job = build_defs(project).resolve_job_def(PARTITION_JOB)
        chain = {dg.AssetKey(name) for name in ("prompts", "tokenized_prompts", "raw_generations", "training_samples")}
        quick = job.get_subset(asset_selection=chain, asset_check_selection=set())
        for key in (*SHARDS, "talk-trial"):
            quick.execute_in_process(instance=instance, partition_key=key)
    return folder


@pytest.fixture
def make_project(tmp_path: Path) -> ProjectMaker:
    """Makes a project below the test's folder, as :func:`write_project` does."""
    return partial(write_project, tmp_path)


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[dg.DagsterInstance]:
    """A real instance with storage on disk."""
    home = tmp_path / "dagster_home"
    home.mkdir()
    with dg.DagsterInstance.local_temp(str(home), overrides={"telemetry": {"enabled": False}}) as made:
        yield made
