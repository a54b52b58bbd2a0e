"""The commands about partitions, as a person types them."""

import io
import json
import logging
import os
import pty
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
import yaml
from rich.console import Console
from typer.testing import CliRunner

from eagle3_assets.cli import app
from eagle3_assets.cli.partitions import _bar, chosen, speed_text
from eagle3_assets.cli.terminal import messages
from eagle3_assets.config import load_config
from eagle3_assets.engines.base import ServerLoad
from eagle3_assets.generation.progress import Tracker
from eagle3_assets.generation.sealed import scan_sealed
from eagle3_assets.project import Project
from eagle3_assets.running import HOME_VARIABLE
from eagle3_assets.storage.files import sealed_generations
from eagle3_assets.target import load_target
from eagle3_assets.tokens.laws import LAWS
from eagle3_assets_tests.conftest import ProjectMaker, demo_rows
from eagle3_assets_tests.engines import fault_server
from eagle3_assets_tests.engines.fault_server import Body, FaultServer
from eagle3_assets_tests.served import free_port


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
    assert "\u2588" in out
    assert "ended by stop 4; " in out
    assert "\x1b" not in out
    code, out, _ = invoke(tmp_path, "stats", "d", "--json")
    said = json.loads(out)
    assert (said["partition"], said["dataset"], said["statistics"][0]["samples"]) == ("d", "d", 4)
    assert said["verdict"].endswith("no band is expected of d")
    stored = Project(load_config(tmp_path / "eagle3.yaml")).layout.page("d").read_text(encoding="utf-8")
    for command in ("stats", "decode"):
        code, out, err = invoke(tmp_path, command, "d", "--html", str(tmp_path / "page.html"))
        assert (code, out) == (0, "")
        assert "4 samples of d" in err
        assert (tmp_path / "page.html").read_text(encoding="utf-8") == stored

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


@pytest.mark.slow
def test_prompts_that_fail_are_counted_by_name_and_exit_code_until_they_are_asked_again(
    make_project: ProjectMaker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The servers say what the demo's target said, so that nothing but the faults can fail the run."""
    project = make_project()
    assert invoke(tmp_path, "materialize", "d")[0] == 0
    recorded = scan_sealed(sealed_generations(project.layout, "d")).collect()
    said = {tuple(row["prompt_ids"]): row for row in recorded.iter_rows(named=True)}
    answer = fault_server._reply

    def reply(body: Body) -> Body:
        row = said[tuple(body["input_ids"])]
        ids = row["output_ids"]
        finish = {"type": row["finish_type"], "matched": ids[-1]}
        known = answer(body | {"return_logprob": False})
        meta = known["meta_info"] | {"finish_reason": finish, "completion_tokens": len(ids)}
        return known | {"output_ids": ids, "meta_info": meta | {"weight_versions": None}}

    monkeypatch.setattr(fault_server, "_reply", reply)
    unlucky = recorded["prompt_ids"][1].to_list()

    def fault(body: Body, before: int) -> str | None:
        return "400 text" if body["input_ids"] == unlucky else "500" if before == 0 else None

    with FaultServer(fault) as server:
        assert server.server_info is not None
        server.server_info["context_length"] = 4096
        make_project(engine={"kind": "sglang", "endpoints": [server.url]}, storage={"root": "served"})
        code, out, _ = invoke(tmp_path, "materialize", "d")
        text = " ".join(out.split())
        assert code == 1
        assert text.count("Only 3 of 4 sent prompts have an output") == 2  # of the check, and of the refusal
        assert "d: 3 generated now, 0 kept from before, 1 failed; commonest reason" in text
        assert "too long for me" in text
        server.fault = None
        code, out, _ = invoke(tmp_path, "materialize", "d", "--retry-failed")
        assert code == 0, out
        assert "d: 1 generated now, 3 kept from before" in " ".join(out.split())


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["materialize", "nobody"], 2, "no partition is named 'nobody'; there are: d, d-trial"),
        (["materialize"], 2, "name partitions, or give --all"),
        (["materialize", "d", "--all"], 2, "name partitions, or give --all"),
        (["plan", "nobody"], 2, "no partition is named 'nobody'; there are: d, d-trial"),
        (["plan"], 2, "name partitions, or give --all"),
        (["plan", "d", "--tokens-per-second", "nan"], 2, "--tokens-per-second must be a number above 0"),
        (["plan", "d", "--tokens-per-second", "0"], 2, "--tokens-per-second must be a number above 0"),
        (["stats", "d"], 2, "nothing is sealed; materialize raw_generations of d first"),
        (
            ["stats", "--all"],
            2,
            "nothing is generated yet, trials aside; materialize first, such as: eagle3-assets materialize d",
        ),
        (["stats", "--all", "--json"], 2, "nothing is generated yet"),
        (["whereabouts", "--all"], 2, "nothing is generated yet"),
        (["whereabouts", "--all", "--id", "x"], 2, "nothing is generated yet"),
        (["stats", "d", "--json", "--turns"], 2, "--json has each turn anyway"),
        (["decode", "d", "--html", "page.html", "-n", "3"], 2, "--html goes with --id and --config alone"),
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


