"""The loop around an engine: faults, resuming, consents, the window; and that every prompt ends in exactly one row."""

import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from eagle3_assets.contract import RAW_GENERATIONS
from eagle3_assets.engines.base import (
    Description,
    EngineUnavailableError,
    RequestRefusedError,
    TransientEngineError,
)
from eagle3_assets.generation.errors import (
    EnvironmentChangedError,
    GenerationStoppedError,
    IdentityMismatchError,
    JournalError,
    PromptsError,
    SealedError,
)
from eagle3_assets.generation.journal import FILE, Journal, decode
from eagle3_assets.generation.loop import generate_partition
from eagle3_assets.generation.progress import Progress
from eagle3_assets.generation.rows import seed_for, wants_logprobs
from eagle3_assets.generation.sealed import read_identity
from eagle3_assets.identity import canonical_json, request_key
from eagle3_assets_tests.generation.fake import (
    AT_ONCE,
    CONTEXT,
    DESCRIPTION,
    IDENTITY,
    OTHER_IDENTITY,
    STOP,
    VOCAB,
    FakeEngine,
    Fault,
    check_whole,
    generate,
    prompt_frame,
    run,
    sealed_rows,
)


def always(error: Exception) -> Fault:
    return lambda _: error


def after(times: int, error: Exception) -> Fault:
    """Raises so many times, then lets the request through."""
    return lambda before: error if before < times else None


def changed(**environment: Any) -> Description:
    return Description("sha256:w", (STOP,), VOCAB, CONTEXT, environment)


class CrashError(Exception):
    """Something that no engine should raise."""


def interrupted(base: Path, prompts: pl.DataFrame, at: str, **others: Any) -> FakeEngine:
    """A run which ends at one sample."""
    engine = FakeEngine(faults={at: always(CrashError("boom"))})
    with pytest.raises(GenerationStoppedError):
        run(base, prompts, engine, **others)
    return engine


def test_every_prompt_ends_in_one_row_in_prompt_order_with_every_column(tmp_path: Path) -> None:
    prompts = prompt_frame(60, refused={3, 50})
    outcome = run(tmp_path, prompts, FakeEngine(delay=0.001))
    rows = sealed_rows(tmp_path)
    check_whole(rows, prompts)
    assert rows.schema == RAW_GENERATIONS
    counts = dict(rows["status"].value_counts().iter_rows())
    assert counts == {"generated": 58, "refused_prompt": 2}
    pointer = outcome.sealed.pointer
    assert (pointer.rows, pointer.generated, pointer.failed, pointer.refused) == (60, 58, 0, 2)
    assert (outcome.asked, outcome.kept, outcome.generated, outcome.tokens, outcome.retries) == (58, 0, 58, 174, 0)
    assert outcome.tokens_per_s > 0 and outcome.latency_s == {"p50": 0.25, "p95": 0.25, "p99": 0.25, "max": 0.25}
    first, refused = rows.row(0, named=True), rows.row(3, named=True)
    assert first["request_key"] == request_key("s0", first["prompt_ids"], IDENTITY.fingerprint)
    assert first["sampling"] == canonical_json(IDENTITY.sampling.model_dump(mode="json") | {"stop_token_ids": [STOP]})
    assert (first["identity"], first["matched_stop"], first["finish_type"]) == (IDENTITY.fingerprint, "1", "stop")
    assert (first["completion_tokens"], first["server_prompt_tokens"], first["attempts"]) == (3, 1, 1)
    assert (refused["reason"], refused["attempts"], refused["environment"]) == ("prompt_injection", 0, None)
    names = {path.name for path in (tmp_path / "data").iterdir()}
    assert names == {
        "current.json",
        pointer.file,
        f"{IDENTITY.fingerprint}.identity.json",
        f"{first['environment']}.environment.json",
    }
    assert (tmp_path / "journal" / FILE).read_bytes() == b""
    assert read_identity(outcome.sealed.directory, pointer.fingerprint) == IDENTITY


