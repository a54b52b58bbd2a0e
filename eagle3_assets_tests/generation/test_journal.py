"""The journal: nothing acknowledged is lost, a torn tail is cut, one writer at a time."""

import errno
import os
import queue
import re
import resource
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eagle3_assets.generation.errors import JournalError
from eagle3_assets.generation.journal import FILE, MOST_UNSYNCED, Journal, decode, encode, read_unfinished
from eagle3_assets_tests.generation.fake import IDENTITY

KEYS = st.binary(min_size=16, max_size=16)
ROWS = st.fixed_dictionaries(
    {"status": st.sampled_from(["generated", "failed"])},
    optional={
        "output_ids": st.lists(st.integers(-(2**31), 2**31 - 1), max_size=5),
        "text": st.none() | st.text(max_size=20),
        "latency_s": st.floats(allow_nan=False),
    },
)


def row(key: bytes, status: str = "generated", **others: Any) -> dict[str, Any]:
    return {"request_key": key.hex(), "status": status, **others}


def key(number: int) -> bytes:
    return number.to_bytes(16, "big")


def filled(directory: Path, count: int) -> None:
    with Journal(directory) as journal:
        journal.begin(IDENTITY, fresh=False)
        for number in range(count):
            journal.append(row(key(number), output_ids=[number] * 20))


ANYTHING = st.floats(allow_nan=False) | st.integers() | st.text(st.characters(exclude_categories=()), max_size=5)


@given(st.dictionaries(st.text(max_size=5), ROWS | ANYTHING, max_size=3), KEYS, st.lists(st.integers(-(2**31), 2**31)))
def test_any_record_survives_the_codec(extra: dict[str, Any], name: bytes, ids: list[int]) -> None:
    record = {"kind": "row", **row(name, extra=extra, output_ids=ids, prompt_ids=None)}
    line = encode(record)
    assert line.count(b"\n") == 1 and decode(line) == record
    for cut in range(len(line)):
        assert decode(line[:cut]) is None


@pytest.mark.parametrize(
    "line",
    [
        b"\n",
        b"null\n",
        b"[]\n",
        b"{}\n",
        b'{"kind":"row"}\n',
        b'{"kind":"row","request_key":"zz","status":"failed"}\n',
        b'{"kind":"other"}\n',
        b"\xff\n",
        b"\0\0\n",
        b'{"kind":"header"}',
    ],
)
def test_what_is_no_record_is_told_apart(line: bytes) -> None:
    assert decode(line) is None


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(KEYS, ROWS), max_size=8), st.data())
def test_cut_anywhere_what_is_left_is_a_prefix_of_what_was_written(
    tmp_path_factory: pytest.TempPathFactory, written: list[tuple[bytes, Mapping[str, Any]]], data: st.DataObject
) -> None:
    directory = tmp_path_factory.mktemp("journal")
    ends = []
    with Journal(directory) as journal:
        journal.begin(IDENTITY, fresh=True)
        for name, content in written:
            journal.append({"request_key": name.hex(), **content})
            ends.append(journal.path.stat().st_size)
    cut = data.draw(st.integers(0, (directory / FILE).stat().st_size))
    os.truncate(directory / FILE, cut)
    whole = [pair for pair, end in zip(written, ends, strict=True) if end <= cut]
    expected: dict[bytes, Mapping[str, Any]] = {}
    for name, content in whole:
        if expected.get(name, {}).get("status") != "generated":
            expected[name] = content
    with Journal(directory) as journal:
        assert {name: journal.row(name) for name in expected} == {
            name: {"request_key": name.hex(), **content} for name, content in expected.items()
        }
        assert len(journal) == len(expected)
        if journal.header is None:
            journal.begin(IDENTITY, fresh=True)
        journal.append(row(b"next key, 16 byt"))
    with Journal(directory) as journal:
        assert journal.torn_bytes == 0
        assert journal.status(b"next key, 16 byt") == "generated"


