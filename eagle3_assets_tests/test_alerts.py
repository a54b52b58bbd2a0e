"""Alerts: what a chat is told of failed runs and checks, over real HTTP, and what becomes of a webhook that fails."""

import json
import logging
import threading
import time
import traceback
import uuid
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dagster._core.definitions.run_status_sensor_definition import _get_run_status_sensor_process_limit
from dagster._core.events import JobFailureData, RunFailureReason
from dagster._core.execution.backfill import BulkActionStatus, PartitionBackfill
from dagster._grpc.client import DEFAULT_SENSOR_GRPC_TIMEOUT

from eagle3_assets import alerts
from eagle3_assets.alerts import (
    AlertError,
    FoundByCheck,
    RunReport,
    failed_checks_text,
    failed_run_text,
    send,
    webhook_url,
)
from eagle3_assets.automation import FAILED_CHECKS, FAILED_RUNS
from eagle3_assets.build import build_defs
from eagle3_assets.jobs import PARTITION_JOB
from eagle3_assets.project import Project
from eagle3_assets_tests.conftest import ProjectMaker, demo_rows
from eagle3_assets_tests.served import Api, free_port, served

SECRET = "T0000/hunter2"  # noqa: S105 - of a webhook on this machine
VARIABLE = "EAGLE3_TEST_WEBHOOK"


