"""The shipped model directory: what is in it, and that it still does what its card says."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from eagle3_assets.demo.corpus import KINDS
from eagle3_assets.demo.evaluate import demo_cases, generate, judge, load
from eagle3_assets.demo.tokenizer import EOS, STOP, TEMPLATE_FILE, VOCAB_SIZE

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

FILES = {
    "README.md",
    "chat_template.jinja",
    "config.json",
    "generation_config.json",
    "model.safetensors",
    "tokenizer.json",
    "tokenizer_config.json",
}
LIMIT_BYTES = 5_000_000


def test_the_directory_is_whole_and_small(model_dir: Path) -> None:
    assert {path.name for path in model_dir.iterdir()} == FILES
    assert sum(path.stat().st_size for path in model_dir.iterdir()) < LIMIT_BYTES


def test_the_template_is_the_one_in_the_sources(model_dir: Path) -> None:
    assert (model_dir / "chat_template.jinja").read_text(encoding="utf-8") == TEMPLATE_FILE.read_text(encoding="utf-8")


def test_configs_agree_with_the_tokenizer(model_dir: Path, tokenizer: "PreTrainedTokenizerBase") -> None:
    config = json.loads((model_dir / "config.json").read_text(encoding="utf-8"))
    generation = json.loads((model_dir / "generation_config.json").read_text(encoding="utf-8"))
    stop_id = tokenizer.convert_tokens_to_ids(STOP)
    assert config["vocab_size"] == len(tokenizer) == VOCAB_SIZE
    assert config["eos_token_id"] == generation["eos_token_id"] == stop_id
    assert config["pad_token_id"] == generation["pad_token_id"] == tokenizer.pad_token_id
    assert tokenizer.eos_token == EOS


@pytest.fixture(scope="module")
def outcomes(model_dir: Path) -> list[Any]:
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    loaded = load(model_dir)
    cases = [case for kind in KINDS for case in demo_cases(kind)]
    outputs = generate(loaded, cases, temperature=0)
    torch.set_num_threads(threads)
    return [judge(loaded.tokenizer, case, ids) for case, ids in zip(cases, outputs, strict=True)]


def test_greedy_generations_are_well_formed(outcomes: list[Any]) -> None:
    problems = [outcome.problem for outcome in outcomes if outcome.problem]
    assert len(outcomes) == 120
    assert len(problems) <= 0.03 * len(outcomes), problems


def test_the_kinds_differ_in_length(outcomes: list[Any]) -> None:
    from statistics import median

    lengths = {kind: median(len(o.output_ids) for o in outcomes if o.case.sample.kind == kind) for kind in KINDS}
    assert lengths["reasoning"] > 2 * max(lengths["chat"], lengths["function_calling"])
