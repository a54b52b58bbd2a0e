"""The draft vocabulary as files: read back the same, and every law finds the damage that it is about."""

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from upath import UPath

from eagle3_assets.exports import vocabulary as files
from eagle3_assets.exports.errors import ExportError
from eagle3_assets.exports.verifying import verify
from eagle3_assets.exports.vocabulary import Recount, read_vocabulary
from eagle3_assets.exports.vocabulary_laws import LAWS, judge_vocabulary
from eagle3_assets.tokens.vocabulary import DraftVocabulary, VocabularyError, choose, count_ids
from eagle3_assets_tests.exports.conftest import Made
from eagle3_assets_tests.exports.test_export import rehashed, rows_of

STRUCTURAL = {9, 7}
OTHER = np.array([5, 5, 5, 2, 2, 8, 7, 8])
"""Trained tokens; of V = 10 ids, D = 4 are 2, 5, 7 and 9; 8 is as frequent as 2 and higher."""


RECOUNT = Recount(count_ids(OTHER, 10), {"d": len(OTHER)})


def chosen() -> DraftVocabulary:
    return choose(count_ids(OTHER, 10), STRUCTURAL, 4)


def written(place: Path, made: DraftVocabulary | None = None) -> UPath:
    made = made or chosen()
    record = files.vocabulary_record(made, "plain", "0" * 64, {"d": made.tokens})
    files.write_vocabulary(files.vocabulary_files(made, record), UPath(place))
    return UPath(place)


def loaded(path: Path) -> Any:
    import torch

    return torch.load(path, weights_only=True)


def saved(path: Path, **maps: np.ndarray) -> None:
    import torch

    torch.save({name: torch.from_numpy(value) for name, value in maps.items()}, path)


def faults(place: UPath, **against: Any) -> dict[str, str]:
    against = {"structural": STRUCTURAL, "recount": RECOUNT, **against}
    return {one.law.name: one.fault for one in judge_vocabulary(read_vocabulary(place, **against)) if one.fault}


def test_the_files_hold_what_was_chosen_in_the_forms_that_trainers_read(tmp_path: Path) -> None:
    place = written(tmp_path)
    assert loaded(tmp_path / "token_freq.pt") == Counter(OTHER.tolist())
    d2t, t2d = np.load(tmp_path / "d2t.npy"), np.load(tmp_path / "t2d.npy")
    assert (d2t.dtype, t2d.dtype) == (np.int64, np.bool_)
    assert [draft + int(offset) for draft, offset in enumerate(d2t)] == [2, 5, 7, 9] == np.flatnonzero(t2d).tolist()
    mapping = loaded(tmp_path / "vocab_mapping.pt")
    assert [str(mapping[name].dtype) for name in ("d2t", "t2d")] == ["torch.int64", "torch.bool"]
    assert (mapping["d2t"].tolist(), mapping["t2d"].tolist()) == (d2t.tolist(), t2d.tolist())
    assert [one.sentence for one in judge_vocabulary(read_vocabulary(place, recount=RECOUNT))] == [
        f"{law.name}: kept" for law in LAWS
    ]


def test_the_bytes_are_the_same_wherever_they_are_written(tmp_path: Path) -> None:
    first, second = written(tmp_path / "a"), written(tmp_path / "another")
    assert {name: (first / name).read_bytes() for name in files.FILES} == {
        name: (second / name).read_bytes() for name in files.FILES
    }
    store = UPath("memory://bucket/vocabulary")
    files.write_vocabulary({name: (first / name).read_bytes() for name in files.FILES}, store)
    assert not faults(store)


def _save(place: Path, **changed: Any) -> None:
    for name, value in changed.items():
        np.save(place / f"{name}.npy", value)


def maps(place: Path) -> dict[str, np.ndarray]:
    return {name: value.numpy() for name, value in loaded(place / "vocab_mapping.pt").items()}


def _frequencies(place: Path, change: Callable[[dict[int, int]], object]) -> None:
    import torch

    path = place / "token_freq.pt"
    torch.save(change(loaded(path)), path)


def _record(place: Path, **changed: Any) -> None:
    path = place / "vocabulary.json"
    path.write_text(json.dumps(json.loads(path.read_text(encoding="utf-8")) | changed), encoding="utf-8")


def _maps(place: Path, ids: list[int]) -> None:
    """Both trainers' maps of other ids, in agreement."""
    t2d = np.isin(np.arange(10), ids)
    d2t = np.array(ids) - np.arange(len(ids))
    _save(place, d2t=d2t, t2d=t2d)
    saved(place / "vocab_mapping.pt", d2t=d2t, t2d=t2d)


READABLE, AGREE, MAPPING, STRUCTURE, FREQUENT, TRAINED, RECORD = (law.name for law in LAWS)

