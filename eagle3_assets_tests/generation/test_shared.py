"""Journals that another machine goes on with: what is uploaded, taken over, and deleted. On a store in memory."""

import asyncio
import logging
import shutil
import threading
import uuid
from concurrent.futures import wait
from pathlib import Path
from typing import Any

import pytest
from upath import UPath

from eagle3_assets.files import names_in, place_of, publish_new, read_bytes, write_text
from eagle3_assets.generation import lease, sealing
from eagle3_assets.generation import shared as module
from eagle3_assets.generation.errors import IdentityMismatchError, JournalError
from eagle3_assets.generation.journal import FILE, Journal
from eagle3_assets.generation.sealed import read_current, scan_sealed
from eagle3_assets.generation.shared import SharedJournal, Sharing, find_unfinished, open_journal
from eagle3_assets_tests.generation.fake import (
    IDENTITY,
    OTHER_IDENTITY,
    FakeEngine,
    check_whole,
    prompt_frame,
    run,
)
from eagle3_assets_tests.generation.test_journal import key, row


@pytest.fixture
def root() -> UPath:
    """An empty place on a store."""
    return place_of(f"memory://shared/{uuid.uuid4().hex}")


def sharing(root: UPath, **changes: Any) -> Sharing:
    return Sharing(root / "journals", **{"rows": 4, "seconds": 3600.0, "lease_seconds": 60.0, **changes})


def opened(directory: Path, how: Sharing) -> SharedJournal:
    journal = asyncio.run(open_journal(directory, how))
    assert isinstance(journal, SharedJournal)
    return journal


def chunks(root: UPath) -> list[str]:
    return [name for name in names_in(root / "journals") if name[0].isdigit()]


def vanish(journal: SharedJournal) -> None:
    """Ends a journal as a dead machine does: nothing more is uploaded, nothing is released, nothing is renewed."""
    assert journal._lease is not None
    journal._lease._ended.set()
    if journal._upload is not None:
        journal._upload.result()
    journal._lease = None
    journal.close()


def expire(root: UPath) -> None:
    """Lets the lease's time run out at once."""
    [name] = [name for name in names_in(root / "journals") if name.startswith("lease")]
    place = root / "journals" / name
    write_text(place, read_bytes(place).decode().replace('"seconds":60.0', '"seconds":0.05'))


def test_another_machine_has_all_rows_up_to_the_last_upload(tmp_path: Path, root: UPath) -> None:
    first = opened(tmp_path / "a", sharing(root))
    first.begin(IDENTITY, fresh=False)
    first.note_environment("e", {"engine": "fake"})
    for number in range(10):
        first.append(row(key(number), output_ids=[number] * 5))
        if first._upload is not None:
            first._upload.result()
    vanish(first)
    expire(root)
    with opened(tmp_path / "b", sharing(root)) as second:
        assert [number for number in range(10) if second.status(key(number))] == list(range(8))
        assert second.row(key(7)) == row(key(7), output_ids=[7] * 5)
        assert second.header == Journal(tmp_path / "a").header
        assert second.environment == ("e", {"engine": "fake"})


def test_rows_that_only_the_local_file_has_are_uploaded_when_it_is_opened_again(tmp_path: Path, root: UPath) -> None:
    first = opened(tmp_path / "a", sharing(root, rows=100))
    first.begin(IDENTITY, fresh=False)
    for number in range(3):
        first.append(row(key(number), "failed" if number == 2 else "generated", output_ids=[number]))
    vanish(first)
    # The same machine: it has the lock that its former process had, and need not wait.
    with opened(tmp_path / "a", sharing(root)) as again:
        assert len(again) == 3
        before = chunks(root)
    assert chunks(root) == before  # and nothing twice
    with opened(tmp_path / "b", sharing(root)) as second:
        assert [second.status(key(number)) for number in range(3)] == ["generated", "generated", "failed"]


