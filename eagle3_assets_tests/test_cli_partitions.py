"""The commands about partitions, as a person types them."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from eagle3_assets.cli import app
from eagle3_assets.running import HOME_VARIABLE
from eagle3_assets.tokens.laws import LAWS
from eagle3_assets_tests.conftest import ProjectMaker, demo_rows


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(HOME_VARIABLE, str(tmp_path / "home"))


def invoke(tmp_path: Path, *arguments: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, [*arguments, "--config", str(tmp_path / "eagle3.yaml")])
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.stdout, result.stderr


def test_materialize_then_everything_that_can_be_seen(make_project: ProjectMaker, tmp_path: Path) -> None:
    make_project()
    code, out, err = invoke(tmp_path, "materialize", "d")
    assert code == 0, out
    for law in LAWS:
        assert law.name in out
    assert "FAIL" not in out
    assert "d: 4/4 rows" in err

    code, out, _ = invoke(tmp_path, "stats", "d")
    assert code == 0
    assert "reasoning" in out
    assert "d: median" in out

    code, out, _ = invoke(tmp_path, "datasets")
    assert code == 0
    assert "d-trial" in out
    assert "prompts.jsonl" in out

    code, out, _ = invoke(tmp_path, "decode", "d", "-n", "2")
    assert code == 0
    assert out.count("===== sample_id=demo-function_calling-") == 2
    assert "</think>" in out


def test_a_partition_that_is_refused_is_exit_1_with_the_reason(make_project: ProjectMaker, tmp_path: Path) -> None:
    # A sample cut off before it could answer leaves fewer outputs than asked for.
    long = {"id": "x", "messages": [{"role": "user", "content": "word " * 500}]}
    make_project([*demo_rows("chat", 1), "{broken", long], dataset={"length_band": {"median": [100_000, 200_000]}})
    code, out, _ = invoke(tmp_path, "materialize", "d")
    assert code == 0  # a band only warns
    assert "warn d length_band" in out

    config = tmp_path / "eagle3.yaml"
    config.write_text(
        config.read_text(encoding="utf-8").replace("temperature: 0.0", "temperature: 0.5"), encoding="utf-8"
    )
    code, out, _ = invoke(tmp_path, "materialize", "d")
    assert code == 1
    assert "FAILED d raw_generations" in out
    assert "temperature" in out


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["materialize", "nobody"], 2, "no partition is named 'nobody'; there are: d, d-trial"),
        (["materialize"], 2, "name partitions, or give --all"),
        (["materialize", "d", "--all"], 2, "name partitions, or give --all"),
        (["stats", "d"], 2, "no length_statistics of d; materialize it first"),
        (["decode", "d"], 2, "nothing is sealed; materialize raw_generations of d first"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_message(
    make_project: ProjectMaker, tmp_path: Path, arguments: list[str], code: int, said: str
) -> None:
    make_project()
    got, out, err = invoke(tmp_path, *arguments)
    assert got == code
    assert said in " ".join((out + err).replace("│", " ").split())


def test_a_wrong_config_is_no_traceback(tmp_path: Path) -> None:
    (tmp_path / "eagle3.yaml").write_text("target: {}\ndatasets: []\n", encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "eagle3_assets.cli", "datasets"],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "EAGLE3_CONFIG": str(tmp_path / "eagle3.yaml")},
    )
    assert done.returncode == 2
    assert "target.model: is required" in done.stderr
    assert "Traceback" not in done.stderr


def test_partitions_that_left_the_config_are_named_and_kept(make_project: ProjectMaker, tmp_path: Path) -> None:
    project = make_project()
    left = project.layout.generations("old-00of02")
    left.mkdir(parents=True)
    code, _, err = invoke(tmp_path, "datasets")
    assert code == 0
    assert "orphaned" in err
    assert "old-00of02" in err
    assert left.exists()


def test_a_database_that_fails_is_one_message(make_project: ProjectMaker, tmp_path: Path) -> None:
    make_project(demo_rows("chat", 1))
    assert invoke(tmp_path, "materialize", "d-trial")[0] == 0
    (database,) = (tmp_path / "home").rglob("runs.db")
    database.write_bytes(b"no database" * 1000)
    code, _, err = invoke(tmp_path, "materialize", "d-trial")
    assert code == 2
    assert "the database of the Dagster instance cannot be used: file is not a database" in " ".join(err.split())
