"""Every law of an export finds the damage that it is about, and nothing in what is whole."""

from collections.abc import Callable
from typing import Any

import polars as pl
import pytest

from eagle3_assets.contract import TRAINING_EXPORT
from eagle3_assets.exports.formats import ReadBack
from eagle3_assets.exports.laws import LAWS, LawFigures, RowFacts, Rows, judge_file, summed
from eagle3_assets.exports.selection import held_out
from eagle3_assets.identity import ids_sha256

Line = dict[str, Any]


def line(number: int, *, tail: int = 0) -> Line:
    """A row and its index in one: three prompt ids and four of output."""
    prompt, output = [number, 1, 2], [5, 6, 7, 9]
    name = next(f"c{number}-{i}" for i in range(1000) if not held_out(f"c{number}-{i}", 0.5))
    return {
        "id": f"s{number}",
        "input_ids": prompt + output,
        "loss_mask": [0] * 3 + [1] * (4 - tail) + [0] * tail,
        "sample_id": f"s{number}",
        "conversation_id": name,
        "fate": "train",
        "masked_tail": tail,
        "finish_type": "length" if tail else "stop",
        "ids_sha256": ids_sha256(prompt, output),
    }


def figures(lines: list[Line], max_length: int | None = 7, **format_: bool) -> dict[str, LawFigures]:
    read = pl.DataFrame([[row[name] for row in lines] for name in ReadBack], schema=ReadBack)
    index = pl.DataFrame([{name: row.get(name) for name in TRAINING_EXPORT} for row in lines], schema=TRAINING_EXPORT)
    rows = Rows.of(read, index, RowFacts(10, max_length, 0.5, **format_))
    return {one.law: one for one in judge_file("f", rows)}


def broken(lines: list[Line]) -> set[str]:
    return {name for name, one in figures(lines).items() if one.violations}


def changed(**values: Any) -> Callable[[Line], Line]:
    return lambda row: {**row, **values}


DAMAGES: list[tuple[str, Callable[[Line], Line], set[str]]] = [
    ("another sample", changed(id="s77"), {"rows_as_indexed"}),
    ("no sample id", changed(id=""), {"rows_as_indexed"}),
    ("null for a sample id", changed(id=None), {"rows_as_indexed"}),
    ("mask too short", lambda row: {**row, "loss_mask": row["loss_mask"][:-1]}, {"equal_lengths"}),
    ("mask too long", lambda row: {**row, "loss_mask": [*row["loss_mask"], 1]}, {"equal_lengths"}),
    ("empty", changed(input_ids=[], loss_mask=[]), {"equal_lengths", "something_to_learn"}),
    ("null", changed(input_ids=None, loss_mask=None), {"equal_lengths", "something_to_learn"}),
    ("no id", lambda row: {**row, "input_ids": [-1, *row["input_ids"][1:]]}, {"ids_in_vocabulary", "mask_is_output"}),
    (
        "id beyond",
        lambda row: {**row, "input_ids": [*row["input_ids"][:-1], 10]},
        {"ids_in_vocabulary", "mask_is_output"},
    ),
    (
        "id beyond int32",
        lambda row: {**row, "input_ids": [*row["input_ids"][:-1], 2**40]},
        {"ids_in_vocabulary", "mask_is_output"},
    ),
    ("mask of twos", changed(loss_mask=[0, 0, 0, 1, 2, 1, 1]), {"mask_of_bits", "mask_is_output"}),
    ("all zero", changed(loss_mask=[0] * 7), {"something_to_learn"}),
    ("shifted left", changed(loss_mask=[0, 0, 1, 1, 1, 1, 0]), {"mask_is_output"}),
    ("begins early", changed(loss_mask=[0, 0, 1, 1, 1, 1, 1]), {"mask_is_output"}),
    ("begins late", changed(loss_mask=[0, 0, 0, 0, 1, 1, 1]), {"mask_is_output"}),
    ("without the stop token", changed(loss_mask=[0, 0, 0, 1, 1, 1, 0]), {"mask_is_output"}),
    ("with a hole", changed(loss_mask=[0, 0, 0, 1, 0, 1, 1]), {"mask_is_output"}),
    ("another id", lambda row: {**row, "input_ids": [*row["input_ids"][:4], 8, 7, 9]}, {"mask_is_output"}),
    ("another prompt", lambda row: {**row, "input_ids": [8, *row["input_ids"][1:]]}, {"mask_is_output"}),
    ("no hash", changed(ids_sha256=None), {"mask_is_output"}),
    (
        "longer than the trainer takes",
        lambda row: {
            **row,
            "input_ids": [0, *row["input_ids"]],
            "loss_mask": [0, *row["loss_mask"]],
            "ids_sha256": ids_sha256([0, *row["input_ids"][:3]], [5, 6, 7, 9]),
        },
        {"within_max_length"},
    ),
    ("on the other side", changed(fate="eval"), {"split_by_conversation"}),
]