def test_a_datasets_name_is_all_its_shards(make_project: ProjectMaker) -> None:
    project = make_project(dataset={"shards": 2})
    shards = ["d-00of02", "d-01of02"]
    assert chosen(project, ["d"], every=False, trials=False) == shards
    assert chosen(project, ["d-trial", "d"], every=False, trials=False) == ["d-trial", *shards]
    assert chosen(make_project(), ["d"], every=False, trials=False) == ["d"]


def test_the_servers_stand_beside_the_bar_where_there_is_room() -> None:
    servers = (ServerLoad("http://gpu-1:30000", 16, live=True, evictions=0),)
    now = Tracker(total=5).snapshot(servers)
    assert speed_text(now, room=50) == "0 tokens/s; in flight: gpu-1:30000 16"
    assert speed_text(now, room=36) == "0 tokens/s"
    assert speed_text(Tracker(total=5).snapshot(), room=50) == "0 tokens/s"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_the_bar_shows_rendering_and_judging_and_begins_anew_for_generation() -> None:
    screen = Console(file=Terminal(), force_terminal=True, width=100)
    tracker = Tracker(total=2_500)
    with _bar(screen, 1) as listener:
        listener.prompts("d", "rendered", 2_500, 2_500)
        rendered = drawn(screen)
        listener.prompts("d", "judged", 2_000, 2_500)
        judged = drawn(screen)
        listener("d", tracker.snapshot())
        tracker.finished(10)
        listener("d", tracker.snapshot())
        generated = drawn(screen)
    assert "[1/1] d" in rendered
    assert "2500/2500 prompts rendered" in rendered
    assert "2000/2500 prompts judged" in judged
    assert "1/2500 " in generated
    assert "tokens/s" in generated
    assert "prompts" not in generated


@pytest.mark.slow
def test_the_bar_is_drawn_while_dagster_has_the_steps_error_go_into_a_file(
    make_project: ProjectMaker, tmp_path: Path
) -> None:
    # So many prompts spell a structural token that nothing is generated.
    rows = [
        {"id": n, "messages": [{"role": "user", "content": "Hello" + "<|im_end|>" * (n < 300)}]} for n in range(4_000)
    ]
    make_project(rows)
    terminal, end = pty.openpty()
    command = [sys.executable, "-m", "eagle3_assets.cli", "materialize", "d", "--config", str(tmp_path / "eagle3.yaml")]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=end) as process:
        os.close(end)
        seen = b""
        with suppress(OSError):  # which says that nobody has the other end any more
            while read := os.read(terminal, 65_536):
                seen += read
    os.close(terminal)
    assert process.returncode == 1
    assert b"2000/4000 prompts rendered" in seen


def drawn(screen: Console) -> str:
    """What the bars at a terminal show now."""
    [bars] = screen._live_stack
    page = Console(file=io.StringIO(), width=100)
    page.print(bars.get_renderable())
    return page.file.getvalue()  # type: ignore[attr-defined, no-any-return] # it is the one above


