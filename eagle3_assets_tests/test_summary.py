"""The corpus summed up: what counts is what training_samples takes, and everything else is named."""

import base64
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast
from xml.etree import ElementTree

import dagster as dg
import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from eagle3_assets.build import build_defs
from eagle3_assets.cli import app
from eagle3_assets.config import load_config
from eagle3_assets.contract import CORPUS_SUMMARY, SAMPLE_FINDINGS
from eagle3_assets.generation.sealed import CURRENT
from eagle3_assets.jobs import CORPUS_JOB, PARTITION_JOB
from eagle3_assets.pages.corpus import corpus_page
from eagle3_assets.pages.plots import overlay_markdown
from eagle3_assets.planning import Expected, Throughput
from eagle3_assets.project import Project
from eagle3_assets.running import HOME_VARIABLE
from eagle3_assets.storage.files import sealed_generations, write_parquet
from eagle3_assets.storage.layout import WHOLE
from eagle3_assets.summary import _Good, _Sum, partition_states, projection_text, summarize, summary_verdict
from eagle3_assets.survey import Survey
from eagle3_assets.target import load_target
from eagle3_assets.tokens.laws import LAWS
from eagle3_assets.tokens.lengths import added_counts, counted_figures, length_counts, length_figures, length_statistics
from eagle3_assets.tokens.verdict import Report, Verdict
from eagle3_assets_tests.conftest import SHARDS, damage, demo_rows, two_datasets, write_jsonl
from eagle3_assets_tests.pages.corpora import row
from eagle3_assets_tests.pages.test_page import Elements


@pytest.fixture
def folder(corpus_folder: Path, tmp_path: Path) -> Path:
    """A copy of it to be changed."""
    return shutil.copytree(corpus_folder, tmp_path / "copy")


def summed(project: Project, speed: Throughput | None = None) -> pl.DataFrame:
    summary = summarize(project, load_target(project.config.target), speed)
    assert summary.schema == CORPUS_SUMMARY
    return summary


def training(project: Project, *keys: str) -> pl.DataFrame:
    return pl.concat(pl.read_parquet(str(project.layout.asset_file("training_samples", key))) for key in keys)


def why(summary: pl.DataFrame, partition: str) -> str:
    [entry] = [p for p in summary.row(-1, named=True)["partitions"] if p["partition"] == partition]
    return "; ".join(entry["why"])


def test_what_counts_is_what_training_samples_takes(corpus_folder: Path) -> None:
    project = Project(load_config(corpus_folder / "eagle3.yaml"))
    summary = summed(project, Throughput(10.0, 1, "talk-trial", 2, 9.0))
    assert summary["dataset"].to_list() == ["calls", "talk", None]
    calls, talk, whole = summary.to_dicts()
    samples = training(project, *SHARDS)
    lengths = samples["loss_mask"].list.sum().cast(pl.Int32)
    assert (calls["samples"], calls["tokens"]) == (len(samples), lengths.sum())
    figures = length_figures(lengths)
    assert {name: calls[name] for name in figures} == figures
    assert 0 < calls["reasoning_share"] < 1
    assert calls["drift_samples"] == 6
    assert calls["to_generate"] == 0
    # The trial counts nowhere, and yet tells how long outputs will be.
    tried = training(project, "talk-trial")["loss_mask"].list.sum()
    assert (talk["samples"], talk["median"], talk["to_generate"]) == (0, None, 3)
    assert talk["projected_tokens"] == round(3 * tried.mean())  # type: ignore[operator,arg-type] # there is a mean
    assert talk["seconds_left"] == talk["projected_tokens"] / 10.0
    assert whole["samples"] == len(samples)
    assert whole["projected_samples"] == 9
    assert whole["projected_tokens"] == calls["tokens"] + talk["projected_tokens"]
    assert partition_states(whole) == {"complete": list(SHARDS), "missing": ["talk"], "trial": ["talk-trial"]}
    said = summary_verdict(summary)
    assert said.startswith(f"2 of 3 partitions count: 6 samples, {lengths.sum()} output tokens; 1 missing, 1 trial; ")
    assert "3 prompts left to generate (" in said


