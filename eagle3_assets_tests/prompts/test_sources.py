"""Files of every kind, and places of every kind, as rows."""

import bz2
import gzip
import hashlib
import io
import json
import lzma
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from eagle3_assets.prompts.dialogue import RefusedRowError
from eagle3_assets.prompts.sources import OpenSource, PromptSourceError, SourceFile, differences, find
from eagle3_assets.prompts.sources.arrays import array_elements
from eagle3_assets.prompts.sources.changes import unread
from eagle3_assets.strict_json import BYTE_ORDER_MARK

ROWS: list[Any] = [{"id": f"c{i}", "messages": [{"role": "user", "content": f"häl\n[{i}] {{"}]} for i in range(700)]


def rows_of(path: Path, name: str | None = None) -> list[tuple[int, Any]]:
    """Numbers and values; of a row that is refused, why."""

    def value(row: Any) -> Any:
        try:
            return row.value()
        except RefusedRowError as refusal:
            return str(refusal)

    with OpenSource(SourceFile(name or path.name, path)) as opened:
        return [(row.number, value(row)) for row in opened.rows()]


def lines(rows: list[Any]) -> bytes:
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


def parquet(rows: list[Any]) -> bytes:
    file = io.BytesIO()
    pl.DataFrame(rows).write_parquet(file, row_group_size=100)
    return file.getvalue()


def zst(content: bytes) -> bytes:
    return zstandard.ZstdCompressor(write_checksum=True).compress(content)


KINDS: dict[str, Callable[[list[Any]], bytes]] = {
    "a.jsonl": lines,
    "a.json": lambda rows: json.dumps(rows, indent=2).encode(),
    "a.ndjson.gz": lambda rows: gzip.compress(lines(rows)),
    "a.jsonl.zst": lambda rows: zst(lines(rows)),
    "a.json.gz": lambda rows: gzip.compress(json.dumps(rows).encode()),
    "a.json.zst": lambda rows: zst(json.dumps(rows).encode()),
    "a.parquet": parquet,
    "lines_named.json": lines,
    "two_members.jsonl.gz": lambda rows: gzip.compress(lines(rows[:9])) + gzip.compress(lines(rows[9:])),
    "two_frames.jsonl.zst": lambda rows: zst(lines(rows[:9])) + zst(lines(rows[9:])),
    "no_ending": lines,
}


