"""What ``check-config`` found, in tables and in words.

What belongs here: how it is shown. Not here: looking (``config_check``).
"""

import os
from collections.abc import Iterator, Sequence

from rich.table import Table
from rich.text import Text

from eagle3_assets.cli.plan_tables import how_much, total_text
from eagle3_assets.cli.tables import MARKS
from eagle3_assets.config import Eagle3Config, SglangEngineSettings, Target
from eagle3_assets.config_check import CheckedDataset, CheckedTarget, Estimate, code_that_does_not_run
from eagle3_assets.partitions import dataset_partitions
from eagle3_assets.planning import expected_in_all, prompt_tokens
from eagle3_assets.prompts.rows import NotedRow
from eagle3_assets.prompts.template_forms import ArgumentForm, CallForm
from eagle3_assets.tokens.laws.base import counted
from eagle3_assets.tokens.safe_text import excerpt, visible

SHOWN = 200
"""Characters of a refused row's reason."""
SHOWN_ROWS = 3


def target_table(settings: Target, checked: CheckedTarget) -> Table:
    """What the target's directory says of it."""
    table = _facts("Target")
    table.add_row("model", Text(settings.model))
    if settings.tokenizer:
        table.add_row("tokenizer", Text(settings.tokenizer))
    if unused := code_that_does_not_run(settings):
        table.add_row("code beside it", Text(f"does not run, as it is not trusted: {visible(', '.join(unused))}"))
    if (loaded := checked.loaded) is None:
        return table
    for file in loaded.code:
        said = f", loaded as {', '.join(file.loaded_as)}" if file.loaded_as else ""
        table.add_row("code that RUNS", Text(visible(f"{file.name}{said}\nsha256 {file.sha256}"), style="yellow"))
    import transformers

    template = settings.chat_template or "the tokenizer's own"
    table.add_row("chat template", Text(f"{template}, with its arguments sha256 {loaded.template_sha256[:16]}"))
    table.add_row("profile", Text(f"{loaded.profile.name}{' (found)' if settings.profile == 'auto' else ''}"))
    table.add_row("vocabulary, context", f"{loaded.vocab_size:,} ids, {loaded.context_length:,} tokens")
    if checked.call_form and (calls := _calls_said(checked.call_form, loaded.profile.tool_call_id)):
        table.add_row("calls of earlier turns", Text(calls))
    stops = ", ".join(loaded.profile.label(i) for i in loaded.stop_token_ids)
    table.add_row("stop ids", Text(visible(stops) or "none"))
    table.add_row("transformers", transformers.__version__)
    if checked.canary:
        table.add_row(
            "tokenizer canary", Text.assemble(MARKS[checked.canary.status], f" {visible(checked.canary.summary)}")
        )
    return table


def engine_table(config: Eagle3Config) -> Table:
    """The engine's settings; nobody was asked whether they hold."""
    table = _facts("Engine (settings only: not contacted)")
    engine = config.engine
    for key, value in engine.model_dump(mode="json", exclude_none=True, exclude={"managed"}).items():
        shown = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
        if key == "api_key_env":
            shown = _variable(shown)
        if shown:
            table.add_row(key, Text(visible(shown)))
    if isinstance(engine, SglangEngineSettings) and engine.managed:
        for key, value in engine.managed.model_dump(mode="json", exclude_none=True).items():
            shown = " ".join(value) if isinstance(value, list) else str(value)
            table.add_row(f"managed.{key}", Text(visible(shown)))
    table.add_row("storage.root", Text(str(config.storage.root)))
    if config.alerts.webhook_env:
        table.add_row("alerts.webhook_env", Text(_variable(config.alerts.webhook_env)))
    return table


def datasets_table(checked: Sequence[CheckedDataset]) -> Table:
    """Datasets down, what was looked at and what the whole would come to; and a total."""
    table = Table(
        title="Datasets",
        title_justify="left",
        caption="of the rows looked at: refused, ready, tokens; of the whole, extrapolated from those (about) or"
        " counted: source rows, prompts, tokens; output tokens: ~ a rough guess, <= at most",
        caption_justify="left",
    )
    table.add_column("dataset", overflow="fold")
    table.add_column("format")
    columns = ("shards", "files", "looked at", "refused", "ready", "tokens each", "longest")
    for column in (*columns, "source rows", "prompts", "prompt tokens", "output tokens"):
        table.add_column(column, justify="right")
    for one in checked:
        shards = f"{len(dataset_partitions(one.dataset)) - 1:,}"
        if one.found is None:
            table.add_row(one.dataset.name, Text("not readable", style="bold red"), shards)
            continue
        accounts, lengths = one.found.accounts, one.lengths
        cells = [shards, f"{len(one.found.files):,}", f"{accounts.rows - accounts.skipped:,}", f"{accounts.refused:,}"]
        if lengths is not None:
            figures = prompt_tokens(lengths)
            each = (f"{figures.total / len(lengths):,.0f}", f"{figures.longest:,}") if figures else ("", "")
            cells += [f"{len(lengths):,}", *each]
        table.add_row(one.dataset.name, _format(one), *cells, *(_whole(one.estimate) if one.estimate else ()))
    estimates = [one.estimate for one in checked if one.estimate]
    if len(estimates) > 1:
        table.add_section()
        about = "" if all(e.exact for e in estimates) and len(estimates) == len(checked) else "about "
        prompts, tokens = sum(e.prompts for e in estimates), sum(e.prompt_tokens for e in estimates)
        output = how_much(expected_in_all(e.output for e in estimates))
        name = "total" if len(estimates) == len(checked) else "total of those"
        table.add_row(name, *[""] * 9, f"{about}{prompts:,}", f"{about}{tokens:,}", output)
    return table