def test_what_engines_log_is_seen_at_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    logger = logging.getLogger("eagle3_assets.engines.sglang.pool")
    with _bar(messages(), 1) as listener:
        logger.warning("left out until it answers again: %s", "http://[fe80::1]:30000: \x1b[31mgone " + "x" * 100)
        logger.info("answers again")
        listener("d", Tracker(total=0).snapshot((ServerLoad("http://[fe80::1]:30000", 0, live=False, evictions=1),)))
    logger.warning("nobody waits for it any more")
    assert capsys.readouterr().err.splitlines() == [
        "left out until it answers again: http://[fe80::1]:30000: <U+001B>[31mgone " + "x" * 100,
        "answers again",
        "d: 0/0 rows, 0 tokens/s now, 0 overall; in flight: [fe80::1]:30000 0 (away, left out once)",
    ]


def test_a_plan_makes_nothing_and_learns_from_what_was_made(make_project: ProjectMaker, tmp_path: Path) -> None:
    project = make_project(
        [*demo_rows("function_calling", 4), "{broken"], dataset={"length_band": {"median": [40, 150]}}
    )
    before = set(tmp_path.iterdir())
    code, out, _ = invoke(tmp_path, "plan", "--all")
    assert code == 0
    assert set(tmp_path.iterdir()) == before  # neither data nor a Dagster instance
    assert row(out, "d") == ["4", "0", "0", "0", "4", *prompt_figures(project), "~ 380", "unknown"]
    assert "Prompts rendered and tokenized in memory (none are stored yet): d." in out
    assert "d: 1 of 5 source rows are unusable and counted nowhere; first prompts.jsonl:5: is not JSON" in out
    assert "Output of d: 95 tokens, a rough guess" in out
    assert "Throughput is unknown, and so is the time" in out
    assert "eagle3-assets materialize d-trial" in out

    code, out, _ = invoke(tmp_path, "plan", "d", "--tokens-per-second", "0.5")
    assert row(out, "d")[-2:] == ["~ 380", "~ 13 min"]
    assert "Time at 0.5 output tokens/s, as given." in out

    assert invoke(tmp_path, "materialize", "d-trial")[0] == 0
    tokens = scan_sealed(sealed_generations(project.layout, "d-trial")).collect()["completion_tokens"].sum()
    code, out, _ = invoke(tmp_path, "plan", "d", "d-trial")
    assert code == 0
    assert row(out, "d")[-2] == f"{2 * tokens}"  # of four, after the mean of two
    assert row(out, "d-trial")[:5] == ["2", "2", "0", "0", "0"]
    assert row(out, "total")[:5] == ["6", "2", "0", "0", "4"]
    assert "Prompts as stored in tokenized_prompts: d-trial." in out
    assert f"Output of d: {tokens / 2:,.1f} tokens, the mean of 2 generated of this dataset so far." in out
    assert "measured by the last run that generated: d-trial, 2 outputs in" in out


def test_the_total_of_a_plan_is_no_limit_because_one_dataset_has_no_trial(
    make_project: ProjectMaker, tmp_path: Path
) -> None:
    make_project(demo_rows("chat", 3))
    file = tmp_path / "eagle3.yaml"
    config = yaml.safe_load(file.read_text(encoding="utf-8"))
    [one] = config["datasets"]
    config["datasets"] = [
        {**one, "name": "known", "length_band": {"median": [40, 60]}},
        {**one, "name": "new", "limit": 2},
    ]
    file.write_text(yaml.safe_dump(config), encoding="utf-8")
    code, out, _ = invoke(tmp_path, "plan", "--all", "--tokens-per-second", "10")
    assert code == 0
    assert row(out, "total")[-2:] == ["~ 150 + <= 320", "~ 15 s + <= 32 s"]
    assert "about 150 tokens estimated + at most 320 for datasets without a trial: new." in " ".join(out.split())


