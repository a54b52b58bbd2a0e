"""Chat templates that print a call's id in place of the function's name, as Kimi-K2's newer ones do."""

import html
import json
from pathlib import Path
from typing import Any

import dagster as dg
import polars as pl
import pytest
from typer.testing import CliRunner

from eagle3_assets import judging, survey
from eagle3_assets.build import build_defs
from eagle3_assets.cli import app
from eagle3_assets.jobs import PARTITION_JOB
from eagle3_assets.judging import judge_tokenized, target_call_form, tokenize
from eagle3_assets.partitions import stable_rank
from eagle3_assets.project import Project
from eagle3_assets.prompt_views import prompt_view
from eagle3_assets.prompts.render import render_text
from eagle3_assets.prompts.template_forms import ArgumentForm, CallForm
from eagle3_assets.sourcing import take_prompts
from eagle3_assets.target import load_target
from eagle3_assets_tests.conftest import DEMO, ProjectMaker
from eagle3_assets_tests.test_cli_prompt import shown, stored

TEMPLATE = (DEMO / "model" / "chat_template.jinja").read_text(encoding="utf-8")
CALL_ID = "call.id or ('functions.' ~ function.name ~ ':' ~ state.calls)"
RESULT_ID = "message.tool_call_id or state.ids[state.results] or 'unknown'"
TOOLS = [
    {"type": "function", "function": {"name": name, "parameters": {"type": "object", "properties": {}}}}
    for name in ("get_weather", "get_time")
]


def row(name: str, weather: str | None, time: str | None, again: str | None) -> dict[str, Any]:
    """Two turns with calls: two parallel ones whose results come in the other order, where ids tell; then one."""

    def call(function: str, given: str | None) -> dict[str, Any]:
        made = {"type": "function", "function": {"name": function, "arguments": {"city": "Oslo"}}}
        return made if given is None else {**made, "id": given}

    def result(given: str | None, said: str) -> dict[str, Any]:
        return {"role": "tool", "content": said} | ({} if given is None else {"tool_call_id": given})

    results = [result(weather, "-3"), result(time, "12:00")]
    return {
        "id": name,
        "messages": [
            {"role": "user", "content": "Cold in Oslo?"},
            {
                "role": "assistant",
                "content": "I look.",
                "tool_calls": [call("get_weather", weather), call("get_time", time)],
            },
            *(results if weather is None else results[::-1]),
            {"role": "assistant", "content": "Yes."},
            {"role": "user", "content": "And now?"},
            {"role": "assistant", "content": None, "tool_calls": [call("get_weather", again)]},
            result(again, "-4"),
        ],
        "tools": TOOLS,
    }


RIGHT = ("functions.get_weather:0", "functions.get_time:1", "functions.get_weather:2")
ROWS = [
    row("bare", None, None, None),
    row("openai", "call_1", "call_2", "call_3"),
    row("right", *RIGHT),
    {"id": "hello", "messages": [{"role": "user", "content": "Hello"}]},
]


@pytest.fixture
def printing_ids(tmp_path: Path) -> dict[str, Any]:
    """Settings of a target whose template prints ids alone."""
    assert TEMPLATE.count(CALL_ID) == TEMPLATE.count(RESULT_ID) == 1
    template = TEMPLATE.replace(CALL_ID, "call['id']").replace(RESULT_ID, "message.tool_call_id")
    (tmp_path / "ids.jinja").write_text(template, encoding="utf-8")
    return {"model": "demo", "chat_template": "ids.jinja"}


def checked(folder: Path) -> str:
    """What ``check-config`` says, in one line."""
    return " ".join(CliRunner().invoke(app, ["check-config", str(folder / "eagle3.yaml")]).stdout.split())


def rendered(project: Project) -> dict[str, tuple[str | None, str]]:
    """Why each prompt is refused, and its text."""
    partition, target = project.partition("d"), load_target(project.config.target)
    tokenized = tokenize(project, partition, target, take_prompts(project, partition)[0].rows)
    rows = tokenized.select("sample_id", "reason", "prompt_ids").iter_rows()
    return {sample.split(":")[0]: (reason, target.tokenizer.decode(ids or [])) for sample, reason, ids in rows}


def test_every_call_and_result_is_named(make_project: ProjectMaker, printing_ids: dict[str, Any]) -> None:
    made = rendered(make_project(ROWS, target=printing_ids))
    assert {reason for reason, _ in made.values()} == {None}
    for name in ("bare", "openai", "right"):
        text = made[name][1]
        for call_id, said in zip(RIGHT, ("-3", "12:00", "-4"), strict=True):
            assert text.count(f"<|tool_call_begin|>{call_id}<|tool_call_argument_begin|>") == 1, name
            assert text.count(f"## Return of {call_id}\n{said}<|im_end|>") == 1, name
        assert "call_1" not in text
    assert made["openai"] == made["right"]
    # The demo's own template names calls without ids itself.
    assert rendered(make_project(ROWS))["bare"] == made["bare"]