def test_a_failed_row_is_replaced_and_a_generated_one_is_not(tmp_path: Path) -> None:
    with Journal(tmp_path) as journal:
        journal.begin(IDENTITY, fresh=False)
        for status in ("failed", "generated", "failed"):
            journal.append(row(key(1), status))
        journal.append(row(key(2), "failed"))
        assert (journal.status(key(1)), journal.status(key(2)), journal.status(key(3))) == ("generated", "failed", None)
        assert list(journal.generated()) == [key(1)]
    with Journal(tmp_path) as journal:
        assert journal.row(key(1))["status"] == "generated"
        with pytest.raises(KeyError):
            journal.row(key(3))


def test_37_bytes_cut_off_cost_one_row_and_the_next_stands_on_its_own_line(tmp_path: Path) -> None:
    filled(tmp_path, 150)
    path = tmp_path / FILE
    os.truncate(path, path.stat().st_size - 37)
    with Journal(tmp_path) as journal:
        assert len(journal) == 149 and journal.torn_bytes > 0
        journal.append(row(key(149)))
    assert all(decode(line) for line in path.read_bytes().splitlines(keepends=True))
    assert len(path.read_bytes().splitlines()) == 151


def test_a_tail_of_zeros_is_cut_off_too(tmp_path: Path) -> None:
    filled(tmp_path, 3)
    with (tmp_path / FILE).open("ab") as file:
        file.write(b"\0" * 500)
    with Journal(tmp_path) as journal:
        assert (len(journal), journal.torn_bytes) == (3, 500)


def test_damage_in_the_middle_is_reported_and_nothing_is_changed(tmp_path: Path) -> None:
    filled(tmp_path, 5)
    path = tmp_path / FILE
    lines = path.read_bytes().splitlines(keepends=True)
    damaged = b"".join([*lines[:2], lines[2][:10] + b"\n", *lines[3:]])
    path.write_bytes(damaged)
    with pytest.raises(JournalError, match=r"journal.jsonl: line 3 is damaged"):
        Journal(tmp_path)
    assert path.read_bytes() == damaged


def test_a_file_that_is_no_journal_is_not_emptied(tmp_path: Path) -> None:
    path = tmp_path / FILE
    path.write_text("somebody's notes\n" * 2)
    with pytest.raises(JournalError, match="line 1 is damaged"):
        Journal(tmp_path)
    assert path.read_text() == "somebody's notes\n" * 2


def test_a_journal_of_another_version_is_named(tmp_path: Path) -> None:
    (tmp_path / FILE).write_bytes(encode({"kind": "header", "id": "x", "identity": {"weights": 1}, "fresh": False}))
    with pytest.raises(JournalError, match="not a header that this version reads"):
        Journal(tmp_path)
    with pytest.raises(JournalError, match=f"{re.escape(str(tmp_path / FILE))}: its header is not one"):
        read_unfinished(tmp_path)
    (tmp_path / FILE).write_bytes(encode({"kind": "row", **row(key(1))}))
    with pytest.raises(JournalError, match="no header stands before it"):
        Journal(tmp_path)


def test_a_second_writer_is_refused_and_told_who_holds_it(tmp_path: Path) -> None:
    with Journal(tmp_path), pytest.raises(JournalError, match=rf"process {os.getpid()} on \S+"):
        Journal(tmp_path)
    with Journal(tmp_path):
        pass


