"""A target like Kimi's whose tokenizer is Python code that lies beside it: slow, and run only where it is trusted."""

import json
from pathlib import Path

from eagle3_assets_tests.conftest import DEMO
from eagle3_assets_tests.tokens import kimi

FILE = "tokenization_own.py"
HELPER = "own_helper.py"

TOKENIZER = '''\
"""A tokenizer of bytes, words and structural tokens, in plain Python."""

import json
import os

from transformers import PreTrainedTokenizer

from .own_helper import pieces


class OwnTokenizer(PreTrainedTokenizer):
    vocab_files_names = {"vocab_file": "vocab.json"}
    model_input_names = ["input_ids", "attention_mask"]

    def __init__(self, vocab_file, **kwargs):
        with open(vocab_file, encoding="utf-8") as file:
            self.ids = json.load(file)
        self.texts = {i: text for text, i in self.ids.items()}
        super().__init__(**kwargs)

    @property
    def vocab_size(self):
        return len(self.ids)

    def get_vocab(self):
        return {**self.ids, **self.added_tokens_encoder}

    def _tokenize(self, text, **kwargs):
        return pieces(text)

    def _convert_token_to_id(self, token):
        return self.ids[token]

    def _convert_id_to_token(self, index):
        return self.texts[index]

    def convert_tokens_to_string(self, tokens):
        parts = (bytes([self.ids[token] - 1000]) if token in self.ids else token.encode() for token in tokens)
        return b"".join(parts).decode("utf-8", "replace")

    def save_vocabulary(self, save_directory, filename_prefix=None):
        return (os.path.join(save_directory, "vocab.json"),)
'''
HELPER_CODE = '''\
"""What the tokenizer imports."""


def pieces(text):
    return [f"x{byte:02x}" for byte in text.encode()]
'''


def save_target(directory: Path) -> Path:
    """Writes the files of a target, all but its weights."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / FILE).write_text(TOKENIZER, encoding="utf-8")
    (directory / HELPER).write_text(HELPER_CODE, encoding="utf-8")
    (directory / "vocab.json").write_text(json.dumps({f"x{byte:02x}": 1000 + byte for byte in range(256)}))
    (directory / "chat_template.jinja").write_text((DEMO / "chat_template.jinja").read_text(encoding="utf-8"))
    added = {
        str(i): {
            "content": text,
            "special": text in kimi.SPECIAL,
            "normalized": False,
            "lstrip": False,
            "rstrip": False,
            "single_word": False,
        }
        for text, i in sorted((kimi.SPECIAL | kimi.NOT_SPECIAL).items(), key=lambda item: item[1])
    }
    settings = {
        "tokenizer_class": "OwnTokenizer",
        "auto_map": {"AutoTokenizer": ["tokenization_own.OwnTokenizer", None]},
        "added_tokens_decoder": added,
        "bos_token": "[BOS]",
        "eos_token": "[EOS]",
        "pad_token": "[PAD]",
        "unk_token": "[UNK]",
    }
    (directory / "tokenizer_config.json").write_text(json.dumps(settings))
    config = {"model_type": "kimi_k25", "vocab_size": kimi.VOCAB_SIZE, "max_position_embeddings": 4096}
    (directory / "config.json").write_text(json.dumps(config))
    return directory