def harm(project: Project, key: str, change: Callable[[pl.DataFrame], pl.DataFrame]) -> None:
    sealed = sealed_generations(project.layout, key)
    write_parquet(change(pl.read_parquet(str(sealed.path))), sealed.path)


def test_a_partition_that_a_law_refuses_does_not_count_whatever_was_said_before(folder: Path) -> None:
    project = Project(load_config(folder / "eagle3.yaml"))
    harm(project, SHARDS[0], lambda rows: rows.with_columns(output_ids=pl.col("output_ids").list.reverse()))
    summary = summed(project)
    assert partition_states(summary.row(-1, named=True))["refused"] == [SHARDS[0]]
    assert "stored_as_captured" in why(summary, SHARDS[0])
    assert summary["samples"][0] == len(training(project, SHARDS[1]))
    # Nor is it projected as good, and what is to be done there is said.
    assert summary.select("held_up", "to_generate", "projected_samples").row(0) == (3, 0, 3)
    assert summary["projected_tokens"][0] == summary["tokens"][0]
    assert projection_text(summary.row(0, named=True)) == (
        "as things are, nothing more will be generated; 1 refused (calls-00of02): 3 prompts there need retry_failed,"
        " retry_broken or regenerate, whichever mends what the law found"
    )
    page = corpus_page(summary)
    assert "stored_as_captured" in page
    assert "not counted" in page
    assert '<td class="n" data-figure="held_up">3</td><td class="n" data-figure="to_generate">0</td>' in page


def test_drift_is_of_outputs_and_not_of_the_rows_that_were_looked_at() -> None:
    """As many rows are looked at of a partition of 1,000 outputs as of one of 100,000."""
    law = next(law for law in LAWS if law.name == "retokenization_drift")
    made = _Sum()
    for samples, drifting in ((9_000, 500), *[(100, 0)] * 10):
        rows = min(samples, 1_000)
        verdict = Verdict(law, "warn", "passed", rows, rows, drifting, 0, drifting / rows, refuses=False)
        outputs = pl.DataFrame(
            {"output": [5] * samples, "reasoning": [0] * samples, "cut_off": [False] * samples},
            schema={"output": pl.Int32, "reasoning": pl.Int32, "cut_off": pl.Boolean},
        )
        report = Report((verdict,), pl.DataFrame(schema=SAMPLE_FINDINGS), rows, pl.Series([], dtype=pl.String), 0.01)
        made.count(_Good(report, cast("Any", None), outputs))
    figures = made.row("d", None)
    assert (figures["drift_share"], figures["drift_samples"]) == (0.45, 2_000)


def test_what_is_stale_is_named_with_what_has_changed(folder: Path) -> None:
    project = two_datasets(folder, temperature=0.5)
    summary = summed(project)
    calls = summary.row(0, named=True)
    assert partition_states(calls) == {"stale": list(SHARDS)}
    assert "made with other settings: sampling.temperature: 0.0 -> 0.5" in why(summary, SHARDS[0])
    # It counts, as the trainers would get it, and stays so: materialize sends nothing without regenerate.
    assert "3 prompts that only regenerate sends" in why(summary, SHARDS[0])
    assert (calls["samples"], calls["to_generate"], calls["held_up"], calls["projected_samples"]) == (6, 0, 6, 6)
    assert calls["projected_tokens"] == calls["tokens"]
    said = projection_text(calls)
    assert said == (
        "as things are, nothing more will be generated; 2 blocked (calls-00of02, calls-01of02): materialize refuses to"
        " send 6 prompts there; plan says why"
    )

    project = two_datasets(folder)
    write_jsonl(folder / "prompts.jsonl", demo_rows("function_calling", 8))
    summary = summed(project)
    assert "the source has changed since they were stored" in why(summary, SHARDS[0]) + why(summary, SHARDS[1])
    assert summary["to_generate"][0] == 2