@pytest.mark.parametrize("row", [0, 1, 2])
@pytest.mark.parametrize(("damage", "laws"), [case[1:] for case in DAMAGES], ids=[case[0] for case in DAMAGES])
def test_a_damaged_row_breaks_the_laws_that_it_must(damage: Callable[[Line], Line], laws: set[str], row: int) -> None:
    lines = [line(number) for number in range(3)]
    lines[row] = damage(lines[row])
    assert broken(lines) == laws
    for law in laws:
        [found] = [one for one in figures(lines).values() if one.law == law]
        assert found.violations == 1
        assert found.first
        assert found.first.startswith(f"f, row {row}, sample s{row}: ")


def test_every_law_is_broken_by_some_damage() -> None:
    assert {name for _, _, laws in DAMAGES for name in laws} == {law.name for law in LAWS}


def test_whole_rows_keep_every_law() -> None:
    found = figures([line(0), line(1, tail=2), line(2, tail=1)])
    assert {name: (one.judged, one.violations) for name, one in found.items()} == {law.name: (3, 0) for law in LAWS}


@pytest.mark.parametrize("mask", [[0, 0, 0, 1, 1, 1, 1], [0, 0, 0, 1, 1, 1, 0], [0, 0, 0, 1, 0, 0, 0]])
def test_a_masked_tail_is_as_long_as_the_index_says(mask: list[int]) -> None:
    assert broken([{**line(0, tail=2), "loss_mask": mask}]) == {"mask_is_output"}


def test_a_tail_is_masked_of_cut_off_outputs_alone() -> None:
    assert broken([{**line(0, tail=2), "finish_type": "stop"}]) == {"mask_is_output"}


def test_what_cannot_be_judged_says_why() -> None:
    found = figures([{**line(0), "id": None}], max_length=None, named=False)
    assert found["rows_as_indexed"].sentence.endswith("not judged: the format has no place for ids of samples")
    assert found["within_max_length"].sentence.endswith("not judged: no max_length was given")
    assert summed([list(found.values())] * 2)[1].judged == 2
    masked_away = figures([{**line(0), "loss_mask": [0] * 7}])["mask_is_output"]
    assert masked_away.sentence == "mask_is_output: not judged: there is no row that it could be judged of"


def test_of_nothing_no_law_claims_a_reason_that_is_not_so() -> None:
    assert {one.sentence.partition(": ")[2] for one in summed([])} == {"not judged: there are no rows"}


def test_of_text_the_laws_about_samples_and_sides_are_judged() -> None:
    found = figures([{**line(0), "input_ids": None, "loss_mask": None}], lossy=True)
    judged = {name for name, one in found.items() if one.judged}
    assert judged == {"rows_as_indexed", "split_by_conversation"}
    assert {one.unjudged for one in found.values() if not one.judged} == {"the ids are lost in this format"}
    assert not [one for one in found.values() if one.violations]
