"""Which assistant turns are generated, and what stands before each."""

from typing import Any

import pytest

from eagle3_assets.config import Turns
from eagle3_assets.prompts.dialogue import Dialogue, RefusedRowError
from eagle3_assets.prompts.turns import conversation_id, history, turns_to_generate

ROLES = {"s": "system", "u": "user", "a": "assistant", "t": "tool"}


def dialogue(roles: str, source_id: str | None = None) -> Dialogue:
    messages: list[Any] = [{"role": ROLES[role], "content": f"{role}{i}"} for i, role in enumerate(roles)]
    return Dialogue(source_id, messages, None)


CASES = [  # last, first, all
    ("u", [1], [1], [1]),
    ("su", [2], [2], [2]),
    ("ua", [1], [1], [1]),
    ("suaua", [4], [2], [2, 4]),
    ("suauau", [6], [2], [2, 4, 6]),
    ("uuau", [4], [2], [2, 4]),
    ("uataua", [5], [1], [1, 3, 5]),
    ("uaaua", [4], [1], [1, 4]),
    ("uaa", [1], [1], [1]),
    ("aua", [2], [2], [2]),
    ("asua", [3], [3], [3]),
    ("aau", [3], [3], [3]),
    ("us", [2], [2], [2]),
    ("uat", [3], [1], [1, 3]),
]


@pytest.mark.parametrize(("roles", "last", "first", "every"), CASES, ids=[case[0] for case in CASES])
def test_the_turns_to_generate(roles: str, last: list[int], first: list[int], every: list[int]) -> None:
    for turns, expected in (("last", last), ("first", first), ("all", every)):
        assert turns_to_generate(dialogue(roles), turns) == expected, turns  # type: ignore[arg-type] # the table is of plain strings


@pytest.mark.parametrize("turns", ["last", "first", "all"])
@pytest.mark.parametrize("roles", ["", "s", "a", "sa", "as", "saa"])
def test_without_anybody_asking_there_is_no_turn(roles: str, turns: Turns) -> None:
    with pytest.raises(RefusedRowError, match="no user message"):
        turns_to_generate(dialogue(roles), turns)


def test_an_id_is_the_sources_or_one_of_all_that_is_given() -> None:
    assert conversation_id(dialogue("uaua", "mine")) == "mine"
    whole = conversation_id(dialogue("uaua"))
    # The answer that is generated anew is no part of it, and the answers before it are.
    assert whole == conversation_id(dialogue("uau"))
    assert whole != conversation_id(dialogue("u"))


def test_a_system_prompt_stands_only_where_there_is_none() -> None:
    assert [m["role"] for m in history(dialogue("uau"), 1, "be brief")] == ["system", "user"]
    assert history(dialogue("suau"), 2, "be brief") == dialogue("su").messages
    assert history(dialogue("uau"), 1, None) == dialogue("u").messages
