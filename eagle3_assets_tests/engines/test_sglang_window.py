"""How many requests at once: halving once for each burst of faults, growing by one for each window of answers."""

from eagle3_assets.engines.sglang.window import LARGEST, UNTOLD_START, Window


def answers(window: Window, count: int) -> None:
    for _ in range(count):
        window.answered()


def test_it_starts_from_what_the_server_tells_within_bounds() -> None:
    assert Window(48, None).limit == 48
    assert Window(4096, None).limit == LARGEST
    assert (Window(None, None).limit, Window(None, None).ceiling) == (UNTOLD_START, LARGEST)
    assert (Window(48, 8).limit, Window(None, 8).limit) == (8, 8)
    assert (Window(48, 512).limit, Window(48, 512).ceiling) == (48, 512)


def test_it_doubles_until_the_server_first_has_too_much() -> None:
    window = Window(None, None)
    answers(window, 32)
    assert window.limit == 64
    answers(window, 64)
    assert window.limit == 128
    window.overloaded(window.epoch)
    answers(window, 64)
    assert window.limit == 65


def test_requests_that_were_in_flight_together_halve_it_once() -> None:
    window = Window(64, None)
    assert [window.overloaded(0) for _ in range(64)].count(True) == 1
    assert window.limit == 32
    assert window.overloaded(window.epoch) and window.limit == 16


def test_it_never_falls_below_one_and_grows_back_to_its_ceiling() -> None:
    window = Window(4, None)
    for _ in range(5):
        window.overloaded(window.epoch)
    assert window.limit == 1
    answers(window, 1)
    assert window.limit == 2
    answers(window, 2 + 3)
    assert window.limit == 4
    answers(window, 100)
    assert window.limit == window.ceiling == 4
