"""Parquet files that are there whole or not at all, on disks that are full and on object stores."""

import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest
from upath import UPath

from eagle3_assets.contract import TRAINING_SAMPLES
from eagle3_assets.storage.files import StorageError, scan_parquet, write_parquet
from eagle3_assets.storage.layout import Layout

FRAME = pl.DataFrame(
    {"id": ["a", "b"], "conversation_id": ["a", "b"], "input_ids": [[1, 2], [3]], "loss_mask": [[0, 1], [1]]},
    schema={name: dtype for name, dtype in TRAINING_SAMPLES.items() if name != "metadata"},
).with_columns(metadata=pl.lit("{}"))
ASSET = "training_samples"


def test_round_trip_and_nothing_left_beside(tmp_path: Path) -> None:
    path = UPath(tmp_path / "deep" / "x.parquet")
    write_parquet(FRAME.lazy(), path)
    assert scan_parquet(path, asset=ASSET).collect().equals(FRAME)
    assert [p.name for p in (tmp_path / "deep").iterdir()] == ["x.parquet"]


def test_a_full_disk_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    write_parquet(FRAME, UPath(path))
    code = (
        "import resource, sys, numpy as np, polars as pl\n"
        "from upath import UPath\n"
        "from eagle3_assets.storage.files import StorageError, write_parquet\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))\n"
        "noise = pl.DataFrame({'a': np.random.default_rng(0).integers(0, 2**62, 1_000_000)})\n"
        "try:\n"
        "    write_parquet(noise, UPath(sys.argv[1]))\n"
        "except StorageError as error:\n"
        "    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=False)
    assert f"{path}: cannot be written:" in done.stdout, done.stderr
    assert "what was there before is unchanged" in done.stdout
    assert scan_parquet(UPath(path), asset=ASSET).collect().equals(FRAME)
    assert [p.name for p in tmp_path.iterdir()] == ["x.parquet"]


@pytest.mark.parametrize("content", [b"", b"PAR1", b"no parquet at all"])
def test_a_damaged_file_is_named(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x.parquet"
    path.write_bytes(content)
    with pytest.raises(StorageError, match=r"x\.parquet: is no readable parquet file .* materialize prompts again"):
        scan_parquet(UPath(path), asset="prompts")


def test_columns_of_another_version_are_named(tmp_path: Path) -> None:
    path = UPath(tmp_path / "x.parquet")
    write_parquet(FRAME.drop("metadata").with_columns(id=pl.lit(3)), path)
    with pytest.raises(StorageError, match=r"columns differ from this version's training_samples \(id, metadata\)"):
        scan_parquet(path, asset=ASSET)


def test_a_missing_file_says_what_to_materialize(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match=r"no such file; materialize prompts of this partition first"):
        scan_parquet(UPath(tmp_path / "x.parquet"), asset="prompts")


def test_an_object_store() -> None:
    layout = Layout.at("memory://bucket/data")
    path = layout.asset_file("prompts", "d")
    write_parquet(FRAME, path)
    assert scan_parquet(path, asset=ASSET).collect().equals(FRAME)
    assert layout.journals("d").is_relative_to(Path.cwd() / ".eagle3" / "journals")
