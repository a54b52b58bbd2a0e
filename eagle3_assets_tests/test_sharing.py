"""Runs that share servers: all together stay within a server's limit, and use it whole."""

import asyncio
import random
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import dagster as dg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.client_cost import Case, drawn, mock_server
from benchmarks.mock_server import CONTEXT, STOP, VOCAB
from eagle3_assets.config import Sampling, SglangEngineSettings
from eagle3_assets.engines.base import EngineUnavailableError, Request, ShareError, Standing
from eagle3_assets.engines.sglang import SglangEngine
from eagle3_assets.engines.sglang.pool import Pace
from eagle3_assets.sharing import FEWEST_SLOTS, MOST_SLOTS, SlotShare, divided, pool_name
from eagle3_assets.target import ModelFacts

SERVER = "http://127.0.0.1:30000"


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.local_temp(str(tmp_path)) as made:
        yield made


def share_of(instance: dg.DagsterInstance, name: str) -> SlotShare:
    """The share of a run that the instance knows."""
    run = dg.DagsterRun(job_name="partition", run_id=name)
    if not instance.has_run(name):
        instance.add_run(run)
    return SlotShare(instance, name)


@dataclass
class Run:
    """A run as the pool of servers plays it, with requests that end when the test says so."""

    share: SlotShare
    limit: int
    wanted: int
    allowed: int = 0
    under_way: int = 0
    history: list[int] = field(default_factory=list)

    def step(self) -> None:
        """Looks at its share, and sends what it may."""
        standing = Standing(SERVER, self.limit, self.allowed, self.under_way, self.under_way + self.wanted)
        told = self.share.settle([standing])
        # While that was found out, requests were sent within what was allowed before.
        self._send()
        self.allowed = told[SERVER]
        self._send()
        self.history.append(self.allowed)

    def _send(self) -> None:
        sent = max(0, min(self.wanted, self.allowed - self.under_way))
        self.wanted -= sent
        self.under_way += sent

    def answer(self, number: int) -> None:
        self.under_way -= min(number, self.under_way)


@given(st.integers(1, 4096))
def test_a_limit_is_cut_into_slots_which_lose_little_of_it(limit: int) -> None:
    slots, requests = divided(limit)
    assert min(limit, FEWEST_SLOTS) <= slots <= MOST_SLOTS
    assert limit * 7 / 8 <= slots * requests <= limit


@pytest.mark.parametrize(("limit", "cut"), [(1, (1, 1)), (16, (16, 1)), (64, (16, 4)), (100, (10, 10)), (97, (16, 6))])
def test_the_cut_is_the_one_that_loses_least(limit: int, cut: tuple[int, int]) -> None:
    assert divided(limit) == cut


def test_a_run_alone_has_the_whole_server_at_once(instance: dg.DagsterInstance) -> None:
    run = Run(share_of(instance, "a"), limit=97, wanted=1000)
    run.step()
    assert run.allowed == 97
    assert instance.event_log_storage.get_concurrency_info(pool_name(SERVER)).slot_count == 16


def test_a_second_run_gets_half_when_the_firsts_requests_have_ended(instance: dg.DagsterInstance) -> None:
    first, second = (Run(share_of(instance, name), limit=32, wanted=1000) for name in "ab")
    first.step()
    second.step()
    assert (first.under_way, second.allowed) == (32, 0)
    first.step()
    second.step()
    assert (first.allowed, second.allowed) == (16, 0), "nothing has ended yet"
    first.answer(20)
    first.step()
    first.step()
    second.step()
    assert (first.allowed, second.allowed) == (16, 16)
    second.share.release()
    first.step()
    assert first.allowed == 32


def test_a_run_that_waits_asks_for_its_part_only(instance: dg.DagsterInstance) -> None:
    first, second = (Run(share_of(instance, name), limit=16, wanted=1000) for name in "ab")
    first.step()
    second.step()
    waiting = instance.event_log_storage.get_concurrency_info(pool_name(SERVER)).pending_steps
    assert [step.run_id for step in waiting if step.assigned_timestamp is None] == ["b"] * 8
    first.step()
    first.answer(16)
    first.step()
    second.step()
    assert (first.allowed, second.allowed) == (8, 8)


