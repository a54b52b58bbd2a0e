"""Memory does not grow with a file's bytes: measured in processes of their own."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from eagle3_assets_tests.audit.conftest import reply
from eagle3_assets_tests.tokens import kimi

MEASURE = """
import json, pathlib, re, sys
from typer.testing import CliRunner
from eagle3_assets.cli import app
result = CliRunner().invoke(app, ["audit", sys.argv[1], "--profile", "kimi", "--json"])
samples = json.loads(result.stdout)["samples"]
# What getrusage says is inherited from the parent.
peak = int(re.search(r"VmHWM:\\s+(\\d+)", pathlib.Path("/proc/self/status").read_text())[1]) / 1024
print(json.dumps([samples["judged"], samples["failed"], peak]))
"""


def peak(path: Path) -> tuple[int, int, float]:
    """Rows judged and failed, and the peak memory in MiB."""
    done = subprocess.run([sys.executable, "-c", MEASURE, str(path)], capture_output=True, check=True, text=True)
    judged, failed, mib = json.loads(done.stdout)
    return judged, failed, mib


@pytest.mark.slow
@pytest.mark.parametrize(("broken", "most"), [(False, 220), (True, 320)])
def test_short_rows_need_as_much_as_the_docs_say(broken: bool, most: int, tmp_path: Path) -> None:
    peaks = []
    for rows in (50_000, 350_000):
        path = tmp_path / f"{rows}.jsonl"
        with path.open("w") as file:
            for row in range(rows):
                output = [kimi.END_THINK, 5 + row % 100_000, 6 + row // 100_000, 163_700 if broken else kimi.IM_END]
                file.write(json.dumps({"sample_id": f"sample-{row:08}", "output_ids": output}) + "\n")
        judged, failed, mib = peak(path)
        assert (judged, failed) == (rows, rows if broken else 0)
        peaks.append(mib)
    assert (peaks[1] - peaks[0]) * 2**20 / 300_000 < most, peaks  # bytes for each row


@pytest.mark.slow
def test_a_large_row_group_is_not_held_unpacked(tmp_path: Path) -> None:
    rows, ids = 60_000, 2_000
    numbers = np.arange(rows * ids, dtype=np.int64) % 100_003 + 1_000
    outputs = pl.Series(numbers.reshape(rows, ids)).arr.to_list()
    frame = pl.DataFrame({"sample_id": range(rows), "output_ids": outputs})
    frame.write_parquet(tmp_path / "o.parquet", row_group_size=rows)
    judged, failed, mib = peak(tmp_path / "o.parquet")
    assert (judged, failed) == (rows, 0)
    packed, unpacked = (tmp_path / "o.parquet").stat().st_size >> 20, numbers.nbytes >> 20
    assert mib < 250 + packed + unpacked / 4, (mib, packed, unpacked)


@pytest.mark.slow
@pytest.mark.parametrize("broken", [False, True])
def test_ten_times_the_file_needs_no_more_memory(broken: bool, tmp_path: Path) -> None:
    output = [*range(10_000, 12_000), kimi.END_THINK, *([] if broken else [kimi.IM_END])]
    line = json.dumps(reply("SAMPLE", output))
    peaks = []
    for rows in (3_000, 30_000):
        path = tmp_path / f"{rows}.jsonl"
        with path.open("w") as file:
            file.writelines(f"{line.replace('SAMPLE', f'sample-{row:08}')}\n" for row in range(rows))
        judged, failed, mib = peak(path)
        assert (judged, failed) == (rows, rows if broken else 0)
        peaks.append((path.stat().st_size >> 20, mib))
        path.unlink()
    (small, little), (large, much) = peaks
    assert large - small > 250  # MiB
    # A few dozen bytes a row, and ten thousand findings: far less than what was read.
    assert much - little < (large - small) / 4, peaks
