"""Prompts per second from source to ids, against a plain loop over ``apply_chat_template``, and peak memory.

Usage: python -m benchmarks.prompt_rendering [--rows 20000]

Every case runs in a process of its own, on the demo's prompts repeated under other ids, with the demo target:

- plain: each line through ``json.loads`` and ``apply_chat_template``; nothing is checked, nothing kept but the ids
- render: read, accounted for, rendered and tokenized
- tokenized_prompts: the same and the laws of prompts, as the asset does it
- tenth: ``render`` for one of ten shards of a source ten times as large
"""

import argparse
import json
import re
import subprocess
import sys
import tempfile
import time
from importlib.resources import files
from pathlib import Path

from eagle3_assets.config import Dataset, Eagle3Config, Target
from eagle3_assets.frames import batches
from eagle3_assets.judging import render_rows, tokenize
from eagle3_assets.partitions import dataset_partitions
from eagle3_assets.project import Project
from eagle3_assets.prompts.rows import read_partition
from eagle3_assets.target import LoadedTarget, load_target

DEMO = Path(str(files("eagle3_assets.demo")))
CASES = ("plain", "render", "tokenized_prompts", "tenth")


def write_source(path: Path, rows: int) -> None:
    """Writes the demo's prompts again and again, each time under new ids."""
    demo = [
        json.loads(line)
        for name in ("chat", "function_calling", "reasoning")
        for line in (DEMO / "prompts" / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()
    ]
    with path.open("w", encoding="utf-8") as file:
        for number in range(rows):
            row = demo[number % len(demo)]
            file.write(json.dumps({**row, "id": f"{row['id']}-{number}"}, ensure_ascii=False) + "\n")


def plain(source: Path, target: LoadedTarget) -> int:
    """What a short script would do."""
    ids = []
    with source.open(encoding="utf-8") as file:
        for line in file:
            row = json.loads(line)
            rendered = target.tokenizer.apply_chat_template(
                row["messages"],
                tools=row.get("tools"),
                add_generation_prompt=True,
                tokenize=True,
                thinking=True,
            )
            ids.append(rendered["input_ids"])
    return len(ids)


def ours(source: Path, target: LoadedTarget, shards: int, *, judged: bool) -> int:
    """What the assets ``prompts`` and ``tokenized_prompts`` do, but for writing files."""
    dataset = Dataset(name="d", source=str(source), shards=shards)
    project = Project(Eagle3Config(target=target.settings, datasets=(dataset,)))
    partition = dataset_partitions(dataset)[0]
    found = read_partition(partition, project.config.trial_rows)
    count = 0
    for rows in batches(found.rows.lazy()):
        made = tokenize(project, partition, target, rows) if judged else render_rows(target, rows, thinking=True)
        count += len(made)
    return count


def measure(case: str, source: Path) -> tuple[int, float, float]:
    """Prompts, seconds and peak MiB of one case; for a process of its own."""
    target = load_target(Target(model=str(DEMO / "model")))
    start = time.perf_counter()
    if case == "plain":
        count = plain(source, target)
    else:
        count = ours(source, target, 10 if case == "tenth" else 1, judged=case == "tokenized_prompts")
    seconds = time.perf_counter() - start
    # What getrusage says is inherited from the parent.
    peak = re.search(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text(encoding="utf-8"))
    return count, seconds, int(peak[1]) / 1024 if peak else 0.0


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--case", choices=CASES, help=argparse.SUPPRESS)
    parser.add_argument("--source", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.case:
        print(json.dumps(measure(arguments.case, arguments.source)))
        return
    with tempfile.TemporaryDirectory() as directory:
        small, large = (Path(directory) / f"{rows}.jsonl" for rows in (arguments.rows, arguments.rows * 10))
        for path in (small, large):
            write_source(path, int(path.stem))
        print(f"{arguments.rows:,} rows, {small.stat().st_size / 1e6:,.1f} MB; ten times as many in the last case")
        for case in CASES:
            source = large if case == "tenth" else small
            command = [sys.executable, "-m", "benchmarks.prompt_rendering", "--case", case, "--source", str(source)]
            done = subprocess.run(command, check=True, capture_output=True, text=True)  # noqa: S603 - our own
            count, seconds, peak = json.loads(done.stdout.splitlines()[-1])
            print(f"{case:20}{count:10,} prompts{count / seconds:10,.0f}/s{peak:10,.0f} MiB")


if __name__ == "__main__":
    main()
