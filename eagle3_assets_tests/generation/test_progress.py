"""Progress: counts, rates over a recent window, how often it is shown."""

from itertools import pairwise

from eagle3_assets.engines.base import ServerLoad
from eagle3_assets.generation.progress import RECENT_WINDOW_S, Progress, Throttle, Tracker, duration


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_rates_and_time_left_follow_the_recent_speed() -> None:
    clock = Clock()
    tracker = Tracker(total=1000, clock=clock)
    for _ in range(100):  # slow: one row in ten seconds
        clock.now += 10
        tracker.finished(tokens=50)
    for _ in range(300):  # then two in a second
        clock.now += 0.5
        tracker.finished(tokens=50)
    seen = tracker.snapshot()
    assert (seen.done, seen.tokens, seen.seconds) == (400, 20_000, 1150.0)
    assert abs(seen.tokens_per_s - 20_000 / 1150) < 0.1
    assert abs(seen.recent_tokens_per_s - 100) < 5
    assert seen.eta_s is not None and abs(seen.eta_s - 300) < 20
    assert len(tracker._marks) <= RECENT_WINDOW_S + 3


def test_a_stall_makes_the_time_left_grow() -> None:
    clock = Clock()
    tracker = Tracker(total=10, clock=clock)
    clock.now += 2
    tracker.finished(tokens=5)
    soon = tracker.snapshot().eta_s
    clock.now += 60
    later = tracker.snapshot().eta_s
    assert soon is not None and later is not None and later > 5 * soon


def test_the_line_says_what_a_person_wants_to_know() -> None:
    clock = Clock()
    tracker = Tracker(total=400, clock=clock)
    assert tracker.snapshot().line() == "0/400 rows (0%), 0 tokens/s now, 0 overall"
    clock.now += 10
    failures = ["unusable reply", "refused by the engine", "refused by the engine"]
    for number in range(150):
        tracker.finished(0 if number < 3 else 100, failure=failures[number] if number < 3 else None)
    tracker.retries = 3
    assert tracker.snapshot().line() == (
        "150/400 rows (37.5%), 1,470 tokens/s now, 1,470 overall, 3 failed (2 refused by the engine, 1 unusable reply),"
        " 3 retries, 17 s left"
    )
    assert Tracker(total=0, clock=clock).snapshot().line() == "0/0 rows, 0 tokens/s now, 0 overall"


def test_now_and_overall_are_told_apart() -> None:
    clock = Clock()
    tracker = Tracker(total=400, clock=clock)
    clock.now += 800  # nothing for a long time, then fast
    for _ in range(200):
        clock.now += 1
        tracker.finished(tokens=100)
    assert tracker.snapshot().line() == "200/400 rows (50.0%), 100 tokens/s now, 20 overall, 3 min left"


def test_the_line_says_what_each_server_does() -> None:
    servers = (
        ServerLoad("http://gpu-1:30000", in_flight=16, live=True, evictions=0),
        ServerLoad("https://gpu-2:30000", in_flight=3, live=False, evictions=1),
        ServerLoad("http://[fe80::1]:30000", in_flight=1200, live=True, evictions=2),
    )
    now = Tracker(total=0, clock=Clock()).snapshot(servers)
    assert now.line() == (
        "0/0 rows, 0 tokens/s now, 0 overall; in flight: gpu-1:30000 16, gpu-2:30000 3 (away, left out once), "
        "[fe80::1]:30000 1,200 (left out 2 times)"
    )


def test_durations_are_for_people() -> None:
    assert [duration(s) for s in (0.4, 42, 89, 180, 5399, 7500)] == [
        "0 s",
        "42 s",
        "89 s",
        "3 min",
        "1 h 30 min",
        "2 h 05 min",
    ]


def test_the_throttle_slows_down_and_always_shows_the_end() -> None:
    clock, shown = Clock(), list[Progress]()
    throttle = Throttle(shown.append, first_s=5, longest_s=20, clock=clock)
    tracker = Tracker(total=400, clock=clock)
    times = []
    for second in range(400):
        clock.now = 100.0 + second
        before = len(shown)
        throttle(tracker.snapshot())
        if len(shown) > before:
            times.append(second)
        tracker.finished(tokens=1)
    throttle(tracker.snapshot())
    assert times[:4] == [0, 5, 13, 25] and max(b - a for a, b in pairwise(times)) == 20
    assert shown[-1].done == 400