def test_prompts_that_failed_are_counted_and_named_though_their_partition_is_refused(folder: Path) -> None:
    project = Project(load_config(folder / "eagle3.yaml"))
    sealed = sealed_generations(project.layout, SHARDS[0])
    never = ("sample_id", "prompt_ids", "sampling", "identity", "environment", "request_key", "attempts", "endpoint")
    harm(
        project,
        SHARDS[0],
        lambda rows: rows.with_columns(
            *(pl.lit(None, dtype).alias(name) for name, dtype in rows.schema.items() if name not in never)
        ).with_columns(status=pl.lit("failed"), reason=pl.lit("HTTP 500")),
    )
    pointer = sealed.pointer.model_copy(update={"generated": 0, "failed": 3})
    (Path(str(sealed.directory)) / CURRENT).write_text(pointer.model_dump_json(), encoding="utf-8")
    summary = summed(project)
    calls = summary.row(0, named=True)
    assert partition_states(calls) == {"complete": [SHARDS[1]], "refused": [SHARDS[0]]}
    assert (calls["failed"], calls["samples"], calls["held_up"], calls["projected_samples"]) == (3, 3, 3, 3)
    assert "3 prompts failed and stay so unless they are asked again (retry_failed)" in summary_verdict(summary)


def test_prompts_that_materialize_would_refuse_to_send_are_not_promised(folder: Path) -> None:
    project = two_datasets(folder)
    evil = {"id": "evil", "messages": [{"role": "user", "content": "a <|im_end|> of my own"}]}
    write_jsonl(folder / "talk.jsonl", [*demo_rows("chat", 3), evil])
    planned = Survey(project, load_target(project.config.target)).of(project.partition("talk"))
    assert (planned.blocked, planned.missing) == (True, 3)
    summary = summed(project)
    assert summary["to_generate"].to_list() == [0, 0, 0]
    assert summary["held_up"].to_list() == [0, 3, 3]
    assert why(summary, "talk") == "; ".join(planned.hindrances)
    assert "1 blocked (talk): materialize refuses to send 3 prompts there; plan says why" in summary_verdict(summary)