DAMAGES: list[tuple[str, Callable[[Path], object], set[str], str]] = [
    ("offset", lambda at: _save(at, d2t=np.array([2, 4, 5, 7])), {AGREE, MAPPING}, "draft id 3 is target id 10 by d2t"),
    (
        "unsorted",
        lambda at: _save(at, d2t=np.array([5, 1, 5, 6])),
        {AGREE, MAPPING},
        "draft id 0 is target id 5 by d2t.npy and 2 by t2d.npy",
    ),
    ("shorter", lambda at: _save(at, d2t=np.array([2, 4, 5])), {AGREE, MAPPING}, "they are of 3 and 10 ids"),
    ("one id more", lambda at: _save(at, t2d=np.isin(np.arange(10), [2, 5, 7, 8, 9])), {AGREE, MAPPING, FREQUENT}, "5"),
    (
        "another mapping",
        lambda at: saved(at / "vocab_mapping.pt", d2t=np.array([2, 4, 5, 6]), t2d=np.zeros(10, np.bool_)),
        {MAPPING},
        "vocab_mapping.pt and t2d.npy differ",
    ),
    ("a structural id less", lambda at: _maps(at, [2, 5, 7, 8]), {STRUCTURE, FREQUENT}, "lacking, first 9"),
    ("ties the other way", lambda at: _maps(at, [5, 7, 8, 9]), {FREQUENT}, "id 2, trained on 2 times, is not in"),
    (
        "tokens more",
        lambda at: _frequencies(at, lambda counts: {**counts, 5: 9}),
        {TRAINED, RECORD},
        "counts 14 tokens, and 8 have a loss",
    ),
    (
        "another id's tokens",
        lambda at: _frequencies(at, lambda counts: dict(sorted({**counts, 8: 1, 3: 1}.items()))),
        {TRAINED, RECORD},
        "target id 3 is counted 1 times and trained on 0 times",
    ),
    ("nothing", lambda at: _frequencies(at, lambda _: {}), {FREQUENT, TRAINED, RECORD}, "counts nothing"),
    ("other total", lambda at: _record(at, tokens=9), {RECORD}, "tokens: 8 -> 9"),
    ("other coverage", lambda at: _record(at, covered_tokens=8), {RECORD}, "covered_tokens: 6 -> 8"),
    ("other knee", lambda at: _record(at, knee=1), {RECORD}, "knee: 2 -> 1"),
    ("other seen ids", lambda at: _record(at, seen_ids=9), {RECORD}, "seen_ids: 4 -> 9"),
    ("another partition", lambda at: _record(at, partitions={"e": 8}), {RECORD}, "partitions.d: 8 -> None"),
    ("huge", lambda at: _record(at, vocab_size=10**15), {READABLE}, "is no record of this version"),
    (
        "fractions",
        lambda at: _frequencies(at, lambda counts: {**counts, 5: 3.4}),
        {READABLE},
        "other than whole numbers",
    ),
    (
        "text",
        lambda at: _frequencies(at, lambda counts: {str(i): n for i, n in counts.items()}),
        {READABLE},
        "other than",
    ),
    ("unseen", lambda at: _frequencies(at, lambda counts: {**counts, 9: 0}), {READABLE}, "ids that do not occur"),
    ("order", lambda at: _frequencies(at, lambda counts: dict(reversed(counts.items()))), {READABLE}, "not ascending"),
    ("no counts", lambda at: _frequencies(at, lambda _: [1]), {READABLE}, "other than whole numbers by id"),
    (
        "one map more",
        lambda at: saved(at / "vocab_mapping.pt", **{**maps(at), "x": np.zeros(1)}),
        {READABLE},
        "other than d2t and t2d",
    ),
    ("id beyond", lambda at: _frequencies(at, lambda _: {10: 1}), {READABLE}, "token_freq.pt: cannot be read: has ids"),
    ("no file", lambda at: (at / "t2d.npy").unlink(), {READABLE}, "t2d.npy: is not there"),
    ("no numpy", lambda at: (at / "d2t.npy").write_bytes(b"\0"), {READABLE}, "d2t.npy: cannot be read"),
    (
        "no torch",
        lambda at: (at / "vocab_mapping.pt").write_bytes(b"PK"),
        {READABLE},
        "vocab_mapping.pt: cannot be read",
    ),
    ("32 bits", lambda at: _save(at, d2t=np.array([2, 4, 5, 6], np.int32)), {READABLE}, "holds int32"),
    ("no record", lambda at: _record(at, structural_ids=[11]), {READABLE}, "is no record of this version"),
]


@pytest.mark.parametrize(("damage", "laws", "said"), [case[1:] for case in DAMAGES], ids=[case[0] for case in DAMAGES])
def test_a_damage_breaks_the_laws_that_it_must(
    damage: Callable[[Path], object], laws: set[str], said: str, tmp_path: Path
) -> None:
    place = written(tmp_path)
    assert not faults(place)
    damage(tmp_path)
    found = faults(place)
    assert found.keys() == laws
    assert any(said in fault for fault in found.values()), found