@pytest.mark.parametrize("name", KINDS)
def test_every_kind_gives_the_same_rows_and_the_files_own_hash(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(KINDS[name](ROWS))
    with OpenSource(SourceFile(name, path)) as opened:
        assert [(row.number, row.value()) for row in opened.rows()] == list(enumerate(ROWS, start=1))
        assert opened.state("openai").sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    # Also where only its beginning was wanted.
    with OpenSource(SourceFile(name, path)) as opened:
        assert next(opened.rows()).value() == ROWS[0]
        assert opened.state("openai").sha256 == hashlib.sha256(path.read_bytes()).hexdigest()


def test_fields_that_arrow_filled_in_are_gone_and_nulls_of_json_stay(tmp_path: Path) -> None:
    given: list[Any] = [
        {"messages": [{"role": "user"}], "tools": '[{"a": null}]', "other": None},
        {"messages": [{"role": "user", "call": {"unit": "C"}}], "tools": None, "other": None},
        {"messages": [{"role": "user", "call": {"unit": None}}], "tools": None, "other": [1, None]},
    ]
    (tmp_path / "a.jsonl").write_bytes(lines(given))
    assert [row for _, row in rows_of(tmp_path / "a.jsonl")] == given
    (tmp_path / "a.parquet").write_bytes(parquet(given))
    third = {**given[2], "messages": [{"role": "user", "call": {}}]}
    assert [row for _, row in rows_of(tmp_path / "a.parquet")] == [*given[:2], third]


@pytest.mark.parametrize("name", [name for name in KINDS if name.endswith((".gz", ".zst", ".parquet"))])
def test_a_damaged_file_is_named_and_never_taken_for_a_shorter_one(name: str, tmp_path: Path) -> None:
    whole = KINDS[name](ROWS)
    path = tmp_path / name
    for damaged in (whole[:-3], whole[: len(whole) // 2], whole[: len(whole) // 2] + b"\0" * 64 + whole[-64:]):
        path.write_bytes(damaged)
        with pytest.raises(PromptSourceError, match=f"{name}: is damaged"):
            rows_of(path)


ARRAYS: dict[str, tuple[bytes, list[Any]]] = {
    "empty": (b" [ ] ", []),
    "scalars": (b'[1, -2.5e3, "a]b", null, true]', [1, -2500.0, "a]b", None, True]),
    "byte order mark": (BYTE_ORDER_MARK + b"\r\n[{}]", [{}]),
    "one bad element is refused alone": (
        b'[{"a": 1}, {"a": NaN}, {"a": 1, "a": 2}, "\\ud800", 1e999, ' + b"7" * 5000 + b', "\x01", {"a": 3}]',
        [
            {"a": 1},
            "is not JSON: NaN is no JSON number",
            "has the key 'a' twice in one object",
            "holds half of a surrogate pair, which is no text",
            "holds a number that no float can hold: 1e999",
            "holds a whole number of thousands of digits",
            "is not JSON: Invalid control character at at column 2",
            {"a": 3},
        ],
    ),
}


@pytest.mark.parametrize("case", ARRAYS)
def test_arrays(case: str, tmp_path: Path) -> None:
    content, expected = ARRAYS[case]
    path = tmp_path / "a.json"
    path.write_bytes(content)
    assert [value for _, value in rows_of(path)] == expected


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b'[{"a": 1}, {"a": ', "element 2 is not JSON"),
        (b'[{"a": 1}', "after element 1 ',' is missing$"),
        (b"[1 2]", "after element 1 ',' is missing, not '2'"),
        (b"[1,]", "element 2 is not JSON"),
        (b"[1] x", "'x' follows the array"),
        (b'[{"role": "user"}]\n[{"role": "user"}]', "a second array follows the first. If each line is a conversation"),
        (b'["\xff"]', "is not UTF-8"),
        (b"[" * 3000, "element 1 is nested too deeply"),
    ],
)
def test_an_array_that_cannot_be_cut_is_damaged(content: bytes, said: str, tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(content)
    with pytest.raises(PromptSourceError, match=f"a.json: is damaged: .*({said})"):
        rows_of(path)


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@given(st.lists(JSON_VALUES, max_size=8), st.booleans(), st.sampled_from([None, 1]), st.integers(1, 9))
def test_an_array_is_cut_where_its_elements_end(values: list[Any], ascii_: bool, indent: int | None, bite: int) -> None:
    class Slow(io.BytesIO):
        """Gives few bytes at a time, so that a character or an element is cut anywhere."""

        def read(self, size: int | None = -1, /) -> bytes:  # noqa: ARG002 - it gives as much as it likes
            return super().read(bite)

    content = json.dumps(values, ensure_ascii=ascii_, indent=indent).encode("utf-8", "surrogatepass")
    try:
        content.decode()
    except UnicodeDecodeError:
        return
    assert [json.loads(element) for element in array_elements(Slow(content))] == values


def test_empty_lines_and_windows_line_ends_shift_no_number(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(BYTE_ORDER_MARK + b'{"a": 1}\r\n\r\n   \n{"a": 2}\n{broken\n[1]\n{"a": 3}')
    assert [number for number, _ in rows_of(path)] == [1, 4, 5, 6, 7]
    assert [value for _, value in rows_of(path)][3:] == [[1], {"a": 3}]
    path.write_bytes(BYTE_ORDER_MARK + b"\n")
    assert rows_of(path) == []


def test_a_line_without_end_is_refused_and_not_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("eagle3_assets.interchange.MAX_LINE_BYTES", 1000)
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"a": 1}\n"' + b"x" * 5000 + b'"\n{"a": 2}\n')
    assert rows_of(path) == [(1, {"a": 1}), (2, "is longer than 64 MiB"), (3, {"a": 2})]


def test_a_file_that_is_written_to_while_it_is_read_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(lines(ROWS))
    with OpenSource(SourceFile("a.jsonl", path)) as opened:
        list(opened.rows())
        with path.open("ab") as more:
            more.write(b"{}\n")
        with pytest.raises(PromptSourceError, match=r"a\.jsonl: was written to while it was read"):
            opened.state(None)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    root = tmp_path / "data"
    for name in (
        "b.jsonl", "a/z.parquet", "a/y.json.gz", "B.JSONL", ".hidden.jsonl", "a/.git/x.jsonl", "README.md", "a/x.txt",
    ):  # fmt: skip
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(b"{}\n")
    (root / "linked").symlink_to(root / "a", target_is_directory=True)
    (root / "a" / "file_link.jsonl").symlink_to(root / "b.jsonl")
    return root


def names(*places: object) -> tuple[list[str], list[str]]:
    found = find([str(place) for place in places])
    assert all(file.path.is_file() for file in found.files)
    return [file.name for file in found.files], list(found.left_out)


def test_a_directory_is_read_to_its_depth_in_order_and_says_what_it_leaves_out(tree: Path) -> None:
    taken, left_out = names(tree)
    assert taken == ["B.JSONL", "a/file_link.jsonl", "a/y.json.gz", "a/z.parquet", "b.jsonl"]
    assert left_out == [
        ".hidden.jsonl (hidden)",
        "README.md (no ending of a data file)",
        "a/.git/ (hidden)",
        "a/x.txt (no ending of a data file)",
        "linked/ (a link to a directory)",
    ]


def test_globs(tree: Path) -> None:
    assert names(tree / "*.jsonl") == (["b.jsonl"], [".hidden.jsonl (hidden)"])
    assert names(tree / "a" / "*.[tp]*")[0] == ["x.txt", "z.parquet"]
    assert names(tree / "**" / "y.*")[0] == ["a/y.json.gz"]
    assert names(tree / "linked" / "**" / "y.*")[0] == ["y.json.gz"]
    assert names(tree / "**")[0] == [
        "B.JSONL",
        "README.md",
        "a/file_link.jsonl",
        "a/x.txt",
        "a/y.json.gz",
        "a/z.parquet",
        "b.jsonl",
    ]
    assert names(tree / "a" / ".g*" / "**.jsonl")[0] == [".git/x.jsonl"]
    # A file is taken by its name, even where the name looks like a glob.
    odd = tree / "part[1].jsonl"
    odd.write_bytes(b"{}\n")
    assert names(odd)[0] == ["part[1].jsonl"]


def test_of_several_places_names_tell_them_apart_and_no_file_is_read_twice(tree: Path) -> None:
    taken, left_out = names(tree / "b.jsonl", tree / "a")
    assert taken == ["b.jsonl", "a/y.json.gz", "a/z.parquet"]
    assert left_out[0] == "a/file_link.jsonl (a link to the same file as b.jsonl)"
    assert names(tree / "a" / "z.parquet", tree / "a")[0] == ["z.parquet", "file_link.jsonl", "y.json.gz"]
    assert names(tree / "linked", tree / "a")[0] == [
        "linked/file_link.jsonl", "linked/y.json.gz", "linked/z.parquet",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("place", "said"),
    [
        ("none.jsonl", "No such file"),
        ("none/*.jsonl", "No such file"),
        ("b.jsonl/*.jsonl", "is not a directory"),
        ("*.csv", "has no file to read"),
        ("a/.git", "has no file to read"),
        ("waiting.jsonl", "is neither a file nor a directory"),
    ],
)
def test_a_place_without_files_is_named(tree: Path, place: str, said: str) -> None:
    (tree / "a" / ".git" / "x.jsonl").rename(tree / "a" / ".git" / ".x.jsonl")
    os.mkfifo(tree / "waiting.jsonl")
    with pytest.raises(PromptSourceError, match=said) as raised:
        find([str(tree / place)])
    assert str(tree / place) in str(raised.value)


def test_what_has_changed_of_a_source_is_named(tree: Path) -> None:
    def states() -> list[Any]:
        made = []
        for file in find([str(tree)]).files:
            with OpenSource(file) as opened:
                made.append(opened.state(None))
        return made

    before = states()
    assert differences(before, find([str(tree)]).files) == []
    assert differences(before[::-1], find([str(tree)]).files) == ["the files come in another order"]
    (tree / "b.jsonl").write_bytes(b"[]\n")
    (tree / "a" / "z.parquet").unlink()
    (tree / "a" / "new.jsonl").write_bytes(b"{}\n")
    (tree / "B.JSONL").touch()
    assert differences(before, find([str(tree)]).files) == [
        "a/z.parquet is gone",
        "a/new.jsonl is new",
        "a/file_link.jsonl has another content",
        "b.jsonl has another content",
    ]


@pytest.mark.parametrize("ending", ["parquet", "jsonl.gz", "jsonl.zst"])
@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "is empty; was it fetched whole?"),
        (b"<html>not found</html>", "does not begin as its name says; was it fetched whole?"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n", "is a Git LFS pointer, not the file"),
    ],
)
def test_a_file_that_was_not_fetched_is_no_source_without_rows(
    content: bytes, said: str, ending: str, tmp_path: Path
) -> None:
    path = tmp_path / f"a.{ending}"
    path.write_bytes(content)
    with pytest.raises(PromptSourceError, match=rf"a\.{ending}: {re.escape(said)}"):
        rows_of(path)