def test_what_comes_free_is_first_for_those_whose_part_it_is(instance: dg.DagsterInstance) -> None:
    """When one of three ends, nobody asks for more than a fair part before the other could have taken its own."""
    runs = [Run(share_of(instance, name), limit=12, wanted=1000) for name in "abc"]
    for _ in range(4):
        for run in runs:
            run.step()
            run.answer(12)
    assert [run.allowed for run in runs] == [4, 4, 4]
    *others, ended = runs
    ended.share.release()
    for run in others:
        run.step()
    assert [run.allowed for run in others] == [6, 6]
    assert not instance.event_log_storage.get_concurrency_info(pool_name(SERVER)).pending_step_count


def test_a_slot_that_was_promised_twice_does_not_keep_a_run_waiting(instance: dg.DagsterInstance) -> None:
    first, second = (Run(share_of(instance, name), limit=16, wanted=1000) for name in "ab")
    first.step()
    # What Dagster does where two ask at the same moment for the last slot: both are told that it is theirs.
    name = pool_name(SERVER)
    instance.event_log_storage.add_pending_step(name, "b", f"{name} 00", should_assign=True)  # type: ignore[attr-defined]
    first.step()
    assert first.allowed == 8
    first.answer(16)
    first.step()
    second.step()
    assert (first.allowed, second.allowed) == (8, 8)


def test_what_a_run_does_not_need_the_others_use(instance: dg.DagsterInstance) -> None:
    large, small = Run(share_of(instance, "a"), limit=32, wanted=1000), Run(share_of(instance, "b"), 32, wanted=3)
    small.step()
    large.step()
    assert (small.allowed, large.allowed) == (4, 28)


def test_a_run_that_leaves_a_server_gives_it_back_as_its_requests_end(instance: dg.DagsterInstance) -> None:
    first = Run(share_of(instance, "a"), limit=8, wanted=1000)
    first.step()
    # The server has come back with another limit, which is for those to set who use it.
    second = Run(share_of(instance, "b"), limit=32, wanted=1000)
    for allowed, under_way in ((8, 6), (0, 6), (0, 2), (0, 0)):
        second.step()
        assert first.share.settle([Standing(SERVER, 8, allowed, under_way, wanted=0)]) == {SERVER: 0}
        assert instance.event_log_storage.get_concurrency_info(pool_name(SERVER)).slot_count == 16
    second.step()
    assert second.history == [16, 16, 16, 20, 32]


def test_more_runs_than_slots_wait_for_one_that_ends(instance: dg.DagsterInstance) -> None:
    runs = [Run(share_of(instance, name), limit=2, wanted=9) for name in "abc"]
    for _ in range(3):
        for run in runs:
            run.step()
            run.answer(9)
    assert sorted(run.allowed for run in runs) == [0, 1, 1]
    served = next(run for run in runs if run.allowed)
    served.share.release()
    others = [run for run in runs if run is not served]
    for run in others:
        run.step()
    assert [run.allowed for run in others] == [1, 1]


@pytest.mark.parametrize(
    ("seed", "turns"), [(0, 20), *(pytest.param(seed, 100, marks=pytest.mark.slow) for seed in range(1, 5))]
)
def test_runs_that_come_and_go_never_have_more_under_way_than_the_server_takes(
    instance: dg.DagsterInstance, seed: int, turns: int
) -> None:
    numbers = random.Random(seed)  # noqa: S311 - reproducible
    limit = numbers.choice([5, 24, 97])
    runs: dict[str, Run] = {}
    for turn in range(turns):
        if len(runs) < 5 and numbers.random() < 0.3:
            runs[f"{turn}"] = Run(share_of(instance, f"{turn}"), limit, wanted=numbers.randrange(1, 400))
        for name in numbers.sample(sorted(runs), len(runs)):
            run = runs[name]
            run.step()
            assert sum(one.under_way for one in runs.values()) <= limit
            run.answer(numbers.randrange(limit))
            if numbers.random() < 0.05:
                run.share.release()
                del runs[name]
    while len(runs) > 1:
        runs.popitem()[1].share.release()
    for run in runs.values():
        run.wanted = 1000
        for _ in range(3):
            run.answer(limit)
            run.step()
        assert run.allowed == limit, "one that is left alone has everything"