def test_a_transient_fault_is_sent_again(tmp_path: Path) -> None:
    engine = FakeEngine(
        faults={"s1": after(2, TransientEngineError("busy")), "s2": after(1, TransientEngineError("busy"))}
    )
    outcome = run(tmp_path, prompt_frame(5), engine)
    assert (outcome.generated, outcome.retries) == (5, 3)
    assert sealed_rows(tmp_path)["attempts"].to_list() == [1, 3, 2, 1, 1]


def test_rows_that_are_not_wanted_are_asked_for_again_and_no_other(tmp_path: Path) -> None:
    prompts = prompt_frame(6)
    former = run(tmp_path, prompts).sealed
    engine = FakeEngine(faults={"s4": always(TransientEngineError("connection lost"))})
    engine.reply = {"latency_s": 9.0}
    outcome = run(tmp_path, prompts, engine, again={"s1", "s4", "stranger"})
    assert engine.asked == {"s1": 1, "s4": 4}
    assert (outcome.asked, outcome.kept, outcome.generated) == (2, 4, 1)
    rows = sealed_rows(tmp_path)
    check_whole(rows, prompts)
    # What fails now keeps its former row, and the former file stays for the row that was replaced.
    assert rows["latency_s"].to_list() == [0.25, 9.0, 0.25, 0.25, 0.25, 0.25]
    assert rows["status"].unique().to_list() == ["generated"]
    assert outcome.left_beside == (str(former.path),)


def test_an_interrupted_second_asking_goes_on(tmp_path: Path) -> None:
    prompts = prompt_frame(4)
    run(tmp_path, prompts)
    interrupted(tmp_path, prompts, "s2", again={"s0", "s2"})
    engine = FakeEngine()
    run(tmp_path, prompts, engine, again={"s0", "s2"})
    assert engine.asked == {"s2": 1}
    check_whole(sealed_rows(tmp_path), prompts)


def test_a_second_asking_that_failed_is_done_again_when_told_again(tmp_path: Path) -> None:
    prompts = prompt_frame(4)
    run(tmp_path, prompts)
    engine = FakeEngine(capacity=1, faults={"s0": always(RequestRefusedError("no")), "s2": always(CrashError("boom"))})
    with pytest.raises(GenerationStoppedError):
        run(tmp_path, prompts, engine, again={"s0", "s2"})
    engine = FakeEngine()
    run(tmp_path, prompts, engine, again={"s0", "s2"})
    assert engine.asked == {"s0": 1, "s2": 1}
    check_whole(sealed_rows(tmp_path), prompts)


@pytest.mark.parametrize("key", [None, "", "xyz", "AB" * 16])
def test_a_sealed_row_without_a_request_key_is_said(tmp_path: Path, key: str | None) -> None:
    sealed = run(tmp_path, prompt_frame(3)).sealed
    rows = sealed_rows(tmp_path)
    keys = rows["request_key"].to_list()
    rows.with_columns(pl.Series("request_key", [keys[0], key, keys[2]])).write_parquet(str(sealed.path))
    with pytest.raises(SealedError, match="row 1 of the sealed generations has the request key"):
        run(tmp_path, prompt_frame(4))


def test_a_deleted_record_of_the_identity_comes_back(tmp_path: Path) -> None:
    sealed = run(tmp_path, prompt_frame(2)).sealed
    record = sealed.directory / f"{IDENTITY.fingerprint}.identity.json"
    record.unlink()
    run(tmp_path, prompt_frame(2))
    assert read_identity(sealed.directory, IDENTITY.fingerprint) == IDENTITY


