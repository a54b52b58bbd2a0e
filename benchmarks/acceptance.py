"""How far a target goes with a drafter: greedy speculative decoding with a chain, and its acceptance length.

What belongs here: rounds of proposing and verifying, and what they count. Not here: any model; drafter and target are
functions of token ids.

A round: the drafter proposes a chain of K ids, one forward pass of the target says after each of them what comes next,
and the output grows by the proposals that the target says, too, and by one id of the target's own: 1 to K + 1 ids. The
output is always the target's own greedy output; the drafter only decides how many rounds it takes.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass

Draft = Callable[[list[int]], list[int]]
"""Given all ids so far, the K that it proposes next."""

Target = Callable[[list[int], int], list[int]]
"""Given ids and a number N, what it says after each of the last N of them: N ids."""

Proposals = Sequence[Sequence[int]]
"""For each index of a sequence, the K ids that a drafter proposes when all ids before that index are there."""


@dataclass(frozen=True, slots=True)
class Acceptance:
    """What the rounds of some outputs came to. The first id of an output comes of reading the prompt, in no round."""

    tokens: int
    """That rounds emitted."""
    rounds: int
    """Forward passes of the target, but for those that read the prompts."""

    @property
    def length(self) -> float:
        """Tokens per forward pass of the target: 1 without any use, at most K + 1; NaN without a round."""
        return self.tokens / self.rounds if self.rounds else float("nan")


def total(each: Iterable[Acceptance]) -> Acceptance:
    """Of several outputs together."""
    parts = list(each)
    return Acceptance(sum(part.tokens for part in parts), sum(part.rounds for part in parts))


def agreed(proposed: Sequence[int], said: Sequence[int]) -> int:
    """How many of the proposed ids, from the first on, are those that the target says."""
    count = 0
    for ours, theirs in zip(proposed, said, strict=False):
        if ours != theirs:
            break
        count += 1
    return count


def decode(
    prompt_ids: Sequence[int], draft: Draft, target: Target, stops: Collection[int], cap: int
) -> tuple[list[int], Acceptance]:
    """Decodes speculatively, round by round.

    Args:
        prompt_ids: at least one id.
        draft: proposes.
        target: verifies.
        stops: ids that end the output.
        cap: most ids of the output, at least 1.

    Returns:
        The output ids, the stop id included, and what its rounds came to.
    """
    ids = [*prompt_ids, *target(list(prompt_ids), 1)]
    rounds = 0
    while ids[-1] not in stops and len(ids) - len(prompt_ids) < cap:
        proposed = draft(ids)
        said = target([*ids, *proposed], len(proposed) + 1)
        rounds += 1
        for token in said[: agreed(proposed, said) + 1]:
            ids.append(token)
            if token in stops or len(ids) - len(prompt_ids) == cap:
                break
    output = ids[len(prompt_ids) :]
    return output, Acceptance(len(output) - 1, rounds)


def replayed(ids: Sequence[int], prompt_tokens: int, proposals: Proposals) -> Acceptance:
    """The rounds in which an output of the target would have come, without decoding it again.

    As the output is the same whatever is proposed, only the proposals at the indices where rounds begin play a part.

    Args:
        ids: a prompt and the target's own greedy output.
        prompt_tokens: how many of them are the prompt.
        proposals: for each index of ``ids``; those of the prompt and of the first output id are not looked at.
    """
    index, rounds = prompt_tokens + 1, 0
    while index < len(ids):
        index += agreed(proposals[index], ids[index:]) + 1
        rounds += 1
    return Acceptance(len(ids) - prompt_tokens - 1, rounds)
