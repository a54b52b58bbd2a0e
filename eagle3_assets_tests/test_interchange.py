import io
import json
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eagle3_assets import interchange
from eagle3_assets.interchange import (
    InterchangeError,
    Record,
    Refusal,
    Row,
    encode_record,
    read_row_at,
    read_rows,
    write_records,
)

ids = st.lists(st.integers(0, 2**31 - 1), max_size=20)
texts = st.text(st.characters(exclude_categories=["Cs"]))
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)
records = st.builds(
    Record,
    texts.filter(str.strip),
    ids,
    st.none() | st.integers(0, 2**31 - 1),
    st.none() | ids,
    st.dictionaries(texts.filter(lambda key: key not in interchange.NAMED_KEYS), json_values, max_size=3),
)


def read(content: bytes) -> list[Row | Refusal]:
    return list(read_rows(io.BytesIO(content)))


def line(**changes: object) -> bytes:
    return json.dumps({"sample_id": "s", "output_ids": [1, 2], "completion_tokens": 2, **changes}).encode() + b"\n"


def reason(content: bytes) -> str:
    (refusal,) = read(content)
    assert isinstance(refusal, Refusal)
    assert refusal.line == 1
    return refusal.reason


@given(st.lists(records, max_size=8))
def test_what_is_written_is_read_again_without_loss(written: list[Record]) -> None:
    rows = read(b"".join(map(encode_record, written)))
    assert [row.record for row in rows if isinstance(row, Row)] == written
    assert [row.line for row in rows] == list(range(1, len(written) + 1))


@given(st.lists(records, max_size=5))
def test_a_row_is_found_again_by_its_offset(written: list[Record]) -> None:
    file = io.BytesIO(b"\r\n".join(encode_record(record).rstrip() for record in written))
    for row in list(read_rows(file)):
        assert isinstance(row, Row)
        again = read_row_at(file, row.line, row.offset)
        assert isinstance(again, Row)
        assert again.record == row.record


@given(st.binary())
def test_no_bytes_at_all_break_the_reader(content: bytes) -> None:
    assert len(read(content)) <= content.count(b"\n") + 1


def test_every_further_key_is_kept_half_surrogates_and_large_numbers_included() -> None:
    content = (
        b'{"sample_id":"s","output_ids":[],"completion_tokens":null,"text":"\\ud83d","big":1234567890123456789012}\n'
    )
    (row,) = read(content)
    assert isinstance(row, Row)
    assert row.record.extra == {"text": "\ud83d", "big": 1234567890123456789012}
    assert encode_record(row.record) == content


def test_blank_lines_marks_and_line_ends_do_not_matter_but_count() -> None:
    rows = read(
        b"\xef\xbb\xbf" + line(sample_id="a").replace(b"\n", b"\r\n") + b"\r\n  \n" + line(sample_id="b").strip()
    )
    assert [(row.line, row.record.sample_id) for row in rows if isinstance(row, Row)] == [(1, "a"), (4, "b")]
    assert not read(b"\xef\xbb\xbf\n\n")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"{oops}\n", "is not JSON: Expecting property name enclosed in double quotes at column 2"),
        (line()[:-9], "is not JSON"),
        (b'{"sample_id":"\xff"}\n', "is not UTF-8: byte 15"),
        ('{"sample_id":"s"}'.encode("utf-16"), "is not UTF-8: byte 1"),
        (b"\0\0\0\n", "is not JSON"),
        (b"[1, 2]\n", "is not a JSON object but a list"),
        (b"null\n", "is not a JSON object but null"),
        (b"[" * 100_000 + b"\n", "nested too deeply"),
        (b'{"x": ' + b"9" * 5000 + b"}\n", "thousands of digits"),
        (b'{"x": NaN}\n', "NaN is no JSON number"),
        (b'{"x": -Infinity}\n', "-Infinity is no JSON number"),
        (b'{"x": 1e999}\n', "no float can hold"),
        (b'{"sample_id":"s","output_ids":[1],"output_ids":[2],"completion_tokens":1}\n', "the key 'output_ids' twice"),
        (b"{}\n", "has no sample_id (or id)"),
        (b'{"sample_id":"s"}\n', "has no output_ids (or token_ids)"),
        (b'{"id":"s","token_ids":[-1]}\n', "token_ids[0] is -1, not between"),
        (b'{"id":""}\n', "id is empty"),
        (line(sample_id=None), "sample_id is null, not a string"),
        (line(sample_id=True), "sample_id is true, not a string"),
        (line(sample_id=1.5), "sample_id is 1.5, not a string"),
        (line(sample_id=""), "sample_id is empty"),
        (line(sample_id=" \t\n"), "sample_id is blank"),
        (b'{"sample_id":"\\ud83d","output_ids":[1],"completion_tokens":1}\n', "half of a surrogate pair"),
        (line(output_ids=None), "output_ids is null, not a list of token ids"),
        (line(output_ids="1 2"), 'output_ids is "1 2", not a list of token ids'),
        (line(output_ids=[1, True]), "output_ids[1] is true, not a whole number"),
        (line(output_ids=[1, 2.0]), "output_ids[1] is 2.0, not a whole number"),
        (line(output_ids=[1, "2"]), 'output_ids[1] is "2", not a whole number'),
        (line(output_ids=[1, [2]]), "output_ids[1] is a list, not a whole number"),
        (line(output_ids=[1, None]), "output_ids[1] is null, not a whole number"),
        (line(output_ids=[1, -1]), "output_ids[1] is -1, not between 0 and 2147483647"),
        (line(output_ids=[2**31]), "output_ids[0] is 2147483648, not between 0 and 2147483647"),
        (line(prompt_ids=[1, -1]), "prompt_ids[1] is -1, not between 0 and 2147483647"),
        (line(completion_tokens="2"), 'completion_tokens is "2", not a whole number'),
        (line(completion_tokens=2.0), "completion_tokens is 2.0, not a whole number"),
        (line(completion_tokens=True), "completion_tokens is true, not a whole number"),
        (line(completion_tokens=-1), "completion_tokens is -1, not between"),
    ],
)
def test_a_broken_line_is_refused_with_the_reason(content: bytes, said: str) -> None:
    assert said in reason(content)