def estimate_text(checked: Sequence[CheckedDataset]) -> str | None:
    """Of which datasets the total has but a limit; None where there is nothing to tell apart."""
    estimates = {one.dataset.name: one.estimate.output for one in checked if one.estimate}
    return total_text(estimates, "a length_band.median")


def findings(checked: CheckedDataset) -> Iterator[Text]:
    """Laws that found something, refused rows, and remarks, a line each."""
    name = checked.dataset.name
    for verdict in checked.report.verdicts if checked.report else ():
        if verdict.status in ("warned", "failed"):
            yield Text.assemble(MARKS[verdict.status], f" {name} {verdict.law.name}: {visible(verdict.summary)}")
    if checked.report:
        passed = sum(verdict.status == "passed" for verdict in checked.report.verdicts)
        silent = [verdict.law.name for verdict in checked.report.verdicts if verdict.status == "not_judged"]
        said = f"{name}: {passed} laws about prompts hold over {counted(checked.report.rows, 'prompt')}"
        yield Text(said + (f"; not judged: {', '.join(silent)}" if silent else ""))
    if checked.found:
        yield from _rows(f"{name}: refused", checked.found.refused, checked.found.accounts.refused)
        yield from _rows(f"{name}: remark", checked.found.remarked, checked.found.remarks)
        if checked.found.unread_keys:
            yield Text(f"{name}: not read of its rows: {excerpt(checked.found.unread_said, SHOWN)}")
        if checked.found.left_out_files:
            left_out = ", ".join(checked.found.left_out_files[:SHOWN_ROWS])
            count = counted(len(checked.found.left_out_files), "file")
            yield Text(f"{name}: {count} left out, {excerpt(left_out, SHOWN)}")
    for remark in checked.remarks:
        yield Text(f"{name}: {remark}", style="yellow")


def _rows(heading: str, shown: Sequence[NotedRow], count: int) -> Iterator[Text]:
    """The first rows of some kind, and how many more there are."""
    for row in shown[:SHOWN_ROWS]:
        yield Text(f"{heading} {excerpt(str(row), SHOWN)}")
    if count > SHOWN_ROWS:
        yield Text(f"{heading} and {counted(count - SHOWN_ROWS, 'more row')}")


def _calls_said(form: CallForm, call_id: str | None) -> str | None:
    """What a person should know of how the template takes calls and results; None where there is nothing."""
    if form.arguments is ArgumentForm.DROPPED:
        return "left out by the template: prompts with such are refused"
    if form.loses_results(call_id):
        return "their results by ids that no call is shown with: such prompts are refused; set target.chat_template"
    if not form.named_by_id:
        return None
    given = (
        f"which are given the form {call_id}"
        if call_id
        else "and the profile has no form of these: such prompts are refused; set target.profile_overrides.tool_call_id"
    )
    return f"by their ids in place of functions' names, {given}"


def _format(checked: CheckedDataset) -> str:
    if checked.dataset.format != "auto":
        return f"{checked.dataset.format} (named)"
    found = dict.fromkeys(state.format for state in checked.found.files if state.format) if checked.found else {}
    return f"{', '.join(map(str, found))} (found)" if found else "none found"


def _whole(estimate: Estimate) -> tuple[str, ...]:
    about = "" if estimate.exact else "about "
    figures = (estimate.source_rows, estimate.prompts, estimate.prompt_tokens)
    return (*(f"{about}{figure:,}" for figure in figures), how_much(estimate.output))


def _variable(name: str) -> str:
    """An environment variable by its name; what it holds is nobody's business."""
    return f"{name} ({'set' if os.environ.get(name) else 'not set in this environment'})"


def _facts(title: str) -> Table:
    table = Table(title=title, title_justify="left", show_header=False)
    table.add_column()
    table.add_column(overflow="fold")
    return table
