"""Runs in the trainers' own environment: what their loaders make of files, as JSON on stdout.

What belongs here: calling the trainers. Not here: this project, which their environment does not have.
"""

import contextlib
import json
import sys
from typing import Any

Rows = list[dict[str, Any]]


def specforge(path: str, max_length: int) -> Rows:
    """As ``specforge train`` reads ``data.prompts_path``."""
    from specforge.data.prompt_builder import prepare_prompt_tasks  # type: ignore[import-not-found] # in an environment of its own

    tasks = prepare_prompt_tasks(
        path,
        None,
        chat_template=None,
        max_length=max_length,
        is_preformatted=False,
        train_only_last_turn=False,
        cache_dir=None,
        cache_key=None,
        num_proc=None,
    )
    return [task["payload"] for task in tasks]


def speculators_prepare(path: str, max_length: int) -> Rows:
    """As ``speculators prepare-data --data PATH`` reads it."""
    from speculators.data_generation.preprocessing import build_speculator_training_dataset, load_raw_dataset  # type: ignore[import-not-found] # in an environment of its own

    raw, _ = load_raw_dataset(path)
    built = build_speculator_training_dataset(raw, None, max_length=max_length, num_proc=1)
    return [
        {"input_ids": row["input_ids"].tolist(), "loss_mask": row["loss_mask"].tolist(), "seq_len": int(row["seq_len"])}
        for row in built
    ]


def speculators_train(path: str, ratio: float, split: str) -> Rows:
    """As ``speculators train --data-path PATH --train-data-ratio RATIO`` reads it, up to the hidden states."""
    from speculators.train.data import ArrowDataset, build_client_item  # type: ignore[import-not-found] # in an environment of its own

    dataset = ArrowDataset(max_len=1 << 20, datapath=path, train_ratio=ratio, split=split)
    rows = []
    for index in range(len(dataset)):
        item = dataset.data[index]
        rows.append(
            {
                "input_ids": build_client_item(item)["input_ids"],
                "loss_mask": item["loss_mask"].tolist(),
                "seq_len": dataset.approx_lengths[index],
            }
        )
    return rows


def specforge_config(path: str) -> dict[str, Any]:
    """As ``specforge train --config PATH`` reads it."""
    from specforge.config import load_config  # type: ignore[import-not-found] # in an environment of its own

    loaded: dict[str, Any] = load_config(path).model_dump(mode="json")
    return loaded


def speculators_config(arguments: list[str]) -> dict[str, Any]:
    """The names of options of ``speculators COMMAND`` that its help lists."""
    import re

    from speculators.__main__ import app  # type: ignore[import-not-found] # in an environment of its own
    from typer.testing import CliRunner

    shown = CliRunner().invoke(app, [*arguments, "--help"], env={"COLUMNS": "200", "NO_COLOR": "1"})
    return {"exit_code": shown.exit_code, "options": sorted(set(re.findall(r"--[a-z][a-z-]+", shown.output)))}


if __name__ == "__main__":
    name, arguments = sys.argv[1], json.loads(sys.argv[2])
    with contextlib.redirect_stdout(sys.stderr):
        result = globals()[name](*arguments)
    json.dump(result, sys.stdout)