@pytest.mark.parametrize("name", [b"fran\xe7ais.jsonl", b"two\nlines.jsonl"])
def test_a_name_that_is_no_text_and_a_pipe_are_told(name: bytes, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "waiting.jsonl")
    (tmp_path / "a.jsonl").write_bytes(b"{}\n")
    found = find([str(tmp_path)])
    assert ([file.name for file in found.files], found.left_out) == (["a.jsonl"], ("waiting.jsonl (no regular file)",))
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/" + name)).write_bytes(b"{}\n")
    with pytest.raises(PromptSourceError, match="no printable text; rename it") as refused:
        find([str(tmp_path)])
    str(refused.value).encode()


PRETTY = json.dumps({"name": "set", "features": ["text"]}, indent=1).encode()
OTHERS: dict[str, tuple[bytes, str]] = {
    "a.json": (PRETTY, "is one JSON object over several lines, not rows"),
    "b.json.gz": (gzip.compress(PRETTY), "is one JSON object over several lines, not rows"),
    "an_array.jsonl": (json.dumps(ROWS).encode(), "is a JSON array, not JSON lines; rename it to .json"),
    "over_lines.jsonl": (
        json.dumps(ROWS[:2], indent=1).encode(),
        "is a JSON array, not JSON lines; rename it to .json",
    ),
    "of_messages.jsonl": (
        json.dumps(ROWS[0]["messages"]).encode(),
        'is a list of messages, not an object with one; write it as {"messages": [...]}',
    ),
    "a.jsonl.bz2": (bz2.compress(lines(ROWS)), "is bzip2"),
    "a.jsonl.xz": (lzma.compress(lines(ROWS)), "is xz"),
    "a.csv": (b"prompt,answer\nhi,there\n", "is CSV"),
    "a.tsv.gz": (gzip.compress(b"prompt\tanswer\n"), "is TSV"),
    "utf_16.jsonl": (json.dumps(ROWS[0]).encode("utf-16"), "is UTF-16 text"),
    "utf_16_unmarked.jsonl": (json.dumps(ROWS[0]).encode("utf-16-le"), "is UTF-16 text"),
    "twice.jsonl.gz": (gzip.compress(gzip.compress(lines(ROWS))), "is packed twice"),
    "a.arrow": (b"ARROW1\0\0", "is an Arrow file"),
    "parquet.gz": (parquet(ROWS), "does not begin as its name says (parquet)"),
    "pointer.jsonl": (b"version https://git-lfs.github.com/spec/v1\n", "is a Git LFS pointer"),
}