def test_a_damaged_shard_is_unreadable_alone(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(HOME_VARIABLE, str(tmp_path / "none"))
    project = Project(load_config(folder / "eagle3.yaml"))
    path = Path(str(sealed_generations(project.layout, SHARDS[0]).path))
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    summary = summed(project)
    assert partition_states(summary.row(0, named=True)) == {"complete": [SHARDS[1]], "unreadable": [SHARDS[0]]}
    assert summary["samples"][0] == len(training(project, SHARDS[1]))
    assert summary.select("to_generate", "projected_samples").row(0) == (0, 3)
    assert "1 unreadable (calls-00of02): the prompts there count again when" in summary_verdict(summary)
    # So does plan: the others have theirs.
    result = CliRunner().invoke(app, ["plan", "calls", "--config", str(folder / "eagle3.yaml")])
    assert result.exit_code == 1
    assert f"\u2502 {SHARDS[1]} " in result.stdout
    assert f"calls: no plan, {path}: " in result.stderr


@pytest.mark.parametrize("asset", ["raw_generations", "tokenized_prompts"])
def test_damage_behind_a_whole_footer_is_one_error_that_names_the_file(
    asset: str, folder: Path, tmp_path: Path
) -> None:
    project = Project(load_config(folder / "eagle3.yaml"))
    sealed = sealed_generations(project.layout, SHARDS[0]).path
    path = Path(str(sealed if asset == "raw_generations" else project.layout.asset_file(asset, SHARDS[0])))
    damage(path)
    said = f"{path}: is damaged and cannot be read to its end ("
    assert why(summed(project), SHARDS[0]).startswith(said)
    config = ["--config", str(folder / "eagle3.yaml")]
    page = ["--html", str(tmp_path / "page.html")]
    for command in (["stats", SHARDS[0]], ["stats", SHARDS[0], *page], ["decode", SHARDS[0], *page]):
        result = CliRunner().invoke(app, [*command, *config])
        # Lengths ask for no prompts: they are shown, and why the partition cannot be used beside them.
        assert result.exit_code == (
            1 if command[0] == "stats" and asset != "raw_generations" and len(command) == 2 else 2
        )
        assert said in result.stderr, result.output
        assert isinstance(result.exception, SystemExit)
    path.write_bytes(b"")
    for command in (["stats", SHARDS[0], *page], ["decode", SHARDS[0], *page]):
        result = CliRunner().invoke(app, [*command, *config])
        assert (result.exit_code, str(path) in result.stderr) == (2, True), result.output


def test_stats_of_all_partitions_show_those_that_can_be_read(folder: Path) -> None:
    project = Project(load_config(folder / "eagle3.yaml"))
    (Path(str(project.layout.generations(SHARDS[0]))) / "current.json").write_bytes(b"\x80\x81")
    config = ["--config", str(folder / "eagle3.yaml")]
    result = CliRunner().invoke(app, ["stats", "--all", "--json", *config])
    assert [json.loads(line)["partition"] for line in result.stdout.splitlines()] == [SHARDS[1]]
    assert f"{SHARDS[0]} is unreadable: " in result.stderr
    assert (result.exit_code, "not made yet: talk" in result.stderr) == (1, True)
    assert CliRunner().invoke(app, ["stats", *SHARDS, *config]).exit_code == 2


def test_stats_are_of_what_is_sealed_now_and_say_what_a_law_refuses(folder: Path) -> None:
    project = Project(load_config(folder / "eagle3.yaml"))
    config = ["--config", str(folder / "eagle3.yaml")]
    # A file that length_statistics knows nothing of, and that a law refuses.
    harm(project, SHARDS[0], lambda rows: rows.with_columns(output_ids=pl.col("output_ids").list.head(7)))
    result = CliRunner().invoke(app, ["stats", SHARDS[0], "--json", *config])
    made = json.loads(result.stdout)
    assert (made["state"], made["statistics"][0]["max"], result.exit_code) == ("refused", 7, 1)
    assert any(reason.startswith("stored_as_captured: 3 of 3 samples break it") for reason in made["why"])
    assert f"{SHARDS[0]} is refused: " in result.stderr
    for command, code in (("stats", 1), ("decode", 0)):
        page = folder / f"{command}.html"
        result = CliRunner().invoke(app, [command, SHARDS[0], "--html", str(page), *config])
        assert (result.exit_code, page.exists()) == (code, True)
        assert f"{SHARDS[0]} is refused: " in result.stderr
        assert "stored_as_captured: 3 of 3 samples break it" in result.stderr
    result = CliRunner().invoke(app, ["stats", SHARDS[1], "--html", str(folder / "good.html"), *config])
    assert (result.exit_code, "refused" in result.stderr) == (0, False)
    result = CliRunner().invoke(app, ["stats", SHARDS[1], "--json", *config])
    made = json.loads(result.stdout)
    assert (made["state"], made["why"], result.exit_code) == ("usable", [], 0)


def test_one_source_or_file_that_cannot_be_read_does_not_hide_the_others(folder: Path) -> None:
    project = Project(load_config(folder / "eagle3.yaml"))
    (folder / "talk.jsonl").unlink()
    Path(str(project.layout.asset_file("tokenized_prompts", SHARDS[1]))).unlink()
    project.layout.generations("old-00of02").mkdir()
    summary = summed(project)
    assert partition_states(summary.row(-1, named=True)) == {
        "complete": [SHARDS[0]],
        "unreadable": [SHARDS[1]],
        "missing": ["talk"],
        "trial": ["talk-trial"],
        "orphaned": ["old-00of02"],
    }
    assert "materialize tokenized_prompts of this partition first" in why(summary, SHARDS[1])
    assert summary["to_generate"].to_list()[1:] == [None, None]
    assert corpus_page(summary).count('data-figure="to_generate">unknown<') == 2
    assert "what is left to generate is unknown" in summary_verdict(summary)
    (folder / "prompts.jsonl").unlink()
    summary = summed(project)
    assert partition_states(summary.row(0, named=True)) == {"unknown": [SHARDS[0]], "unreadable": [SHARDS[1]]}
    assert "prompts.jsonl" in why(summary, SHARDS[0])
    shown = CliRunner().invoke(app, ["summary", "--config", str(folder / "eagle3.yaml")]).stdout
    assert re.search(r"missing talk: [^;]*talk\.jsonl", " ".join(shown.split()))


def test_the_asset_has_a_job_of_its_own_and_no_part_in_a_partitions_run(folder: Path) -> None:
    project = Project(load_config(folder / "eagle3.yaml"))
    defs = build_defs(project)
    assert dg.AssetKey("corpus_summary") not in defs.resolve_job_def(PARTITION_JOB).asset_layer.executable_asset_keys
    with dg.DagsterInstance.local_temp(str(folder / "home")) as instance:
        # As --select '*' --partition X does it.
        asset = defs.resolve_assets_def("corpus_summary")
        result = dg.materialize([asset], instance=instance, tags={"dagster/partition": SHARDS[0]})
        assert result.success
        assert result.get_asset_materialization_events() == []
        assert not project.layout.corpus_page().exists()

        result = defs.resolve_job_def(CORPUS_JOB).execute_in_process(instance=instance)
    metadata = result.asset_materializations_for_node("corpus_summary")[0].metadata
    assert list(metadata)[:2] == ["verdict", "lengths"]
    stored = pl.read_parquet(str(project.layout.asset_file("corpus_summary", WHOLE)))
    assert stored.schema == CORPUS_SUMMARY
    # The run that made the shards has measured how fast that is.
    assert stored["seconds_left"][1] > 0
    assert metadata["page"].value == str(project.layout.corpus_page())
    assert project.layout.corpus_page().read_text(encoding="utf-8") == corpus_page(stored)
    assert len(str(metadata["lengths"].value)) < 1_000  # so that the UI shows it in place


def test_the_terminal_says_the_same(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(HOME_VARIABLE, str(tmp_path / "none"))
    config = ["--config", str(folder / "eagle3.yaml")]
    result = CliRunner().invoke(app, ["summary", *config])
    assert result.exit_code == 0, result.output
    assert "missing, not counted: talk" in result.stdout
    assert "trial, not counted: talk-trial" in result.stdout
    result = CliRunner().invoke(app, ["summary", "--json", *config])
    summary = summed(Project(load_config(folder / "eagle3.yaml")))
    assert [json.loads(line) for line in result.stdout.splitlines()] == summary.to_dicts()
    result = CliRunner().invoke(app, ["summary", "--html", str(tmp_path / "corpus.html"), *config])
    assert (tmp_path / "corpus.html").read_text(encoding="utf-8") == corpus_page(summary)
    result = CliRunner().invoke(app, ["summary", "--html", "", *config])
    assert (result.exit_code, result.stdout) == (2, "")
    assert not (tmp_path / "none").exists()

    project = Project(load_config(folder / "eagle3.yaml"))
    harm(project, SHARDS[0], lambda rows: rows.with_columns(output_ids=pl.col("output_ids").list.reverse()))
    result = CliRunner().invoke(app, ["summary", *config])
    assert result.exit_code == 1
    assert f"refused {SHARDS[0]}: " in result.stdout
    assert "stored_as_captured: 3 of 3 samples break it" in " ".join(result.stdout.split())


def test_what_others_wrote_makes_no_element_of_the_page() -> None:
    hostile = "<script>window.ran = 1</script> \x1b[31m\u202e"
    partition = {"partition": "a", "state": "refused", "samples": 0, "tokens": 0, "why": [hostile]}
    rows = [row(dataset="a"), row(dataset="b", lengths=[]), row(dataset=None, partitions=[partition])]
    page = corpus_page(pl.DataFrame(rows, schema=CORPUS_SUMMARY))
    parsed = Elements()
    parsed.feed(page)
    assert "script" not in {tag for tag, _ in parsed.elements}
    assert "&lt;script&gt;window.ran = 1&lt;/script&gt; &lt;U+001B&gt;[31m&lt;U+202E&gt;" in page
    [policy] = [a["content"] for _, a in parsed.elements if a.get("http-equiv") == "Content-Security-Policy"]
    assert policy and "script-src 'none'" in policy
    # A dataset without outputs has no line.
    assert [a["data-dataset"] for tag, a in parsed.elements if tag == "polyline"] == ["a"]


@pytest.mark.parametrize("datasets", range(1, 31))
def test_any_number_of_datasets_has_a_picture_in_place_whose_lines_can_be_told_apart(datasets: int) -> None:
    random = np.random.default_rng(datasets)
    rows = [
        row(
            dataset=f"B{n:02}_openthoughts_{'very_' * 12}long_name_{n:02}",
            lengths=np.clip(random.lognormal(6 + n / 10, 0.9, 3_000 - n), 1, 2**20).astype(np.int32).tolist(),
        )
        for n in range(datasets)
    ]
    markdown = overlay_markdown([*rows, row(dataset=None)])
    assert len(markdown) < 1_000
    url = markdown.split("(", 1)[1].split(")", 1)[0]
    picture = ElementTree.fromstring(base64.b64decode(url.removeprefix("data:image/svg+xml;base64,")))  # noqa: S314 - ours
    paths = picture.findall(".//{*}path")
    colours = [path.attrib["stroke"] for path in paths]
    assert len(set(colours)) == len(colours) >= min(datasets, 3)
    assert all(re.fullmatch(r"M\d+ \d+l[\d -]+", path.attrib["d"]) for path in paths)
    for n, colour in enumerate(colours):
        assert f"{colour} B{n:02}_openthoug...ng_name_{n:02} (median {rows[n]['median']:,})" in markdown
    if len(colours) < datasets:
        assert "; not drawn: " in markdown
    # On the page there is a line for each, and no two look the same.
    parsed = Elements()
    parsed.feed(corpus_page(pl.DataFrame([*rows, row(dataset=None)], schema=CORPUS_SUMMARY)))
    looks = [a["class"] for tag, a in parsed.elements if tag == "polyline"]
    assert len(set(looks)) == len(looks) == datasets
    assert {f"line {a['class']}" for tag, a in parsed.elements if tag == "li"} == set(looks)


def test_no_outputs_and_equal_ones_have_a_picture_or_none() -> None:
    assert overlay_markdown([row(lengths=[]), row(lengths=[])]) == "no outputs"
    one = [row(dataset="one", lengths=[7]), row(lengths=[7])]
    assert "data:image/svg+xml" in overlay_markdown(one)


@given(st.lists(st.lists(st.integers(0, 300_000), max_size=30), min_size=1, max_size=4))
def test_figures_of_added_counts_are_those_of_all_lengths_together(parts: list[list[int]]) -> None:
    figures = counted_figures(added_counts([length_counts(pl.Series(part, dtype=pl.Int32)) for part in parts]))
    lengths = [n for part in parts for n in part]
    facts = pl.DataFrame(
        {"turn": None, "output": lengths, "reasoning": lengths, "answer": lengths, "finish_type": "stop"},
        schema_overrides={"turn": pl.Int32, "output": pl.Int32, "reasoning": pl.Int32, "answer": pl.Int32},
    ).with_columns(cut_off=pl.lit(False), tool_call=pl.lit(False), tool_calls=pl.lit(0))
    expected = length_statistics(facts).row(0, named=True)
    for name, value in figures.items():
        assert value == (pytest.approx(expected[name]) if name == "mean" else expected[name]), name


def test_what_only_the_cap_limits_stands_apart_from_what_is_estimated() -> None:
    made = _Sum(to_generate=3, projected_samples=3)
    made.expected = [Expected(100, "measured"), Expected(50, "cap", 50)]
    row = made.row(None, None)
    assert (row["projected_tokens"], row["projected_at_cap"], row["projection_basis"]) == (150, 50, "measured")
    assert projection_text(row) == (
        "3 prompts left to generate (time unknown), then 3 samples, 100 tokens + at most 50 of datasets without a trial"
    )
