"""Minutes of trouble at the usual pace: kills without end, and servers that stay away for long."""

import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import polars as pl
import pytest
from upath import UPath

from benchmarks.client_cost import Case, drawn, mock_server
from benchmarks.clients import IDS_FILE, ours, write_prompts
from eagle3_assets.config import SglangEngineSettings
from eagle3_assets.engines.sglang import SglangEngine
from eagle3_assets.generation.loop import RetryPolicy
from eagle3_assets.generation.rows import seed_for
from eagle3_assets.generation.sealed import read_current, scan_sealed
from eagle3_assets_tests.engines.fault_server import Body, FaultServer
from eagle3_assets_tests.engines.test_sglang import MODEL, describe
from eagle3_assets_tests.generation.fake import IDENTITY, check_whole, prompt_frame, run, sealed_rows

pytestmark = pytest.mark.slow

CHILD = """
import sys
from pathlib import Path
from benchmarks.clients import ours
from eagle3_assets.generation.journal import Journal
real = Journal.append
def append(journal, row):
    real(journal, row)
    print(row["sample_id"], flush=True)  # acknowledged
Journal.append = append
url, prompts, in_flight, work = sys.argv[1:]
ours(url, Path(prompts), int(in_flight), Path(work))
"""


def rows_of(work: Path) -> pl.DataFrame:
    sealed = read_current(UPath(work / "data"))
    assert sealed is not None
    return scan_sealed(sealed).collect()


def test_twenty_kills_lose_double_and_change_nothing(tmp_path: Path) -> None:
    """Against a server whose answer follows from prompt and seed, so that the outcome can be compared."""
    count, kills, numbers = 5_000, 20, random.Random(11)  # noqa: S311 - test data
    case = Case(count, in_flight=16, ids=50, latency_s=0.02)
    prompts, work = tmp_path / "prompts", tmp_path / "killed"
    for directory in (prompts, work):
        directory.mkdir()
    write_prompts(prompts, count)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "POLARS_MAX_THREADS": "1"}
    acknowledged = set[str]()
    with mock_server(case) as (url, _):
        command = [sys.executable, "-c", CHILD, url, str(prompts), str(case.in_flight), str(work)]
        for _ in range(kills):
            after, delay = numbers.randint(0, 380), numbers.uniform(0.0, 0.02)
            child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
            assert child.stdout is not None
            new = list[str]()
            for line in child.stdout:
                new.append(line.strip())
                if len(new) == after + 1:
                    threading.Timer(delay, child.send_signal, (signal.SIGKILL,)).start()
            assert child.wait() == -signal.SIGKILL, "it came to its end before it was killed"
            child.stdout.close()
            assert not acknowledged & set(new), "an acknowledged row was generated again"
            assert len(new) == len(set(new))
            acknowledged |= set(new)
            time.sleep(0.05)  # for the server to read what was sent
            assert drawn(url)["requests"] - len(new) <= case.in_flight, "more was in flight than may be lost"
        asked, _ = ours(url, prompts, case.in_flight, work)
        assert drawn(url)["requests"] == asked <= count - len(acknowledged)
        (tmp_path / "whole").mkdir()
        assert ours(url, prompts, case.in_flight, tmp_path / "whole")[0] == count
    rows, whole = rows_of(work), rows_of(tmp_path / "whole")
    assert rows["sample_id"].to_list() == pl.read_parquet(prompts / IDS_FILE)["sample_id"].to_list()
    assert acknowledged <= set(rows["sample_id"])
    assert set(rows["status"]) == {"generated"} and rows["ids_sha256"].n_unique() == count
    # How long an answer took is the only column that tells of time.
    assert rows.drop("latency_s").equals(whole.drop("latency_s"))


def test_at_the_usual_pace_every_prompt_ends_with_an_output_or_a_reason(tmp_path: Path) -> None:
    """Faults all along, one of two servers dead for good, then the other away for 15 s; and some that never work."""
    draw = random.Random(7)  # noqa: S311 - a test's faults
    prompts = prompt_frame(3_000)
    names = [f"s{i}" for i in range(1_000, 1_010)]
    hopeless = {seed_for(IDENTITY.sampling.seed, name) for name in names}

    def fault(body: Body, _: int) -> str | None:
        value = draw.random()
        if body["sampling_params"]["sampling_seed"] in hopeless:
            return "500"
        return "500" if value < 0.05 else "reset" if value < 0.06 else None

    with FaultServer(fault, delay_s=0.005) as server, FaultServer(fault, delay_s=0.005) as other:

        def die(count: int) -> None:
            if count == 300:
                threading.Thread(target=other.down).start()

        def leave(count: int) -> None:
            if count == 1_500:
                threading.Thread(target=server.down).start()
                server.soon(15.0, server.up)

        other.on_request, server.on_request = die, leave
        endpoints = (server.url, other.url)
        engine = SglangEngine(SglangEngineSettings(kind="sglang", endpoints=endpoints), MODEL)
        arguments = {"description": describe(engine), "retry": RetryPolicy()}
        outcome = run(tmp_path, prompts, engine, **arguments)  # type: ignore[arg-type]
        evictions = sum(one.evictions for one in engine.servers)
    rows = sealed_rows(tmp_path)
    check_whole(rows, prompts)
    failed = rows.filter(pl.col("status") == "failed")
    assert failed["sample_id"].to_list() == names
    assert outcome.failures == {"no answer after 6 attempts": len(names)}
    assert failed["reason"].str.contains("status 500: scheduler died").all()
    assert outcome.retries > 100 and evictions == 2
