"""One server, several runs: each run takes a share of what the server takes, so that all together stay within it.

What belongs here: shares as slots of Dagster's concurrency pools, which every run of an instance sees. Not here: how a
run keeps within its share (``engines.sglang.pool``).
"""

import logging
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from eagle3_assets.engines.base import EngineUnavailableError, ShareError, Standing

if TYPE_CHECKING:
    import dagster as dg
    from dagster._core.storage.event_log.base import EventLogStorage
    from dagster._utils.concurrency import ConcurrencyKeyInfo

logger = logging.getLogger(__name__)

MOST_SLOTS = 16
"""A claim costs a few queries, so a slot stands for several requests; and this many runs can share one server."""
FEWEST_SLOTS = 8
CONFIRM_S = 0.1
"""Seconds after which a claim is looked at again: Dagster reads which slot is free and writes into it in two steps, so
of two runs that claim at the same moment the later may get the slot of the other, which was told that it had it."""
ENDED_S = 15.0
"""Seconds that slots of a run that has ended are left to it: it may have been marked as ended while it lives, and stops
when it sees that."""


def pool_name(endpoint: str) -> str:
    """The name of a server's pool, as Dagster's UI shows it under Deployment, Concurrency."""
    return f"sglang {endpoint}"


def divided(limit: int) -> tuple[int, int]:
    """How a server's limit is cut into slots.

    Returns:
        number of slots, and requests that each stands for; together the limit, or at most an eighth less.
    """
    if limit <= MOST_SLOTS:
        return limit, 1
    slots = max(range(FEWEST_SLOTS, MOST_SLOTS + 1), key=lambda count: (limit // count * count, count))
    return slots, limit // slots


@dataclass(frozen=True, slots=True)
class _Claims:
    """Who has what of one server's pool."""

    slots: int
    mine: list[str]
    """Names of the slots that this run has, in their order."""
    asked: list[str]
    """Names of those that it waits for."""
    free: int
    """Slots that nobody has, nor is about to get but this run."""
    others: frozenset[str]
    """Runs that have slots or wait for some."""
    others_wait: bool

    def fair(self, run_id: str) -> int:
        """Slots that this run may have whoever waits: equal parts, what is over to the first by id; one at least."""
        runs = sorted({run_id, *self.others})
        equal, over = divmod(self.slots, len(runs))
        return max(1, equal + (runs.index(run_id) < over))

    def target(self, run_id: str, needed: int, free_before: int) -> int:
        """Slots that this run should have: what nobody else wants, or its fair part.

        Args:
            run_id: of this run.
            needed: that it has requests for.
            free_before: slots that were free at its look before. What has just come free is first the others', whose
                part may have grown: if all who see it asked for it, they would wait for each other.
        """
        fair = self.fair(run_id)
        spare = min(self.free, free_before) if self.others else self.free
        return min(needed, fair if self.others_wait else max(fair, len(self.mine) + spare))


@dataclass(frozen=True, slots=True)
class _Settled:
    """What a run does about one server at one look."""

    standing: Standing
    target: int
    """Slots that it should have."""
    held: int
    """Slots that it has of these, without what it claims now."""
    claimed: bool
    """Whether it was told that it got more."""


class SlotShare:
    """The share of one run, kept in the storage of its Dagster instance. Keeps the protocol ``Share``.

    A run never has more requests under way than its slots stand for: it lowers its limit first, and gives slots back
    when the requests beyond it have ended. Slots of a run that has ended are given back for it; those of a run whose
    process was killed, when Dagster's run monitoring has found it dead. A run that lives and that Dagster has as ended,
    since it was terminated by force or taken to be dead, is told to stop.
    """

    def __init__(self, instance: "dg.DagsterInstance", run_id: str) -> None:
        """Claims nothing yet.

        Args:
            instance: whose runs share.
            run_id: of this one.

        Raises:
            ShareError: the instance's storage has no pools, as one in memory.
        """
        self._instance = instance
        self._run_id = run_id
        self._lock = threading.Lock()
        """One call at a time: one that its caller no longer waits for may still be claiming."""
        self._released = False
        self._free: dict[str, int] = {}
        """Slots of each pool that were free when it was looked at last."""
        self._ended: dict[str, float] = {}
        """Runs that have ended, and when that was seen."""
        if not self._storage.supports_global_concurrency_limits:
            raise ShareError(
                "engine.share_servers: this Dagster instance has no pools: use one with its storage on disk or in"
                " Postgres, and bring it up to date with `dagster instance migrate`"
            )

    def settle(self, standings: Sequence[Standing]) -> dict[str, int]:
        """Claims slots and gives some back, as other runs come and go.

        Returns:
            for each endpoint how many requests this run may have under way, from now until the next call.

        Raises:
            ShareError: the instance's storage does not answer; what was claimed is still so.
            EngineUnavailableError: for Dagster this run has ended.
        """
        try:
            with self._lock:
                if self._released:
                    return {}
                if self._has_ended(self._run_id):
                    raise EngineUnavailableError(
                        "Dagster has marked this run as ended, since it was terminated by force or taken to be dead: it"
                        " stops. What it has generated is kept; materialize again to go on from there"
                    )
                settled = [self._settle(one) for one in standings]
                if any(one.claimed for one in settled):
                    time.sleep(CONFIRM_S)
                return {one.standing.endpoint: self._allowed(one) for one in settled}
        except EngineUnavailableError:
            raise
        except Exception as error:  # noqa: BLE001 - Dagster's storages raise what they like, Postgres' a bare Exception
            raise ShareError(f"the Dagster instance's storage failed: {type(error).__name__}") from None

    def release(self) -> None:
        """Gives back all that was claimed, for good."""
        try:
            with self._lock:
                self._released = True
                self._storage.free_concurrency_slots_for_run(self._run_id)
        except Exception as error:  # noqa: BLE001 - as above; what the run made is sealed, whatever becomes of this
            logger.warning("shares of servers are given back when the run has ended: %s", type(error).__name__)

    @property
    def _storage(self) -> "EventLogStorage":
        return self._instance.event_log_storage

    def _settle(self, standing: Standing) -> _Settled:
        name = pool_name(standing.endpoint)
        slots, requests = divided(standing.ceiling)
        claims = self._claims(name, slots if standing.wanted else None)
        needed = min(slots, -(-standing.wanted // requests))
        target = claims.target(self._run_id, needed, self._free.get(name, claims.free))
        self._free[name] = claims.free
        # What was allowed until now may have been used since the caller counted.
        used = -(-max(standing.in_flight, standing.allowed) // requests)
        for slot in [*claims.mine[max(target, used) :], *claims.asked[max(0, target - len(claims.mine)) :]]:
            self._storage.free_concurrency_slot_for_step(self._run_id, slot)
        held = min(target, len(claims.mine))
        if target > held and claims.others:
            self._free_ended(claims.others)
        claimed = target > held and self._claim(name, slots, claims, target - held)
        return _Settled(standing, target, held, claimed)

    def _allowed(self, settled: _Settled) -> int:
        """Requests that the slots stand for which this run has."""
        standing, held = settled.standing, settled.held
        slots, requests = divided(standing.ceiling)
        if settled.claimed:
            held = min(settled.target, len(self._claims(pool_name(standing.endpoint), None).mine))
        return standing.ceiling if held == slots else held * requests

    def _claims(self, name: str, slots: int | None) -> _Claims:
        """Who has what of a pool, which has so many slots from now on; None leaves that to those who want some."""
        info: ConcurrencyKeyInfo = self._storage.get_concurrency_info(name)
        if slots is None:
            slots = info.slot_count
        elif info.slot_count != slots:
            self._set_slots(name, slots)
            info = self._storage.get_concurrency_info(name)
        claimed = {(claim.run_id, claim.step_key) for claim in info.claimed_slots}
        mine = sorted(slot for run_id, slot in claimed if run_id == self._run_id)
        # Dagster keeps a step among the pending ones when it has got its slot.
        pending = [step for step in info.pending_steps if (step.run_id, step.step_key) not in claimed]
        waiting = [step for step in pending if step.run_id != self._run_id]
        coming = sum(step.assigned_timestamp is not None for step in waiting)
        unclaimed = slots - len(claimed)
        return _Claims(
            slots=slots,
            mine=mine,
            asked=sorted(step.step_key for step in pending if step.run_id == self._run_id),
            free=max(0, unclaimed - coming),
            others=frozenset({run_id for run_id, _ in claimed} | {step.run_id for step in waiting}) - {self._run_id},
            # Steps that are added at the same moment are assigned the same last slot: all but one of them wait.
            others_wait=coming < len(waiting) or coming > unclaimed,
        )

    def _set_slots(self, name: str, slots: int) -> None:
        try:
            self._storage.set_concurrency_slots(name, slots)
        except Exception:  # noqa: BLE001 - storages raise what they like
            # Runs that start together on a new pool all insert its row, and all but one fail: it is there now.
            self._storage.set_concurrency_slots(name, slots)

    def _claim(self, name: str, slots: int, claims: _Claims, number: int) -> bool:
        """Asks for slots, those first that were asked for before; once one is not to be had, only for a fair part.

        A claim is several transactions: runs that start together and each ask for everything wait for each other.

        Returns:
            whether one was got now, as far as Dagster says.
        """
        names = [f"{name} {i:02}" for i in range(slots)]
        unused = [slot for slot in names if slot not in claims.mine and slot not in claims.asked]
        got, part = False, slots
        for place, slot in enumerate([*claims.asked, *unused][:number], len(claims.mine)):
            if place >= part:
                break
            if self._storage.claim_concurrency_slot(name, self._run_id, slot).is_claimed:
                got = True
            elif part == slots:
                part = self._claims(name, slots).fair(self._run_id)
        return got

    def _free_ended(self, runs: frozenset[str]) -> None:
        now = time.monotonic()
        for run_id in sorted(filter(self._has_ended, runs)):
            if now - self._ended.setdefault(run_id, now) >= ENDED_S:
                self._storage.free_concurrency_slots_for_run(run_id)

    def _has_ended(self, run_id: str) -> bool:
        run = self._instance.get_run_by_id(run_id)
        return run is None or run.is_finished
