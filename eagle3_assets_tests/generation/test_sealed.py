"""Sealed files: the pointer, damage, crashes between the steps, object stores, bounded memory."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from upath import UPath

from eagle3_assets.contract import ROW_GROUP_ROWS
from eagle3_assets.engines.base import Generation, Request
from eagle3_assets.generation import sealing
from eagle3_assets.generation.errors import SealedError
from eagle3_assets.generation.journal import Journal
from eagle3_assets.generation.sealed import read_current, read_identity, scan_sealed
from eagle3_assets_tests.generation.fake import (
    AT_ONCE,
    DESCRIPTION,
    IDENTITY,
    FakeEngine,
    check_whole,
    generate,
    prompt_frame,
    run,
    sealed_rows,
)


def data(base: Path) -> UPath:
    return UPath(base / "data")


def files(base: Path) -> dict[str, int]:
    return {path.name: path.stat().st_size for path in (base / "data").iterdir()}


def test_a_partition_never_sealed_has_no_current_file(tmp_path: Path) -> None:
    assert read_current(UPath(tmp_path / "nowhere")) is None
    assert read_current(UPath(tmp_path)) is None


def test_row_groups_are_small_and_rows_stay_in_order(tmp_path: Path) -> None:
    prompts = prompt_frame(2 * ROW_GROUP_ROWS + 100)
    run(tmp_path, prompts, FakeEngine(capacity=64))
    check_whole(sealed_rows(tmp_path), prompts)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "is not a pointer"),
        ("{", "is not a pointer"),
        ("[1]", "is not a pointer"),
        ('{"file": "../../x.parquet"}', "is not a pointer"),
        ('{"file": "0f-1.parquet"}', "is not a pointer"),
        (b"\x80\x81", "is not a pointer"),
    ],
)
def test_a_damaged_pointer_is_named_and_nothing_is_touched(tmp_path: Path, content: str | bytes, words: str) -> None:
    run(tmp_path, prompt_frame(3))
    (tmp_path / "data" / "current.json").write_bytes(content.encode() if isinstance(content, str) else content)
    before = files(tmp_path)
    for act in (lambda: read_current(data(tmp_path)), lambda: run(tmp_path, prompt_frame(4))):
        with pytest.raises(SealedError, match=words):
            act()
    assert files(tmp_path) == before


def _truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-9])


def _garble(path: Path) -> None:
    path.write_bytes(b"\0" * path.stat().st_size)


@pytest.mark.parametrize(
    ("harm", "words"),
    [(Path.unlink, "it is not there"), (_truncate, "File out of specification"), (_garble, "parquet")],
)
def test_a_damaged_file_is_named_and_nothing_is_touched(
    tmp_path: Path, harm: Callable[[Path], None], words: str
) -> None:
    outcome = run(tmp_path, prompt_frame(3))
    harm(tmp_path / "data" / outcome.sealed.pointer.file)
    before = files(tmp_path)
    engine = FakeEngine()
    with pytest.raises(SealedError, match=rf"{outcome.sealed.pointer.file}: current.json names this file.*{words}"):
        run(tmp_path, prompt_frame(4), engine)
    assert files(tmp_path) == before and not engine.asked


def test_other_columns_and_another_number_of_rows_are_noticed(tmp_path: Path) -> None:
    outcome = run(tmp_path, prompt_frame(3))
    path, pointer = tmp_path / "data" / outcome.sealed.pointer.file, tmp_path / "data" / "current.json"
    rows = pl.read_parquet(path)
    for frame, words in (
        (rows.drop("text"), "its columns differ.*: text"),
        (rows[:2], "it has 2 rows, the pointer says 3"),
    ):
        frame.write_parquet(path)
        pointer.write_text(json.dumps(json.loads(pointer.read_text()) | {"size_bytes": path.stat().st_size}))
        with pytest.raises(SealedError, match=words):
            read_current(data(tmp_path))


def test_a_missing_or_exchanged_identity_record_is_named(tmp_path: Path) -> None:
    with pytest.raises(SealedError, match="missing or damaged"):
        read_identity(UPath(tmp_path), "0" * 16)
    (tmp_path / f"{'0' * 16}.identity.json").write_text(IDENTITY.model_dump_json())
    with pytest.raises(SealedError, match=f"holds the identity {IDENTITY.fingerprint}"):
        read_identity(UPath(tmp_path), "0" * 16)


class PowerCutError(BaseException):
    """Ends a run where it stands: nothing catches it."""


@pytest.mark.parametrize(
    "step",
    [
        "sealing._write",
        "sealing._require_unchanged",
        "sealing.publish_new",
        "sealing.write_text",
        "sealing._clean_up",
        "sealing._deleted",
        "journal.Journal.discard",
    ],
)
@pytest.mark.parametrize("late", [False, True])
def test_cut_off_before_or_after_any_step_of_sealing_the_next_run_ends_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, late: bool
) -> None:
    run(tmp_path, prompt_frame(5))
    prompts = prompt_frame(12)
    target, _, name = f"eagle3_assets.generation.{step}".rpartition(".")
    real = getattr(sealing if step.startswith("sealing") else Journal, name)

    def cut(*given: Any, **named: Any) -> None:
        if late:
            real(*given, **named)
        raise PowerCutError

    with monkeypatch.context() as patch:
        patch.setattr(f"{target}.{name}", cut)
        with pytest.raises(PowerCutError):
            run(tmp_path, prompts)
    engine = FakeEngine()
    outcome = run(tmp_path, prompts, engine)
    assert not engine.asked and outcome.kept == 12
    check_whole(sealed_rows(tmp_path), prompts)
    assert (tmp_path / "journal" / "journal.jsonl").read_bytes() == b""
    longer = run(tmp_path, prompt_frame(13), engine)
    assert list(engine.asked) == ["s12"] and longer.sealed.rows == 13


def test_a_seal_that_cannot_be_written_keeps_the_journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(sealing, "publish_new", full)
        with pytest.raises(SealedError, match=r"No space left on device.*only the sealing is done again"):
            run(tmp_path, prompt_frame(5))
    assert not list((tmp_path / "data").glob(".*"))
    engine = FakeEngine()
    assert run(tmp_path, prompt_frame(5), engine).kept == 5 and not engine.asked


def test_a_directory_that_cannot_be_written_is_found_before_anything_is_asked(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("a file")
    engine = FakeEngine()
    with pytest.raises(SealedError, match=r"data: cannot be written|cannot be read"):
        run(tmp_path, prompt_frame(5), engine)
    assert not engine.asked


def test_a_seal_by_another_machine_meanwhile_is_noticed(tmp_path: Path) -> None:
    prompts = prompt_frame(5)

    class Meanwhile(FakeEngine):
        async def generate(self, request: Request) -> Generation:
            if not self.asked:
                self.asked["x"] += 1
                pointer = json.loads((tmp_path / "other" / "data" / "current.json").read_text())
                for path in (tmp_path / "other" / "data").iterdir():
                    (tmp_path / "data" / path.name).write_bytes(path.read_bytes())
                assert pointer["rows"] == 5
            return await super().generate(request)

    run(tmp_path / "other", prompts)
    with pytest.raises(SealedError, match="another run sealed this partition"):
        run(tmp_path, prompts, Meanwhile())
    assert (tmp_path / "journal" / "journal.jsonl").stat().st_size > 1000
    outcome = run(tmp_path, prompts)
    assert outcome.kept == 5


def test_a_reader_of_a_file_that_was_replaced_meanwhile_is_told_so(tmp_path: Path) -> None:
    before = run(tmp_path, prompt_frame(3)).sealed
    run(tmp_path, prompt_frame(5))
    with pytest.raises(SealedError, match="another run replaced this file while it was read; run again"):
        scan_sealed(before)


@pytest.mark.parametrize("scheme", ["memory://eagle3-test", "file://"])
def test_any_fsspec_path_holds_a_partition(tmp_path: Path, scheme: str) -> None:
    base = UPath(scheme + str(tmp_path)) / "partition"

    def generated(count: int, engine: FakeEngine) -> pl.DataFrame:
        outcome = generate(
            directory=base,
            journal_directory=tmp_path / "journal",
            prompts=prompt_frame(count).lazy(),
            identity=IDENTITY,
            description=DESCRIPTION,
            engine=engine,
            retry=AT_ONCE,
        )
        current = read_current(base)
        assert current == outcome.sealed
        return scan_sealed(current).collect()

    check_whole(generated(6, FakeEngine()), prompt_frame(6))
    engine = FakeEngine()
    check_whole(generated(9, engine), prompt_frame(9))
    assert len(engine.asked) == 3
    assert sum(path.name.endswith(".parquet") for path in base.iterdir()) == 1
    assert [path.name for path in (tmp_path / "journal").iterdir()] != []
    assert not [path for path in (tmp_path / "journal").iterdir() if path.name not in ("journal.jsonl", "journal.lock")]
    (base / "current.json").write_text("{}")
    with pytest.raises(SealedError):
        read_current(base)


MEMORY = """
import json, sys
from pathlib import Path
import polars as pl
from eagle3_assets.contract import TOKENIZED_PROMPTS
from eagle3_assets_tests.generation.fake import CONTEXT, DESCRIPTION, FakeEngine, run
rows = int(sys.argv[2])
prompts = Path(sys.argv[1]) / "prompts.parquet"
pl.DataFrame({"i": range(rows)}).select(
    sample_id=pl.format("s{}", "i"),
    prompt_ids=pl.lit([5, 6] * 20).cast(pl.List(pl.Int32)), prompt_tokens=pl.lit(40, pl.Int32),
    thinking=pl.lit(True), status=pl.lit("ready"), reason=pl.lit(None, pl.String),
).write_parquet(prompts, row_group_size=2000)
engine = FakeEngine(capacity=64)
engine.reply = {"output_ids": list(range(1000, 1700)), "completion_tokens": 700}
class Frame:
    def lazy(self): return pl.scan_parquet(prompts)
def peak():  # of this program alone: getrusage begins with the peak of the process that started it
    return int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0])
before = peak()
outcome = run(Path(sys.argv[1]), Frame(), engine)
assert outcome.generated == rows
print((peak() - before) / 1024)
"""


def test_memory_does_not_grow_with_the_partition(tmp_path: Path) -> None:
    def peak(rows: int) -> float:
        base = tmp_path / str(rows)
        base.mkdir()
        done = subprocess.run(
            [sys.executable, "-c", MEMORY, str(base), str(rows)],
            capture_output=True,
            text=True,
            check=True,
            env={"PYTHONPATH": ":".join(sys.path), "POLARS_MAX_THREADS": "1"},
        )
        return float(done.stdout)

    small, large = peak(2_000), peak(8_000)
    # 6,000 rows of 740 ids more are 18 MB as int32 and 160 MB as Python integers; the index of them is about 2 MB.
    assert large - small < 30, (small, large)