def test_what_never_works_becomes_a_failed_row_with_its_reason(tmp_path: Path) -> None:
    engine = FakeEngine(
        faults={
            "s1": always(TransientEngineError("connection lost")),
            "s2": always(RequestRefusedError("400: too long")),
        }
    )
    prompts = prompt_frame(5)
    outcome = run(tmp_path, prompts, engine)
    assert engine.asked == {"s0": 1, "s1": 4, "s2": 1, "s3": 1, "s4": 1}
    assert outcome.failures == {"no answer after 4 attempts": 1, "refused by the engine": 1}
    rows = sealed_rows(tmp_path)
    check_whole(rows, prompts)
    assert rows["status"].to_list() == ["generated", "failed", "failed", "generated", "generated"]
    assert rows["reason"].to_list()[1:3] == [
        "no answer after 4 attempts: connection lost",
        "refused by the engine: 400: too long",
    ]


def test_a_dead_engine_stops_the_run_and_no_row_is_blamed(tmp_path: Path) -> None:
    engine = FakeEngine(capacity=1, faults={"s3": always(TransientEngineError("connection lost"))})
    engine.alive = False
    with pytest.raises(GenerationStoppedError, match=r"after 3 of 6 prompts.*connection lost.*run again"):
        run(tmp_path, prompt_frame(6), engine)
    outcome = run(tmp_path, prompt_frame(6))
    assert (outcome.kept, outcome.generated, outcome.failures) == (3, 3, {})


@pytest.mark.parametrize("error", [CrashError("boom"), EngineUnavailableError("all servers are gone")])
def test_an_unexpected_error_stops_the_run_and_finished_rows_are_kept(tmp_path: Path, error: Exception) -> None:
    prompts = prompt_frame(40)
    engine = FakeEngine(capacity=4, faults={"s20": always(error)})
    with pytest.raises(GenerationStoppedError, match=rf"{type(error).__name__}: {error}") as caught:
        run(tmp_path, prompts, engine)
    assert caught.value.__cause__ is error
    assert not (tmp_path / "data" / "current.json").exists()
    again = FakeEngine()
    outcome = run(tmp_path, prompts, again)
    assert outcome.kept >= 17 and outcome.kept + outcome.asked == 40
    check_whole(sealed_rows(tmp_path), prompts)
    finished = {name for name, count in engine.asked.items() if count} - {"s20"}
    assert len(finished & again.asked.keys()) <= 3  # at most those which were in flight


def test_resuming_a_torn_journal_asks_each_prompt_again_exactly_once(tmp_path: Path) -> None:
    prompts = prompt_frame(400)
    interrupted(tmp_path, prompts, at="s150")
    journal = tmp_path / "journal" / FILE
    os.truncate(journal, journal.stat().st_size - 37)
    torn = journal.read_bytes().splitlines(keepends=True)[-1]
    assert decode(torn) is None
    known = sum(record["kind"] == "row" for line in journal.read_bytes().splitlines(True) if (record := decode(line)))
    engine = FakeEngine()
    outcome = run(tmp_path, prompts, engine)
    assert (outcome.kept, outcome.asked) == (known, 400 - known)
    assert outcome.torn_bytes == len(torn)
    assert set(engine.asked.values()) == {1}
    check_whole(sealed_rows(tmp_path), prompts)


def test_a_longer_source_generates_only_what_is_new_and_replaces_the_file(tmp_path: Path) -> None:
    first = run(tmp_path, prompt_frame(10))
    longer = pl.concat([prompt_frame(5, start=100), prompt_frame(10), prompt_frame(5, start=200)])
    engine = FakeEngine()
    outcome = run(tmp_path, longer, engine)
    assert (outcome.kept, outcome.asked, len(engine.asked)) == (10, 10, 10)
    check_whole(sealed_rows(tmp_path), longer)
    assert not first.sealed.path.exists() and outcome.left_beside == ()


def test_nothing_missing_changes_nothing(tmp_path: Path) -> None:
    first = run(tmp_path, prompt_frame(10, refused={4}))
    engine = FakeEngine()
    again = run(tmp_path, prompt_frame(10, refused={4}), engine, description=changed(engine="new"))
    assert again.sealed == first.sealed and not engine.asked and again.kept == 9


