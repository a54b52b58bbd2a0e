"""A plan in a table and in words.

What belongs here: how estimates are shown, and how sure they are. Not here: counting (``survey``), estimating
(``planning``).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import polars as pl
from rich.table import Table
from rich.text import Text

from eagle3_assets.config import TRIAL_SUFFIX
from eagle3_assets.generation.progress import duration
from eagle3_assets.planning import (
    Basis,
    Expected,
    PromptTokens,
    Throughput,
    expected_in_all,
    expected_output,
    prompt_tokens,
    tokens_per_output,
)
from eagle3_assets.survey import Surveyed
from eagle3_assets.tokens.safe_text import excerpt, visible

_SIGNS: dict[Basis, str] = {"measured": "", "band": "~ "}

SHOWN = 160
"""Characters of a source's first unusable row, or of a commonest reason."""


@dataclass(frozen=True, slots=True)
class Planned:
    """One partition's counts, and what is expected of it."""

    counted: Surveyed
    expected: Expected

    @property
    def key(self) -> str:
        """Of the partition."""
        return self.counted.partition.key


def planned(counted: Surveyed) -> Planned:
    """The estimate for what was counted."""
    dataset = counted.partition.dataset
    cap = dataset.sampling.max_new_tokens
    return Planned(counted, expected_output(counted.missing, counted.outputs, dataset.length_band.median, cap))


def plan_table(plans: Sequence[Planned], tokens_per_s: float | None) -> Table:
    """Partitions down, and their total where there are several."""
    table = Table(
        title="Plan",
        title_justify="left",
        caption="prompt tokens: of prompts that may be sent, generated ones included; ~ a rough guess, <= at most",
        caption_justify="left",
    )
    table.add_column("partition", overflow="fold")
    columns = ("prompts", "generated", "failed", "refused", "to generate")
    for column in (*columns, "prompt tokens", "p50", "p95", "max", "output tokens", "time"):
        table.add_column(column, justify="right", overflow="fold")

    def add(name: str, counts: Sequence[int], lengths: pl.Series, expected: Expected) -> None:
        figures = (*_lengths(prompt_tokens(lengths)), *_expected(expected, tokens_per_s))
        table.add_row(Text(name), *(f"{n:,}" for n in counts), *figures)

    counted = [
        (one.counted.prompts, one.counted.generated, one.counted.failed, one.counted.refused, one.counted.missing)
        for one in plans
    ]
    for one, counts in zip(plans, counted, strict=True):
        add(one.key, counts, one.counted.lengths, one.expected)
    if len(plans) > 1:
        table.add_section()
        lengths = pl.concat([one.counted.lengths for one in plans])
        sums = [sum(column) for column in zip(*counted, strict=True)]
        add("total", sums, lengths, expected_in_all(one.expected for one in plans))
    return table


def _lengths(figures: PromptTokens | None) -> tuple[str, ...]:
    if figures is None:
        return ("0", "", "", "")
    return tuple(f"{n:,}" for n in (figures.total, figures.p50, figures.p95, figures.longest))


def _expected(expected: Expected, tokens_per_s: float | None) -> tuple[str, str]:
    if not expected.tokens:
        return "0", ""
    time = how_much(expected, lambda tokens: duration(tokens / tokens_per_s)) if tokens_per_s else "unknown"
    return how_much(expected), time


def how_much(expected: Expected, shown: Callable[[int], str] = "{:,}".format) -> str:
    """What is estimated, and what is but a limit added to it, each with the sign for how sure it is."""
    parts = [f"{_SIGNS[expected.basis]}{shown(expected.estimated)}"] if expected.basis != "cap" else []
    return " + ".join([*parts, *([f"<= {shown(expected.capped)}"] if expected.capped else [])])


def total_text(expected: Mapping[str, Expected], without: str) -> str | None:
    """Of which datasets a total has but a limit; None where it has of all of them one, or of none.

    Args:
        expected: by dataset.
        without: what those that only have a limit are without.
    """
    total = expected_in_all(expected.values())
    if total.basis == "cap" or not total.capped:
        return None
    names = ", ".join(name for name, one in expected.items() if one.capped)
    return (
        f"Output in all: about {total.estimated:,} tokens {'measured' if total.basis == 'measured' else 'estimated'}"
        f" + at most {total.capped:,} for datasets without {without}: {names}."
    )


