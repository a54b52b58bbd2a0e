"""Puzzles with long reasoning: sums, word problems, weekdays, orderings, sortings and number series.

Belongs here: the wording of the `reasoning` kind, whose answers are computed here and therefore right.
Does not belong here: rendering, tokens, other kinds.
"""

import random
from itertools import pairwise

from eagle3_assets.demo import words
from eagle3_assets.demo.samples import Sample, Turn

_Puzzle = tuple[str, str, str]  # the task, the work, the answer
_STARTS = (
    "Let me go step by step.",
    "I will do this slowly, one step after the other.",
    "First I write down what is known.",
)
_CHECKS = (
    "Let me check it backwards.",
    "To be sure, I go back from the end.",
    "Now the check, in the other direction.",
)


def make(rng: random.Random) -> Sample:
    """Makes one puzzle.

    Args:
        rng: source of randomness.

    Returns:
        A sample of kind `reasoning`, without tools.
    """
    puzzle = rng.choices((_word_problem, _sum, _weekday, _order, _sorting, _series), (30, 20, 12, 12, 14, 12))[0]
    text, work, answer = puzzle(rng)
    reasoning = f'The task is "{text}" {rng.choice(_STARTS)} {work}'
    return Sample("reasoning", [{"role": "user", "content": text}], Turn(reasoning, answer))


def _sentence(left: int, change: int) -> str:
    """Works one addition or subtraction out digit by digit; every partial result is a single-digit fact."""
    if change < 0:
        return _subtraction(left, -change)
    ones = left % 10 + change % 10
    carry = ones // 10
    tens = left // 10 + change // 10 + carry
    carried = f", write {ones % 10} and carry 1" if carry else ""
    carried_tens = f" + {carry}" if carry else ""
    return (
        f"{left} + {change}: ones {left % 10} + {change % 10} = {ones}{carried}. "
        f"Tens {left // 10} + {change // 10}{carried_tens} = {tens}. So {left} + {change} = {left + change}."
    )


def _subtraction(left: int, taken: int) -> str:
    borrow = int(left % 10 < taken % 10)
    top = left % 10 + 10 * borrow
    borrowed = " and borrow 1" if borrow else ""
    borrowed_tens = " - 1" if borrow else ""
    tens = left // 10 - taken // 10 - borrow
    return (
        f"{left} - {taken}: ones {top} - {taken % 10} = {top - taken % 10}{borrowed}. "
        f"Tens {left // 10} - {taken // 10}{borrowed_tens} = {tens}. So {left} - {taken} = {left - taken}."
    )


def _changes(rng: random.Random, count: int) -> tuple[int, list[int]]:
    """Draws a start and changes which keep the running total between 2 and 99."""
    start = total = rng.randint(10, 60)
    changes: list[int] = []
    while len(changes) < count:
        change = rng.choice((1, -1)) * rng.randint(3, 39)
        if 2 <= total + change <= 99:
            changes.append(change)
            total += change
    return start, changes


def _work(rng: random.Random, start: int, changes: list[int]) -> str:
    parts: list[str] = []
    total = start
    for change in changes:
        parts.append(_sentence(total, change))
        total += change
    parts.append(rng.choice(_CHECKS))
    for change in reversed(changes):
        sign = "-" if change > 0 else "+"
        parts.append(f"{total} {sign} {abs(change)} = {total - change}.")
        total -= change
    parts.append(f"That is {start}, where we started, so the result holds.")
    return " ".join(parts)


def _word_problem(rng: random.Random) -> _Puzzle:
    name, other = rng.sample(words.NAMES, 2)
    thing = rng.choice(words.THINGS)
    start, changes = _changes(rng, rng.choice((2, 3, 3, 4)))
    gains = (f"{name} finds {{n}} more.", f"{name} buys {{n}} more.", f"{other} gives {{n}} to {name}.")
    losses = (f"{name} loses {{n}}.", f"{name} sells {{n}}.", f"{name} gives {{n}} to {other}.")
    story = [rng.choice(gains if change > 0 else losses).format(n=abs(change)) for change in changes]
    text = f"{name} has {start} {thing}. {' '.join(story)} How many {thing} does {name} have now?"
    known = " ".join(
        f"Step {index}: {'plus' if change > 0 else 'minus'} {abs(change)}."
        for index, change in enumerate(changes, start=1)
    )
    reasoning = f"{name} starts with {start} {thing}. {known} {_work(rng, start, changes)}"
    return text, reasoning, f"{name} has {start + sum(changes)} {thing} now."