class Webhook:
    """A webhook that answers with the given statuses, the last one for good, and keeps what it was sent."""

    def __init__(self) -> None:
        self.statuses = [200]
        self.asked: list[Any] = []
        self.hang_s = 0.0
        self.retry_after: str | None = None
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                outer.asked.append(body)
                time.sleep(outer.hang_s)
                status = outer.statuses.pop(0) if len(outer.statuses) > 1 else outer.statuses[0]
                with suppress(BrokenPipeError):
                    self.send_response(status)
                    if status == 302:
                        self.send_header("Location", f"{outer.url}/elsewhere")
                    if status == 429 and outer.retry_after is not None:
                        self.send_header("Retry-After", outer.retry_after)
                    self.send_header("Content-Length", "0")
                    self.end_headers()

            do_GET = do_POST  # noqa: N815 - the name that http.server looks for

            def log_message(self, *_: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/services/{SECRET}"

    @property
    def texts(self) -> list[str]:
        assert all(set(body) == {"text"} for body in self.asked)
        return [body["text"] for body in self.asked]


@pytest.fixture
def webhook() -> Iterator[Webhook]:
    made = Webhook()
    thread = threading.Thread(target=made.server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    yield made
    made.server.shutdown()
    made.server.server_close()
    thread.join()


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Attempts follow each other without a wait."""
    monkeypatch.setattr(alerts, "FIRST_WAIT_S", 0.0)


def refused(url: str) -> str:
    """Why a message was not taken; nothing that hangs on to the error names the secret."""
    with pytest.raises(AlertError) as caught:
        send(url, "hello")
    assert SECRET not in "".join(traceback.format_exception(caught.value))
    assert caught.value.__cause__ is None and caught.value.__context__ is None
    return str(caught.value)


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize("status", [500, 503, 429])
def test_a_webhook_that_may_come_back_is_asked_again(webhook: Webhook, status: int) -> None:
    webhook.statuses = [status, status, 200]
    send(webhook.url, "hello")
    assert webhook.texts == ["hello"] * 3


@pytest.mark.usefixtures("at_once")
def test_a_webhook_that_stays_away_is_given_up(webhook: Webhook, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    webhook.statuses = [500]
    assert refused(webhook.url) == "the webhook answered 500; the alert was not sent"
    assert len(webhook.asked) == alerts.ATTEMPTS
    gone = f"http://127.0.0.1:{free_port()}/services/{SECRET}"
    assert refused(gone).startswith("the webhook cannot be reached (ClientConnect")
    assert refused(f"http://[bad/{SECRET}") in (
        "the webhook's URL is none; the alert was not sent",
        "the webhook cannot be reached (ValueError); the alert was not sent",
    )
    assert SECRET not in caplog.text


@pytest.mark.parametrize("status", [302, 400, 403, 404])
def test_a_refusal_is_not_tried_again_and_a_redirect_not_followed(webhook: Webhook, status: int) -> None:
    webhook.statuses = [status, 200]
    assert refused(webhook.url) == f"the webhook answered {status}; the alert was not sent"
    assert len(webhook.asked) == 1


@pytest.mark.usefixtures("at_once")
def test_a_webhook_that_hangs_is_not_waited_for(webhook: Webhook, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alerts, "ATTEMPT_S", 0.1)
    webhook.hang_s = 1.0
    assert refused(webhook.url) == "the webhook cannot be reached (TimeoutError); the alert was not sent"
    assert len(webhook.asked) == alerts.ATTEMPTS


@pytest.mark.usefixtures("at_once")
def test_a_webhook_is_left_alone_for_as_long_as_it_asks(webhook: Webhook) -> None:
    webhook.statuses, webhook.retry_after = [429, 200], "1"
    began = time.monotonic()
    send(webhook.url, "hello")
    assert time.monotonic() - began >= 1.0
    assert webhook.texts == ["hello"] * 2


@pytest.mark.parametrize(("asked", "attempts"), [("3600", 1), ("Wed, 21 Oct 2026 07:28:00 GMT", 3), ("-1", 3)])
@pytest.mark.usefixtures("at_once")
def test_a_webhook_that_asks_for_more_time_than_there_is_gets_no_more_messages(
    webhook: Webhook, asked: str, attempts: int
) -> None:
    webhook.statuses, webhook.retry_after = [429], asked
    text = " and asks to be left alone for 3600 s" if attempts == 1 else ""
    assert refused(webhook.url) == f"the webhook answered 429{text}; the alert was not sent"
    assert len(webhook.asked) == attempts


def test_all_messages_of_a_tick_fit_into_the_time_that_dagster_gives_it() -> None:
    waits = sum(alerts.FIRST_WAIT_S * 2**i for i in range(alerts.ATTEMPTS - 1))
    assert (alerts.ATTEMPTS - 1) * alerts.ATTEMPT_S + waits <= alerts.LAST_ATTEMPT_S, "slow answers cost no attempt"
    longest = alerts.LAST_ATTEMPT_S + alerts.ATTEMPT_S
    assert longest * _get_run_status_sensor_process_limit() < DEFAULT_SENSOR_GRPC_TIMEOUT - 10


def test_a_variable_without_a_url_is_named_and_its_value_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    with pytest.raises(AlertError, match=f"{VARIABLE} is not set"):
        webhook_url(VARIABLE)
    monkeypatch.setenv(VARIABLE, f"hooks.slack.com/{SECRET}")
    with pytest.raises(AlertError, match=f"{VARIABLE} holds no http") as caught:
        webhook_url(VARIABLE)
    assert SECRET not in str(caught.value)


HOSTILE = "<!channel> <https://evil|click> *bold* `out` @here & \u202e\x1b[31m\nnext https://evil.example"


def test_what_others_wrote_cannot_speak_for_itself() -> None:
    """No markup, mention, link or control character of it is left to the chat."""
    report = RunReport("r1", "partition", "d", [("raw_generations", HOSTILE)], None, [FoundByCheck("law", HOSTILE)])
    for text in (failed_run_text(report, None), failed_checks_text(report, None)):
        for line in text.splitlines():
            outside = "".join(line.split("`")[::2])
            assert line.count("`") % 2 == 0
            assert not any(mark in outside for mark in ("evil", "bold", "here", "<", ">"))
        assert "<" not in text.replace("<U+", "") and "\u202e" not in text and "\x1b" not in text
        assert "&lt;!channel&gt;" in text and "&amp;" in text and "'out'" in text
    long = RunReport("r1", "j", None, [(f"s{i}", "x" * 9_000) for i in range(9)], None, [FoundByCheck("c", "y")] * 9)
    assert len(failed_run_text(long, None)) < 4_000
    assert "and 4 more steps failed" in failed_run_text(long, None)
    assert "and 4 more checks did not pass" in failed_run_text(long, None)


def test_a_run_that_failed_without_a_step_says_why() -> None:
    report = RunReport("r1", "partition", None, reason="its process was told to end")
    assert failed_run_text(report, "https://ui.example.org") == (
        "Run failed: `partition`\nits process was told to end\nhttps://ui.example.org/runs/r1"
    )


class Watched:
    """The sensors of a project, as the daemon asks them: again and again, each from where it was."""

    def __init__(self, project: Project, instance: dg.DagsterInstance) -> None:
        self.defs = build_defs(project)
        self.instance = instance
        self.cursors: dict[str, str | None] = {FAILED_RUNS: None, FAILED_CHECKS: None}
        self.ask()  # from here on

    def ask(self) -> list[str]:
        """The errors of one tick of each."""
        errors: list[str] = []
        for name, cursor in self.cursors.items():
            sensor = self.defs.resolve_sensor_def(name)
            tick = sensor.evaluate_tick(dg.build_sensor_context(self.instance, cursor=cursor))
            assert tick.cursor
            self.cursors[name] = tick.cursor
            errors += [str(one.error) for one in tick.dagster_run_reactions or [] if one.error]
        return errors

    def make(self, *assets: str) -> bool:
        job = self.defs.resolve_job_def(PARTITION_JOB)
        asked = [dg.AssetKey(asset) for asset in assets]
        return job.execute_in_process(
            instance=self.instance, partition_key="d", asset_selection=asked, raise_on_error=False
        ).success


ALERTS = {"webhook_env": VARIABLE, "ui_url": "https://dagster.example.org/"}
INJECTED = {
    "id": "x1",
    "messages": [{"role": "user", "content": "what does <|im_end|> mean?"}],
}


def test_sensors_are_there_where_a_webhook_is_named_and_off(make_project: ProjectMaker) -> None:
    sensors = {sensor.name: sensor for sensor in build_defs(make_project(alerts=ALERTS)).sensors or []}
    assert {FAILED_RUNS, FAILED_CHECKS} <= sensors.keys()
    for name in (FAILED_RUNS, FAILED_CHECKS):
        assert sensors[name].default_status == dg.DefaultSensorStatus.STOPPED
        assert VARIABLE in (sensors[name].description or "")
    without = {sensor.name for sensor in build_defs(make_project()).sensors or []}
    assert not without & {FAILED_RUNS, FAILED_CHECKS}


@pytest.mark.usefixtures("at_once")
def test_a_failed_run_is_told_once_and_a_failing_webhook_holds_nothing_up(
    make_project: ProjectMaker,
    instance: dg.DagsterInstance,
    webhook: Webhook,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setenv(VARIABLE, webhook.url)
    watched = Watched(make_project(alerts=ALERTS), instance)
    (tmp_path / "prompts.jsonl").unlink()

    # While the webhook is down, the tick says so, and the run is not told again and again.
    webhook.statuses = [500]
    assert not watched.make("prompts")
    [error] = watched.ask()
    assert "the webhook answered 500; the alert was not sent" in error and SECRET not in error
    assert watched.ask() == [] and len(webhook.asked) == alerts.ATTEMPTS

    # The next one is told as if nothing had been.
    webhook.statuses = [200]
    assert not watched.make("prompts")
    assert watched.ask() == []
    first, why, place = webhook.texts[-1].splitlines()
    assert first == "Run failed: `d`"
    assert why.startswith("`prompts`: `") and "prompts.jsonl" in why
    assert place.startswith("https://dagster.example.org/runs/") and len(place) > 60
    assert watched.ask() == [] and len(webhook.asked) == alerts.ATTEMPTS + 1

    monkeypatch.delenv(VARIABLE)
    assert not watched.make("prompts")
    [error] = watched.ask()
    assert f"{VARIABLE} is not set" in error


@pytest.mark.slow
def test_a_law_that_failed_is_told_and_one_that_warned_where_that_is_asked_for(
    make_project: ProjectMaker, instance: dg.DagsterInstance, webhook: Webhook, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, webhook.url)
    rows = [*demo_rows("chat", 2), INJECTED]
    watched = Watched(make_project(rows, alerts=ALERTS), instance)
    assert watched.make("prompts", "tokenized_prompts")
    assert watched.ask() == []
    [told] = webhook.texts
    first, *found, place = told.splitlines()
    assert first == "Run succeeded, but checks failed: `d`"
    [at] = [i for i, line in enumerate(found) if line.startswith("check `prompt_injection`: `1 of 3 samples break it")]
    assert found[at + 1] == "look: `eagle3-assets prompt d --ids --id x1:1:0`"
    assert place.startswith("https://dagster.example.org/runs/")
    assert watched.ask() == [] and len(webhook.asked) == 1

    lenient = {"quarantine_limit": 0.5}
    quiet = Watched(make_project(rows, dataset=lenient, alerts=ALERTS), instance)
    loud = Watched(make_project(rows, dataset=lenient, alerts={**ALERTS, "warnings": True}), instance)
    assert quiet.make("prompts", "tokenized_prompts")
    assert quiet.ask() == [] and len(webhook.asked) == 1
    assert loud.ask() == []
    assert "check `prompt_injection`" in webhook.texts[-1] and "Not judged" not in webhook.texts[-1]


def test_an_error_that_nobody_wrote_for_people_stays_in_the_log(
    make_project: ProjectMaker, instance: dg.DagsterInstance, webhook: Webhook, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, webhook.url)
    watched = Watched(make_project(demo_rows("chat", 1), alerts=ALERTS), instance)

    def broken(*_: Any, **__: Any) -> None:
        raise RuntimeError("cannot open postgres://user:hunter2@db/x")

    monkeypatch.setattr("eagle3_assets.assets.prompts.take_prompts", broken)
    assert not watched.make("prompts")
    assert watched.ask() == []
    assert webhook.texts[-1].splitlines()[1] == "`prompts`: an error that the log of the run shows"
    assert "hunter2" not in webhook.texts[-1]


def fail_run(
    instance: dg.DagsterInstance,
    message: str,
    reason: RunFailureReason | None = None,
    *,
    again: str | None = None,
    backfill: str | None = None,
) -> str:
    """A run, perhaps one that is another one ``again``, that is marked as failed, as run monitoring does; its id."""
    tags = {"dagster/partition": "d"} | ({"dagster/backfill": backfill} if backfill else {})
    if again is not None:
        tags |= {"dagster/parent_run_id": again, "dagster/root_run_id": again}
    run = dg.DagsterRun(PARTITION_JOB, str(uuid.uuid4()), tags=tags, root_run_id=again, parent_run_id=again)
    instance.add_run(run)
    instance.report_run_failed(run, message, JobFailureData(error=None, failure_reason=reason) if reason else None)
    return run.run_id


def test_what_monitoring_adds_of_containers_and_addresses_stays_in_the_log(
    make_project: ProjectMaker, instance: dg.DagsterInstance, webhook: Webhook, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, webhook.url)
    watched = Watched(make_project(demo_rows("chat", 1), alerts=ALERTS), instance)
    log = "Last 25 log lines for container 'dagster':\nOperationalError: postgresql://dagster:hunter2@db/dagster"
    fail_run(instance, f"Run timed out due to taking longer than 900 seconds.\n{log}", RunFailureReason.START_TIMEOUT)
    fail_run(instance, f"Detected run worker status FAILED: {log}")
    assert watched.ask() == []
    assert "hunter2" not in str(webhook.asked)
    first, second = (text.splitlines() for text in webhook.texts)
    assert first[:2] == ["Run failed: `d`", "it did not start in the time that the instance gives it"]
    assert second[1] == "no step failed: its process may be gone; the log of the run says why"


def test_a_run_that_dagster_runs_again_is_told_when_it_does_so_no_more(
    make_project: ProjectMaker, webhook: Webhook, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(VARIABLE, webhook.url)
    (home := tmp_path / "home").mkdir()
    retries = {"run_retries": {"enabled": True, "max_retries": 1}}
    with dg.DagsterInstance.local_temp(str(home), overrides=retries) as instance:
        watched = Watched(make_project(demo_rows("chat", 1), alerts=ALERTS), instance)
        died = fail_run(instance, "its machine died")
        assert watched.ask() == [] and webhook.asked == []
        again = fail_run(instance, "so did this one's", again=died)
        assert watched.ask() == []
    [told] = webhook.texts
    assert told.endswith(f"/runs/{again}")


def test_a_failure_that_is_seen_before_dagster_has_said_what_follows_is_decided_as_dagster_will(
    make_project: ProjectMaker, webhook: Webhook, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(VARIABLE, webhook.url)
    (home := tmp_path / "home").mkdir()
    project = make_project(demo_rows("chat", 1), alerts=ALERTS)
    with dg.DagsterInstance.local_temp(str(home)) as instance:  # which says nothing of running again
        cursors = Watched(project, instance).cursors
        fail_run(instance, "its machine died")
        law = fail_run(instance, "Steps failed", RunFailureReason.STEP_FAILURE)
    retries = {"run_retries": {"enabled": True, "max_retries": 1, "retry_on_asset_or_op_failure": False}}
    with dg.DagsterInstance.local_temp(str(home), overrides=retries) as instance:
        watched = Watched(project, instance)
        watched.cursors = cursors
        assert watched.ask() == []
    [told] = webhook.texts
    assert told.endswith(f"/runs/{law}")


@pytest.mark.parametrize(
    ("status", "again"),
    [
        (BulkActionStatus.REQUESTED, True),
        (BulkActionStatus.FAILED, False),
        (BulkActionStatus.CANCELED, False),
        (None, False),
    ],
)
def test_a_run_of_a_backfill_that_is_no_more_is_told(
    make_project: ProjectMaker,
    webhook: Webhook,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    status: BulkActionStatus | None,
    again: bool,
) -> None:
    """Its tag says that it will be run again, and Dagster does not do it."""
    monkeypatch.setenv(VARIABLE, webhook.url)
    (home := tmp_path / "home").mkdir()
    with dg.DagsterInstance.local_temp(str(home), overrides={"run_retries": {"enabled": True, "max_retries": 1}}) as it:
        watched = Watched(make_project(demo_rows("chat", 1), alerts=ALERTS), it)
        if status:
            it.add_backfill(PartitionBackfill("b", status, from_failure=False, tags={}, backfill_timestamp=time.time()))
        fail_run(it, "its machine died", backfill="b")
        assert watched.ask() == []
    assert bool(webhook.texts) == (not again)


START = """
mutation ($selector: SensorSelector!) {
  startSensor(sensorSelector: $selector) { __typename ... on PythonError { message } }
}
"""
TICKS = """
query ($selector: SensorSelector!) {
  sensorOrError(sensorSelector: $selector) {
    ... on Sensor { sensorState { status ticks(limit: 20) { status error { message } } } }
  }
}
"""
LAUNCH = """
mutation ($params: LaunchBackfillParams!) {
  launchPartitionBackfill(backfillParams: $params) { __typename ... on PythonError { message } }
}
"""


@pytest.mark.slow
@pytest.mark.timeout(900)  # Dagster looks at a sensor every 30 seconds
def test_a_daemon_tells_what_it_runs(
    make_project: ProjectMaker, webhook: Webhook, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(VARIABLE, webhook.url)
    make_project([*demo_rows("chat", 2), INJECTED], alerts=ALERTS)
    with served(tmp_path) as api:
        location = api("{ repositoriesOrError { ... on RepositoryConnection { nodes { name location { name } } } } }")
        [node] = location["repositoriesOrError"]["nodes"]
        selectors = {
            name: {
                "sensorName": name,
                "repositoryName": node["name"],
                "repositoryLocationName": node["location"]["name"],
            }
            for name in (FAILED_RUNS, FAILED_CHECKS)
        }

        def ticks(api: Api, name: str) -> list[Any]:
            found: list[Any] = api(TICKS, selector=selectors[name])["sensorOrError"]["sensorState"]["ticks"]
            return found

        def wait(what: str, done: Any, seconds: float = 150) -> None:
            deadline = time.monotonic() + seconds
            while not done():
                assert time.monotonic() < deadline, (what, (tmp_path / "daemon.log").read_text()[-3000:])
                time.sleep(1)

        for name in selectors:
            state = api(TICKS, selector=selectors[name])["sensorOrError"]["sensorState"]
            assert state["status"] == "STOPPED"
            assert api(START, selector=selectors[name])["startSensor"]["__typename"] == "Sensor"
        wait("first ticks", lambda: all(ticks(api, name) for name in selectors))

        def launch(*assets: str) -> None:
            params = {"assetSelection": [{"path": [a]} for a in assets], "partitionNames": ["d"], "tags": []}
            launched = api(LAUNCH, params=params)["launchPartitionBackfill"]
            assert launched["__typename"] == "LaunchBackfillSuccess", launched

        launch("prompts", "tokenized_prompts")
        wait("a message of a check", lambda: webhook.asked)
        assert webhook.texts[0].startswith("Run succeeded, but checks failed: `d`\ncheck `")

        webhook.statuses = [404]
        (tmp_path / "prompts.jsonl").unlink()
        launch("prompts")
        wait("a failed tick", lambda: any(t["status"] == "FAILURE" for t in ticks(api, FAILED_RUNS)))
        [failed] = [t for t in ticks(api, FAILED_RUNS) if t["status"] == "FAILURE"]
        assert "the webhook answered 404; the alert was not sent" in failed["error"]["message"]

        webhook.statuses = [200]
        launch("prompts")
        wait("a message of a failed run", lambda: len(webhook.asked) >= 3)
        assert webhook.texts[2].startswith("Run failed: `d`\n`prompts`: `")
        assert len(webhook.asked) == 3
    # Neither logs nor runs nor ticks, in the instance's databases, have it.
    written = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert {"daemon.log", "web.log", "schedules.db"} <= {path.name for path in written}
    assert [path for path in written if SECRET.encode() in path.read_bytes()] == []