def test_slots_of_a_run_that_has_ended_come_back(instance: dg.DagsterInstance) -> None:
    ended = dg.DagsterRun(job_name="partition", run_id="00000000-0000-0000-0000-000000000001")
    instance.add_run(ended)
    killed = Run(SlotShare(instance, ended.run_id), limit=16, wanted=99)
    killed.step()
    other = Run(share_of(instance, "other"), limit=16, wanted=99)
    other.step()
    assert other.allowed == 0
    instance.report_run_failed(ended)
    other.step()
    other.step()
    assert other.allowed == 16


def test_another_limit_is_taken_over_without_a_restart(instance: dg.DagsterInstance) -> None:
    first = Run(share_of(instance, "a"), limit=64, wanted=1000)
    first.step()
    first.answer(64)
    first.share.release()
    again = Run(share_of(instance, "b"), limit=5, wanted=1000)
    again.step()
    assert again.allowed == 5


def test_an_instance_without_pools_says_what_it_lacks() -> None:
    with dg.DagsterInstance.ephemeral() as memory, pytest.raises(ShareError, match=r"share_servers.*Postgres"):
        SlotShare(memory, "a")


def test_a_storage_that_fails_is_an_error_and_leaves_what_was_claimed(instance: dg.DagsterInstance) -> None:
    run = Run(share_of(instance, "a"), limit=8, wanted=9)
    run.step()
    storage = instance.event_log_storage
    storage.delete_concurrency_limit(pool_name(SERVER))
    with storage.index_connection() as connection:  # type: ignore[attr-defined]
        connection.exec_driver_sql("ALTER TABLE concurrency_slots RENAME TO away")
    with pytest.raises(ShareError, match="storage failed"):
        run.step()
    assert run.allowed == 8