def test_a_shorter_source_leaves_the_file_with_more_rows_beside(tmp_path: Path) -> None:
    first = run(tmp_path, prompt_frame(10))
    outcome = run(tmp_path, prompt_frame(6)[::-1])
    check_whole(sealed_rows(tmp_path), prompt_frame(6)[::-1])
    assert outcome.left_beside == (str(first.sealed.path),) and first.sealed.path.exists()
    assert outcome.asked == 0


def test_a_prompt_that_is_refused_now_loses_its_row_but_not_its_file(tmp_path: Path) -> None:
    first = run(tmp_path, prompt_frame(5))
    outcome = run(tmp_path, prompt_frame(5, refused={2}))
    assert sealed_rows(tmp_path)["status"].to_list()[2] == "refused_prompt"
    assert first.sealed.path.exists() and outcome.left_beside


def test_a_prompt_with_other_ids_is_another_request(tmp_path: Path) -> None:
    run(tmp_path, prompt_frame(5))
    other = prompt_frame(5).with_columns(
        pl.when(pl.col("sample_id") == "s2")
        .then(pl.lit([5, 6, 7]))
        .otherwise("prompt_ids")
        .cast(RAW_GENERATIONS["prompt_ids"])
        .alias("prompt_ids")
    )
    engine = FakeEngine()
    outcome = run(tmp_path, other, engine)
    assert list(engine.asked) == ["s2"] and outcome.left_beside
    check_whole(sealed_rows(tmp_path), other)


def test_what_failed_before_is_told_until_it_is_asked_for_again(tmp_path: Path) -> None:
    refused = FakeEngine(faults={"s1": always(RequestRefusedError("no"))})
    dies = FakeEngine(faults={"s1": always(RequestRefusedError("no")), "s3": always(ZeroDivisionError())})
    with pytest.raises(GenerationStoppedError):  # what failed is in the journal then,
        run(tmp_path, prompt_frame(4), dies)
    seen: list[Progress] = []
    run(tmp_path, prompt_frame(4), refused, progress=seen.append)
    run(tmp_path, prompt_frame(6), refused, progress=seen.append)  # and here in the sealed file
    assert {(now.total + now.kept, now.kept_failed, now.failed) for now in seen} == {(4, 1, 0), (6, 1, 0)}
    seen.clear()
    run(tmp_path, prompt_frame(6), refused, retry_failed=True, progress=seen.append)
    assert [(now.kept, now.kept_failed, now.failed) for now in (seen[0], seen[-1])] == [(5, 0, 0), (5, 0, 1)]


def test_failed_rows_are_asked_again_only_on_request(tmp_path: Path) -> None:
    faults = {"s1": always(RequestRefusedError("no"))}
    prompts = prompt_frame(4)
    run(tmp_path, prompts, FakeEngine(faults=faults))
    idle = FakeEngine()
    assert run(tmp_path, prompts, idle).asked == 0 and not idle.asked
    still = run(
        tmp_path, prompts, FakeEngine(faults={"s1": always(RequestRefusedError("still no"))}), retry_failed=True
    )
    assert (still.asked, sealed_rows(tmp_path)["reason"][1]) == (1, "refused by the engine: still no")
    healed = run(tmp_path, prompts, FakeEngine(), retry_failed=True)
    assert (healed.asked, healed.generated, healed.kept, healed.left_beside) == (1, 1, 3, ())
    check_whole(sealed_rows(tmp_path), prompts)
    assert set(sealed_rows(tmp_path)["status"]) == {"generated"}
    assert len(list((tmp_path / "data").glob("*.parquet"))) == 1


