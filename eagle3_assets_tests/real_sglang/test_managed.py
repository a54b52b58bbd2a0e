"""A managed real server through Dagster: killed midway, it is restarted and the partition is finished."""

import os
import re
import signal
import subprocess
import threading
import time
from pathlib import Path

import dagster as dg
import pytest

from eagle3_assets.config import REFUSED_ARGUMENTS
from eagle3_assets.generation.progress import Progress
from eagle3_assets.generation.sealed import scan_sealed
from eagle3_assets.resources import ProgressListener
from eagle3_assets.running import materialize
from eagle3_assets.storage.files import sealed_generations
from eagle3_assets_tests.real_sglang.server import ARGUMENTS, ENVIRONMENT, PYTHON
from eagle3_assets_tests.real_sglang.test_real_sglang import demo_project

pytestmark = [pytest.mark.sglang, pytest.mark.timeout(1800)]

ROOT = Path(__file__).parents[2]
PARTITION = "reasoning-00of02"
PARSERS = ["--reasoning-parser", "qwen3", "--tool-call-parser", "qwen25"]
"""Not needed, and no harm: what they cut is the text of chat endpoints."""


def servers(port_of: Path) -> list[int]:
    """Processes whose command names the log's port; schedulers, which rename themselves, are found by their parents."""
    port = port_of.stem.rsplit("-", 1)[1]
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes().decode(errors="replace").split("\0")
        except OSError:  # it has just ended
            continue
        if "sglang.launch_server" in words and port in words and "keeper.py" not in " ".join(words):
            found.append(int(process.name))
    return found


def group(leader: int) -> list[int]:
    """The processes of a process group that live."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:  # it has just ended
            continue
        if int(fields[2]) == leader and fields[0] != "Z":
            found.append(int(stat.parent.name))
    return found


def test_a_managed_server_that_is_killed_midway_is_restarted_and_the_partition_finished(tmp_path: Path) -> None:
    assert PYTHON.exists(), f"there is no {PYTHON}: make test-sglang makes it"
    arguments = ARGUMENTS.removesuffix(" --host 127.0.0.1").split()
    project = demo_project(
        tmp_path,
        {
            "kind": "sglang",
            "managed": {"python": str(PYTHON), "arguments": arguments + PARSERS, "environment": ENVIRONMENT},
            # Few at a time, so that it is killed in the middle.
            "max_in_flight": 4,
        },
    )
    groups: list[int] = []
    sizes: list[int] = []
    killed = threading.Event()

    def listen(_: str, progress: Progress) -> None:
        if progress.done < 3 or killed.is_set():
            return
        killed.set()
        (log,) = project.layout.servers().glob("*.log")
        (server,) = servers(log)
        groups.append(os.getpgid(server))
        sizes.append(len(group(groups[0])))
        os.kill(server, signal.SIGKILL)

    began = time.monotonic()
    with dg.DagsterInstance.ephemeral() as instance:
        (run,) = materialize(project, [PARTITION], instance, listener=ProgressListener(listen))
        said = [entry.user_message for entry in instance.all_logs(instance.get_runs()[0].run_id)]
    took = time.monotonic() - began
    rows = scan_sealed(sealed_generations(project.layout, PARTITION)).collect()
    assert killed.is_set()
    assert rows["status"].unique().to_list() == ["generated"] and len(rows) == run.generated
    assert (rows["server_prompt_tokens"] == rows["prompt_ids"].list.len()).all()
    assert (rows["attempts"] > 1).any()
    assert any("the managed server ended: SIGKILL" in line and "restart 1 of at most 10" in line for line in said)
    (log,) = project.layout.servers().glob("*.log")
    assert any(str(log) in line for line in said)
    text = log.read_text(encoding="utf-8", errors="replace")
    assert text.count("-m sglang.launch_server --model-path") == 2
    # Keeper, server, scheduler and detokenizer are gone, and so are those of the restarted one.
    assert sizes[0] >= 4 and group(groups[0]) == [] and servers(log) == []
    embedded = demo_project(tmp_path / "embedded", {"kind": "transformers", "threads": 1})
    with dg.DagsterInstance.ephemeral() as instance:
        list(materialize(embedded, [PARTITION], instance))
    theirs = scan_sealed(sealed_generations(embedded.layout, PARTITION)).collect()
    assert rows.select("sample_id", "output_ids").equals(theirs.select("sample_id", "output_ids"))
    print(f"\n{len(rows)} samples with one restart in {took:.0f} s, {int((rows['attempts'] > 1).sum())} sent again")


def test_the_arguments_that_are_documented_and_refused_are_the_servers_own() -> None:
    command = [str(PYTHON), "-m", "sglang.launch_server", "--help"]
    said = subprocess.run(command, env=os.environ | ENVIRONMENT, capture_output=True, text=True, check=True).stdout
    known = set(re.findall(r"--[a-z][a-z0-9-]*", said))
    text = (ROOT / "docs" / "sglang.md").read_text(encoding="utf-8")
    documented = set(re.findall(r"--[a-z][a-z0-9-]*", text))
    # Abbreviations that the parser completes.
    assert {name for name in documented | set(REFUSED_ARGUMENTS) if not any(k.startswith(name) for k in known)} == set()