def test_the_laws_see_the_same(make_project: ProjectMaker, printing_ids: dict[str, Any]) -> None:
    project = make_project(ROWS, target=printing_ids)
    partition, target = project.partition("d"), load_target(project.config.target)
    prompts = take_prompts(project, partition)[0].rows
    tokenized = tokenize(project, partition, target, prompts)
    report = judge_tokenized(project, partition, target, prompts.lazy(), tokenized.lazy()).report
    for law in ("prompt_reproducible", "prompt_injection", "messages_rendered", "tools_rendered"):
        assert (report[law].status, report[law].violations) == ("passed", 0), law
        assert report[law].judged == (3 if law == "tools_rendered" else 4), law
    for ours, source in zip(tokenized.iter_rows(named=True), prompts.iter_rows(named=True), strict=True):
        view = prompt_view(target, ours, source)
        assert not view.changed
        assert view.parts is not None
        assert all(part.begin < part.end for part in view.parts)


def test_results_are_told_by_their_ids_in_the_prompt_of_inert_text_too(
    make_project: ProjectMaker, printing_ids: dict[str, Any]
) -> None:
    told = row("told", "call_1", "call_2", "call_3")
    # Two results of the second call, then one that has no id and is of the first, as no other is open.
    results = [{"role": "tool", "content": "12", "tool_call_id": "call_2"}] * 2 + [{"role": "tool", "content": "-3"}]
    told["messages"][2:4] = results
    project = make_project([told], target=printing_ids)
    partition, target = project.partition("d"), load_target(project.config.target)
    prompts = take_prompts(project, partition)[0].rows
    tokenized = tokenize(project, partition, target, prompts)
    assert tokenized["reason"].to_list() == [None]
    report = judge_tokenized(project, partition, target, prompts.lazy(), tokenized.lazy()).report
    assert (report["prompt_injection"].status, report["prompt_injection"].judged) == ("passed", 1)


def project_samples(project: Project) -> list[str]:
    frame = pl.read_parquet(str(project.layout.asset_file("prompts", "d")))
    return frame["sample_id"].to_list()


@pytest.mark.parametrize(
    ("before", "after"),
    [({"tool_call_id": "{name}-{number}"}, {}), ({}, {"tool_call_id": "{name}-{number}"})],
)
def test_prompts_that_were_made_with_another_form_are_found(
    make_project: ProjectMaker, printing_ids: dict[str, Any], before: dict[str, Any], after: dict[str, Any]
) -> None:
    stored(make_project(ROWS, target={**printing_ids, "profile_overrides": before}))
    project = make_project(ROWS, target={**printing_ids, "profile_overrides": after})
    partition, target = project.partition("d"), load_target(project.config.target)
    files = (project.layout.asset_file(asset, "d") for asset in ("prompts", "tokenized_prompts"))
    prompts, tokenized = (pl.scan_parquet(str(file)) for file in files)
    report = judge_tokenized(project, partition, target, prompts, tokenized).report
    assert report["prompt_reproducible"].status == "failed"
    why = survey.Survey(project, target).of(partition).why_tokenized
    assert why == "the stored ones are not what template and tokenizer make of the source now"