def test_a_storage_that_raises_its_own_kind_of_error_is_asked_again_and_ends_no_run(
    instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As Dagster's Postgres storage does, which raises a bare ``Exception`` of its own when no server answers."""
    run = Run(share_of(instance, "a"), limit=8, wanted=9)
    run.step()

    def away(*_: object) -> None:
        raise Exception("too many retries for DB connection")

    with monkeypatch.context() as patch:
        patch.setattr(type(instance.event_log_storage), "get_concurrency_info", away)
        with pytest.raises(ShareError, match="storage failed: Exception"):
            run.step()
    run.step()
    assert run.allowed == 8
    with monkeypatch.context() as patch:
        patch.setattr(type(instance.event_log_storage), "free_concurrency_slots_for_run", away)
        run.share.release()
    assert "given back when the run has ended: Exception" in caplog.text


def test_a_managed_server_is_not_shared() -> None:
    with pytest.raises(ValueError, match="belongs to its run alone"):
        SglangEngineSettings.model_validate({"kind": "sglang", "managed": {}, "share_servers": True})


class Lowered:
    """A share of four requests at first and of two from the second look on, after which nobody looks for long."""

    def __init__(self) -> None:
        self.pace = Pace(share_every_s=0.05)
        self.looks = 0
        self.third = threading.Event()

    def settle(self, standings: Sequence[Standing]) -> dict[str, int]:
        self.looks += 1
        if self.looks == 2:
            object.__setattr__(self.pace, "share_every_s", 600)
        if self.looks == 3:
            self.third.set()
        return {one.endpoint: 4 if self.looks == 1 else 2 for one in standings}

    def release(self) -> None:
        pass


def test_what_others_wait_for_is_given_back_as_soon_as_requests_beyond_it_have_ended() -> None:
    share = Lowered()

    async def run(url: str) -> bool:
        settings = SglangEngineSettings(kind="sglang", endpoints=(url,), share_servers=True)
        engine = SglangEngine(settings, ModelFacts(VOCAB, CONTEXT, (STOP,)), share.pace, share=share)
        await engine.start()
        sampling = Sampling(max_new_tokens=64)
        requests = [Request(f"{n}", f"{n}", [10_000 + n], sampling, n) for n in range(4)]
        await asyncio.gather(*map(engine.generate, requests))
        looked = await asyncio.to_thread(share.third.wait, 60)
        await engine.close()
        return looked

    with mock_server(Case(4, 4, 4, 0.5)) as (url, _):
        assert asyncio.run(run(url))


def test_a_server_that_is_left_out_is_left_to_other_runs(instance: dg.DagsterInstance) -> None:
    case = Case(4, 4, 4, 0.01)

    def held(url: str) -> int:
        return len(instance.event_log_storage.get_concurrency_info(pool_name(url)).claimed_slots)

    async def run(stays: str, servers: ExitStack) -> None:
        goes, _ = servers.enter_context(mock_server(case))
        settings = SglangEngineSettings(kind="sglang", endpoints=(stays, goes), share_servers=True)
        pace = Pace(share_every_s=0.05, check_every_s=0.05)
        share = share_of(instance, "a")
        engine = SglangEngine(settings, ModelFacts(VOCAB, CONTEXT, (STOP,)), pace, share=share)
        await engine.start()
        sampling = Sampling(max_new_tokens=64)
        slow = [Request(f"{n}", f"{n}", [10_000 + n], sampling, n) for n in range(8)]
        await asyncio.gather(*map(engine.generate, slow))
        share.settle([Standing(goes, 4, 4, 0, wanted=4)])
        assert held(goes)
        servers.close()
        async with asyncio.timeout(60):
            while held(goes):
                await asyncio.sleep(0.05)
        await engine.close()

    with mock_server(case) as (url, _), ExitStack() as servers:
        asyncio.run(run(url, servers))


class Broken:
    """A share with a bug."""

    def settle(self, standings: Sequence[Standing]) -> dict[str, int]:
        raise KeyError(standings[0].endpoint)

    def release(self) -> None:
        pass


def test_a_fault_of_what_looks_after_the_servers_ends_the_run_instead_of_hanging_it() -> None:
    async def run(url: str) -> None:
        settings = SglangEngineSettings(kind="sglang", endpoints=(url,), share_servers=True)
        engine = SglangEngine(settings, ModelFacts(VOCAB, CONTEXT, (STOP,)), share=Broken())
        await engine.start()
        try:
            async with asyncio.timeout(60):
                await engine.generate(Request("k", "s", [10_000], Sampling(max_new_tokens=64), 0))
        finally:
            await engine.close()

    with (
        mock_server(Case(1, 4, 4, 0.01)) as (url, _),
        pytest.raises(EngineUnavailableError, match="looks after the servers has failed: KeyError"),
    ):
        asyncio.run(run(url))


def test_engines_over_one_server_stay_within_its_limit_and_each_ends(instance: dg.DagsterInstance) -> None:
    """Three runs of 120 requests at once, on a server that takes 12."""
    case = Case(120, 12, 4, 0.03)

    async def run(name: str, url: str) -> int:
        settings = SglangEngineSettings(kind="sglang", endpoints=(url,), share_servers=True)
        share = share_of(instance, name)
        engine = SglangEngine(settings, ModelFacts(VOCAB, CONTEXT, (STOP,)), Pace(share_every_s=0.1), share=share)
        await engine.start()
        sampling = Sampling(max_new_tokens=64)
        requests = (Request(f"{name}{n}", f"{name}{n}", [10_000 + n], sampling, n) for n in range(120))
        answers = await asyncio.gather(*map(engine.generate, requests))
        await engine.close()
        return len(answers)

    async def all_of_them(url: str) -> list[int]:
        return await asyncio.gather(*(run(name, url) for name in "abc"))

    with mock_server(case) as (url, _):
        assert asyncio.run(all_of_them(url)) == [120, 120, 120]
        seen = drawn(url)
    assert seen["requests"] == 360
    assert seen["peak"] <= 12
    assert not instance.event_log_storage.get_concurrency_info(pool_name(url)).claimed_slots