@pytest.mark.parametrize("name", OTHERS)
def test_what_is_no_file_of_rows_is_told_by_its_kind(name: str, tmp_path: Path) -> None:
    content, said = OTHERS[name]
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(PromptSourceError, match=f"{re.escape(name)}: {re.escape(said)}"):
        rows_of(path)


TWO_NAMED_ALIKE = parquet([{"prompt": "a", "prompu": "b"}]).replace(b"prompu", b"prompt")
# One column `d` of decimals of 50 digits, which polars cannot make.
LONG_DECIMALS = (
    b"PAR1\x15\x00\x156\x156,\x15\x02\x15\x00\x15\x06\x15\x06\x1c\x00\x00\x00\x02\x00\x00\x00\x02\x01"
    + bytes(20)
    + b"\x96"
    b"\x15\x02\x19,5\x00\x18\x06schema\x15\x02\x00\x15\x0e\x15*\x15\x02\x18\x01d%\n\x15\x04\x15d,\\\x15\x04\x15d\x00\x00\x00"
    b"\x16\x02\x19\x1c\x19\x1c&\x00\x1c\x15\x0e\x19%\x06\x00\x19\x18\x01d\x15\x00\x16\x02\x16\\\x16\\&\x08I\x1c\x15\x00\x15\x00\x15"
    b"\x02\x00<)\x06\x19&\x00\x02\x00\x00\x00\x16\\\x16\x02&\x08\x16\\\x00( parquet-cpp-arrow version 26.0.1"
    b"\x19\x1c\x1c\x00\x00\x00"
    b"\x8a\x00\x00\x00PAR1"
)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (TWO_NAMED_ALIKE, "has two columns with one name (column with name 'prompt' has more than one"),
        (LONG_DECIMALS, "has a column of a type that cannot be read"),
    ],
    ids=["two columns with one name", "decimals of 50 digits"],
)
def test_a_sound_parquet_file_that_cannot_be_read_is_not_called_damaged(
    content: bytes, said: str, tmp_path: Path
) -> None:
    path = tmp_path / "a.parquet"
    path.write_bytes(content)
    with pytest.raises(PromptSourceError, match=re.escape(said)) as refused:
        rows_of(path)
    assert "damaged" not in str(refused.value)