def test_prompts_that_were_refused_for_want_of_a_form_are_found_behind_others(
    make_project: ProjectMaker, printing_ids: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    long = [{"id": f"long{i}", "messages": [{"role": "user", "content": "Hello " * 2_000}]} for i in range(3)]
    settings: dict[str, Any] = {"rows": [*long, *ROWS], "dataset": {"max_prompt_tokens": 1_000}}
    stored(make_project(**settings, target={**printing_ids, "profile_overrides": {"tool_call_id": None}}))
    project = make_project(**settings, target=printing_ids)
    monkeypatch.setattr(survey, "RERENDERED_ROWS", 2)
    found = survey.Survey(project, load_target(project.config.target)).of(project.partition("d"))
    assert found.why_tokenized == "the stored ones are not what template and tokenizer make of the source now"
    assert found.refused == 3


@pytest.mark.parametrize("form", [None, "functions.{name}:{number}"])
def test_prompts_that_were_made_without_names_are_found(
    make_project: ProjectMaker, printing_ids: dict[str, Any], form: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However few they are: those that would have other ids now, or be refused, are rendered again besides."""
    project = make_project(ROWS, target={**printing_ids, "profile_overrides": {"tool_call_id": form}})
    partition, target = project.partition("d"), load_target(project.config.target)
    prompts = take_prompts(project, partition)[0].rows
    tokenizer, template = target.tokenizer, target.chat_template
    monkeypatch.setattr(judging, "RERENDERED_ROWS", 1)
    assert min(prompts["sample_id"], key=stable_rank) == "hello:1:0"
    texts = [
        render_text(tokenizer, json.loads(m), json.loads(t) if t else None, thinking=True, chat_template=template)
        for m, t in prompts.select("messages", "tools").iter_rows()
    ]
    ids = [tokenizer.encode(text, add_special_tokens=False) for text in texts]
    stored = tokenize(project, partition, target, prompts).with_columns(
        pl.Series("prompt_ids", ids, dtype=pl.List(pl.Int32)),
        pl.Series("prompt_tokens", [len(some) for some in ids], dtype=pl.Int32),
        status=pl.lit("ready"),
        reason=pl.lit(None, pl.String),
    )
    report = judge_tokenized(project, partition, target, prompts.lazy(), stored.lazy()).report
    assert (report["prompt_reproducible"].status, report["prompt_reproducible"].judged) == ("failed", 2)


def test_prompt_says_that_ids_are_others(
    make_project: ProjectMaker, printing_ids: dict[str, Any], tmp_path: Path
) -> None:
    project = stored(make_project(ROWS, target=printing_ids))
    said = "its calls and results are rendered with ids of the form functions.{name}:{number}, not the source's"
    for name, other in (("bare", True), ("openai", True), ("right", False), ("hello", False)):
        sample = next(i for i in project_samples(project) if i.startswith(name))
        assert (f"----- {said} -----\n" in shown(tmp_path, "--id", sample).stdout) == other
        found = json.loads(shown(tmp_path, "--id", sample, "--json").stdout)
        assert found["call_ids"] == ("functions.{name}:{number}" if other else None)
        shown(tmp_path, "--id", sample, "--html", str(tmp_path / "page.html"))
        page = html.unescape((tmp_path / "page.html").read_text(encoding="utf-8"))
        assert (f"<li>{said}</li>" in page) == other


def test_a_result_of_no_call_is_refused_by_name(make_project: ProjectMaker, printing_ids: dict[str, Any]) -> None:
    lost = row("lost", "call_1", "call_2", "call_3")
    lost["messages"][2]["tool_call_id"] = "call_9"
    made = rendered(make_project([lost, ROWS[1]], target=printing_ids))
    assert str(made["lost"][0]).startswith(
        "a tool's result is of no call before it: message 2 has the id 'call_9', and the chat template prints ids"
    )
    assert made["openai"][0] is None


@pytest.mark.parametrize("own_template", [False, True])
def test_without_a_form_of_ids_calls_that_would_lose_their_names_are_refused(
    make_project: ProjectMaker, printing_ids: dict[str, Any], own_template: bool
) -> None:
    settings = {"model": "demo"} if own_template else printing_ids
    made = rendered(make_project(ROWS, target={**settings, "profile_overrides": {"tool_call_id": None}}))
    refused = {name for name, (reason, _) in made.items() if reason}
    # The demo's own template names calls that have no ids.
    assert refused == ({"openai", "right"} if own_template else {"bare", "openai", "right"})
    assert made["right"][0] == (
        "the chat template prints ids of calls in place of functions' names and the target's profile has no form of"
        " ids: set target.profile_overrides.tool_call_id to that of the target, as functions.{name}:{number}"
    )


RESULTS_ALONE = (
    "the chat template prints the ids of tools' results and none of calls, so that nothing says which call a result is"
    " of: give one that prints both as target.chat_template"
)


@pytest.fixture
def naming_calls_alone(tmp_path: Path) -> dict[str, Any]:
    """A template as Kimi-K2 had first: it counts the calls of each message itself, and prints results' ids."""
    counted = "('functions.' ~ function.name ~ ':' ~ loop.index0)"
    template = TEMPLATE.replace(CALL_ID, counted).replace(RESULT_ID, "message.tool_call_id")
    (tmp_path / "calls_alone.jinja").write_text(template, encoding="utf-8")
    return {"model": "demo", "chat_template": "calls_alone.jinja"}


def test_results_with_ids_that_no_call_is_shown_with_are_refused(
    make_project: ProjectMaker, naming_calls_alone: dict[str, Any], tmp_path: Path
) -> None:
    open_call = {"id": "open", "messages": [*ROWS[0]["messages"][:2], {"role": "user", "content": "Well?"}]}
    project = make_project([*ROWS, open_call], target=naming_calls_alone)
    reasons = {name: reason for name, (reason, _) in rendered(project).items()}
    assert reasons == {**dict.fromkeys(("bare", "openai", "right"), RESULTS_ALONE), "hello": None, "open": None}
    said = checked(tmp_path)
    assert "their results by ids that no call is shown with: such prompts are refused" in said


def test_where_ids_are_but_numbers_of_calls_results_are_printed_as_in_service(
    make_project: ProjectMaker, naming_calls_alone: dict[str, Any]
) -> None:
    settings = {**naming_calls_alone, "profile_overrides": {"tool_call_id": None}}
    made = rendered(make_project(ROWS, target=settings))
    assert {reason for reason, _ in made.values()} == {None}
    assert "## Return of call_1\n-3" in made["openai"][1]


def test_check_config_says_that_a_template_leaves_out_calls(make_project: ProjectMaker, tmp_path: Path) -> None:
    (tmp_path / "none.jinja").write_text(TEMPLATE.replace("message.tool_calls", "[]"), encoding="utf-8")
    make_project(ROWS, target={"model": "demo", "chat_template": "none.jinja"})
    said = checked(tmp_path)
    assert "calls of earlier turns │ left out by the template: prompts with such are refused" in said


def test_a_template_that_prints_neither_name_nor_id(make_project: ProjectMaker, tmp_path: Path) -> None:
    (tmp_path / "nameless.jinja").write_text(
        TEMPLATE.replace(CALL_ID, "'call'").replace(RESULT_ID, "'call'"), encoding="utf-8"
    )
    made = rendered(make_project(ROWS, target={"model": "demo", "chat_template": "nameless.jinja"}))
    for name in ("bare", "right"):
        assert made[name][0] == (
            "law messages_rendered: nothing is in the prompt of the name of a call of message 1 (assistant),"
            " message 6 (assistant)"
        )
    assert made["hello"][0] is None


@pytest.mark.parametrize(
    ("shown", "by_id", "without", "alone"),
    [
        ("call['id']", True, False, False),
        (CALL_ID, True, True, False),
        ("function.name", False, True, True),
        ("(call.id ~ function.name)", False, True, False),
        ("'call'", True, False, True),
        ("raise_exception('no calls')", False, False, False),
        ("(call.id if call.id is defined else raise_exception('no id'))", True, False, False),
    ],
)
def test_what_a_template_prints_of_a_call(
    shown: str, by_id: bool, without: bool, alone: bool, make_project: ProjectMaker, tmp_path: Path
) -> None:
    (tmp_path / "some.jinja").write_text(TEMPLATE.replace(CALL_ID, shown), encoding="utf-8")
    project = make_project(ROWS, target={"model": "demo", "chat_template": "some.jinja"})
    form = target_call_form(load_target(project.config.target), thinking=True)
    assert form == CallForm(ArgumentForm.OBJECT, by_id, without, alone)


def test_what_was_given_ids_is_counted_and_the_source_stays(
    make_project: ProjectMaker, printing_ids: dict[str, Any]
) -> None:
    project = make_project(ROWS, target=printing_ids)
    with dg.DagsterInstance.ephemeral() as instance:
        job = build_defs(project).resolve_job_def(PARTITION_JOB)
        assets = [dg.AssetKey("prompts"), dg.AssetKey("tokenized_prompts")]
        result = job.execute_in_process(instance=instance, partition_key="d", asset_selection=assets)
    [made] = result.asset_materializations_for_node("tokenized_prompts")
    assert made.metadata["other_call_ids"].value == 2
    assert made.metadata["refused"].value == 0
    stored = pl.read_parquet(str(project.layout.asset_file("prompts", "d")))["messages"]
    given = [message.get("tool_call_id") for message in json.loads(stored[1])]
    assert given == [None, None, "call_2", "call_1", None, None, None, "call_3"]


def test_check_config_says_so(make_project: ProjectMaker, printing_ids: dict[str, Any], tmp_path: Path) -> None:
    make_project(ROWS, target=printing_ids)
    said = checked(tmp_path)
    assert "by their ids in place of functions' names, which are given the form functions.{name}:{number}" in said
    assert "d: 2 of the prompts have calls without ids of the target's form functions.{name}:{number}" in said
    make_project(ROWS, target={**printing_ids, "profile_overrides": {"tool_call_id": None}})
    said = checked(tmp_path)
    assert "the profile has no form of these" in said
    assert "3 of 4 prompts refused" in said
