"""Runs in the trainers' own environment: what their loaders make of files, as JSON on stdout.

What belongs here: calling the trainers. Not here: this project, which their environment does not have.
"""

import contextlib
import json
import sys
from typing import Any

Rows = list[dict[str, Any]]


def card(snippet: str, folder: str) -> dict[str, Any]:
    """What the Python of an export's card gives in the export's folder: how many rows, and their columns."""
    import os

    os.chdir(folder)
    given: dict[str, Any] = {}
    exec(snippet, given)  # noqa: S102 - our own card
    return {"rows": len(given["rows"]), "columns": given["rows"].column_names}


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
    """As ``specforge train --config PATH`` reads it, up to what it asks of a run before it starts one."""
    from specforge.application.composition import resolve_run  # type: ignore[import-not-found] # in an environment of its own
    from specforge.config import load_config  # type: ignore[import-not-found] # in an environment of its own

    config = load_config(path)
    resolve_run(config)
    loaded: dict[str, Any] = config.model_dump(mode="json")
    return loaded


Maps = dict[str, list[int]]
"""``d2t``, and ``t2d`` as 0 and 1."""


def _maps(d2t: Any, t2d: Any) -> Maps:
    return {"d2t": d2t.tolist(), "t2d": t2d.int().tolist()}


def specforge_vocabulary(path: str, frequencies: str, draft: int, target: int) -> list[Maps]:
    """What a drafter of SpecForge has after it read ``model.vocab_mapping_path``, and what SpecForge makes itself."""
    from collections import Counter

    import specforge.modeling.draft  # type: ignore[import-not-found] # noqa: F401 - registers the drafters
    import torch
    from specforge.core.compact_teacher import validate_vocab_mapping_consistency  # type: ignore[import-not-found] # in an environment of its own
    from specforge.data.preprocessing import process_token_dict_to_mappings  # type: ignore[import-not-found] # in an environment of its own
    from specforge.modeling.draft.registry import DRAFT_REGISTRY  # type: ignore[import-not-found] # in an environment of its own
    from specforge.training.model_loading import _draft_config_from_dict  # type: ignore[import-not-found] # in an environment of its own

    name = "LlamaForCausalLMEagle3"
    sizes = {"vocab_size": target, "draft_vocab_size": draft, "hidden_size": 16, "intermediate_size": 16}
    heads = {"num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 8}
    others = {"model_type": "llama", "hidden_act": "silu", "pad_token_id": 0, "max_position_embeddings": 64}
    drafter = DRAFT_REGISTRY[name](_draft_config_from_dict({"architectures": [name], **sizes, **heads, **others}))
    drafter.load_vocab_mapping(path)
    validate_vocab_mapping_consistency(drafter.t2d, drafter.d2t)
    own = process_token_dict_to_mappings(Counter(torch.load(frequencies, weights_only=True)), draft, target)
    return [_maps(drafter.d2t, drafter.t2d), _maps(*own)]


def _speculators_maps(draft: int, **given: Any) -> tuple[Any, Any]:
    from argparse import Namespace

    from speculators.train.cli import parse_vocab_mappings  # type: ignore[import-not-found] # in an environment of its own

    arguments = {"d2t_path": None, "t2d_path": None, "token_freq_path": None, "trust_remote_code": False}
    d2t, t2d, size = parse_vocab_mappings(Namespace(draft_vocab_size=draft, **{**arguments, **given}))
    assert size == draft
    return d2t, t2d


def speculators_vocabulary(files: dict[str, str], draft: int, target: int, model: str, cache: str) -> list[Maps]:
    """What a drafter of speculators has after it read ``--d2t-path`` and ``--t2d-path``, and what speculators makes.

    It makes that of ``--token-freq-path``, and keeps it in the folder of its data.
    """
    from types import SimpleNamespace

    from speculators.model import DraftVocabMixin  # type: ignore[import-not-found] # in an environment of its own

    d2t, t2d = _speculators_maps(draft, d2t_path=files["d2t"], t2d_path=files["t2d"], data_path="none")
    drafter = DraftVocabMixin()
    layer = SimpleNamespace(vocab_size=target, hidden_size=4)
    drafter._init_vocab(SimpleNamespace(transformer_layer_config=layer, draft_vocab_size=draft))
    drafter.load_vocab_mappings(t2d, d2t)
    alone = {"token_freq_path": files["token_freq"], "verifier_name_or_path": model, "data_path": cache}
    return [_maps(drafter.d2t, drafter.t2d), _maps(*_speculators_maps(draft, **alone))]


def speculators_frequencies(path: str, to: str) -> dict[str, int]:
    """How speculators counts a dataset on disk itself."""
    import torch
    from datasets import load_from_disk  # type: ignore[import-not-found] # in an environment of its own
    from speculators.train.vocab_mapping import save_token_frequency_distribution  # type: ignore[import-not-found] # in an environment of its own

    save_token_frequency_distribution(load_from_disk(path), to)
    return {str(token): count for token, count in torch.load(to, weights_only=True).items()}


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
