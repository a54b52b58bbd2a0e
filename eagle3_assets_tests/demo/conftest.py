"""Fixtures of the demo's tests: the shipped model directory, loaded once."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import eagle3_assets.demo

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

MODEL_DIR = Path(eagle3_assets.demo.__file__).with_name("model")


@pytest.fixture(scope="session")
def model_dir() -> Path:
    return MODEL_DIR


@pytest.fixture(scope="session")
def tokenizer(model_dir: Path) -> "PreTrainedTokenizerBase":
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(model_dir, local_files_only=True)