def test_a_failed_row_gives_way_to_a_generated_one_of_another_machine(tmp_path: Path, root: UPath) -> None:
    with opened(tmp_path / "a", sharing(root)) as first:
        first.begin(IDENTITY, fresh=False)
        first.append(row(key(1), "failed"))
    with opened(tmp_path / "b", sharing(root)) as second:
        second.append(row(key(1), output_ids=[1]))
    with opened(tmp_path / "a", sharing(root)) as first:
        assert first.status(key(1)) == "generated"
        assert first.row(key(1))["output_ids"] == [1]


def test_what_is_uploaded_late_by_a_former_writer_does_not_count(tmp_path: Path, root: UPath) -> None:
    with opened(tmp_path / "a", sharing(root)) as first:
        first.begin(IDENTITY, fresh=False)
        first.append(row(key(1), output_ids=[1]))
    late = read_bytes(root / "journals" / chunks(root)[-1])
    with opened(tmp_path / "b", sharing(root)) as second:
        second.discard()
    assert chunks(root) == []
    write_text(root / "journals" / "000001-000009.jsonl", late.decode())
    with opened(tmp_path / "c", sharing(root)) as third:
        assert len(third) == 0 and third.header is None


def test_rows_of_a_journal_that_others_sealed_are_left_aside(
    tmp_path: Path, root: UPath, caplog: pytest.LogCaptureFixture
) -> None:
    first = opened(tmp_path / "a", sharing(root))
    first.begin(IDENTITY, fresh=False)
    first.append(row(key(1), output_ids=[1]))
    vanish(first)
    expire(root)
    with opened(tmp_path / "b", sharing(root)) as second:
        second.discard()
    with caplog.at_level(logging.WARNING), opened(tmp_path / "a", sharing(root)) as first:
        assert len(first) == 0
    assert "another machine went on without these rows" in caplog.text
    assert [path.read_bytes().count(b"\n") for path in (tmp_path / "a").glob("*.set-aside.jsonl")] == [2]