def test_archives_are_told(tmp_path: Path) -> None:
    (tmp_path / "rows").mkdir()
    (tmp_path / "rows" / "a.jsonl").write_bytes(lines(ROWS))
    for kind, said in (("zip", "is a zip archive"), ("tar", "is a tar archive"), ("gztar", "is a tar archive")):
        made = Path(shutil.make_archive(str(tmp_path / kind), kind, tmp_path / "rows"))
        with pytest.raises(PromptSourceError, match=said):
            rows_of(made)


def test_a_first_line_that_is_a_list_or_broken_is_refused_alone(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    for bad in (b'[{"a": 1}]', b"[INFO] started", b"{", b'{"a": '):
        path.write_bytes(bad + b'\n{"a": 2}\n')
        assert [number for number, _ in rows_of(path)] == [1, 2]
    path = tmp_path / "lines.json"
    path.write_bytes(b'{"a": "cut o\n{"a": 2}\n')
    assert rows_of(path)[1] == (2, {"a": 2})


def test_zstandard_with_frames_without_data_and_with_large_windows(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl.zst"
    skipped = b"\x50\x2a\x4d\x18\x04\0\0\0abcd"  # as pzstd writes before each frame
    path.write_bytes(skipped + zst(b'{"a": 1}\n') + skipped + zst(b'{"a": 2}\n'))
    assert rows_of(path) == [(1, {"a": 1}), (2, {"a": 2})]
    wide = zstandard.ZstdCompressionParameters.from_level(1, window_log=28, enable_ldm=False)
    packing = zstandard.ZstdCompressor(compression_params=wide).compressobj()
    path.write_bytes(packing.compress(b'{"a": 1}\n') + packing.flush())
    assert rows_of(path) == [(1, {"a": 1})]


def test_a_file_that_is_replaced_while_it_is_read_is_noticed(tmp_path: Path) -> None:
    path, other = tmp_path / "a.parquet", tmp_path / "b.parquet"
    path.write_bytes(parquet(ROWS))
    other.write_bytes(parquet(ROWS))
    with OpenSource(SourceFile("a.parquet", path)) as opened:
        other.rename(path)
        list(opened.rows())
        with pytest.raises(PromptSourceError, match=r"a\.parquet: was replaced while it was read"):
            opened.state(None)


def test_links_in_a_circle_end(tree: Path) -> None:
    for name in ("loop", "other"):
        (tree / name).symlink_to(tree, target_is_directory=True)
    assert names(tree / "**" / "*.jsonl")[0] == ["a/file_link.jsonl", "b.jsonl"]


def test_brackets_of_a_directory_that_is_there_are_no_wildcard(tmp_path: Path) -> None:
    root = tmp_path / "pro[1]" / "set[a-b]"
    root.mkdir(parents=True)
    (root / "a.jsonl").write_bytes(b"{}\n")
    assert names(root)[0] == names(root / "*.jsonl")[0] == names(root / "[a].jsonl")[0] == ["a.jsonl"]
    assert names(tmp_path / "pro[1]" / "*" / "a.jsonl")[0] == ["set[a-b]/a.jsonl"]
    with pytest.raises(PromptSourceError, match="No such file"):
        find([str(root / "none.jsonl")])


def test_behind_a_limit_a_source_may_grow(tmp_path: Path) -> None:
    for name in ("b", "c", "d"):
        (tmp_path / f"{name}.jsonl").write_bytes(b"{}\n")
    [b, c, d] = find([str(tmp_path)]).files
    before = []
    for file in (b, c):
        with OpenSource(file) as opened:
            before.append(opened.state(None))
    before.append(unread(d))
    d.path.unlink()
    (tmp_path / "e.jsonl").write_bytes(b"{}\n")
    assert differences(before, find([str(tmp_path)]).files, limited=True) == []
    assert differences(before, find([str(tmp_path)]).files) == ["d.jsonl is gone", "e.jsonl is new"]
    (tmp_path / "a.jsonl").write_bytes(b"{}\n")
    c.path.write_bytes(b"[]\n")
    found = differences(before, find([str(tmp_path)]).files, limited=True)
    assert found == ["a.jsonl is new", "c.jsonl has another content"]
    c.path.unlink()
    assert differences(before, find([str(tmp_path)]).files, limited=True) == ["c.jsonl is gone", "a.jsonl is new"]
