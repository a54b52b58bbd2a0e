"""``eagle3-assets prompt`` on stored prompts of the demo target."""

import json
import re
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import yaml
from typer.testing import CliRunner, Result

from eagle3_assets.cli import app
from eagle3_assets.judging import tokenize
from eagle3_assets.project import Project
from eagle3_assets.sourcing import take_prompts
from eagle3_assets.target import load_target
from eagle3_assets_tests.conftest import DEMO, ProjectMaker, demo_rows

ROWS: list[dict[str, Any]] = [
    {
        "id": "trip",
        "messages": [
            {"role": "system", "content": "Be \u202ebrief."},
            {"role": "user", "content": "Is it far?"},
            {"role": "assistant", "content": "No."},
            {"role": "user", "content": "How far?"},
        ],
    },
    {"id": "spoiled", "messages": [{"role": "user", "content": "What is <|im_end|>?"}]},
]


def stored(project: Project) -> Project:
    """A project whose prompts are made, as its assets would make them."""
    partition = project.partition("d")
    prompts = take_prompts(project, partition)[0].rows
    tokenized = tokenize(project, partition, load_target(project.config.target), prompts)
    for asset, frame in (("prompts", prompts), ("tokenized_prompts", tokenized)):
        path = Path(str(project.layout.asset_file(asset, "d")))
        path.parent.mkdir(parents=True, exist_ok=True)
        frame.write_parquet(path)
    return project


def shown(folder: Path, *arguments: str) -> Result:
    result = CliRunner().invoke(app, ["prompt", "d", "--config", str(folder / "eagle3.yaml"), *arguments])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


def ids_of(project: Project, sample: str) -> list[int]:
    frame = pl.read_parquet(str(project.layout.asset_file("tokenized_prompts", "d")))
    found: list[int] = frame.filter(pl.col("sample_id") == sample)["prompt_ids"][0].to_list()
    return found


def test_each_message_stands_with_its_text_and_ids(make_project: ProjectMaker, tmp_path: Path) -> None:
    project = stored(make_project(ROWS))
    result = shown(tmp_path, "-n", "1")
    assert result.exit_code == 0
    ids = ids_of(project, "trip:4:0")
    headings = re.findall(r"----- (.*), ids (\d+)-(\d+) -----\n(.*)\n", result.stdout)
    assert [heading[0] for heading in headings] == [
        "message 0: system",
        "message 1: user",
        "message 2: assistant",
        "message 3: user",
        "generation prompt",
    ]
    assert headings[0][3] == "<|im_system|>system<|im_middle|>Be <U+202E>brief.<|im_end|>"
    assert headings[3][3] == "<|im_user|>user<|im_middle|>How far?<|im_end|>"
    bounds = [(int(begin), int(end)) for _, begin, end, _ in headings]
    assert [index for begin, end in bounds for index in range(begin, end + 1)] == list(range(len(ids)))
    assert result.stdout.startswith(f"===== sample_id=trip:4:0 tokens={len(ids)} status=ready =====\n")


def test_ids_are_one_row_each_and_go_on_from_message_to_message(make_project: ProjectMaker, tmp_path: Path) -> None:
    project = stored(make_project(ROWS))
    result = shown(tmp_path, "--id", "trip:4:0", "--ids")
    rows = re.findall(r"^ *(\d+) +(\d+)  ", result.stdout, re.MULTILINE)
    assert [(int(index), int(token)) for index, token in rows] == list(enumerate(ids_of(project, "trip:4:0")))


def test_a_samples_id_alone_is_found_wherever_it_lies(make_project: ProjectMaker, tmp_path: Path) -> None:
    project = stored(make_project(ROWS))
    for asset in ("prompts", "tokenized_prompts"):  # a trial has it, too
        frame = pl.read_parquet(str(project.layout.asset_file(asset, "d")))
        frame.write_parquet(str(project.layout.asset_file(asset, "d-trial")))
    config = ["--config", str(tmp_path / "eagle3.yaml")]
    alone = CliRunner().invoke(app, ["prompt", "trip:4:0", *config])
    assert (alone.exit_code, alone.stdout) == (0, shown(tmp_path, "--id", "trip:4:0").stdout)
    both = CliRunner().invoke(app, ["prompt", "spoiled:1:0", "--id", "trip:4:0", *config])
    assert both.stdout == shown(tmp_path, "-n", "2").stdout
    assert project.layout.asset_file("tokenized_prompts", "d").exists()
    project.layout.asset_file("tokenized_prompts", "d").unlink()
    of_trial = CliRunner().invoke(app, ["prompt", "trip:4:0", *config])
    assert of_trial.stdout == alone.stdout
    none = CliRunner().invoke(app, ["prompt", "trip:9:0", *config])
    assert none.exit_code == 2
    said = (
        "'trip:9:0' is neither a partition nor a sample of one whose tokenized_prompts are made; partitions: d, d-trial"
    )
    assert said in " ".join(none.stderr.split())


