"""Prompts per second from source to ids, against a plain loop over ``apply_chat_template``, and peak memory.

Usage: python -m benchmarks.prompt_rendering [--rows 20000] [--write]

Every case runs in a process of its own, on the demo's prompts repeated under other ids, with the demo target:

- plain: each line through ``json.loads`` and ``apply_chat_template``; nothing is checked, nothing kept but the ids
- render: read, accounted for, rendered and tokenized
- tokenized_prompts: the same and the laws of prompts, as the asset does it
- tenth: ``render`` for one of ten shards of a source ten times as large
- slow, slow_in_2: ``tokenized_prompts`` with a tokenizer in plain Python, a token for each byte, in one process and in
  two, of a source five times as large
"""

import argparse
import json
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path

from benchmarks.page import machine, write_part
from eagle3_assets import tokenizing
from eagle3_assets.config import Dataset, Eagle3Config, Target
from eagle3_assets.frames import batches
from eagle3_assets.judging import render_rows
from eagle3_assets.partitions import dataset_partitions
from eagle3_assets.project import Project
from eagle3_assets.prompts.rows import read_partition
from eagle3_assets.target import LoadedTarget, load_target
from eagle3_assets_tests import own_code

DEMO = Path(str(files("eagle3_assets.demo")))
CASES = {
    "plain": "a plain loop over `apply_chat_template`",
    "render": "read, accounted for, rendered and tokenized",
    "tokenized_prompts": "the same, and the laws of prompts",
    "tenth": "`render`, one of ten shards of a source ten times as large",
    "slow": "a tokenizer in Python, with the laws, in one process, of five times as much",
    "slow_in_2": "the same in two processes, their start included",
}
TIMES = {"tenth": 10, "slow": 5, "slow_in_2": 5}
"""How large the sources of these cases are; that of the others is 1."""
Result = tuple[int, float, float, float]
"""Prompts, seconds, CPU seconds of all processes, peak MiB."""


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
    prompts = found.rows.lazy()
    made = (
        tokenizing.tokenized(project, partition, target, prompts)
        if judged
        else (render_rows(target, rows, thinking=True) for rows in batches(prompts))
    )
    return sum(map(len, made))


def measure(case: str, source: Path) -> Result:
    """One case; for a process of its own."""
    slow = case.startswith("slow")
    model = own_code.save_target(source.parent / "slow") if slow else DEMO / "model"
    target = load_target(Target(model=str(model), trust_remote_code=slow))
    if case == "slow_in_2":
        tokenizing.WORTH_BYTES, tokenizing.MOST_PROCESSES = 0, 2
    elif case == "slow":
        tokenizing.MOST_PROCESSES = 1
    start, used = time.perf_counter(), _cpu_s()
    if case == "plain":
        count = plain(source, target)
    else:
        count = ours(source, target, 10 if case == "tenth" else 1, judged=slow or case == "tokenized_prompts")
    seconds, used = time.perf_counter() - start, _cpu_s() - used
    # What getrusage says is inherited from the parent.
    peak = re.search(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text(encoding="utf-8"))
    return count, seconds, used, int(peak[1]) / 1024 if peak else 0.0


def _cpu_s() -> float:
    """Of this process and of those of its children that have ended."""
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def report(results: Mapping[str, Result], rows: int, megabytes: float) -> str:
    """The part of the page."""
    lines = "\n".join(
        f"| {CASES[case]} | {count:,} | {count / seconds:,.0f} | {used:.1f} | {peak:,.0f} |"
        for case, (count, seconds, used, peak) in results.items()
    )
    return f"""## Rendering prompts

The demo's prompts, {rows:,} rows of {megabytes:.1f} MB, from the source to ids, with the demo target unless another is
named. Each case is a process of its own, without imports and loading the target; CPU is of all its processes, user and
system; the peak (VmHWM) is of the first one. Written by `benchmarks/prompt_rendering.py`:

```bash
python -m benchmarks.prompt_rendering --write
```

{machine(("transformers", "tokenizers", "polars"))}

| | prompts | prompts/s | CPU s | peak MiB |
|---|--:|--:|--:|--:|
{lines}

The plain loop judges nothing, and accounts for nothing. A tokenizer in Python gets several processes from
{tokenizing.WORTH_BYTES >> 20} MiB of conversations on. They need more CPU, most of it to start; where no core is
free, as with a high load above, they gain nothing."""


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--write", action="store_true", help="write the report into docs/benchmarks.md as well")
    parser.add_argument("--case", choices=CASES, help=argparse.SUPPRESS)
    parser.add_argument("--source", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.case:
        print(json.dumps(measure(arguments.case, arguments.source)))
        return
    with tempfile.TemporaryDirectory() as directory:
        sources = {times: Path(directory) / f"{times}.jsonl" for times in (1, *TIMES.values())}
        for times, path in sources.items():
            write_source(path, arguments.rows * times)
        megabytes = sources[1].stat().st_size / 1e6
        print(f"{arguments.rows:,} rows, {megabytes:,.1f} MB")
        results: dict[str, Result] = {}
        for case in CASES:
            source = sources[TIMES.get(case, 1)]
            command = [sys.executable, "-m", "benchmarks.prompt_rendering", "--case", case, "--source", str(source)]
            done = subprocess.run(command, check=True, capture_output=True, text=True)  # noqa: S603 - our own
            results[case] = count, seconds, used, peak = json.loads(done.stdout.splitlines()[-1])
            print(f"{case:20}{count:10,} prompts{count / seconds:10,.0f}/s{used:10.1f} CPU s{peak:10,.0f} MiB")
    if arguments.write:
        write_part("prompt_rendering", report(results, arguments.rows, megabytes))


if __name__ == "__main__":
    main()
