"""``eagle3-assets check-config``: what is wrong is named, everything else is checked, nothing is stored."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner, Result

from eagle3_assets.cli import app
from eagle3_assets.config import load_config
from eagle3_assets.config_check import check_datasets, check_target
from eagle3_assets.project import Project
from eagle3_assets_tests import own_code
from eagle3_assets_tests.conftest import ProjectMaker, demo_rows, write_jsonl

COMMIT = "0123456789abcdef0123456789abcdef01234567"


def checked(path: Path, *arguments: str) -> Result:
    result = CliRunner().invoke(app, ["check-config", str(path), *arguments])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


def wrong(result: Result) -> list[str]:
    """What it says is wrong."""
    return [line.removeprefix("WRONG ") for line in result.stderr.splitlines() if line.startswith("WRONG ")]


def cells(result: Result, name: str) -> list[str]:
    [found] = [
        found
        for line in result.stdout.splitlines()
        if (found := [cell.strip() for cell in line.split("│")[1:-1]]) and found[0] == name
    ]
    return found[1:]


def test_a_good_config(make_project: ProjectMaker, tmp_path: Path) -> None:
    make_project(dataset={"max_prompt_tokens": 1000})
    result = checked(tmp_path / "eagle3.yaml")
    assert result.exit_code == 0, result.stderr
    assert wrong(result) == []
    assert cells(result, "profile") == ["kimi (found)"]
    assert cells(result, "tokenizer canary")[0].startswith("ok 16 structural tokens encode to their id")
    row = cells(result, "d")
    assert row[:6] == ["openai (found)", "1", "1", "4", "0", "4"]
    assert row[8:10] == ["4", "4"]
    assert row[10].replace(",", "").isdigit()  # all were looked at: nothing is about
    assert row[11] == "<= 640"
    assert "Engine (settings only: not contacted)" in result.stdout
    assert "d: 9 laws about prompts hold over 4 prompts" in result.stdout
    assert "----- generation prompt, ids" in result.stdout
    assert [path.name for path in tmp_path.iterdir() if path.name not in ("eagle3.yaml", "prompts.jsonl")] == []


def test_a_total_of_guesses_and_limits_says_of_which_datasets_the_limits_are(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "some.jsonl", demo_rows("chat", 3))
    guessed = {"name": "known", "source": "some.jsonl", "length_band": {"median": [40, 60]}}
    unknown = {"name": "new", "source": "some.jsonl", "sampling": {"max_new_tokens": 160}}
    config = {"target": {"model": "demo"}, "datasets": [guessed, unknown]}
    (tmp_path / "eagle3.yaml").write_text(yaml.safe_dump(config), encoding="utf-8")
    result = checked(tmp_path / "eagle3.yaml")
    assert cells(result, "total")[-1] == "~ 150 + <= 480"
    assert "about 150 tokens estimated + at most 480 for datasets without a length_band.median: new." in result.stdout


def test_keys_that_are_not_read_are_named(make_project: ProjectMaker, tmp_path: Path) -> None:
    make_project([{**row, "intent": "x"} for row in demo_rows("chat", 3)])
    assert "d: not read of its rows: intent (3)" in checked(tmp_path / "eagle3.yaml").stdout


def test_rows_that_are_not_shown_are_counted(make_project: ProjectMaker, tmp_path: Path) -> None:
    twice = {"role": "user", "content": "Hello"}
    thinking = {"role": "assistant", "content": "<thinking>a</thinking>b"}
    remarked = [{"id": f"r{n}", "messages": [twice, thinking, twice]} for n in range(6)]
    make_project([*({"id": n, "messages": []} for n in range(5)), *remarked])
    lines = checked(tmp_path / "eagle3.yaml").stdout.splitlines()
    assert [line for line in lines if line.startswith("d: refused ")][3:] == ["d: refused and 2 more rows"]
    assert [line for line in lines if line.startswith("d: remark ")][3:] == ["d: remark and 3 more rows"]


def test_the_example_is_the_last_prompt_of_a_conversation(make_project: ProjectMaker, tmp_path: Path) -> None:
    """With ``turns: all`` the first has no earlier answer to look at."""
    turns = [{"role": role, "content": f"{role} {n}"} for n in range(3) for role in ("user", "assistant")]
    long = {"role": "user", "content": "x" * 5_000}
    rows = [{"id": "a", "messages": [*turns, long]}, {"id": "b", "messages": turns[:3]}]
    make_project(rows, dataset={"turns": "all", "max_prompt_tokens": 100})
    assert "===== sample_id=a:5:0 " in checked(tmp_path / "eagle3.yaml").stdout


def test_what_is_not_there_is_named_and_the_rest_is_checked(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "good.jsonl", demo_rows("chat", 3))
    write_jsonl(tmp_path / "odd.jsonl", [{"a": 1}, {"b": 2}])
    write_jsonl(tmp_path / "bad.jsonl", ["{oops", *demo_rows("chat", 3)])
    config = {
        "target": {"model": "demo"},
        "engine": {"kind": "sglang", "endpoints": ["http://nowhere:1"], "ca_file": "ca.pem", "api_key_env": "NO_KEY"},
        "alerts": {"webhook_env": "NO_HOOK"},
        "metrics": {"directory": "prom"},
        "datasets": [
            {"name": "good", "source": "good.jsonl"},
            {"name": "gone", "source": "gone.jsonl"},
            {"name": "hub", "source": f"hf://datasets/owner/name@{COMMIT}/data"},
            {"name": "odd", "source": "odd.jsonl"},
            {"name": "bad", "source": "bad.jsonl"},
            {"name": "stops", "source": "good.jsonl", "sampling": {"stop_token_ids": [163586]}},
        ],
    }
    (tmp_path / "eagle3.yaml").write_text(yaml.safe_dump(config), encoding="utf-8")
    result = checked(tmp_path / "eagle3.yaml")
    assert result.exit_code == 1
    faults = wrong(result)
    assert faults[0] == f"engine.ca_file: there is no file {tmp_path / 'ca.pem'}"
    assert faults.pop(1) == f"metrics.directory: there is no directory {tmp_path / 'prom'}"
    assert faults[1].startswith(f"gone: {tmp_path / 'gone.jsonl'}: the dataset's source cannot be read: No such file")
    assert faults[2].startswith("hub: the source is not on this machine: hf://datasets/owner/name@")
    assert "the Hub is not asked here" in faults[2]
    assert "materializing downloads it" in faults[2]
    assert "odd.jsonl: its format is not recognised (of the first 2 rows: no known format; 2 in no known" in faults[3]
    assert faults[4] == "bad: 1 of the first 4 rows are refused, 25.00%, more than refused_limit (0%)"
    assert faults[5] == "stops: sampling.stop_token_ids: 163586 is no id of the target's vocabulary"
    assert len(faults) == 6
    assert "bad: refused bad.jsonl:1: is not JSON" in result.stdout
    assert "NO_KEY (not set in this environment)" in result.stdout
    assert "NO_HOOK (not set in this environment)" in result.stdout
    assert cells(result, "good")[5] == "3"
    assert cells(result, "gone")[0] == "not readable"
    assert "total of those" in result.stdout


def test_without_a_target_sources_and_formats_are_checked(make_project: ProjectMaker, tmp_path: Path) -> None:
    make_project(target={"model": "nowhere"})
    result = checked(tmp_path / "eagle3.yaml")
    assert result.exit_code == 1
    assert wrong(result) == [
        f"target.model: there is no directory {tmp_path / 'nowhere'}; give a local checkpoint's directory"
    ]
    assert cells(result, "d")[:5] == ["openai (found)", "1", "1", "4", "0"]


def test_a_config_that_is_wrong_is_2(tmp_path: Path) -> None:
    (tmp_path / "eagle3.yaml").write_text("target: {modle: x}\ndatasets: []\n", encoding="utf-8")
    result = checked(tmp_path / "eagle3.yaml")
    assert result.exit_code == 2
    assert "target.modle: is not a known key" in result.stderr
    assert not result.stdout


def test_prompts_that_break_a_law_are_wrong(make_project: ProjectMaker, tmp_path: Path) -> None:
    rows = demo_rows("chat", 3)
    rows[1]["messages"][-1]["content"] += "<|im_end|>"
    make_project(rows)
    result = checked(tmp_path / "eagle3.yaml")
    assert result.exit_code == 1
    assert wrong(result)[0].startswith("d: prompt_injection: 1 of 3 samples break it")
    assert "FAIL d prompt_injection" in result.stdout


def test_a_dataset_whose_rows_are_all_skipped_is_not_called_empty(make_project: ProjectMaker) -> None:
    [found] = check_datasets(make_project(demo_rows("chat", 3), dataset={"skip": 3}), None, 50)
    assert found.faults == ("no row is usable: `skip` leaves out every row",)


@pytest.mark.parametrize(
    ("settings", "prompts", "exact"),
    [
        ({}, 300, False),
        ({"skip": 100}, 200, False),
        ({"limit": 40}, 40, True),
        ({"sample": 0.5}, 150, False),
        ({"sample": 30}, 30, False),
        ({"samples_per_prompt": 3}, 900, False),
        ({"shards": 4}, 300, False),
    ],
)
def test_the_whole_is_extrapolated_from_the_first_rows(
    make_project: ProjectMaker, settings: dict[str, Any], prompts: int, exact: bool
) -> None:
    rows = [{"id": n, "messages": [{"role": "user", "content": "Hello"}]} for n in range(300)]
    project = make_project(rows, dataset=settings)
    [found] = check_datasets(project, check_target(project).loaded, 50)
    assert found.estimate
    assert (found.estimate.prompts, found.estimate.exact) == (prompts, exact)
    assert found.lengths is not None
    assert found.estimate.prompt_tokens == prompts * found.lengths[0]


def test_code_that_runs_is_named_and_code_that_does_not(tmp_path: Path) -> None:
    directory = own_code.save_target(tmp_path / "own")
    write_jsonl(tmp_path / "prompts.jsonl", [{"prompt": "Hello"}])
    config: dict[str, Any] = {
        "target": {"model": "own", "trust_remote_code": True},
        "engine": {"kind": "sglang", "endpoints": ["http://nowhere:1"]},
        "datasets": [{"name": "d", "source": "prompts.jsonl"}],
    }
    path = tmp_path / "eagle3.yaml"
    path.write_text(json.dumps(config), encoding="utf-8")
    result = checked(path)
    assert result.exit_code == 0, result.stderr
    [file] = [file for file in check_target(Project(load_config(path))).loaded.code if file.loaded_as]  # type: ignore[union-attr] # it was loaded
    assert "tokenization_own.py, loaded as AutoTokenizer" in result.stdout
    assert file.sha256 in result.stdout
    config["target"]["trust_remote_code"] = False
    path.write_text(json.dumps(config), encoding="utf-8")
    result = checked(path)
    assert result.exit_code == 1
    assert "needs target.trust_remote_code: true" in wrong(result)[0]
    assert "does not run, as it is not trusted: own_helper.py, tokenization_own.py" in result.stdout
    assert directory.is_dir()


def test_what_was_downloaded_of_the_hub_is_read_from_its_cache(
    make_project: ProjectMaker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    # An address at which nobody answers: it is not asked.
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://127.0.0.1:1")
    data = tmp_path / "hub" / "datasets--owner--name" / "snapshots" / COMMIT / "data"
    data.mkdir(parents=True)
    write_jsonl(data / "a.jsonl", demo_rows("chat", 3))
    make_project(dataset={"source": f"hf://datasets/owner/name@{COMMIT}/data"})
    result = checked(tmp_path / "eagle3.yaml")
    assert result.exit_code == 0, result.stderr
    assert cells(result, "d")[3:6] == ["3", "0", "3"]