def test_what_must_not_be_sent_never_reaches_the_engine(tmp_path: Path) -> None:
    bad: dict[str, list[int | None]] = {
        "empty": [],
        "high": [5, VOCAB],
        "negative": [-1],
        "null": [4, None],
        "full": [5] * CONTEXT,
        "fits": [5] * (CONTEXT - 1),
    }
    prompts = pl.concat(
        [
            prompt_frame(2),
            pl.DataFrame(
                [
                    {"sample_id": name, "prompt_ids": ids, "prompt_tokens": len(ids), "status": "ready"}
                    for name, ids in bad.items()
                ],
                schema=prompt_frame(0).schema,
            ),
        ]
    )
    engine = FakeEngine()
    outcome = run(tmp_path, prompts, engine)
    assert set(engine.asked) == {"s0", "s1", "fits"}
    reasons = dict(sealed_rows(tmp_path).select("sample_id", "reason").iter_rows())
    assert reasons["empty"] == "empty prompt: it has no ids"
    assert "prompt_ids[1] is 100, the target's vocabulary has 100" in reasons["high"]
    assert "prompt_ids[0] is -1" in reasons["negative"] and "prompt_ids[1] is None" in reasons["null"]
    assert reasons["full"].startswith("no room in the context: the prompt has 50 ids")
    assert outcome.failures == {"empty prompt": 1, "id outside the vocabulary": 3, "no room in the context": 1}
    assert run(tmp_path, prompts, FakeEngine()).asked == 0


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        ({"output_ids": [5, 2**31]}, "output_ids[1] is 2147483648, which is no 32-bit id"),
        ({"output_ids": [None]}, "output_ids[0] is None"),
        ({"finish_type": "abort"}, "ended it with 'abort'"),
        ({"completion_tokens": -1}, "its completion_tokens is -1"),
    ],
)
def test_a_reply_that_cannot_be_stored_is_a_failed_row(tmp_path: Path, reply: dict[str, Any], words: str) -> None:
    engine = FakeEngine()
    engine.reply = reply
    assert run(tmp_path, prompt_frame(1), engine).failures == {"unusable reply": 1}
    assert words in sealed_rows(tmp_path)["reason"][0]


def test_text_and_stop_strings_are_stored_as_they_can_be(tmp_path: Path) -> None:
    engine = FakeEngine()
    engine.reply = {"text": "a\ud83d\ude00\ud800", "matched_stop": "NaN happened"}
    run(tmp_path, prompt_frame(1), engine)
    row = sealed_rows(tmp_path).row(0, named=True)
    assert (row["text"], row["matched_stop"]) == ("a\U0001f600\ufffd", '"NaN happened"')


def test_seeds_and_the_share_of_logprobs_depend_on_the_sample_alone(tmp_path: Path) -> None:
    one, two = FakeEngine(), FakeEngine(capacity=1)
    run(tmp_path / "1", prompt_frame(200), one, logprob_share=0.25)
    run(tmp_path / "2", prompt_frame(150, start=50), two, logprob_share=0.25)
    assert all(one.seeds[name] == seed for name, seed in two.seeds.items())
    assert len(set(one.seeds.values())) == 200
    assert two.logprobs == {name for name in one.logprobs if int(name[1:]) >= 50} and 30 <= len(one.logprobs) <= 70
    assert seed_for(0, "s1") != seed_for(1, "s1") and 0 <= seed_for(0, "s1") < 2**63
    assert not wants_logprobs("s1", 0.0) and wants_logprobs("s1", 1.0)
    rows = sealed_rows(tmp_path / "1").filter(pl.col("output_logprobs").is_not_null())
    assert set(rows["sample_id"]) == one.logprobs and set(rows["logprob_kind"]) == {"model"}


def test_another_identity_is_refused_by_name_until_a_new_file_is_asked_for(tmp_path: Path) -> None:
    prompts = prompt_frame(5)
    first = run(tmp_path, prompts)
    with pytest.raises(IdentityMismatchError, match=r"sampling.max_new_tokens: 8 -> 9\n.*regenerate"):
        run(tmp_path, prompts, identity=OTHER_IDENTITY)
    assert run(tmp_path, prompts).sealed == first.sealed
    second = run(tmp_path, prompts, identity=OTHER_IDENTITY, regenerate=True)
    assert first.sealed.path.exists() and second.sealed.path.exists()
    assert (second.asked, second.kept) == (5, 0)
    assert set(sealed_rows(tmp_path)["identity"]) == {OTHER_IDENTITY.fingerprint}
    with pytest.raises(IdentityMismatchError, match="9 -> 8"):
        run(tmp_path, prompts)