def plan_remarks(plans: Sequence[Planned]) -> list[Text]:
    """Where the figures come from, and what stands in the way, in words."""
    lines = [
        f"Prompts {'as stored in tokenized_prompts' if why is None else f'rendered and tokenized in memory ({why})'}:"
        f" {', '.join(keys)}."
        for why, keys in _by_where_prompts_come_from(plans).items()
    ]
    lines += _of_sources(plans)
    lines += _of_outputs(plans)
    by_dataset: dict[str, list[Expected]] = {}
    for one in plans:
        by_dataset.setdefault(one.counted.partition.dataset.name, []).append(one.expected)
    in_all = total_text({name: expected_in_all(parts) for name, parts in by_dataset.items()}, "a trial")
    lines += [in_all] if in_all else []
    for one in plans:
        lines += _of_partition(one.counted)
    return [
        *map(Text, lines),
        *(
            Text.assemble((f"REFUSED {one.key} ", "bold red"), visible(why))
            for one in plans
            for why in one.counted.hindrances
        ),
    ]


def throughput_text(plans: Sequence[Planned], given: float | None, measured: Throughput | None) -> Text:
    """Which throughput times are reckoned with, or how to find it."""
    if given:
        return Text(f"Time at {given:,g} output tokens/s, as given.")
    if measured:
        return Text(f"Time at {measured.text}.")
    trial = plans[0].counted.partition.dataset.name + TRIAL_SUFFIX
    return Text(
        "Throughput is unknown, and so is the time: no run of this engine was measured on this Dagster instance yet."
        f" Measure it (eagle3-assets materialize {trial}), or give --tokens-per-second N."
    )


def _by_where_prompts_come_from(plans: Sequence[Planned]) -> dict[str | None, list[str]]:
    grouped: dict[str | None, list[str]] = {}
    for one in plans:
        grouped.setdefault(one.counted.why_tokenized, []).append(one.key)
    return grouped


def _of_sources(plans: Sequence[Planned]) -> Iterator[str]:
    """A line for each dataset whose source has unusable rows: which partition they would belong to cannot be known."""
    for name, source in {one.counted.partition.dataset.name: one.counted.source for one in plans}.items():
        if source.refused:
            yield (
                f"{name}: {source.accounts.refused:,} of {source.accounts.rows:,} source rows are unusable and counted"
                f" nowhere; first {excerpt(str(source.refused[0]), SHOWN)}."
            )


def _of_outputs(plans: Sequence[Planned]) -> Iterator[str]:
    """A line for each dataset of which something is to be generated: how long an output is expected to be, and why."""
    for one in {one.counted.partition.dataset.name: one for one in plans if one.counted.missing}.values():
        dataset, outputs = one.counted.partition.dataset, one.counted.outputs
        each, basis = tokens_per_output(outputs, dataset.length_band.median, dataset.sampling.max_new_tokens)
        trial = f"; to measure it: eagle3-assets materialize {dataset.name}{TRIAL_SUFFIX}"
        match basis:
            case "measured":
                said = f"{each:,.1f} tokens, the mean of {outputs.count:,} generated of this dataset so far"
            case "band":
                said = f"{each:,.0f} tokens, a rough guess: the middle of length_band.median{trial}"
            case _:
                said = f"unknown, at most max_new_tokens: {each:,} tokens{trial}"
        yield f"Output of {dataset.name}: {said}."


def _of_partition(counted: Surveyed) -> Iterator[str]:
    key = counted.partition.key
    if counted.refused:
        reason = excerpt(counted.commonest_refusal or "not recorded", SHOWN)
        yield f"{key}: {counted.refused:,} refused and never sent; commonest reason, {reason}"
    if counted.failed:
        yield f"{key}: {counted.failed:,} failed before and stay so; --retry-failed asks them again."
    if counted.other_identity and counted.partition.trial:
        yield f"{key}: generated before with other settings; a trial begins anew by itself."
