"""What a person sees of a run: its log, its metadata, and what the terminal says of it."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import polars as pl
import pytest

from eagle3_assets.cli.tables import remarks
from eagle3_assets.project import Project
from eagle3_assets.running import (
    HOME_VARIABLE,
    PartitionRun,
    instance_home,
    materialize,
    persistent_instance,
    throughput_of,
)
from eagle3_assets.tokens.reasons import commonest_reason, reason_kinds
from eagle3_assets_tests.conftest import ProjectMaker, demo_rows
from eagle3_assets_tests.engines.fault_server import FaultServer


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(HOME_VARIABLE, str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def servers() -> Iterator[tuple[FaultServer, FaultServer]]:
    with FaultServer() as one, FaultServer() as other:
        for server in (one, other):
            assert server.server_info is not None
            server.server_info["context_length"] = 2048
        yield one, other


def on_servers(make_project: ProjectMaker, *servers: FaultServer, rows: int) -> Project:
    engine = {"kind": "sglang", "endpoints": [server.url for server in servers], "max_in_flight": 2}
    return make_project(demo_rows("chat", rows), engine=engine)


def run(project: Project, instance: dg.DagsterInstance) -> tuple[PartitionRun, list[str], dict[str, Any]]:
    """A partition made: what came of it, the lines of its run's log, and the metadata of its generations."""
    [made] = materialize(project, ["d"], instance)
    [record] = instance.get_runs(limit=1)
    lines = [entry.user_message for entry in instance.all_logs(record.run_id) if not entry.is_dagster_event]
    event = instance.get_latest_materialization_event(dg.AssetKey("raw_generations"))
    assert event and event.asset_materialization
    return made, lines, {name: value.value for name, value in event.asset_materialization.metadata.items()}


@pytest.mark.usefixtures("home")
def test_a_server_that_dies_midway_stands_in_the_runs_log_and_metadata(
    make_project: ProjectMaker, servers: tuple[FaultServer, FaultServer]
) -> None:
    one, other = servers
    one.delay_s = other.delay_s = 0.1
    other.on_request = lambda count: threading.Thread(target=other.down).start() if count == 3 else None
    with persistent_instance() as instance:
        made, lines, metadata = run(on_servers(make_project, one, other, rows=12), instance)
    assert (made.generated, made.failed) == (12, 0)
    assert f"left out until it answers again: {other.url}: no connection: Connection refused" in lines

    progress = [line for line in lines if "rows (" in line]
    name = {server: server.url.removeprefix("http://") for server in servers}
    assert progress[0].startswith("0/12 rows (0%), 0 tokens/s now, 0 overall; in flight: ")
    assert progress[-1].startswith("12/12 rows (100%)")
    assert progress[-1].endswith(f"; in flight: {name[one]} 0, {name[other]} 0 (away, left out once)")

    assert metadata["evictions"] == 1
    assert [record.data for record in metadata["evictions_by_server"].records] == [
        {"server": one.url, "evictions": 0},
        {"server": other.url, "evictions": 1},
    ]
    assert metadata["retries"] >= 1
    assert "commonest_reason" not in metadata
    assert {"tokens_per_second", "latency_p50_s", "latency_p95_s", "latency_p99_s", "latency_max_s"} <= set(metadata)


def test_failures_are_counted_by_reason_and_the_commonest_is_shown_safely(
    make_project: ProjectMaker, servers: tuple[FaultServer, FaultServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    from eagle3_assets_tests.engines import fault_server

    said = "too long for me \x1b[31m\u202e" + "x" * 500
    monkeypatch.setitem(fault_server.STATUS_FAULTS, "400 nested", (400, {"error": {"message": said}}))
    servers[0].fault = lambda *_: "400 nested" if len(servers[0].bodies) % 2 else None
    with dg.DagsterInstance.ephemeral() as instance:
        made, lines, metadata = run(on_servers(make_project, servers[0], rows=4), instance)
    assert (made.generated, made.failed) == (2, 2)
    assert any("2 failed (2 refused by the engine)" in line for line in lines)
    assert [r.data for r in metadata["failures_in_this_run"].records] == [
        {"reason": "refused by the engine", "rows": 2}
    ]
    [line] = [line.plain for line in remarks([made]) if "commonest reason" in line.plain]
    assert line.startswith("d: 2 generated now, 0 kept from before, 2 failed; commonest reason, 2 of 2: refused by the")
    assert "too long for me <U+001B>[31m<U+202E>xx" in line
    assert line.endswith("x...")
    assert len(line) < 220


def test_an_instance_that_is_there_keeps_its_settings(home: Path) -> None:
    instance_home()
    assert "run_retries:" in (home / "dagster.yaml").read_text(encoding="utf-8")
    (home / "dagster.yaml").write_text("telemetry: {enabled: false}\n", encoding="utf-8")
    instance_home()
    assert "run_retries:" not in (home / "dagster.yaml").read_text(encoding="utf-8")


def test_reasons_are_counted_by_their_kind() -> None:
    reasons = pl.Series(
        ["too long: 9 tokens", "law x: 1", "too long: 8 tokens", None, "no colon", "law x: 2", "too long: 7"]
    )
    assert reason_kinds(reasons).rows() == [("too long", 3), ("law x", 2), ("no colon", 1)]
    assert commonest_reason(reasons) == "3 of 6: too long: 9 tokens"
    assert commonest_reason(pl.Series([None], dtype=pl.String)) is None


def test_a_tiny_run_has_no_more_part_in_the_throughput_than_it_took() -> None:
    def made(partition: str, outputs: int, seconds: float, tokens_per_s: float, engine: str = "sglang") -> None:
        metadata: dict[str, Any] = {
            "environment": {"engine": engine},
            "identity_facts": {"tokenizer": "t"},
            "generated_in_this_run": outputs,
            "seconds": seconds,
            "tokens_per_second": tokens_per_s,
        }
        instance.report_runless_asset_event(
            dg.AssetMaterialization("raw_generations", partition=partition, metadata=metadata)
        )

    with dg.DagsterInstance.ephemeral() as instance:
        assert throughput_of(instance, "sglang", "t") is None
        made("old", 9_000, 600.0, 9.0)
        made("long", 5_000, 590.0, 1_000.0)
        made("tiny", 2, 10.0, 40.0)
        made("other", 2, 10.0, 5.0, engine="transformers")
        made("kept", 0, 0.0, 0.0)
        # What lies behind ten minutes of generating has no part in it.
        found = throughput_of(instance, "sglang", "t")
    assert found is not None
    assert (found.runs, found.partition, found.outputs, found.seconds) == (2, "tiny", 5_002, 600.0)
    assert found.tokens_per_s == pytest.approx((590 * 1_000 + 10 * 40) / 600)