def test_a_journal_of_another_identity_is_refused_and_set_aside_by_a_new_file(tmp_path: Path) -> None:
    prompts = prompt_frame(30)
    interrupted(tmp_path, prompts, at="s20")
    with pytest.raises(IdentityMismatchError, match=r"journal.jsonl holds unfinished rows"):
        run(tmp_path, prompts, identity=OTHER_IDENTITY)
    outcome = run(tmp_path, prompts, identity=OTHER_IDENTITY, regenerate=True)
    assert outcome.asked == 30 and len(outcome.left_beside) == 1
    assert Path(outcome.left_beside[0]).stat().st_size > 1000


def test_regenerating_makes_a_new_file_and_keeps_the_old_one(tmp_path: Path) -> None:
    prompts = prompt_frame(6)
    first = run(tmp_path, prompts)
    second = run(tmp_path, prompts, regenerate=True)
    assert (second.asked, second.kept) == (6, 0)
    assert first.sealed.path.exists() and second.sealed.path.exists() and first.sealed.path != second.sealed.path


def test_an_interrupted_regeneration_goes_on_with_and_without_asking_again(tmp_path: Path) -> None:
    prompts = prompt_frame(300)
    first = run(tmp_path, prompts)
    interrupted(tmp_path, prompts, at="s10", regenerate=True)
    interrupted(tmp_path, prompts, at="s150", regenerate=True)
    outcome = run(tmp_path, prompts)
    assert 0 < outcome.kept < 300 and outcome.kept + outcome.asked == 300
    assert first.sealed.path.exists() and outcome.sealed.path != first.sealed.path
    check_whole(sealed_rows(tmp_path), prompts)


def test_a_changed_environment_needs_consent_to_extend_a_journal_or_a_file(tmp_path: Path) -> None:
    prompts, new = prompt_frame(30), changed(engine="fake", versions={"torch": "2.14"})
    interrupted(tmp_path, prompts, at="s20")
    with pytest.raises(EnvironmentChangedError, match=r"versions.torch: 2.13 -> 2.14\n.*accept_environment"):
        run(tmp_path, prompts, description=new)
    outcome = run(tmp_path, prompts, description=new, accept_environment=True)
    assert outcome.environment_changes == ("versions.torch: 2.13 -> 2.14",)
    environments = sealed_rows(tmp_path)["environment"].unique().to_list()
    assert len(environments) == 2
    assert all((tmp_path / "data" / f"{name}.environment.json").exists() for name in environments)
    with pytest.raises(EnvironmentChangedError, match=r"2.14 -> 2.13"):
        run(tmp_path, prompt_frame(31))
    assert run(tmp_path, prompt_frame(31), description=new).environment_changes == ()


def test_a_change_shows_even_where_the_former_environment_is_no_longer_on_record(tmp_path: Path) -> None:
    run(tmp_path, prompt_frame(3))
    next((tmp_path / "data").glob("*.environment.json")).unlink()
    with pytest.raises(EnvironmentChangedError, match="engine: None -> new"):
        run(tmp_path, prompt_frame(4), description=changed(engine="new"))


def test_a_consent_holds_for_the_rest_of_the_partition(tmp_path: Path) -> None:
    prompts, new = prompt_frame(300), changed(engine="new")
    interrupted(tmp_path, prompts, at="s10")
    interrupted(tmp_path, prompts, at="s150", description=new, accept_environment=True)
    assert run(tmp_path, prompts, description=new).sealed.rows == 300


