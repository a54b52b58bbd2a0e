"""A managed server: up when it is needed, back when it has died, and gone afterwards, whatever became of the run."""

import asyncio
import json
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from eagle3_assets.build import build_defs
from eagle3_assets.config import ManagedServer, SglangEngineSettings, Target
from eagle3_assets.engines.base import Description, Engine, EngineUnavailableError
from eagle3_assets.engines.sglang import ManagedSglang, SglangEngine
from eagle3_assets.engines.sglang.managed import Watchfulness
from eagle3_assets.generation.errors import GenerationStoppedError
from eagle3_assets.generation.progress import Progress
from eagle3_assets.running import materialize
from eagle3_assets.storage.files import sealed_generations
from eagle3_assets.target import read_model_facts
from eagle3_assets_tests.conftest import DEMO, ProjectMaker
from eagle3_assets_tests.engines.fault_server import FaultServer
from eagle3_assets_tests.engines.stand_in import make_stand_in, processes
from eagle3_assets_tests.engines.test_sglang import MODEL, PACE, generate
from eagle3_assets_tests.generation.fake import check_whole, prompt_frame, sealed_rows

QUICK = Watchfulness(
    look_every_s=0.02,
    before_restart_s=0.0,
    health_every_s=0.05,
    unhealthy_s=3.0,  # longer than a busy machine takes to see that a process has ended
    health_timeout_s=2.0,
    remind_every_s=0.1,
)
LONG_S = 30.0
"""More than anything here takes on a busy machine."""


def alive(pid: int) -> bool:
    """Whether a process is there; one that only waits to be collected is not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + LONG_S
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)


def until_bound(port: int) -> socket.socket:
    """A socket on the port, as soon as that can be had."""
    holder = socket.socket()
    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)

    def bound() -> bool:
        try:
            holder.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True

    until(bound)
    holder.listen()
    return holder


def none_alive(folder: Path) -> None:
    """Every process of the folder's servers ends."""
    until(lambda: not any(map(alive, processes(folder))))


def none_left(folder: Path) -> None:
    """Server and child have run, and are gone."""
    assert len(processes(folder)) >= 2
    none_alive(folder)


def engine_settings(folder: Path) -> dict[str, Any]:
    """The engine's part of a config with a stand-in for the demo target."""
    size = read_model_facts(DEMO / "model").vocab_size
    return {
        "kind": "sglang",
        "managed": {"python": str(make_stand_in(folder)), "arguments": ["--vocab-size", size]},
    }


class Managed:
    """A stand-in below a folder, and an engine on it."""

    def __init__(self, folder: Path, pace: Watchfulness = QUICK, **settings: Any) -> None:
        self.folder = folder / "server"
        self.logs = folder / "logs"
        values = {"python": str(make_stand_in(self.folder)), "stop_grace_s": LONG_S, **settings}
        self.server = ManagedSglang(ManagedServer.model_validate(values), Target(model="/models/t"), self.logs, pace)
        settings = {"kind": "sglang", "managed": values, "unavailable_wait_s": LONG_S}
        self.engine = SglangEngine(SglangEngineSettings.model_validate(settings), MODEL, PACE, self.server)

    def now(self, name: str, content: str = "") -> None:
        (self.folder / name).write_text(content)

    def no_more(self, name: str) -> None:
        (self.folder / name).unlink()

    def process(self) -> int:
        """The newest server, not its child."""
        return processes(self.folder)[-2]

    def said(self) -> str:
        return "".join(path.read_text() for path in self.logs.glob("*.log"))

    def close(self) -> None:
        asyncio.run(self.engine.close())


@pytest.fixture
def managed(tmp_path: Path) -> Managed:
    return Managed(tmp_path)


def once_underway(action: Callable[[], object]) -> Callable[[Progress], None]:
    done = threading.Event()

    def listen(progress: Progress) -> None:
        if progress.done >= 1 and not done.is_set():
            done.set()
            action()

    return listen


