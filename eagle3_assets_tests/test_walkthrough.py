"""The page about Kimi-K2.5, its commands run one after the other with the demo target in Kimi's place."""

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml
from typer.testing import CliRunner

from eagle3_assets.cli import app
from eagle3_assets.config import CONFIG_VARIABLE
from eagle3_assets.running import HOME_VARIABLE
from eagle3_assets_tests.conftest import demo_rows, write_jsonl

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "kimi-k2.5.md").read_text(encoding="utf-8")
RECIPE = ROOT / "recipes" / "kimi_k2_5_synth_100k.yaml"


def commands() -> list[str]:
    blocks = re.findall(r"```bash\n(.*?)```", PAGE, re.DOTALL)
    return [line for block in blocks for line in block.splitlines() if line.startswith("eagle3-assets ")]


def test_every_command_of_the_page_can_be_typed() -> None:
    known: Any = typer.main.get_command(app)
    for line in commands():
        name, *arguments = shlex.split(line)[1:]
        assert known.commands[name].make_context(name, arguments)


@pytest.mark.slow
def test_every_command_of_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(HOME_VARIABLE, str(tmp_path / "home"))
    monkeypatch.setenv(CONFIG_VARIABLE, str(tmp_path / "eagle3.yaml"))
    config = yaml.safe_load(RECIPE.read_text(encoding="utf-8"))
    [dataset] = [one for one in config["datasets"] if one["name"] == "B1_glaive"]
    # The shards and the trial are the recipe's; the demo's model, its prompts and short outputs are not.
    dataset |= {"format": "openai", "source": "prompts.jsonl", "quarantine_limit": 1.0}
    dataset["sampling"] = {"max_new_tokens": 120, "temperature": 0.0}
    engine = {"batch_size": 32, "threads": 1, "logprob_share": 1.0}
    config |= {"target": {"model": "demo", "profile": "kimi"}, "engine": engine, "datasets": [dataset], "trial_rows": 3}
    (tmp_path / "eagle3.yaml").write_text(yaml.safe_dump(config), encoding="utf-8")
    write_jsonl(tmp_path / "prompts.jsonl", demo_rows("function_calling", 12))

    run = commands()
    assert [shlex.split(line)[1] for line in run] == [
        *("check-config", "datasets", "materialize", "prompt", "decode", "decode", "stats", "decode"),
        *("plan", "ui", "materialize", "replay", "export", "verify"),
    ]
    for line in run:
        arguments = shlex.split(line)[1:]
        if arguments == ["ui"]:  # it stays; that it starts is tested in a browser
            continue
        result = CliRunner().invoke(app, arguments)
        assert result.exit_code == 0, (line, result.output, result.exception)
    assert (tmp_path / "page.html").stat().st_size > 10_000
    assert sum(len(path.read_text().splitlines()) for path in (tmp_path / "drafter-data").glob("*/*.jsonl")) > 0