def _sum(rng: random.Random) -> _Puzzle:
    start, changes = _changes(rng, rng.choice((2, 3, 3, 4)))
    term = f"{start} " + " ".join(f"{'+' if change > 0 else '-'} {abs(change)}" for change in changes)
    text = rng.choice(("What is {term}?", "Compute {term}.", "Please work out {term} for me.")).format(term=term)
    reasoning = f"The term is {term}. {_work(rng, start, changes)}"
    return text, reasoning, f"{term} = {start + sum(changes)}"


def _weekday(rng: random.Random) -> _Puzzle:
    first, count = rng.randrange(7), rng.randint(9, 22)
    step = rng.choice((1, 1, -1))
    when = f"in {count} days" if step > 0 else f"{count} days ago"
    name = rng.choice(words.NAMES)
    ask = rng.choice(
        (
            "Which day {verb} it {when}?",
            f"On which day did {name} ask, if it {{verb}} {{when}}?",
            "Tell me the day {when}.",
        )
    )
    verb = "is" if step > 0 else "was"
    text = f"Today is {words.DAYS[first]}. {ask.format(verb=verb, when=when)}"
    days = [words.DAYS[(first + step * index) % 7] for index in range(count + 1)]
    sign = "+" if step > 0 else "-"
    walk = " ".join(f"{sign} {index}: {day}." for index, day in enumerate(days[1:], start=1))
    reasoning = (
        f"Today is {days[0]}. "
        f"I count {count} days, {'forward' if step > 0 else 'back'}, one by one. "
        f"{walk} That was {count} days, and the count ends on {days[-1]}."
    )
    return text, reasoning, f"It {verb} {days[-1]} {when}."


def _order(rng: random.Random) -> _Puzzle:
    names = rng.sample(words.NAMES, rng.choice((4, 5, 5)))
    more, most, least = rng.choice(
        (("taller", "tallest", "shortest"), ("older", "oldest", "youngest"), ("faster", "fastest", "slowest"))
    )
    facts = " ".join(f"{left} is {more} than {right}." for left, right in pairwise(names))
    wanted, answer = rng.choice(((most, names[0]), (least, names[-1])))
    text = f"{facts} Who is the {wanted}?"
    chain = [names[0]]
    steps = [f"Nobody is {more} than {names[0]}, so {names[0]} is first."]
    for left, right in pairwise(names):
        chain.append(right)
        steps.append(f"{left} is {more} than {right}, so after {left} comes {right}: {', '.join(chain)}.")
    reasoning = (
        f"I have to put {len(names)} people in order and then find the {wanted}. "
        f"{' '.join(steps)} The {most} is {names[0]} and the {least} is {names[-1]}. "
        f"The question is about the {wanted}, which is {answer}."
    )
    return text, reasoning, f"The {wanted} is {answer}."


def _sorting(rng: random.Random) -> _Puzzle:
    numbers = rng.sample(range(10, 99), rng.choice((5, 5, 6, 7)))
    ask = rng.choice(
        ("Sort these numbers: {n}.", "Put {n} in order, the smallest first.", "Which order do {n} have by size?")
    )
    text = ask.format(n=", ".join(map(str, numbers)))
    left = list(numbers)
    parts: list[str] = []
    while len(left) > 1:
        smallest = min(left)
        parts.append(f"Left are {', '.join(map(str, left))}. The smallest of them is {smallest}.")
        left.remove(smallest)
    parts.append(f"Only {left[0]} is left.")
    ordered = ", ".join(map(str, sorted(numbers)))
    reasoning = f"There are {len(numbers)} numbers. {' '.join(parts)} Together: {ordered}."
    return text, reasoning, f"The order is {ordered}."


def _series(rng: random.Random) -> _Puzzle:
    start, step = rng.randint(2, 30), rng.randint(2, 12)
    numbers = [start + step * index for index in range(5)]
    listed = ", ".join(map(str, numbers))
    ask = rng.choice(("Which number comes next: {n}?", "Continue the series {n}.", "What follows {n}?"))
    gaps = " ".join(f"From {left} to {right} it is {right - left}." for left, right in pairwise(numbers))
    reasoning = (
        f"I look at the differences. {gaps} The difference is always {step}. "
        f"So I add {step} to the last number. {_sentence(numbers[-1], step)} The next number is {numbers[-1] + step}."
    )
    return ask.format(n=listed), reasoning, f"The next number is {numbers[-1] + step}."
