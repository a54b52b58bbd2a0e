"""How far a run is: counts, speed, time left.

What belongs here: figures and how often to show them. Not here: how they are drawn (the terminal's bar, a log line).
"""

import time
from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from eagle3_assets.engines.base import ServerLoad
from eagle3_assets.tokens.wording import percent

RECENT_WINDOW_S = 120.0
"""The "recent" speed looks back this many seconds."""


@dataclass(frozen=True, slots=True)
class Progress:
    """A run at one moment. Rates are of this run alone: rows kept from earlier ones have no part in them."""

    total: int
    """Rows that this run has to bring to an end."""
    kept: int
    """Rows that it took over from earlier ones, whole or failed."""
    kept_failed: int
    """Of these the failed ones."""
    done: int
    generated: int
    failures: Mapping[str, int]
    """Failed rows of this run by reason."""
    retries: int
    in_flight: int
    tokens: int
    """Output tokens."""
    seconds: float
    tokens_per_s: float
    recent_tokens_per_s: float
    """Over the last ``RECENT_WINDOW_S`` seconds, or since the start where that is less."""
    eta_s: float | None
    """Seconds left at the recent speed in rows; None before the first row is done."""
    servers: tuple[ServerLoad, ...] = ()
    """Each server now; empty where the engine has none."""

    @property
    def failed(self) -> int:
        """Failed rows of this run."""
        return sum(self.failures.values())

    def line(self) -> str:
        """One line for a log.

        Such as ``150/400 rows (37.5%), 1,234 tokens/s now, 1,100 overall, 2 failed (2 unusable reply), 5 retries, 3 min
        left; in flight: gpu-1:30000 16, gpu-2:30000 0 (away, left out once)``.
        """
        share = f" ({percent(self.done / self.total)})" if self.total else ""
        parts = [
            f"{self.done:,}/{self.total:,} rows{share}",
            f"{self.recent_tokens_per_s:,.0f} tokens/s now",
            f"{self.tokens_per_s:,.0f} overall",
        ]
        if self.failures:
            worst_first = sorted(self.failures.items(), key=lambda item: -item[1])
            kinds = ", ".join(f"{count:,} {kind}" for kind, count in worst_first)
            parts.append(f"{self.failed:,} failed ({kinds})")
        parts += [f"{self.retries:,} {'retry' if self.retries == 1 else 'retries'}"] if self.retries else []
        parts += [f"{duration(self.eta_s)} left"] if self.eta_s is not None and self.done < self.total else []
        return ", ".join(parts) + (f"; {self.servers_text()}" if self.servers else "")

    def servers_text(self) -> str:
        """The servers in words: ``in flight: gpu-1:30000 16, gpu-2:30000 0 (away, left out once)``; empty without."""
        return "in flight: " + ", ".join(map(_server_text, self.servers)) if self.servers else ""


def duration(seconds: float) -> str:
    """A length of time for people: ``42 s``, ``3 min``, ``2 h 05 min``."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60:02d} min"


def _server_text(server: ServerLoad) -> str:
    remarks = [] if server.live else ["away"]
    if server.evictions:
        remarks.append("left out once" if server.evictions == 1 else f"left out {server.evictions:,} times")
    remark = f" ({', '.join(remarks)})" if remarks else ""
    return f"{server.endpoint.split('://', 1)[-1]} {server.in_flight:,}{remark}"


class Tracker:
    """Counts what happens in a run and takes snapshots of it. Memory does not grow with the run."""

    def __init__(
        self, total: int, kept: int = 0, kept_failed: int = 0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Starts the clock.

        Args:
            total: rows that the run has to bring to an end.
            kept: rows that it took over from earlier ones.
            kept_failed: of these the failed ones.
            clock: seconds; another one in tests.
        """
        self.total = total
        self.kept = kept
        self.kept_failed = kept_failed
        self.done = 0
        self.generated = 0
        self.failures: Counter[str] = Counter()
        self.retries = 0
        self.in_flight = 0
        self.tokens = 0
        self._clock = clock
        self._start = clock()
        self._marks: deque[tuple[float, int, int]] = deque([(self._start, 0, 0)])

    def finished(self, tokens: int, failure: str | None = None) -> None:
        """One row is done: generated with so many output tokens, or failed for a reason."""
        self.done += 1
        self.tokens += tokens
        if failure is None:
            self.generated += 1
        else:
            self.failures[failure] += 1
        now = self._clock()
        # One mark a second is fine enough for a window of minutes, and bounds the queue.
        if now - self._marks[-1][0] >= 1.0:
            self._marks.append((now, self.done, self.tokens))
        while len(self._marks) > 2 and now - self._marks[1][0] >= RECENT_WINDOW_S:
            self._marks.popleft()

    @property
    def seconds(self) -> float:
        """Seconds since the start."""
        return self._clock() - self._start

    def snapshot(self, servers: tuple[ServerLoad, ...] = ()) -> Progress:
        """The run now, with what the engine says of its servers."""
        seconds = self.seconds
        then, done_then, tokens_then = self._marks[0]
        window = max(self._start + seconds - then, 1e-9)
        recent_rows = (self.done - done_then) / window
        return Progress(
            total=self.total,
            kept=self.kept,
            kept_failed=self.kept_failed,
            done=self.done,
            generated=self.generated,
            failures=dict(self.failures),
            retries=self.retries,
            in_flight=self.in_flight,
            tokens=self.tokens,
            seconds=seconds,
            tokens_per_s=self.tokens / max(seconds, 1e-9),
            recent_tokens_per_s=(self.tokens - tokens_then) / window,
            eta_s=(self.total - self.done) / recent_rows if recent_rows > 0 else None,
            servers=servers,
        )


class Throttle:
    """Lets a snapshot through now and then: often at first, then at a pace that a person can read."""

    def __init__(
        self,
        show: Callable[[Progress], None],
        first_s: float = 5.0,
        longest_s: float = 60.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Wraps a callback.

        Args:
            show: what gets the snapshots let through.
            first_s: pause before the second one, in seconds; every next pause is 1.5 times longer.
            longest_s: the longest pause.
            clock: seconds; another one in tests.
        """
        self._show = show
        self._pause = first_s
        self._longest = longest_s
        self._clock = clock
        self._next = clock()

    def __call__(self, progress: Progress) -> None:
        """Shows the snapshot if its time has come, and always the last one of a run."""
        now = self._clock()
        if now < self._next and progress.done < progress.total:
            return
        self._next = now + self._pause
        self._pause = min(self._pause * 1.5, self._longest)
        self._show(progress)
