"""Acceptance length is counted as a server would: on drafters and targets that are plain functions."""

import math
import random
from collections.abc import Callable

import pytest

from benchmarks.acceptance import Acceptance, Draft, agreed, decode, replayed, total

STOP = 99
CHAIN = 5


def says(ids: list[int]) -> int:
    """A target whose next id depends on all before; it stops now and then."""
    drawn = random.Random(str(ids)).randrange(100)  # noqa: S311
    return STOP if drawn < 2 else drawn % 10


def target(ids: list[int], last: int) -> list[int]:
    return [says(ids[: len(ids) - last + n + 1]) for n in range(last)]


def chain(next_id: Callable[[list[int]], int]) -> Draft:
    def draft(ids: list[int]) -> list[int]:
        ahead = list(ids)
        for _ in range(CHAIN):
            ahead.append(next_id(ahead))
        return ahead[len(ids) :]

    return draft


def sometimes(share: float) -> Draft:
    """Says what the target says, or something wrong."""
    return chain(lambda ids: says(ids) if random.Random(f"{ids}d").random() < share else -1)  # noqa: S311


def greedy(prompt: list[int], cap: int) -> list[int]:
    output = [says(prompt)]
    while output[-1] != STOP and len(output) < cap:
        output.append(says([*prompt, *output]))
    return output


def test_a_drafter_that_is_the_target_gets_all_its_proposals_and_one_more() -> None:
    ids, counted = decode([1, 2], chain(says), target, stops=(), cap=1 + 20 * (CHAIN + 1))
    assert counted == Acceptance(tokens=20 * (CHAIN + 1), rounds=20)
    assert counted.length == CHAIN + 1
    assert ids == [says([1, 2, *ids[:n]]) for n in range(len(ids))]


def test_a_drafter_that_is_always_wrong_costs_a_round_for_each_token() -> None:
    _, counted = decode([1, 2], chain(lambda _: -1), target, stops=(), cap=40)
    assert counted == Acceptance(tokens=39, rounds=39)


def test_a_drafter_that_guesses_at_random_gets_about_one() -> None:
    draw = random.Random(0)  # noqa: S311
    lengths = [decode([n], chain(lambda _: draw.randrange(1_000)), target, (), 200)[1].length for n in range(5)]
    assert all(1 <= length < 1.05 for length in lengths)


@pytest.mark.parametrize("share", [0.0, 0.3, 0.7, 0.95, 1.0])
def test_the_output_is_the_targets_own_whatever_is_proposed(share: float) -> None:
    ends = set()
    for seed in range(40):
        output, counted = decode([seed], sometimes(share), target, (STOP,), cap=60)
        assert output == greedy([seed], cap=60)
        assert counted.tokens == len(output) - 1
        ends.add(output[-1] == STOP)
    assert ends == {True, False}  # some stop, others reach the cap


@pytest.mark.parametrize("share", [0.0, 0.3, 0.7, 0.95, 1.0])
def test_replaying_an_output_counts_the_rounds_of_decoding_it(share: float) -> None:
    draft = sometimes(share)
    for seed in range(40):
        output, counted = decode([seed, 3], draft, target, (STOP,), cap=60)
        ids = [seed, 3, *output]
        assert replayed(ids, 2, [draft(ids[:index]) for index in range(len(ids))]) == counted


def test_what_is_proposed_behind_the_stop_counts_for_nothing() -> None:
    ids = [1, 7, 8, STOP]
    assert replayed(ids, 1, [[0] * CHAIN, [0] * CHAIN, [8, STOP, 3, 3, 3], [STOP, 3, 3, 3, 3]]) == Acceptance(2, 1)


def test_an_output_of_one_id_takes_no_round() -> None:
    assert decode([1], chain(says), lambda _, last: [STOP] * last, (STOP,), 10) == ([STOP], Acceptance(0, 0))
    assert replayed([1, STOP], 1, [[], []]) == Acceptance(0, 0)


def test_outputs_together_are_weighed_by_their_rounds() -> None:
    assert total([Acceptance(10, 2), Acceptance(2, 2)]).length == 3.0
    assert math.isnan(total([]).length)


def test_proposals_agree_up_to_the_first_that_does_not() -> None:
    assert [agreed([1, 2, 3], said) for said in ([1, 2, 3, 4], [1, 2, 4], [2, 2, 3], [1])] == [3, 2, 0, 1]