def test_prompts_that_cannot_be_accounted_for_are_refused(tmp_path: Path) -> None:
    doubled = pl.concat([prompt_frame(3), prompt_frame(1)])
    with pytest.raises(PromptsError, match=r"prompt 3 \(sample 's0'\).*twice"):
        run(tmp_path, doubled)
    with pytest.raises(PromptsError, match="no column status"):
        run(tmp_path, prompt_frame(1).drop("status"))
    with pytest.raises(PromptsError, match="'odd', neither ready nor refused"):
        run(tmp_path, prompt_frame(1).with_columns(status=pl.lit("odd")))
    assert not (tmp_path / "data" / "current.json").exists()


def test_no_prompts_make_an_empty_file(tmp_path: Path) -> None:
    outcome = run(tmp_path, prompt_frame(0))
    assert outcome.sealed.rows == 0 and sealed_rows(tmp_path).schema == RAW_GENERATIONS


def test_the_window_is_bounded_and_stays_full(tmp_path: Path) -> None:
    engine = FakeEngine(capacity=5, delay=0.001)
    run(tmp_path, prompt_frame(100), engine)
    assert engine.most_in_flight == 5
    assert engine.most_tasks <= 5 + 2


def test_a_second_run_is_refused_while_the_first_lives(tmp_path: Path) -> None:
    engine = FakeEngine(delay=0.02)
    first = threading.Thread(target=run, args=(tmp_path, prompt_frame(60), engine))
    first.start()
    while not engine.asked:
        time.sleep(0.005)
    with pytest.raises(JournalError, match=f"being generated by process {os.getpid()}"):
        run(tmp_path, prompt_frame(60))
    first.join()
    check_whole(sealed_rows(tmp_path), prompt_frame(60))


def test_a_cancelled_run_closes_its_journal_and_loses_nothing(tmp_path: Path) -> None:
    prompts, engine = prompt_frame(200), FakeEngine(delay=0.005)

    async def cancelled() -> None:
        task = asyncio.create_task(
            generate_partition(
                directory=tmp_path / "data",
                journal_directory=tmp_path / "journal",
                prompts=prompts.lazy(),
                identity=IDENTITY,
                description=DESCRIPTION,
                engine=engine,
            )
        )
        while sum(engine.asked.values()) < 50:
            await asyncio.sleep(0.002)
        task.cancel()
        await task

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(cancelled())
    assert engine.in_flight == 0
    assert run(tmp_path, prompts).kept >= 50 - 8
    check_whole(sealed_rows(tmp_path), prompts)


def test_a_full_disk_stops_the_run_and_it_goes_on_when_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prompts, real, rows = prompt_frame(50), Journal.append, list[Mapping[str, Any]]()

    def full(journal: Journal, row: Mapping[str, Any]) -> None:
        if len(rows) == 20:
            raise JournalError("the disk is full")
        rows.append(row)
        real(journal, row)

    monkeypatch.setattr(Journal, "append", full)
    with pytest.raises(JournalError, match="disk is full"):
        run(tmp_path, prompts)
    monkeypatch.undo()
    assert run(tmp_path, prompts).kept == 20


def test_progress_begins_at_nothing_and_ends_at_all(tmp_path: Path) -> None:
    seen: list[Progress] = []
    faults = {"s1": always(RequestRefusedError("no")), "s2": after(1, TransientEngineError("busy"))}
    run(tmp_path, prompt_frame(30), FakeEngine(faults=faults), progress=seen.append)
    assert (seen[0].done, seen[0].total, seen[0].eta_s) == (0, 30, None)
    last = seen[-1]
    assert (last.done, last.generated, last.failures, last.retries) == (30, 29, {"refused by the engine": 1}, 1)
    assert last.tokens == 29 * 3 and last.in_flight == 0


