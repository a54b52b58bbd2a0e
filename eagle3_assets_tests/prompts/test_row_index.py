"""Rows of other shards are told by an index: it changes nothing in what is read, and spares the parsing of them."""

import errno
import gzip
import hashlib
import io
import json
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Thread
from typing import Any

import polars as pl
import pytest
import zstandard
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from eagle3_assets.config import Dataset
from eagle3_assets.partitions import Partition, dataset_partitions
from eagle3_assets.prompts.row_index import RememberedIndexes, RowIndexes, StaleIndexError, fingerprint
from eagle3_assets.prompts.rows import NotedRow, PromptSourceError, read_partition
from eagle3_assets.prompts.sources import SourceFile, SourceRow
from eagle3_assets.storage.layout import Layout
from eagle3_assets_tests.prompts.test_selection import chat, write

TRIAL = 3


def read(partition: Partition, indexes: RowIndexes | None) -> tuple[object, ...] | str:
    """All that is known of a partition once it was read, or why it cannot be."""
    while True:
        told: list[NotedRow] = []
        try:
            found = read_partition(partition, TRIAL, told.append, indexes)
        except StaleIndexError:
            continue
        except PromptSourceError as error:
            return str(error)
        return (
            found.rows.to_dicts(),
            found.accounts,
            told,
            found.refused,
            found.remarked,
            found.remarks,
            list(found.unread_keys.items()),
            found.files,
            found.left_out_files,
        )


def layout_in(folder: Path) -> Layout:
    return Layout.at(str(folder / "data"))


def stored(layout: Layout) -> dict[str, bytes]:
    """The indexes of the dataset ``d``."""
    folder = Path(str(layout.root)) / ".row_indexes" / "d"
    return {path.name: path.read_bytes() for path in folder.iterdir()} if folder.exists() else {}


def dataset(source: Path, **more: Any) -> Dataset:
    return Dataset(name="d", source=str(source), **{"shards": 3, **more})


