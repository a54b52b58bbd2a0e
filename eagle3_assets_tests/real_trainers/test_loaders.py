"""The trainers' own loaders on our exports: ids and masks come back the same for every row."""

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import yaml

from eagle3_assets.exports.formats import FORMATS
from eagle3_assets.exports.manifest import Manifest
from eagle3_assets.tokens.columns import Ints
from eagle3_assets.tokens.vocabulary import choose
from eagle3_assets_tests.exports.conftest import Made, made

__all__ = ["made"]

pytestmark = pytest.mark.trainers

ROOT = Path(__file__).parents[2]
PYTHON = ROOT / ".cache" / "trainers-venv" / "bin" / "python"
LOADERS = Path(__file__).parent / "loaders.py"

Rows = list[dict[str, Any]]


def trainers(name: str, *arguments: object, home: Path) -> Any:
    """What a function of ``loaders`` gives back; the trainers get a home of their own to cache in."""
    assert PYTHON.exists(), f"there is no {PYTHON}: make test-trainers makes it"
    done = subprocess.run(
        [str(PYTHON), str(LOADERS), name, json.dumps(arguments)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "HOME": str(home), "HF_HOME": str(home / "hf"), "HF_HUB_OFFLINE": "1"},
        timeout=280,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def recorded(made: Made, place: Path, *sides: str) -> Rows:
    """Ids and masks of an export's rows, made from what was captured, in the order of its files."""
    raw = {row["sample_id"]: row for row in made.raw.iter_rows(named=True)}
    index = pl.read_parquet(place / "index" / "d.parquet")
    names = [name for side in sides for name in index.filter(pl.col("fate") == side).sort("file", "row")["sample_id"]]
    return [
        {
            "input_ids": raw[name]["prompt_ids"] + raw[name]["output_ids"],
            "loss_mask": [0] * len(raw[name]["prompt_ids"]) + [1] * len(raw[name]["output_ids"]),
        }
        for name in names
    ]


def without_lengths(rows: Rows) -> Rows:
    """Rows without ``seq_len``, which must be true."""
    assert all(row.pop("seq_len", len(row["input_ids"])) == len(row["input_ids"]) for row in rows)
    return rows


def longest(manifest: Manifest) -> int:
    return max(one.longest for side in ("train", "eval") for _, one in manifest.lengths(side))


def merged(place: Path, side: str = "train") -> Path:
    """One file of all, as docs/train-specforge.md makes it."""
    path = place / f"{side}.jsonl"
    path.write_bytes(b"".join(file.read_bytes() for file in sorted((place / side).glob("*.jsonl"))))
    return path


def test_specforge_reads_every_row_as_it_was_recorded(made: Made, tmp_path: Path) -> None:
    manifest = made.export(tmp_path, shard_rows=3)
    rows = trainers("specforge", str(merged(tmp_path)), longest(manifest), home=tmp_path)
    assert rows == recorded(made, tmp_path, "train")
    assert len(rows) == manifest.rows("train") > 3


def test_speculators_prepares_every_row_as_it_was_recorded(made: Made, tmp_path: Path) -> None:
    manifest = made.export(tmp_path, shard_rows=3)
    rows = trainers("speculators_prepare", str(tmp_path / "train"), longest(manifest), home=tmp_path)
    assert without_lengths(rows) == recorded(made, tmp_path, "train")


@pytest.mark.parametrize("loader", ["specforge", "speculators_prepare"])
def test_at_the_edge_of_max_length_nothing_is_cut_and_one_less_would_cut(
    loader: str, made: Made, tmp_path: Path
) -> None:
    limit = longest(made.export(tmp_path / "all", eval_share=0.0)) - 1
    place = tmp_path / "limited"
    manifest = made.export(place, eval_share=0.0, max_length=limit)
    assert manifest.fates["too_long"] == 1
    path = str(merged(place))
    assert without_lengths(trainers(loader, path, limit, home=tmp_path)) == recorded(made, place, "train")
    # What the filter is for: a row that is one token longer than the trainer's limit loses that token in silence.
    edge = longest(manifest)
    assert max(len(row["input_ids"]) for row in trainers(loader, path, edge, home=tmp_path)) == edge
    assert trainers(loader, path, edge - 1, home=tmp_path) != trainers(loader, path, edge, home=tmp_path)


def test_a_masked_tail_reaches_both(made: Made, tmp_path: Path) -> None:
    made.export(tmp_path, eval_share=0.0, cut_off="mask", cut_off_tail=5)
    path = merged(tmp_path)
    ours = [json.loads(line)["loss_mask"] for line in path.read_text(encoding="utf-8").splitlines()]
    assert any(mask[-5:] == [0] * 5 for mask in ours)
    for loader in ("specforge", "speculators_prepare"):
        assert [row["loss_mask"] for row in trainers(loader, str(path), 4096, home=tmp_path)] == ours


@pytest.mark.parametrize("shard_rows", [2, 10_000])
def test_speculators_trains_and_validates_on_the_sides_of_our_split(
    shard_rows: int, made: Made, tmp_path: Path
) -> None:
    manifest = made.export(tmp_path, format="speculators", shard_rows=shard_rows)
    for split, side in (("train", "train"), ("val", "eval")):
        rows = trainers("speculators_train", str(tmp_path), manifest.train_ratio, split, home=tmp_path)
        assert without_lengths(rows) == recorded(made, tmp_path, side)
        alone = trainers("speculators_train", str(tmp_path / side), 1.0, "train", home=tmp_path)
        assert without_lengths(alone) == recorded(made, tmp_path, side)


def maps_of(place: Path) -> dict[str, list[int]]:
    """The maps in an export, as JSON has them."""
    d2t, t2d = (np.load(place / "vocabulary" / f"{name}.npy") for name in ("d2t", "t2d"))
    return {"d2t": d2t.tolist(), "t2d": t2d.astype(int).tolist()}


# 300 of the ids are more than were seen, 60 are fewer.
@pytest.mark.parametrize("size", [60, 300])
def test_both_take_the_vocabulary_as_it_was_chosen_and_would_choose_the_same_but_for_structure(
    size: int, made: Made, tmp_path: Path
) -> None:
    made.export(tmp_path, draft_vocab_size=size)
    ours, target, model = maps_of(tmp_path), made.target.vocab_size, made.target.settings.model
    files = {path.stem: str(path) for path in (tmp_path / "vocabulary").iterdir()}
    mapping, frequencies = files["vocab_mapping"], files["token_freq"]
    specforge = trainers("specforge_vocabulary", mapping, frequencies, size, target, home=tmp_path)
    speculators = trainers("speculators_vocabulary", files, size, target, model, str(tmp_path / "train"), home=tmp_path)
    without = choose(counts_of(Path(frequencies), target), (), size)
    alone = {"d2t": without.d2t.tolist(), "t2d": without.t2d.astype(int).tolist()}
    assert specforge == speculators == [ours, alone]
    # What they would leave out are structural ids, which they cannot know, and the price is as many of the rarest.
    structural = made.target.profile.structural_ids
    lost = set(np.flatnonzero(ours["t2d"])) - set(np.flatnonzero(without.t2d))
    assert lost and lost <= structural


def counts_of(frequencies: Path, target: int) -> Ints:
    """What is in token_freq.pt, for each of the target's ids."""
    import torch

    counted = torch.load(frequencies, weights_only=True)
    return np.array([counted.get(token, 0) for token in range(target)], np.int64)


def test_speculators_counts_the_same_in_what_it_trains_on(made: Made, tmp_path: Path) -> None:
    made.export(tmp_path, format="speculators", cut_off="mask")
    counted = trainers("speculators_frequencies", str(tmp_path / "train"), str(tmp_path / "own.pt"), home=tmp_path)
    ours = counts_of(tmp_path / "vocabulary" / "token_freq.pt", made.target.vocab_size)
    assert {int(token): count for token, count in counted.items()} == {i: n for i, n in enumerate(ours.tolist()) if n}


def test_a_vocabulary_of_all_ids_changes_nothing(made: Made, tmp_path: Path) -> None:
    made.export(tmp_path)
    target = made.target.vocab_size
    ours = maps_of(tmp_path)
    assert ours == {"d2t": [0] * target, "t2d": [1] * target}
    mapping, frequencies = (str(tmp_path / "vocabulary" / f"{name}.pt") for name in ("vocab_mapping", "token_freq"))
    assert trainers("specforge_vocabulary", mapping, frequencies, target, target, home=tmp_path) == [ours, ours]


@pytest.mark.parametrize("form", FORMATS)
def test_the_card_says_how_to_load_it(form: str, made: Made, tmp_path: Path) -> None:
    # Several files, with calls in some of their messages.
    manifest = made.export(tmp_path, format=form, shard_rows=2, eval_share=0.0)
    [snippet] = re.findall(r"```python\n(.*?)```", (tmp_path / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    loaded = trainers("card", snippet, str(tmp_path), home=tmp_path / "home")
    assert loaded["rows"] == manifest.rows("train") > 3
    assert all(f"`{column}`" in FORMATS[form].summary for column in loaded["columns"] if form != "lossy-conversations")


def blocks(page: str, kind: str) -> list[str]:
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    return re.findall(rf"```{kind}\n(.*?)```", text, re.DOTALL)


def test_specforge_takes_the_config_in_the_docs(tmp_path: Path) -> None:
    [block] = blocks("train-specforge.md", "yaml")
    path = tmp_path / "run.yaml"
    path.write_text(block, encoding="utf-8")
    loaded = trainers("specforge_config", str(path), home=tmp_path)
    for section in ("model", "data"):
        assert yaml.safe_load(block)[section].items() <= loaded[section].items()
    # Without a vocabulary it starts no run.
    path.write_text(
        "\n".join(line for line in block.splitlines() if "vocab_mapping_path" not in line), encoding="utf-8"
    )
    with pytest.raises(AssertionError, match=r"require model\.vocab_mapping_path"):
        trainers("specforge_config", str(path), home=tmp_path)


def test_speculators_has_the_options_in_the_docs(tmp_path: Path) -> None:
    commands = re.findall(
        r"^speculators ([a-z-]+)((?:.*\\\n)*.*)$", "\n".join(blocks("train-speculators.md", "bash")), re.MULTILINE
    )
    assert {name for name, _ in commands} == {"prepare-data", "train"}
    for name, rest in commands:
        shown = trainers("speculators_config", [name], home=tmp_path)
        assert shown["exit_code"] == 0
        assert set(re.findall(r"--[a-z][a-z-]+", rest)) <= set(shown["options"])
