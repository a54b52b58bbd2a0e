"""Names of speakers that a chat template does not print are counted, and those that it prints are not."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from typer.testing import CliRunner

from eagle3_assets.build import build_defs
from eagle3_assets.cli import app
from eagle3_assets.jobs import PARTITION_JOB
from eagle3_assets.prompts.speaker_names import roles_without_names
from eagle3_assets_tests.conftest import DEMO, ProjectMaker

TEMPLATE = (DEMO / "model" / "chat_template.jinja").read_text(encoding="utf-8")
USER = {"role": "user", "content": "Is it far?"}
ROWS = [
    {"id": "named", "messages": [{**USER, "name": "Ann"}]},
    {"id": "asked", "messages": [USER, {"role": "assistant", "content": "No.", "name": "Bob"}, USER]},
    {"id": "answer", "messages": [USER, {"role": "assistant", "content": "No.", "name": "Bob"}]},
    {"id": "empty", "messages": [{**USER, "name": ""}]},
    {
        "id": "called",
        "messages": [
            USER,
            {"role": "assistant", "content": None, "function_call": {"name": "get_weather", "arguments": "{}"}},
            {"role": "function", "name": "get_weather", "content": "-3"},
        ],
    },
]


def printing(roles: set[str]) -> Callable[[list[dict[str, Any]]], str]:
    """A template that prints the names of some, and takes no system message unless it prints theirs."""

    def render(messages: list[dict[str, Any]]) -> str:
        if "system" not in roles and any(message["role"] == "system" for message in messages):
            raise ValueError("System role not supported")
        return "".join(message.get("name", "") if message["role"] in roles else "x" for message in messages)

    return render


@pytest.mark.parametrize(
    ("printed", "left_out"),
    [
        ({"user"}, {"assistant"}),
        (set(), {"user", "assistant"}),
        ({"system", "user", "assistant"}, set()),
        ({"system"}, {"user", "assistant"}),
    ],
)
def test_a_template_tells_whose_names_it_leaves_out(printed: set[str], left_out: set[str]) -> None:
    assert roles_without_names(printing(printed)) == left_out


def test_prompts_that_lose_a_name_are_counted(make_project: ProjectMaker) -> None:
    project = make_project(ROWS)
    with dg.DagsterInstance.ephemeral() as instance:
        job = build_defs(project).resolve_job_def(PARTITION_JOB)
        assets = [dg.AssetKey("prompts"), dg.AssetKey("tokenized_prompts")]
        result = job.execute_in_process(instance=instance, partition_key="d", asset_selection=assets)
        [made] = result.asset_materializations_for_node("tokenized_prompts")
        said = [entry.user_message for entry in instance.all_logs(result.run_id)]
    assert made.metadata["names_left_out"].value == 2
    assert "in 2 of the prompts a speaker has a `name` that the chat template does not print" in said


def test_check_config_says_so_unless_the_template_prints_them(make_project: ProjectMaker, tmp_path: Path) -> None:
    def said() -> str:
        return CliRunner().invoke(app, ["check-config", str(tmp_path / "eagle3.yaml")]).stdout

    make_project(ROWS)
    assert "d: in 2 of the prompts a speaker has a `name` that the chat template does not print" in said()
    words = "words(message.content)"
    assert TEMPLATE.count(words) == 4
    named = TEMPLATE.replace(words, f"(message.name or '') ~ {words}")
    (tmp_path / "named.jinja").write_text(named, encoding="utf-8")
    make_project(ROWS, target={"model": "demo", "chat_template": "named.jinja"})
    assert "does not print" not in said()