def test_it_is_started_asked_and_ended_with_everything_it_started(
    tmp_path: Path, managed: Managed, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    prompts = prompt_frame(30)
    outcome = generate(tmp_path, prompts, managed.engine)
    check_whole(sealed_rows(tmp_path), prompts)
    assert (outcome.generated, outcome.failures) == (30, {})
    assert len(processes(managed.folder)) == 2 and all(map(alive, processes(managed.folder)))
    managed.close()
    none_left(managed.folder)
    managed.close()
    command = json.loads((managed.folder / "command").read_text())
    assert (command["m"], command["model_path"], command["host"]) == ("sglang.launch_server", "/models/t", "127.0.0.1")
    assert not command["trust_remote_code"] and command["tokenizer_path"] is None
    assert sealed_rows(tmp_path)["endpoint"].unique().to_list() == [f"http://127.0.0.1:{command['port']}"]
    (log,) = managed.logs.glob("*.log")
    assert str(log) in caplog.text
    assert "loading weights" in managed.said() and "eagle3-assets: the server ended: SIGTERM" in managed.said()


def test_the_targets_own_settings_reach_it(tmp_path: Path) -> None:
    target = Target(model="/models/t", tokenizer="/models/tok", trust_remote_code=True)
    settings = ManagedServer(python=str(make_stand_in(tmp_path / "server")), arguments=("--vocab-size", "7"))
    server = ManagedSglang(settings, target, tmp_path, QUICK)

    async def there_and_back() -> None:
        await server.ready()
        await server.stop()

    asyncio.run(there_and_back())
    command = json.loads((tmp_path / "server" / "command").read_text())
    assert (command["tokenizer_path"], command["trust_remote_code"], command["vocab_size"]) == ("/models/tok", True, 7)


def test_one_that_is_killed_midway_is_restarted_and_nothing_is_lost(
    tmp_path: Path, managed: Managed, caplog: pytest.LogCaptureFixture
) -> None:
    prompts = prompt_frame(60)
    outcome = generate(
        tmp_path, prompts, managed.engine, progress=once_underway(lambda: os.kill(managed.process(), signal.SIGKILL))
    )
    check_whole(sealed_rows(tmp_path), prompts)
    assert (outcome.generated, outcome.failures, managed.server.restarts) == (60, {}, 1)
    assert len(processes(managed.folder)) == 4
    assert "the managed server ended: SIGKILL, as when memory runs out; restart 1 of at most 10" in caplog.text
    assert f"{managed.server.endpoint}: answers again" in caplog.text
    managed.close()
    none_left(managed.folder)


def test_one_that_dies_too_often_stops_the_run_with_its_log(tmp_path: Path) -> None:
    managed = Managed(tmp_path, restarts=1)
    with pytest.raises(GenerationStoppedError) as stopped:
        generate(
            tmp_path, prompt_frame(60), managed.engine, progress=once_underway(lambda: managed.now("dies of requests"))
        )
    assert (
        "SIGKILL, as when memory runs out; restarts within 3600 s so far: 1, the most that engine.managed.restarts"
        in str(stopped.value)
    )
    assert "ends with:\n" in str(stopped.value) and "loading weights" in str(stopped.value)
    assert managed.server.restarts == 1
    managed.close()
    none_left(managed.folder)


def test_one_that_hangs_is_restarted(managed: Managed, caplog: pytest.LogCaptureFixture) -> None:
    async def hang() -> None:
        await managed.server.ready()
        first = managed.process()
        managed.now("unhealthy")
        while alive(first):
            await asyncio.sleep(0.02)
        managed.no_more("unhealthy")
        while len(processes(managed.folder)) < 4:
            await asyncio.sleep(0.02)
        await managed.server.stop()

    asyncio.run(asyncio.wait_for(hang(), LONG_S))
    assert "lives but has not been healthy for 3 s; restart 1 of" in caplog.text
    none_left(managed.folder)


def test_one_that_comes_back_with_other_weights_is_not_used(tmp_path: Path, managed: Managed) -> None:
    def change() -> None:
        managed.now("weights", "2")
        os.kill(managed.process(), signal.SIGKILL)

    with pytest.raises(GenerationStoppedError, match="do not serve the same: weight_version is 'default'"):
        generate(tmp_path, prompt_frame(60), managed.engine, progress=once_underway(change))
    managed.close()
    none_left(managed.folder)


def test_one_that_dies_at_its_start_is_not_tried_again_and_its_log_is_shown(managed: Managed) -> None:
    managed.now("dies at start")
    with pytest.raises(EngineUnavailableError) as refused:
        asyncio.run(managed.engine.start())
    (log,) = managed.logs.glob("*.log")
    message = str(refused.value)
    assert message.startswith(f"the managed SGLang server ended: exit status 1; its log {log} ends with:\n")
    assert "loading weights\nthe weights are damaged\n" in message
    assert len(processes(managed.folder)) == 2
    none_left(managed.folder)


def test_one_that_never_gets_healthy_is_ended_after_its_time(tmp_path: Path) -> None:
    managed = Managed(tmp_path, start_timeout_s=1.0)
    managed.now("unhealthy")
    with pytest.raises(
        EngineUnavailableError, match=r"not healthy within 1 s \(engine\.managed\.start_timeout_s\); its"
    ):
        asyncio.run(managed.engine.start())
    none_alive(managed.folder)


def test_one_that_ignores_sigterm_is_killed(tmp_path: Path) -> None:
    managed = Managed(tmp_path, stop_grace_s=0.2)
    managed.now("deaf")
    asyncio.run(managed.engine.start())
    managed.close()
    none_left(managed.folder)
    assert "did not end within 0.2 s and is killed" in managed.said()


def test_waiting_for_its_start_can_be_interrupted(managed: Managed) -> None:
    managed.now("unhealthy")

    async def give_up() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.4):
                await managed.engine.start()

    asyncio.run(give_up())
    none_alive(managed.folder)