def test_a_refusal_names_the_sample_where_the_line_does_and_does_not_stop_the_reader() -> None:
    rows = read(line(sample_id="bad", output_ids=[-1]) + b"nonsense\n" + line(sample_id="good"))
    assert [(type(row), row.line) for row in rows] == [(Refusal, 1), (Refusal, 2), (Row, 3)]
    assert [row.sample_id for row in rows if isinstance(row, Refusal)] == ["bad", None]


def test_the_names_of_other_tools_are_read_and_written_as_ours() -> None:
    (row,) = read(b'{"id":7,"sample_id":null,"token_ids":[1],"prompt_token_ids":[2],"x":3}\n')
    assert isinstance(row, Row)
    assert row.record == Record("7", [1], None, [2], {"x": 3})
    assert encode_record(row.record).startswith(b'{"sample_id":"7","output_ids":[1],')
    (ours,) = read(line(id="other", token_ids=[9]))
    assert isinstance(ours, Row)
    assert ours.record == Record("s", [1, 2], 2, None, {"id": "other", "token_ids": [9]})
    with pytest.raises(InterchangeError, match="'prompt_token_ids' is no further key"):
        encode_record(Record("s", [1], None, None, {"prompt_token_ids": [1]}))


def test_a_number_as_sample_id_becomes_its_digits_and_null_counts_as_not_said() -> None:
    (row,) = read(line(sample_id=17, completion_tokens=None, prompt_ids=None, output_ids=[0, 2**31 - 1]))
    assert isinstance(row, Row)
    assert row.record == Record("17", [0, 2**31 - 1], None)
    (without,) = read(b'{"sample_id":"s","output_ids":[1]}\n')
    assert isinstance(without, Row)
    assert without.record == Record("s", [1], None)


def test_a_sample_id_that_stands_there_twice_is_named_with_the_first_line_and_still_read() -> None:
    rows = read(line(sample_id="a") + line(sample_id="b") + b"\n" + line(sample_id="a") + line(sample_id="a"))
    assert [(row.line, row.earlier_line) for row in rows if isinstance(row, Row)] == [
        (1, None),
        (2, None),
        (4, 1),
        (5, 1),
    ]


def test_a_line_longer_than_the_limit_is_refused_unread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interchange, "MAX_LINE_BYTES", 1 << 20)
    rows = read(line(sample_id="a") + b"x" * (5 << 20) + b"\n" + line(sample_id="b"))
    assert [row.line for row in rows] == [1, 2, 3]
    assert rows[1] == Refusal(2, None, "is longer than 1 MiB")
    assert isinstance(rows[2], Row)


def test_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    path = tmp_path / "large.jsonl"
    write_records((Record(str(n), list(range(5_000)), 5_000) for n in range(1_000)), path)
    assert path.stat().st_size > 20_000_000
    tracemalloc.start()
    with path.open("rb") as file:
        assert sum(1 for _ in read_rows(file)) == 1_000
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 3_000_000


def test_a_file_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    def failing() -> Iterator[Record]:
        yield Record("a", [1], 1)
        raise RuntimeError("the source failed")

    path = tmp_path / "new" / "out.jsonl"
    assert write_records([Record("old", [1], 1)], path) == 1
    with pytest.raises(RuntimeError, match="the source failed"):
        write_records(failing(), path)
    assert [p.name for p in path.parent.iterdir()] == ["out.jsonl"]
    assert b"old" in path.read_bytes()
    with pytest.raises(InterchangeError, match="cannot be written"):
        write_records([], path / "below-a-file")


@pytest.mark.parametrize(
    "record",
    [
        Record("", [1], 1),
        Record("s", [-1], 1),
        Record("s", [True], 1),
        Record("s", [1], 2**31),
        Record("s", [1], 1, [1.0]),  # type: ignore[list-item] # wrong on purpose
        Record(7, [1], 1),  # type: ignore[arg-type] # wrong on purpose
        Record("s", [1], 1, None, {"output_ids": [2]}),
        Record("s", [1], 1, None, {"logprob": float("nan")}),
        Record("s", [1], 1, None, {"when": object()}),
    ],
)
def test_what_the_reader_would_refuse_is_not_written(record: Record) -> None:
    with pytest.raises(InterchangeError):
        encode_record(record)


def test_a_file_that_stops_reading_midway_says_after_which_line() -> None:
    class Failing(io.BytesIO):
        def readline(self, size: int | None = -1, /) -> bytes:
            if self.tell():
                raise OSError(5, "Input/output error")
            return super().readline(size)

    with pytest.raises(InterchangeError, match="reading failed after line 1: Input/output error"):
        list(read_rows(Failing(line() * 3)))