CHILD = """
import asyncio, sys, threading
from collections.abc import Mapping
from pathlib import Path
from eagle3_assets_tests.generation.fake import FakeEngine, prompt_frame, run
from eagle3_assets.generation.journal import Journal
real = Journal.append
def append(journal, row):
    real(journal, row)
    print(row["sample_id"], flush=True)  # acknowledged
Journal.append = append
def start():
    run(Path(sys.argv[1]), prompt_frame(int(sys.argv[2])), FakeEngine(delay=0.001))
thread = threading.Thread(target=start); thread.start(); thread.join()  # a thread without a loop of its own
print("sealed", flush=True)
"""


def test_kill_9_at_random_moments_loses_and_doubles_nothing(tmp_path: Path) -> None:
    count, acknowledged, numbers = 1500, set[str](), random.Random(5)  # noqa: S311 - test data
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "POLARS_MAX_THREADS": "1"}
    for _ in range(4):
        child = subprocess.Popen(
            [sys.executable, "-c", CHILD, str(tmp_path), str(count)], stdout=subprocess.PIPE, text=True, env=environment
        )
        assert child.stdout is not None
        new: list[str] = []
        killer = None
        for line in child.stdout:
            new.append(line.strip())
            if killer is None:  # the clock runs from the first row on
                killer = threading.Timer(numbers.uniform(0.0, 0.15), child.send_signal, (signal.SIGKILL,))
                killer.start()
        child.wait()
        child.stdout.close()
        assert new and not acknowledged & set(new), "an acknowledged row was asked for again"
        acknowledged |= set(new) - {"sealed"}
    engine = FakeEngine()
    outcome = run(tmp_path, prompt_frame(count), engine)
    assert not acknowledged & engine.asked.keys()
    assert outcome.kept >= len(acknowledged)
    check_whole(sealed_rows(tmp_path), prompt_frame(count))


def test_ctrl_c_is_a_clean_stop(tmp_path: Path) -> None:
    code = CHILD.replace("thread = threading.Thread(target=start); thread.start(); thread.join()", "start()")
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    child = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path), "20000"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )
    assert child.stdout is not None
    # So many names fill the pipe: the child cannot be done before it is interrupted, however slow we are.
    names = [child.stdout.readline().strip() for _ in range(20)]
    child.send_signal(signal.SIGINT)
    rest, errors = child.communicate(timeout=20)
    assert child.returncode != 0 and "KeyboardInterrupt" in errors
    acknowledged = {*names, *rest.split()}
    with Journal(tmp_path / "journal") as journal:
        stored = {journal.row(name)["sample_id"] for name in journal.generated()}
        assert journal.torn_bytes == 0
    assert acknowledged <= stored


def test_the_loop_runs_on_the_real_engine_and_repeats_itself(tmp_path: Path) -> None:
    from eagle3_assets.config import Sampling, TransformersEngineSettings
    from eagle3_assets.engines.transformers import TransformersEngine
    from eagle3_assets_tests.engines.conftest import make_checkpoint

    engine = TransformersEngine(
        make_checkpoint(tmp_path / "model"), TransformersEngineSettings(batch_size=8, threads=1)
    )
    description = asyncio.run(engine.start())
    sampling = Sampling(temperature=1.0, max_new_tokens=16)
    identity = IDENTITY.model_copy(update={"sampling": sampling, "weights": description.weights})
    frames = []
    for base, prompts in (("a", prompt_frame(30)), ("b", prompt_frame(30)[::-1])):
        generate(
            directory=tmp_path / base,
            journal_directory=tmp_path / base / "journal",
            prompts=prompts.lazy(),
            identity=identity,
            description=description,
            engine=engine,
            retry=AT_ONCE,
            logprob_share=0.5,
        )
        pointer = json.loads((tmp_path / base / "current.json").read_text())
        frames.append(pl.read_parquet(tmp_path / base / pointer["file"]).drop("latency_s", "output_logprobs"))
    asyncio.run(engine.close())
    assert frames[0].equals(frames[1][::-1])
    assert set(frames[0]["status"]) == {"generated"}