RUN = """
import asyncio, sys
from pathlib import Path
from eagle3_assets.build import build_defs
from eagle3_assets.config import ManagedServer, Target
from eagle3_assets.engines.sglang.managed import ManagedSglang

async def run():
    server = ManagedSglang(ManagedServer(python=sys.argv[1]), Target(model="m"), Path(sys.argv[2]))
    try:
        await server.ready()
        print("up", flush=True)
        await asyncio.sleep(3600)
    finally:
        await server.stop()

asyncio.run(run())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc")
@pytest.mark.parametrize("number", [signal.SIGKILL, pytest.param(signal.SIGINT, marks=pytest.mark.slow)])
def test_nothing_is_left_of_it_when_the_run_is_killed(tmp_path: Path, number: signal.Signals) -> None:
    folder = tmp_path / "server"
    command = [sys.executable, "-c", RUN, str(make_stand_in(folder)), str(tmp_path / "logs")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as run:
        assert run.stdout is not None and run.stdout.readline() == b"up\n"
        assert all(map(alive, processes(folder)))
        run.send_signal(number)
    none_left(folder)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends a child with its parent")
def test_nothing_is_left_of_it_when_its_keeper_is_killed(tmp_path: Path, managed: Managed) -> None:
    def kill_the_keeper() -> None:
        os.kill(os.getpgid(managed.process()), signal.SIGKILL)

    prompts = prompt_frame(60)
    generate(tmp_path, prompts, managed.engine, progress=once_underway(kill_the_keeper))
    check_whole(sealed_rows(tmp_path), prompts)
    assert not any(map(alive, processes(managed.folder)[:2])) and managed.server.restarts == 1
    managed.close()
    none_left(managed.folder)


def test_two_take_turns(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    first, second = Managed(tmp_path), Managed(tmp_path)

    async def both() -> None:
        await first.server.ready()
        waiting = asyncio.create_task(second.server.ready())
        while "another run has its managed server up; waiting" not in caplog.text:
            await asyncio.sleep(0.02)
        assert len(processes(first.folder)) == 2 and not waiting.done()
        await first.server.stop()
        await waiting
        assert not any(map(alive, processes(first.folder)[:2]))
        await second.server.stop()

    asyncio.run(asyncio.wait_for(both(), LONG_S))
    none_left(first.folder)


def test_without_sglang_it_says_what_to_install(tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} -IS "$@"\n')
    python.chmod(0o755)
    server = ManagedSglang(ManagedServer(python=str(python)), Target(model="m"), tmp_path, QUICK)
    with pytest.raises(EngineUnavailableError) as refused:
        asyncio.run(server.ready())
    assert str(refused.value) == (
        f"SGLang is not installed for {python}: install it there (pip install 'eagle3-assets[sglang]'), or name the "
        "interpreter of an environment that has it in engine.managed.python"
    )


def test_an_interpreter_that_is_not_there_is_named(tmp_path: Path) -> None:
    server = ManagedSglang(ManagedServer(python="/no/python"), Target(model="m"), tmp_path, QUICK)
    with pytest.raises(EngineUnavailableError, match=r"engine\.managed\.python: /no/python is no program"):
        asyncio.run(server.ready())


def test_a_port_that_is_taken_is_named_and_who_listens_there_is_not_taken_for_the_server(tmp_path: Path) -> None:
    with FaultServer() as other:
        managed = Managed(tmp_path, port=int(other.url.rpartition(":")[2]))
        with pytest.raises(EngineUnavailableError) as refused:
            asyncio.run(managed.engine.start())
    assert f"cannot listen on port {managed.server.endpoint.rpartition(':')[2]} (engine.managed.port)" in str(
        refused.value
    )
    assert not processes(managed.folder)


def test_a_restart_waits_for_a_port_that_is_not_yet_let_go(tmp_path: Path) -> None:
    managed = Managed(tmp_path, restarts=1, pace=replace(QUICK, before_restart_s=1.0))
    held: list[socket.socket] = []

    def kill_and_hold_the_port() -> None:
        port = int(managed.server.endpoint.rpartition(":")[2])
        os.kill(managed.process(), signal.SIGKILL)
        held.append(until_bound(port))
        threading.Timer(2.5, held[0].close).start()

    prompts = prompt_frame(60)
    generate(tmp_path, prompts, managed.engine, progress=once_underway(kill_and_hold_the_port))
    check_whole(sealed_rows(tmp_path), prompts)
    assert managed.server.restarts == 1 and held
    managed.close()


def test_the_resource_makes_an_engine_with_the_configured_server(tmp_path: Path, make_project: ProjectMaker) -> None:
    folder = tmp_path / "server"
    project = make_project(engine=engine_settings(folder))
    resources = build_defs(project).resources
    assert resources is not None
    with dg.DagsterInstance.ephemeral() as instance:
        engine: Engine = resources["engine"].create(instance, "a run")

    async def there_and_back() -> Description:
        try:
            return await engine.start()
        finally:
            await engine.close()

    assert asyncio.run(there_and_back()).weights == f"path:{DEMO / 'model'}@default"
    none_left(folder)
    assert len(list(project.layout.servers().glob("*.log"))) == 1


@pytest.mark.slow
def test_a_run_in_dagster_has_its_server_and_says_where_its_log_is(
    tmp_path: Path, make_project: ProjectMaker, instance: dg.DagsterInstance
) -> None:
    folder = tmp_path / "server"
    project = make_project(engine=engine_settings(folder))
    (run,) = materialize(project, ["d"], instance)
    assert run.generated == 4
    assert sealed_generations(project.layout, "d").pointer.generated == 4
    none_left(folder)
    (log,) = project.layout.servers().glob("*.log")
    (record,) = instance.get_run_records()
    messages = [entry.user_message for entry in instance.all_logs(record.dagster_run.run_id)]
    assert any(str(log) in message for message in messages)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_run_in_dagster_that_is_interrupted_ends_its_server(
    tmp_path: Path, make_project: ProjectMaker, number: signal.Signals
) -> None:
    folder = tmp_path / "server"
    make_project(engine=engine_settings(folder))
    (folder / "silent").touch()
    command = [sys.executable, "-m", "eagle3_assets.cli", "materialize", "d", "--config", "eagle3.yaml"]
    environment = os.environ | {"DAGSTER_HOME": str(tmp_path / "home"), "PYTHONPATH": str(Path(__file__).parents[2])}
    with subprocess.Popen(
        command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as run:
        assert run.stderr is not None
        for line in run.stderr:  # the terminal shows what engines log
            if b"the managed server is healthy" in line:
                break
        until((folder / "asked").exists)
        run.send_signal(number)
        assert run.wait(LONG_S) != 0
        none_left(folder)
        said = run.stderr.read().decode()
    if number is signal.SIGINT:
        assert "interrupted; what was generated is kept" in said