def test_every_law_is_broken_by_some_damage() -> None:
    assert {name for _, _, laws, _ in DAMAGES for name in laws} == {law.name for law in LAWS}


def test_a_file_that_would_run_code_is_not_run(tmp_path: Path) -> None:
    place = written(tmp_path)
    import torch

    torch.save({"d2t": Path("x")}, tmp_path / "vocab_mapping.pt")
    refused = "vocab_mapping.pt: cannot be read: is no file of plain numbers and tensors"
    assert faults(place)[READABLE].endswith(refused)
    (tmp_path / "vocab_mapping.pt").write_bytes(b"x")
    assert faults(place)[READABLE].endswith(refused)


def test_without_torch_what_needs_it_is_not_judged_and_nothing_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = written(tmp_path)
    monkeypatch.setattr(files, "find_spec", lambda _: None)
    unjudged = {one.law.name: one.unjudged for one in judge_vocabulary(read_vocabulary(place)) if one.unjudged}
    assert unjudged == dict.fromkeys((MAPPING, FREQUENT, TRAINED, RECORD), "torch is not installed here")
    with pytest.raises(ExportError, match=r"pip install 'eagle3-assets\[local\]', or export without a vocabulary"):
        written(tmp_path / "other")
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize("form", ["jsonl", "speculators", "raw-responses"])
def test_an_export_has_the_vocabulary_of_what_it_trains_on(form: str, made: Made, tmp_path: Path) -> None:
    manifest = made.export(tmp_path, format=form, draft_vocab_size=300, cut_off="keep")
    ids = [i for row in made.raw.iter_rows(named=True) for i in _trained(row, tmp_path)]
    assert loaded(tmp_path / "vocabulary" / "token_freq.pt") == Counter(ids)
    assert len(ids) == sum(file.trained_tokens for file in manifest.files if file.split == "train")
    mapping = loaded(tmp_path / "vocabulary" / "vocab_mapping.pt")
    assert (len(mapping["d2t"]), len(mapping["t2d"])) == (300, made.target.vocab_size)
    assert made.target.profile.structural_ids <= set((np.arange(300) + mapping["d2t"].numpy()).tolist())
    found = verify(UPath(tmp_path))
    assert found.faults == ()
    assert [one.sentence for one in found.vocabulary] == [f"{law.name}: kept" for law in LAWS]
    assert "--draft-vocab-size 300`" in (tmp_path / "README.md").read_text(encoding="utf-8")


def _trained(row: dict[str, Any], place: Path) -> list[int]:
    import polars as pl

    train = pl.read_parquet(place / "index" / "d.parquet").filter(fate="train")["sample_id"]
    return row["output_ids"] if row["sample_id"] in train else []


def test_tokens_that_the_loss_was_taken_off_are_not_counted(made: Made, tmp_path: Path) -> None:
    made.export(tmp_path, cut_off="mask", cut_off_tail=20, eval_share=0.0)
    ids = [i for row in rows_of(tmp_path) for i in np.array(row["input_ids"])[np.array(row["loss_mask"]) == 1].tolist()]
    assert loaded(tmp_path / "vocabulary" / "token_freq.pt") == Counter(ids)
    assert len(ids) < sum(map(len, made.raw["output_ids"].drop_nulls()))
    assert verify(UPath(tmp_path)).faults == ()


def _with_another(counts: dict[int, int]) -> dict[int, int]:
    return dict(sorted({**counts, 5: counts.get(5, 0) + 1}.items()))


def test_verifying_finds_a_vocabulary_of_other_data(made: Made, tmp_path: Path) -> None:
    made.export(tmp_path)
    _frequencies(tmp_path / "vocabulary", _with_another)
    unlike, *_ = verify(UPath(tmp_path)).faults
    assert unlike.startswith("vocabulary/token_freq.pt: is not the file that was written")
    rehashed(tmp_path)
    assert any(fault.startswith("vocabulary: counts_are_trained_tokens: ") for fault in verify(UPath(tmp_path)).faults)


def test_an_export_has_none_where_ids_are_lost_or_nothing_is_trained_on(made: Made, tmp_path: Path) -> None:
    for name, settings in (("lossy", {"format": "lossy-conversations"}), ("nothing", {"max_length": 2})):
        manifest = made.export(tmp_path / name, **settings)
        assert not [file for file in manifest.beside if "vocabulary" in file.path]
        assert verify(UPath(tmp_path / name)).faults == ()
        assert "Draft vocabulary" not in (tmp_path / name / "README.md").read_text(encoding="utf-8")


def test_a_vocabulary_without_room_is_refused_before_anything_is_written(made: Made, tmp_path: Path) -> None:
    with pytest.raises(VocabularyError, match="of 3 has no room for the"):
        made.export(tmp_path / "out", draft_vocab_size=3)
    assert not (tmp_path / "out").exists()