@pytest.fixture
def values(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """The numbers of the rows that are parsed, or made into Python objects."""
    made: list[int] = []
    value = SourceRow.value

    def noted(row: SourceRow) -> Any:
        made.append(row.number)
        return value(row)

    monkeypatch.setattr(SourceRow, "value", noted)
    yield made


NAMED = st.builds(chat, st.sampled_from([f"c{i}" for i in range(12)]), st.sampled_from(["u", "uaua", "su", "a"]))
NAMELESS = st.builds(lambda text: chat(None, "ua", text), st.sampled_from(["x", "y", "z"]))
KEYED = st.builds(
    lambda row, key: {**row, key: "some text", "story": "Once"}, NAMED, st.sampled_from(["intent", "note"])
)
REMARKED = st.just({**chat("marked", "uau"), "prompt": "what no message says"})
CALLING = st.just(
    {"id": "call", "messages": [{"role": "user", "content": '<tool_call>{"name": "f", "arguments": {}}</tool_call>'}]}
)
ODD = st.sampled_from([b"{", b"", b"[1]", b"\xff", b'{"messages": []}', b"5", b'{"id": "c1", "id": "c2"}'])
OURS = st.builds(
    lambda name, turn, index: {
        "sample_id": f"{name}:{turn}:{index}",
        "conversation_id": name,
        "turn": turn,
        "sample_index": index,
        "messages": json.dumps([{"role": "user", "content": f"{name} {turn}"}]),
        "tools": None,
        "source": "s",
        "source_row": 1,
    },
    st.sampled_from(["c1", "p1", "p2", "p3"]),
    st.sampled_from([1, 3]),
    st.integers(0, 1),
)
CHATS = st.lists(NAMED | NAMELESS | KEYED | REMARKED | CALLING | ODD, max_size=25)
FILES = st.lists(
    st.tuples(st.sampled_from([".jsonl", ".jsonl.gz", ".jsonl.zst", ".json", ".parquet"]), CHATS)
    | st.tuples(st.sampled_from([".jsonl", ".parquet"]), st.lists(OURS, min_size=1, max_size=8)),
    min_size=1,
    max_size=3,
)
SETTINGS = st.fixed_dictionaries(
    {"shards": st.integers(2, 4), "turns": st.sampled_from(["first", "last", "all"])},
    optional={
        "skip": st.integers(0, 20),
        "limit": st.integers(1, 30),
        "sample": st.sampled_from([0.5, 4, 9]),
        "sample_seed": st.integers(0, 1),
        "ignore_keys": st.just(["story"]),
        "format": st.just("openai"),
        "system_prompt": st.just("Be brief."),
    },
)


def put(path: Path, rows: list[Any]) -> None:
    objects = [row for row in rows if not isinstance(row, bytes)]
    if path.suffix == ".parquet":
        pl.DataFrame([{"id": None, **row} for row in objects], infer_schema_length=None).write_parquet(path)
    elif path.suffix == ".json":
        path.write_text(json.dumps(objects), encoding="utf-8")
    else:
        lines = b"".join((row if isinstance(row, bytes) else json.dumps(row).encode()) + b"\n" for row in rows)
        packed = gzip.compress(lines) if path.suffix == ".gz" else lines
        path.write_bytes(zstandard.compress(lines) if path.suffix == ".zst" else packed)


@pytest.fixture
def soon_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a sample or a trial, what others have pushed out is let go after a few rows, as of a long source."""
    monkeypatch.setattr("eagle3_assets.prompts.rows.ROW_GROUP_ROWS", 4)
    monkeypatch.setattr("eagle3_assets.prompts.sampling._LEAST_CLEARED", 4)


@pytest.mark.usefixtures("soon_let_go")
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(FILES, SETTINGS, st.randoms(use_true_random=False))
def test_what_is_read_is_the_same_with_and_without_indexes(
    files: list[tuple[str, list[Any]]], chosen: dict[str, Any], random: Any
) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "source").mkdir()
        for number, (ending, rows) in enumerate(files):
            put(folder / "source" / f"{number} ö%'[*]{ending}", rows)
        of = dataset(folder / "source", **chosen)
        partitions = dataset_partitions(of)
        random.shuffle(partitions)
        without = [read(partition, None) for partition in partitions]
        remembered = RememberedIndexes(layout_in(folder), of)
        assert [read(partition, remembered) for partition in partitions] == without
        assert not stored(layout_in(folder))
        for _ in range(2):
            kept = RowIndexes(layout_in(folder), of)
            assert [read(partition, kept) for partition in partitions] == without
        # Another dataset's settings over the same files and the same place.
        other = of.model_copy(update={"turns": "first", "skip": 1, "limit": 7, "sample": 5, "ignore_keys": ()})
        partitions = dataset_partitions(other)
        without = [read(partition, None) for partition in partitions]
        kept = RowIndexes(layout_in(folder), other)
        assert [read(partition, kept) for partition in partitions] == without


@pytest.mark.usefixtures("soon_let_go")
@pytest.mark.parametrize("ending", [".jsonl", ".jsonl.gz", ".json", ".parquet"])
def test_rows_of_other_shards_are_parsed_once(ending: str, tmp_path: Path, values: list[int]) -> None:
    refused = [] if ending == ".parquet" else [{"id": "none"}]
    put(tmp_path / f"a{ending}", [*(chat(f"c{i}", "ua") for i in range(300)), *refused])
    of = dataset(tmp_path / f"a{ending}", shards=5)
    used = 0
    for number, partition in enumerate(dataset_partitions(of)):
        values.clear()
        found = read_partition(partition, TRIAL, indexes=RowIndexes(layout_in(tmp_path), of))
        own = sorted(found.rows["source_row"].to_list())
        if number == 0:
            assert values == list(range(1, 301 + len(refused)))
        elif partition.trial:  # those that looked as if they were of it
            assert set(own) <= set(values)
            assert len(values) < 60
        else:
            assert values == [*own, *([301] if refused else [])]
        used += found.accounts.used
    assert used == 300 + TRIAL


@pytest.mark.usefixtures("soon_let_go")
def test_rows_outside_a_sample_are_not_parsed_again(tmp_path: Path, values: list[int]) -> None:
    write(tmp_path, {"a.jsonl": [chat(f"c{i}") for i in range(300)]})
    for sample, most in ((0.1, 30), (12, 60)):
        of = dataset(tmp_path / "a.jsonl", sample=sample)
        first, second, *_ = dataset_partitions(of)
        read(first, RowIndexes(layout_in(tmp_path), of))
        values.clear()
        read(second, RowIndexes(layout_in(tmp_path), of))
        assert 0 < len(values) < most


def test_a_dataset_of_one_shard_has_no_index(tmp_path: Path) -> None:
    write(tmp_path, {"a.jsonl": [chat("c")]})
    of = dataset(tmp_path / "a.jsonl", shards=1)
    read(dataset_partitions(of)[0], RowIndexes(layout_in(tmp_path), of))
    assert not stored(layout_in(tmp_path))


def emptied(content: bytes) -> bytes:
    return content[:0]


def cut(content: bytes) -> bytes:
    return content[:-5]


def flipped_in_its_ranks(content: bytes) -> bytes:
    return content[:-400] + bytes([content[-400] ^ 1]) + content[-399:]


def of_other_software(content: bytes) -> bytes:
    return b"PAR1\n" + content


def sealed(content: bytes, ranks: bytes) -> bytes:
    """An index with other ranks, whole as it is."""
    head = content.split(b"\n")[1] + b"\n"
    return hashlib.sha256(head + ranks).hexdigest().encode() + b"\n" + head + ranks


def in_another_form(content: bytes) -> bytes:
    return sealed(content, b"ARROW9" + b" " * 90)


def ranks_of(content: bytes, change: Callable[[pl.DataFrame], pl.DataFrame]) -> bytes:
    written = io.BytesIO()
    change(pl.read_ipc(content.split(b"\n", 2)[2])).write_ipc(written)
    return sealed(content, written.getvalue())


def with_other_columns(content: bytes) -> bytes:
    return ranks_of(content, lambda ranks: ranks.rename({"sample": "turn"}))


def with_too_few_rows(content: bytes) -> bytes:
    return ranks_of(content, lambda ranks: ranks.head(150))


def with_too_many_rows(content: bytes) -> bytes:
    return ranks_of(content, lambda ranks: pl.concat([ranks, ranks.head(1)]))


@pytest.mark.parametrize(
    "harm",
    [
        emptied,
        cut,
        flipped_in_its_ranks,
        of_other_software,
        in_another_form,
        with_other_columns,
        with_too_few_rows,
        with_too_many_rows,
    ],
)
def test_an_index_that_is_damaged_is_written_anew(
    harm: Callable[[bytes], bytes], tmp_path: Path, values: list[int]
) -> None:
    write(tmp_path, {"a.jsonl": [chat(f"c{i}") for i in range(200)]})
    of = dataset(tmp_path / "a.jsonl")
    first, second, *_ = dataset_partitions(of)
    layout = layout_in(tmp_path)
    read(first, RowIndexes(layout, of))
    [(name, whole)] = stored(layout).items()
    place = Path(str(layout.row_index("d", "a.jsonl")))
    assert place.name == name
    place.write_bytes(harm(whole))
    assert stored(layout) != {name: whole}
    without = read(second, None)
    values.clear()
    assert read(second, RowIndexes(layout, of)) == without
    # Of how many rows it is shows when they were read.
    assert len(values) == 200 if "rows" not in harm.__name__ else 200 < len(values) < 400
    assert stored(layout) == {name: whole}


def test_the_index_of_another_file_is_not_taken(tmp_path: Path) -> None:
    names = ("a.jsonl", "b.jsonl")
    for name in names:  # of the same size
        write(tmp_path / "source", {name: [chat(f"{name}{i}") for i in range(50)]})
    of = dataset(tmp_path / "source")
    layout = layout_in(tmp_path)
    partitions = dataset_partitions(of)
    without = [read(partition, None) for partition in partitions]
    read(partitions[0], RowIndexes(layout, of))
    one, other = (Path(str(layout.row_index("d", name))) for name in names)
    before = stored(layout)
    for to, taken in ((one, other), (other, one)):
        to.write_bytes(before[taken.name])
        assert [read(partition, RowIndexes(layout, of)) for partition in partitions] == without
        assert stored(layout) == before


@pytest.mark.parametrize("kind", [RowIndexes, RememberedIndexes])
@pytest.mark.parametrize("told", [False, True], ids=["the time of change kept", "another time of change"])
def test_the_index_of_a_changed_file_is_never_gone_by(kind: type[RowIndexes], told: bool, tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    lines = [json.dumps(chat(f"c{i:03}")).encode() + b"\n" for i in range(200)]

    def content(*rows: bytes) -> bytes:
        return b"".join(rows).ljust(10 + len(b"".join(lines)), b"\n")

    first = content(*lines)
    others = [
        content(*lines[::-1]),
        content(*lines[:100]),
        content(*lines[:100], b'{"id":"x"}\n', *lines[101:]),
        content(*(b"\n" * len(line) for line in lines[:50]), *lines[50:]),
        content(*(line.replace(b"messages", b"passages") for line in lines)),  # in no known format
        content(b"\x1f\x8b", *lines)[: len(first)],  # as if packed: damaged
    ]
    of = dataset(path)
    partitions = dataset_partitions(of)
    for other in others:
        assert len(other) == len(first)
        path.write_bytes(first)
        os.utime(path, ns=(10**18, 10**18))
        indexes = kind(layout_in(tmp_path), of)
        read(partitions[0], indexes)
        path.write_bytes(other)
        os.utime(path, ns=(10**18 + told, 10**18 + told))
        without = [read(partition, None) for partition in partitions]
        assert [read(partition, indexes) for partition in partitions] == without


def test_what_is_wrong_with_a_changed_file_is_said_as_without_an_index(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    of = dataset(path)
    first, second, *_ = dataset_partitions(of)
    indexes = RowIndexes(layout_in(tmp_path), of)
    path.write_text(json.dumps([chat(f"c{i:03}") for i in range(200)]), encoding="utf-8")
    read(first, indexes)
    before = path.read_bytes()
    # In no known format, which shows at the beginning, and damaged further on.
    path.write_bytes(before.replace(b"messages", b"passages")[:-5] + b"     ")
    said = read(second, None)
    assert isinstance(said, str)
    assert "its format is not recognised" in said
    assert read(second, indexes) == said


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({}, {"skip": 1}),
        ({"limit": 5}, {}),
        ({"limit": 5}, {"skip": 2, "limit": 3}),
        ({"turns": "first"}, {"turns": "all"}),
        ({}, {"ignore_keys": ("id",)}),
        ({"format": "openai"}, {"format": "plain"}),
        ({}, {"sample": 4}),
        ({"sample": 4}, {"sample": 4, "sample_seed": 1}),
        ({"shards": 2}, {"shards": 3}),
    ],
)
def test_an_index_of_other_settings_is_not_gone_by(
    before: dict[str, Any], after: dict[str, Any], tmp_path: Path
) -> None:
    called = chat("called", "uaua")
    called["messages"][1]["content"] = '<tool_call>{"name": "f", "arguments": {}}</tool_call>'
    write(tmp_path, {"a.jsonl": [chat(f"c{i}", "uaua") for i in range(20)], "b.jsonl": [called, chat("c30")]})
    layout = layout_in(tmp_path)
    former, now = dataset(tmp_path, **before), dataset(tmp_path, **after)
    assert any(read(p, None) != read(q, None) for p, q in zip(*map(dataset_partitions, (former, now)), strict=False))
    for partition in dataset_partitions(now):
        read(dataset_partitions(former)[0], RowIndexes(layout, former))
        assert read(partition, RowIndexes(layout, now)) == read(partition, None)


def test_a_version_that_reads_in_another_way_goes_by_no_former_index(
    tmp_path: Path, values: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, {"a.jsonl": [chat(f"c{i}") for i in range(50)]})
    of = dataset(tmp_path / "a.jsonl")
    first, second, *_ = dataset_partitions(of)
    read(first, RowIndexes(layout_in(tmp_path), of))
    monkeypatch.setattr("eagle3_assets.prompts.row_index.READER", "another")
    values.clear()
    read(second, RowIndexes(layout_in(tmp_path), of))
    assert len(values) == 50


def test_what_is_read_with_a_stale_index_is_void_and_the_index_dropped(tmp_path: Path, values: list[int]) -> None:
    write(tmp_path, {"a.jsonl": [chat(f"c{i}") for i in range(50)]})
    of = dataset(tmp_path / "a.jsonl")
    first, second, *_ = dataset_partitions(of)
    indexes = RowIndexes(layout_in(tmp_path), of)
    read(first, indexes)
    write(tmp_path, {"a.jsonl": [chat(f"d{i}") for i in range(50)]})
    with pytest.raises(StaleIndexError, match=r"a\.jsonl: its index is of another content"):
        read_partition(second, TRIAL, indexes=indexes)
    read(second, indexes)
    values.clear()
    read(second, indexes)
    assert len(values) < 40  # by the new one


def test_an_index_lies_on_an_object_store_as_well(tmp_path: Path, values: list[int]) -> None:
    write(tmp_path, {"a.jsonl": [chat(f"c{i}") for i in range(200)]})
    of = dataset(tmp_path / "a.jsonl")
    layout = Layout.at(f"memory://row-index-{tmp_path.name}", str(tmp_path / "scratch"))
    first, second, *_ = dataset_partitions(of)
    read(first, RowIndexes(layout, of))
    without = read(second, None)
    values.clear()
    assert read(second, RowIndexes(layout, of)) == without
    assert 0 < len(values) < 100


@pytest.mark.parametrize("kind", ["the folder is a file", "the index is a folder", "a full disk"])
def test_what_cannot_be_stored_is_as_good_as_none(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, {"a.jsonl": [chat(f"c{i}") for i in range(50)]})
    of = dataset(tmp_path / "a.jsonl")
    layout = layout_in(tmp_path)
    place = Path(str(layout.row_index("d", "a.jsonl")))
    if kind == "a full disk":

        def full(_path: Path, _content: bytes) -> int:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        monkeypatch.setattr(Path, "write_bytes", full)
    elif kind == "the index is a folder":
        place.mkdir(parents=True)
    else:
        place.parent.parent.mkdir(parents=True)
        place.parent.touch()
    for partition in dataset_partitions(of):
        assert read(partition, RowIndexes(layout, of)) == read(partition, None)
    assert [path for path in Path(str(layout.root)).rglob("*") if path.is_file()] in ([], [place.parent])


def test_several_that_write_one_index_at_once_leave_a_whole_one(tmp_path: Path) -> None:
    write(tmp_path, {"a.jsonl": [chat(f"c{i}") for i in range(500)]})
    of = dataset(tmp_path / "a.jsonl")
    layout = layout_in(tmp_path)
    read(dataset_partitions(of)[0], RowIndexes(layout, of))
    before = stored(layout)
    file, decided_by = SourceFile("a.jsonl", tmp_path / "a.jsonl"), fingerprint(of, 0, None)
    index = RowIndexes(layout, of).find(file, decided_by)
    assert index is not None
    found: list[bool] = []

    def keep() -> None:
        for _ in range(20):
            RowIndexes(layout, of).keep(index)
            again = RowIndexes(layout, of).find(file, decided_by)
            found.append(again is not None and again.ranks.equals(index.ranks))

    threads = [Thread(target=keep) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [True] * 80
    assert stored(layout) == before