@pytest.fixture
def holder(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that has the journal open."""
    code = (
        "import sys, time; from pathlib import Path; from eagle3_assets.generation.journal import Journal\n"
        "journal = Journal(Path(sys.argv[1])); print('open', flush=True); time.sleep(60)"
    )
    process = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline() == "open\n"
    yield process
    process.kill()
    process.wait()
    process.stdout.close()


def test_the_lock_of_a_dead_process_is_free(tmp_path: Path, holder: subprocess.Popen[str]) -> None:
    with pytest.raises(JournalError, match=f"process {holder.pid} on"):
        Journal(tmp_path)
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    with Journal(tmp_path):
        pass


@pytest.mark.parametrize(("number", "words"), [(errno.ENOSPC, "disk is full"), (errno.EROFS, "read-only")])
def test_a_write_that_fails_halfway_keeps_all_rows_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, words: str
) -> None:
    filled(tmp_path, 4)
    real, calls = os.write, []

    def full(handle: int, data: bytes) -> int:
        calls.append(data)
        if len(calls) > 1:
            raise OSError(number, os.strerror(number))
        return real(handle, data[: len(data) // 2])

    with Journal(tmp_path) as journal:
        monkeypatch.setattr(os, "write", full)
        with pytest.raises(JournalError, match=rf"{words}.*4 finished rows in it are kept"):
            journal.append(row(key(9), text="x" * 1000))
        monkeypatch.undo()
        journal.append(row(key(5)))  # room was made
    with Journal(tmp_path) as journal:
        assert (len(journal), journal.torn_bytes) == (5, 0)


def test_a_limit_on_the_files_size_is_met_by_a_real_write(tmp_path: Path) -> None:
    filled(tmp_path, 4)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    with Journal(tmp_path) as journal:
        resource.setrlimit(resource.RLIMIT_FSIZE, (journal.path.stat().st_size + 100, hard))
        try:
            with pytest.raises(JournalError, match=r"ulimit -f.*4 finished rows in it are kept"):
                journal.append(row(key(9), text="x" * 1000))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    with Journal(tmp_path) as journal:
        assert (len(journal), journal.torn_bytes) == (4, 0)


def test_a_directory_that_cannot_be_written_is_one_clear_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.raises(JournalError, match="cannot be opened"):
        Journal(blocked / "journal")

    def denied(*_: object) -> int:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(os, "open", denied)
    with pytest.raises(JournalError, match="choose another directory"):
        Journal(tmp_path / "journal")


class Disk:
    """A disk whose commits take as long as a test wants."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begun, self.ended = queue.Queue[int](), threading.Semaphore(0)
        monkeypatch.setattr(os, "fdatasync", self._commit, raising=False)
        monkeypatch.setattr("eagle3_assets.generation.journal.SYNC_SECONDS", 1e9)

    def _commit(self, handle: int) -> None:
        self.begun.put(os.fstat(handle).st_size)
        assert self.ended.acquire(timeout=20)

    def commits(self) -> list[int]:
        """Sizes of the file at the commits begun since the last call; waits for one."""
        sizes = [self.begun.get(timeout=20)]
        while not self.begun.empty():
            sizes.append(self.begun.get())
        return sizes


def test_a_commit_begins_after_16_rows_and_holds_up_no_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = Disk(monkeypatch)
    disk.ended.release()
    with Journal(tmp_path) as journal:
        journal.begin(IDENTITY, fresh=False)
        assert disk.commits() == [journal.path.stat().st_size]
        for number in range(15):
            journal.append(row(key(number)))
        assert disk.begun.empty()
        journal.append(row(key(15)))
        size = journal.path.stat().st_size
        assert disk.commits() == [size]
        for number in range(16, 40):
            journal.append(row(key(number)))  # while the commit lasts
        assert disk.begun.empty() and journal.path.stat().st_size > size
        disk.ended.release(2)
        while disk.begun.empty():  # one commit for all that came meanwhile, as soon as the first has ended
            journal.sync_if_due()
        assert disk.commits() == [journal.path.stat().st_size]
        disk.ended.release(2)
        journal.sync()
        journal.append(row(key(99)))
        size = journal.path.stat().st_size
    assert disk.commits()[-1] == size


def test_a_row_is_committed_after_a_second_at_most(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = Disk(monkeypatch)
    disk.ended.release(100)
    with Journal(tmp_path) as journal:
        journal.begin(IDENTITY, fresh=False)
        journal.append(row(key(1)))
        assert len(disk.commits()) == 1
        monkeypatch.setattr("eagle3_assets.generation.journal.SYNC_SECONDS", 0.0)
        journal.sync_if_due()
        assert disk.commits() == [journal.path.stat().st_size]
        journal.sync()
        disk.commits()
        journal.sync_if_due()
        assert disk.begun.empty()  # nothing is new


def test_a_slow_disk_holds_up_the_rows_in_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = Disk(monkeypatch)
    disk.ended.release()
    with Journal(tmp_path) as journal:
        journal.begin(IDENTITY, fresh=False)
        for number in range(MOST_UNSYNCED - 1):
            journal.append(row(key(number)))
        appending = threading.Thread(target=journal.append, args=(row(key(999)),))
        appending.start()
        appending.join(0.2)
        assert appending.is_alive()
        disk.ended.release(100)
        appending.join(20)
        assert not appending.is_alive()


def test_a_commit_that_fails_beside_the_work_stops_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with Journal(tmp_path) as journal:
        journal.begin(IDENTITY, fresh=False)
        monkeypatch.setattr(os, "fdatasync", broken, raising=False)
        with pytest.raises(JournalError, match="cannot be committed to disk: Input/output error"):
            for number in range(2 * MOST_UNSYNCED):
                journal.append(row(key(number)))
        monkeypatch.undo()


def test_a_disk_that_cannot_commit_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with Journal(tmp_path) as journal:
        journal.begin(IDENTITY, fresh=False)
        monkeypatch.setattr(os, "fdatasync", broken, raising=False)
        with pytest.raises(JournalError, match="cannot be committed to disk: Input/output error"):
            journal.sync()


def test_set_aside_and_discard(tmp_path: Path) -> None:
    filled(tmp_path, 2)
    with Journal(tmp_path) as journal:
        asides = [journal.set_aside()]
        assert journal.header is None and len(journal) == 0
        journal.begin(IDENTITY, fresh=True)
        journal.append(row(key(7)))
        asides.append(journal.set_aside())
        assert [len(aside.read_bytes().splitlines()) for aside in asides] == [3, 2]
        assert all(re.fullmatch(rf"{IDENTITY.fingerprint}-\d\.set-aside\.jsonl", aside.name) for aside in asides)
        journal.begin(IDENTITY, fresh=True)
        journal.append(row(key(8)))
        journal.discard()
        assert journal.path.read_bytes() == b""
        journal.begin(IDENTITY, fresh=False)
        journal.append(row(key(9)))
    with Journal(tmp_path) as journal:
        assert len(journal) == 1 and journal.status(key(9)) == "generated"


def test_a_file_changed_under_its_reader_is_noticed(tmp_path: Path) -> None:
    filled(tmp_path, 2)
    with Journal(tmp_path) as journal:
        journal.path.write_bytes(b"x" * 500)
        with pytest.raises(JournalError, match="changed while it was in use"):
            journal.row(key(1))


def test_reading_beside_a_writer_takes_no_lock_and_changes_nothing(tmp_path: Path) -> None:
    assert read_unfinished(tmp_path / "none") is None
    assert not (tmp_path / "none").exists()
    with Journal(tmp_path) as journal:
        assert read_unfinished(tmp_path) is None
        journal.begin(IDENTITY, fresh=True)
        journal.note_environment("e", {"engine": "fake"})
        journal.append(row(key(1), output_ids=[7] * 20))
        journal.append(row(key(2), "failed"))
        journal.append(row(key(3), "failed"))
        journal.append(row(key(3), output_ids=[8] * 5))
        journal.append(row(key(1), output_ids=[9]))  # what is generated already is not replaced
        with (tmp_path / FILE).open("ab") as file:  # as a writer is seen that is in the middle of a row
            file.write(encode({"kind": "row", **row(key(4), output_ids=[1, 2])})[:-9])
        before = (tmp_path / FILE).read_bytes()
        found = read_unfinished(tmp_path)
        assert (tmp_path / FILE).read_bytes() == before
    assert found is not None
    assert found.header == journal.header
    assert found.status == {key(1): "generated", key(2): "failed", key(3): "generated"}
    assert (found.outputs, found.output_tokens) == (2, 25)