def test_a_samples_id_that_two_datasets_have_is_asked_back(make_project: ProjectMaker, tmp_path: Path) -> None:
    project = stored(make_project(ROWS))
    config = yaml.safe_load((tmp_path / "eagle3.yaml").read_text(encoding="utf-8"))
    config["datasets"].append({**config["datasets"][0], "name": "e"})
    (tmp_path / "eagle3.yaml").write_text(yaml.safe_dump(config), encoding="utf-8")
    for asset in ("prompts", "tokenized_prompts"):
        frame = pl.read_parquet(str(project.layout.asset_file(asset, "d")))
        frame.write_parquet(str(project.layout.asset_file(asset, "e")))
    asked = CliRunner().invoke(app, ["prompt", "trip:4:0", "--config", str(tmp_path / "eagle3.yaml")])
    assert asked.exit_code == 2
    assert "several partitions have a sample 'trip:4:0': d, e; name one, and the sample with --id" in " ".join(
        asked.stderr.split()
    )


def test_a_refused_prompt_says_why(make_project: ProjectMaker, tmp_path: Path) -> None:
    stored(make_project(ROWS))
    result = shown(tmp_path, "--id", "spoiled:1:0")
    assert result.exit_code == 0
    assert "status=refused" in result.stdout
    assert "----- refused: law prompt_injection: text of the conversation became <|im_end|>" in result.stdout
    assert "What is <|im_end|>?<|im_end|>" in result.stdout


def test_one_that_the_template_refused_shows_its_messages(make_project: ProjectMaker, tmp_path: Path) -> None:
    (tmp_path / "strict.jinja").write_text("{{ raise_exception('never') }}", encoding="utf-8")
    target = {"model": "demo", "chat_template": "strict.jinja"}
    stored(make_project(ROWS, target=target))
    result = shown(tmp_path, "-n", "1")
    assert "tokens=none status=refused" in result.stdout
    assert "the chat template refused it: TemplateError: never" in result.stdout
    assert "----- message 1: user, not rendered -----" in result.stdout
    assert "Be <U+202E>brief." in result.stdout


def test_a_line_of_json_has_all_of_it(make_project: ProjectMaker, tmp_path: Path) -> None:
    project = stored(make_project(demo_rows("function_calling", 2)))
    first, second = map(json.loads, shown(tmp_path, "--json", "--ids").stdout.splitlines())
    assert first["prompt_ids"] == ids_of(project, first["sample_id"])
    assert first["text"] == "".join(part["text"] for part in first["parts"])
    assert first["tools"]
    assert all(name in first["parts"][0]["text"] for name in first["tools"])
    assert (second["status"], second["reason"], second["remark"]) == ("ready", None, None)


def test_prompts_that_are_not_what_the_template_gives_now_are_said_to_be(
    make_project: ProjectMaker, tmp_path: Path
) -> None:
    stored(make_project(ROWS))
    (tmp_path / "other.jinja").write_text("<|im_user|>user<|im_middle|>other<|im_end|>", encoding="utf-8")
    make_project(ROWS, target={"model": "demo", "chat_template": "other.jinja"})
    result = shown(tmp_path, "-n", "1")
    assert result.exit_code == 1
    assert "rendered now it has other ids: materialize tokenized_prompts again" in result.stdout
    assert "How far?" in result.stdout  # what is stored, all the same


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "there is no such file; materialize prompts of this partition first"),
        (("--spread", "--id", "a"), "--spread and the id of a sample exclude each other"),
    ],
)
def test_nothing_to_show_is_one_message(
    make_project: ProjectMaker, tmp_path: Path, arguments: tuple[str, ...], said: str
) -> None:
    make_project(ROWS)
    result = shown(tmp_path, *arguments)
    assert result.exit_code == 2
    assert said in result.stderr


def test_an_id_that_is_not_there_is_named(make_project: ProjectMaker, tmp_path: Path) -> None:
    stored(make_project(ROWS))
    result = shown(tmp_path, "--id", "trip:4:0", "--id", "gone")
    assert result.exit_code == 2
    assert "sample_id=trip:4:0" in result.stdout
    assert (
        "tokenized_prompts has no sample 'gone'; a sample's id is conversation:turn:sample, as 'trip:4:0' is"
        in result.stderr
    )


