"""A tiny random model, made once for all tests of the embedded engine."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

VOCAB = 96
CONTEXT = 64
CONFIG_EOS = 7
GENERATION_EOS = 8


def make_checkpoint(directory: Path, *, seed: int = 0, eos: int | None = CONFIG_EOS) -> Path:
    """A random Qwen3 with spiky logits, so that no two tokens tie.

    Its generation config would sample, wildly, if it were obeyed.
    """
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    torch.manual_seed(seed)
    config = Qwen3Config(
        vocab_size=VOCAB,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        max_position_embeddings=CONTEXT,
        initializer_range=0.4,
        eos_token_id=eos,
        bos_token_id=None,
        tie_word_embeddings=False,
    )
    Qwen3ForCausalLM(config).save_pretrained(directory)
    sampling = {
        "do_sample": True,
        "temperature": 3.0,
        "top_k": 5,
        "repetition_penalty": 1.9,
        "eos_token_id": [GENERATION_EOS],
    }
    (directory / "generation_config.json").write_text(json.dumps(sampling))
    return directory


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> Iterator[None]:
    """The machine is shared, and a tiny model gains nothing from more threads."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint with stop ids in its two configs and no tokenizer."""
    return make_checkpoint(tmp_path_factory.mktemp("model"))