def test_a_plan_says_what_materialize_would_refuse(make_project: ProjectMaker, tmp_path: Path) -> None:
    (tmp_path / "strict.jinja").write_text("{{ raise_exception('\x1b[31m never') }}", encoding="utf-8")
    make_project(target={"model": "demo", "chat_template": "strict.jinja"})
    code, out, _ = invoke(tmp_path, "plan", "d")
    assert code == 1
    assert "REFUSED d nothing judged" in out
    assert "d: 4 refused and never sent; commonest reason, 4 of 4: the chat template refused it: Templ" in out
    assert "\x1b" not in out


def test_a_damaged_source_leaves_the_plan_of_the_others(make_project: ProjectMaker, tmp_path: Path) -> None:
    make_project(demo_rows("chat", 3))
    config = yaml.safe_load((tmp_path / "eagle3.yaml").read_text(encoding="utf-8"))
    (tmp_path / "bad.jsonl.gz").write_bytes(b"")
    config["datasets"].insert(0, {**config["datasets"][0], "name": "bad", "source": "bad.jsonl.gz"})
    (tmp_path / "eagle3.yaml").write_text(yaml.safe_dump(config), encoding="utf-8")
    code, out, err = invoke(tmp_path, "plan", "--all")
    assert code == 1
    assert row(out, "d")[0] == "3"
    assert "bad: no plan, " in err and "bad.jsonl.gz: is empty" in err


@pytest.mark.parametrize(
    ("target", "source", "said"),
    [
        ("nowhere", "prompts.jsonl", "target.model: there is no directory"),
        ("demo", "gone.jsonl", "gone.jsonl: the dataset's source cannot be read: No such file or directory"),
    ],
)
def test_a_plan_without_target_or_source_is_one_message(
    make_project: ProjectMaker, tmp_path: Path, target: str, source: str, said: str
) -> None:
    make_project(target={"model": target}, dataset={"source": source})
    code, _, err = invoke(tmp_path, "plan", "d")
    assert code == 2
    assert said in err.splitlines()[-1]


def row(out: str, name: str) -> list[str]:
    """The cells of a table's row after its name."""
    [cells] = [
        cells
        for line in out.splitlines()
        if (cells := [cell.strip() for cell in line.split("│")[1:-1]]) and cells[0] == name
    ]
    return cells[1:]


def prompt_figures(project: Project) -> list[str]:
    """Total, p50, p95 and maximum of four prompts, rendered by the tokenizer itself."""
    tokenizer = load_target(project.config.target).tokenizer
    lengths = sorted(
        len(
            tokenizer.apply_chat_template(row["messages"], tools=row.get("tools"), add_generation_prompt=True)[
                "input_ids"
            ]
        )
        for row in demo_rows("function_calling", 4)
    )
    return [f"{n:,}" for n in (sum(lengths), lengths[1], lengths[3], lengths[3])]


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


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ("storage: {sqlite: {base_dir: {env: SET_NOWHERE}}}", "not set in the environment: SET_NOWHERE"),
        (
            "storage: {custom: {module: not_there, class: It}}",
            "not_there is not installed; docs/cluster.md says which extra",
        ),
        ("storage: {sqlite: {base: /tmp}}", 'Received unexpected config entry "base"'),
        ("storage: {", "expected the node content"),
    ],
)
def test_settings_of_dagster_that_cannot_be_used_are_one_message(
    make_project: ProjectMaker, tmp_path: Path, settings: str, told: str
) -> None:
    make_project(demo_rows("chat", 1))
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "dagster.yaml").write_text(settings)
    for command in (("materialize", "d-trial"), ("ui", "--port", str(free_port()))):
        code, _, err = invoke(tmp_path, *command)
        said = " ".join(err.split())
        assert code == 2 and "dagster.yaml cannot be used: " in said and told in said and "Traceback" not in said


def test_a_port_that_is_taken_is_said_before_anything_starts(make_project: ProjectMaker, tmp_path: Path) -> None:
    make_project()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        code, out, err = invoke(tmp_path, "ui", "--port", str(port))
    assert code == 2
    said = " ".join((out + err).replace("│", " ").split())
    assert f"port {port} of 127.0.0.1 cannot be used: Address already in use" in said