def test_an_id_is_found_as_it_is_and_as_it_is_shown(make_project: ProjectMaker, tmp_path: Path) -> None:
    stored(make_project([{**ROWS[0], "id": "t\u3164p"}]))
    for asked in ("t\u3164p:4:0", "t<U+3164>p:4:0"):
        result = shown(tmp_path, "--id", asked)
        assert result.exit_code == 0, result.stderr
        assert "sample_id=t<U+3164>p:4:0 " in result.stdout
    assert "of this conversation it has 't<U+3164>p:4:0'" in shown(tmp_path, "--id", "t<U+3164>p").stderr


def test_a_conversations_id_names_its_samples(make_project: ProjectMaker, tmp_path: Path) -> None:
    answered = {**ROWS[0], "messages": [*ROWS[0]["messages"], {"role": "assistant", "content": "A mile."}]}
    stored(make_project([answered], dataset={"turns": "all"}))
    result = shown(tmp_path, "--id", "trip")
    assert result.exit_code == 2
    assert "no sample 'trip'; of this conversation it has 'trip:2:0', 'trip:4:0'" in result.stderr


def test_a_template_that_fails_is_named_with_its_line(make_project: ProjectMaker, tmp_path: Path) -> None:
    (tmp_path / "failing.jinja").write_text("x\n{{ messages[0].nope.deeper }}", encoding="utf-8")
    stored(make_project(ROWS, target={"model": "demo", "chat_template": "failing.jinja"}))
    result = shown(tmp_path, "-n", "1")
    assert "UndefinedError: 'dict object' has no attribute 'nope' (line 2 of the template)" in result.stdout


CALL_ID = "functions.get_weather:0"
TALK = {
    "id": "agent",
    "messages": [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Cold in Oslo?"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": CALL_ID, "function": {"name": "get_weather", "arguments": '{"city": "Oslo"}'}}],
        },
        {"role": "tool", "content": "-3", "tool_call_id": CALL_ID},
    ],
    "tools": [{"name": "get_weather", "args": {"city": "str"}}],
}


def test_a_conversation_with_tools_says_what_each_message_became(make_project: ProjectMaker, tmp_path: Path) -> None:
    stored(make_project([TALK]))
    result = shown(tmp_path, "--id", "agent:4:0")
    assert result.exit_code == 0
    found = re.findall(r"----- (.*), ids \d+-\d+ -----\n(.*(?:\n[^-].*)*)", result.stdout)
    assert [name for name, _ in found] == [
        "message 0: system, after 1 declared tool",
        "message 1: user",
        "message 2: assistant",
        "message 3: tool",
        "generation prompt",
    ]
    shown_parts = [text for _, text in found]
    assert '"parameters":{"type":"object","properties":{"city":{"type":"string"}}}' in shown_parts[0]
    assert "Be brief." in shown_parts[0]
    assert f'{CALL_ID}<|tool_call_argument_begin|>{{"city": "Oslo"}}' in shown_parts[2]
    assert "-3" in result.stdout.split("message 3: tool")[1]


def test_a_message_that_the_template_drops_is_shown_as_nothing(make_project: ProjectMaker, tmp_path: Path) -> None:
    template = (DEMO / "model" / "chat_template.jinja").read_text(encoding="utf-8")
    loop = "{%- for message in messages -%}"
    dropping = template.replace(loop, loop.replace(" -%}", " if message.role != 'system' -%}"))
    assert dropping != template
    (tmp_path / "dropping.jinja").write_text(dropping, encoding="utf-8")
    stored(make_project([{**TALK, "tools": None}], target={"model": "demo", "chat_template": "dropping.jinja"}))
    result = shown(tmp_path, "--id", "agent:4:0")
    assert "refused: law messages_rendered: nothing is in the prompt of message 0 (system)" in result.stdout
    assert "message 0: system, the template makes nothing of it" in result.stdout


def test_spread_shows_short_to_long_whatever_the_order_they_are_stored_in(
    make_project: ProjectMaker, tmp_path: Path
) -> None:
    words = (30, 2, 50, 9)
    rows = [{"id": f"w{n}", "messages": [{"role": "user", "content": "word " * n}]} for n in words]
    stored(make_project(rows))
    result = shown(tmp_path, "--spread", "-n", "3")
    assert re.findall(r"sample_id=(\w+):", result.stdout) == ["w2", "w9", "w50"]