def test_an_upload_that_fails_is_done_again_and_the_run_goes_on(
    tmp_path: Path, root: UPath, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(tmp_path / "a", sharing(root)) as first:
        first.begin(IDENTITY, fresh=False)
        with monkeypatch.context() as patch:

            def unreachable(*_: object) -> bool:
                raise OSError("the network is gone")

            patch.setattr(module, "create", unreachable)
            for number in range(8):
                first.append(row(key(number), output_ids=[number]))
            with pytest.raises(JournalError, match=rf"could not be uploaded.*{FILE}: run again on this machine"):
                first.sync()
    with opened(tmp_path / "b", sharing(root)) as second:
        assert len(second) == 8


def test_a_store_that_refuses_uploads_is_asked_now_and_then_not_with_every_row(
    tmp_path: Path, root: UPath, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    asked = []

    def unreachable(place: UPath, _: bytes) -> bool:
        asked.append(place)
        raise OSError("the network is gone")

    def add(journal: SharedJournal, number: int) -> None:
        journal.append(row(key(number), output_ids=[number]))
        if journal._upload is not None:
            wait([journal._upload])

    with opened(tmp_path / "a", sharing(root)) as first:
        first.begin(IDENTITY, fresh=False)
        before = chunks(root)
        with monkeypatch.context() as patch:
            patch.setattr(module, "create", unreachable)
            patch.setattr(module, "RETRY_S", 600.0, raising=False)
            for number in range(12):
                add(first, number)
            assert len(asked) == caplog.text.count("could not be uploaded, and will be again") == 1
        monkeypatch.setattr(module, "RETRY_S", 0.0, raising=False)
        add(first, 12)
        assert len(chunks(root)) == len(before) + 1
        vanish(first)
    with opened(tmp_path / "a", sharing(root)) as again:
        assert len(again) == 13


def test_a_store_that_hangs_holds_a_run_up_no_longer_than_its_lease(
    tmp_path: Path, root: UPath, monkeypatch: pytest.MonkeyPatch
) -> None:
    goes_on = threading.Event()
    monkeypatch.setattr(module, "LOOK_S", 0.05)

    def hangs(*_: object) -> bool:
        goes_on.wait()
        raise OSError("the client has given up")

    first = opened(tmp_path / "a", sharing(root, lease_seconds=3.0))
    first.begin(IDENTITY, fresh=False)
    monkeypatch.setattr(module, "create", hangs)
    monkeypatch.setattr(lease, "write_text", hangs)
    try:
        for number in range(4):
            first.append(row(key(number), output_ids=[number]))
        with pytest.raises(JournalError, match="the store could not be reached"):
            first.sync()
        with pytest.raises(JournalError, match="the store could not be reached"):
            first.close()
        assert not goes_on.is_set()
    finally:
        goes_on.set()
    monkeypatch.undo()
    with opened(tmp_path / "a", sharing(root)) as again:
        assert len(again) == 4


def test_a_local_directory_is_named_for_good_and_for_the_running_kernel(tmp_path: Path, root: UPath) -> None:
    """Whoever has the lock of a directory of that name takes a lease at once: no two machines may share a name."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    names = []
    for machine in "ab":
        directory = tmp_path / machine
        directory.mkdir()
        (directory / "writer").touch()  # as a full disk left it
        for _ in range(2):
            with SharedJournal(directory, sharing(root)) as journal:
                names.append(journal._writer())
    assert names[0] == names[1] and names[2] == names[3] and names[0] != names[2]
    assert all(name.endswith(f" on {boot}") and len(name) > len(f" on {boot}") for name in names)


def test_a_writer_that_was_taken_over_acknowledges_nothing_more(tmp_path: Path, root: UPath) -> None:
    first = opened(tmp_path / "a", sharing(root, lease_seconds=1.0))
    first.begin(IDENTITY, fresh=False)
    assert first._lease is not None
    first._lease._ended.set()  # as if the process had been stopped for a while
    with opened(tmp_path / "b", sharing(root)) as second:
        with pytest.raises(JournalError, match="may take this partition over"):
            first.append(row(key(1), output_ids=[1]))
        with pytest.raises(JournalError):
            first.require_sole_writer()
        before = chunks(root)
        with pytest.raises(JournalError):
            first.close()
        assert chunks(root) == before
        second.require_sole_writer()


def test_a_damaged_chunk_is_named(tmp_path: Path, root: UPath) -> None:
    with opened(tmp_path / "a", sharing(root)) as first:
        first.begin(IDENTITY, fresh=False)
        first.append(row(key(1), output_ids=[1]))
    name = chunks(root)[-1]
    content = read_bytes(root / "journals" / name).decode()
    write_text(root / "journals" / name, content[:-5])
    with pytest.raises(JournalError, match=rf"{name}: line 2 is damaged"):
        opened(tmp_path / "b", sharing(root))
    write_text(root / "journals" / name, content)
    opened(tmp_path / "b", sharing(root)).close()


def test_what_is_unfinished_is_found_by_whoever_looks(tmp_path: Path, root: UPath) -> None:
    how = sharing(root)
    assert find_unfinished(tmp_path / "a", how) is None
    with opened(tmp_path / "a", how) as first:
        first.begin(IDENTITY, fresh=True)
        for number in range(5):
            first.append(row(key(number), output_ids=[1, 2]))
        first.sync()
        for directory in ("a", "b"):
            found = find_unfinished(tmp_path / directory, how)
            assert found and (found.outputs, found.output_tokens, found.header.fresh) == (5, 10, True)
        first.discard()
        assert find_unfinished(tmp_path / "b", how) is None


@pytest.mark.parametrize("chunk", [0, 1, 2])
def test_a_journal_that_goes_while_it_is_read_is_not_unfinished(
    chunk: int, tmp_path: Path, root: UPath, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As that of a partition whose run seals it just when somebody plans the next."""
    how = sharing(root)
    with opened(tmp_path / "a", how) as first:
        first.begin(IDENTITY, fresh=True)
        for number in range(2):
            first.append(row(key(number), output_ids=[1, 2]))
            first.sync()
        before: list[UPath] = []

        def read(path: UPath) -> bytes:
            before.append(path)
            if len(before) == chunk + 1:
                first.discard()
            return read_bytes(path)

        monkeypatch.setattr(module, "read_bytes", read)
        assert find_unfinished(tmp_path / "b", how) is None
        assert len(before) == chunk + 1


def test_a_chunk_that_is_listed_and_never_there_is_named(
    tmp_path: Path, root: UPath, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(path: UPath) -> bytes:
        raise FileNotFoundError(2, "No such file or directory", str(path))

    with opened(tmp_path / "a", sharing(root)) as first:
        first.begin(IDENTITY, fresh=True)
        first.append(row(key(1), output_ids=[1]))
        first.sync()
        monkeypatch.setattr(module, "read_bytes", gone)
        with pytest.raises(JournalError, match="cannot be read"):
            find_unfinished(tmp_path / "b", sharing(root))


def shared_run(base: Path, root: UPath, machine: str, count: int, engine: FakeEngine, **others: Any) -> Any:
    return run(
        base,
        prompt_frame(count),
        engine,
        directory=root / "data",
        journal_directory=base / machine,
        sharing=sharing(root),
        **others,
    )


def test_a_partition_goes_round_the_machines(tmp_path: Path, root: UPath) -> None:
    def failing(_: int) -> Exception:
        return RuntimeError("the engine is gone")

    engine = FakeEngine(capacity=2, faults={"s9": failing})
    with pytest.raises(Exception, match="the engine is gone"):
        shared_run(tmp_path, root, "a", 20, engine)
    second = FakeEngine()
    outcome = shared_run(tmp_path, root, "b", 20, second)
    assert outcome.kept == sum(engine.asked.values()) - engine.asked["s9"] >= 8
    assert sum(second.asked.values()) == 20 - outcome.kept
    assert chunks(root) == []
    sealed = read_current(root / "data")
    assert sealed is not None
    check_whole(scan_sealed(sealed).collect(), prompt_frame(20))
    for machine in ("a", "b", "c"):
        third = FakeEngine()
        assert shared_run(tmp_path, root, machine, 20, third).generated == 0
        assert not third.asked
    assert read_current(root / "data") == sealed


def test_a_machine_that_dies_between_pointer_and_clean_up_leaves_nothing_behind(
    tmp_path: Path, root: UPath, monkeypatch: pytest.MonkeyPatch
) -> None:
    def dies(_: SharedJournal) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(SharedJournal, "discard", dies)
        shared_run(tmp_path, root, "a", 9, FakeEngine())
    assert chunks(root)
    shutil.rmtree(tmp_path / "a")
    engine = FakeEngine()
    outcome = shared_run(tmp_path, root, "b", 9, engine)
    assert (outcome.generated, outcome.kept, chunks(root)) == (0, 9, [])
    assert not engine.asked
    check_whole(scan_sealed(outcome.sealed).collect(), prompt_frame(9))


def test_a_lease_lost_while_sealing_keeps_the_pointer_and_the_chunks(
    tmp_path: Path, root: UPath, monkeypatch: pytest.MonkeyPatch
) -> None:
    def overtaken(temporary: Path, target: UPath) -> None:
        publish_new(temporary, target)
        [name] = [name for name in names_in(root / "journals") if name.startswith("lease")]
        other = read_bytes(root / "journals" / name).decode().replace('"holder":"', '"holder":"another ')
        write_text(root / "journals" / "lease-000009.json", other)

    monkeypatch.setattr(sealing, "publish_new", overtaken)
    with pytest.raises(JournalError, match=r"another process .* has taken this partition over"):
        shared_run(tmp_path, root, "a", 9, FakeEngine())
    assert read_current(root / "data") is None
    found = find_unfinished(tmp_path / "nowhere", sharing(root))
    assert found is not None and found.outputs == 9


def test_rows_of_another_identity_are_set_aside_on_the_store(tmp_path: Path, root: UPath) -> None:
    with opened(tmp_path / "a", sharing(root)) as first:
        first.begin(OTHER_IDENTITY, fresh=False)
        first.append(row(key(1), output_ids=[1]))
    with pytest.raises(IdentityMismatchError):
        shared_run(tmp_path, root, "b", 5, FakeEngine())
    outcome = shared_run(tmp_path, root, "b", 5, FakeEngine(), regenerate=True)
    [aside] = outcome.left_beside
    assert aside.startswith(str(root / "journals" / OTHER_IDENTITY.fingerprint))
    assert read_bytes(place_of(aside)).count(b'"kind":"row"') == 1
    assert chunks(root) == []
