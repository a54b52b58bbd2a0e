"""Profiles on the tokenizers of real targets: found, their ids right, and genuine samples in real ids pass."""

# ruff: noqa: RUF001 - DeepSeek writes its tokens with a wide bar.

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from eagle3_assets.prompts.inert import inert_rows, unrendered
from eagle3_assets.prompts.render import rendered_modes, tokenize_rows
from eagle3_assets.target import load_tokenizer
from eagle3_assets.tokens.known_ids import KNOWN_IDS, known_profile
from eagle3_assets.tokens.profile import ProfileError, resolve_profile
from eagle3_assets_tests.tokens.families import FAMILIES, Family
from eagle3_assets_tests.tokens.judging import broken_laws, judged_laws

ROOT = Path(__file__).parent.parent.parent

pytestmark = pytest.mark.tokenizers


@dataclass(frozen=True)
class Real:
    """A real tokenizer as a target of one profile has it."""

    package: str
    vocab_size: int
    """Of the target's model config."""
    ids: dict[str, int]
    """Ids which public sources quote."""
    suffixes: tuple[list[int], list[int]]
    """Generation suffix with and without thinking, as ids."""
    renamed: dict[str, str] = field(default_factory=dict)
    """Tokens of the package which this target has under another name."""
    own_template: bool = True
    """Whether the package's template is this target's; else a fixture of our own is used."""


QWEN_TURN = [151644, 77091, 198]
DEEPSEEK_THINK = {"<｜place▁holder▁no▁798｜>": "<think>", "<｜place▁holder▁no▁799｜>": "</think>"}
DEEPSEEK_SEARCH = {
    "<｜place▁holder▁no▁796｜>": "<｜search▁begin｜>",
    "<｜place▁holder▁no▁797｜>": "<｜search▁end｜>",
}
LLAMA_3_1 = {
    "<|reserved_special_token_2|>": "<|finetune_right_pad_id|>",
    "<|reserved_special_token_4|>": "<|eom_id|>",
    "<|reserved_special_token_5|>": "<|python_tag|>",
}
"""The package has the names of Llama 3."""
QWEN_IDS = {"<|im_end|>": 151645, "<think>": 151667, "</think>": 151668, "<tool_call>": 151657}
DEEPSEEK_IDS = {"<think>": 128798, "</think>": 128799, "<｜User｜>": 128803, "<｜end▁of▁sentence｜>": 1}

REAL = {
    "qwen3": Real("qwen3", 151936, QWEN_IDS, (QWEN_TURN, [*QWEN_TURN, 151667, 271, 151668, 271])),
    "qwen3-thinking": Real(
        "qwen3", 151936, QWEN_IDS, ([*QWEN_TURN, 151667, 198], [*QWEN_TURN, 151667, 198]), own_template=False
    ),
    "qwen3-instruct": Real("qwen3", 151936, {"<|im_end|>": 151645}, (QWEN_TURN, QWEN_TURN), own_template=False),
    "deepseek-v3.1": Real(
        "deepseek_v3",
        129280,
        DEEPSEEK_IDS,
        ([128804, 128798], [128804, 128799]),
        renamed=DEEPSEEK_THINK | DEEPSEEK_SEARCH,
        own_template=False,
    ),
    "deepseek-r1": Real(
        "deepseek_v3",
        129280,
        DEEPSEEK_IDS,
        ([128804, 128798, 201], [128804, 128798, 201]),
        renamed=DEEPSEEK_THINK,
        own_template=False,
    ),
    # R1-0528's template ends like that of the package.
    "deepseek-r1-0528": Real("deepseek_v3", 129280, DEEPSEEK_IDS, ([128804], [128804]), renamed=DEEPSEEK_THINK),
    "gpt-oss": Real(
        "gptoss",
        201088,
        {"<|return|>": 200002, "<|call|>": 200012, "<|startoftext|>": 199998},
        ([200006, 173781], [200006, 173781]),
        own_template=False,
    ),
    "llama3": Real(
        "llama3_1",
        128256,
        {"<|eot_id|>": 128009, "<|eom_id|>": 128008, "<|begin_of_text|>": 128000},
        ([128006, 78191, 128007, 271], [128006, 78191, 128007, 271]),
        renamed=LLAMA_3_1,
    ),
}


@pytest.fixture(scope="session")
def packages() -> Path:
    """The folder of fetched tokenizers."""
    script = ROOT / "scripts" / "fetch-tokenizers"
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=False)
    if done.returncode and not os.environ.get("CI"):
        pytest.skip(done.stderr.strip())
    assert not done.returncode, done.stderr
    return ROOT / ".cache" / "tokenizers"


@pytest.fixture(scope="session")
def load(packages: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Any]:
    """Loads the tokenizer of a profile's target, once."""
    known: dict[str, Any] = {}

    def loaded(name: str) -> Any:
        if name not in known:
            directory = tmp_path_factory.mktemp("real")
            known[name] = load_tokenizer(
                prepared(REAL[name], FAMILIES[name], packages, directory), trust_remote_code=False
            )
        return known[name]

    return loaded


def prepared(real: Real, family: Family, packages: Path, directory: Path) -> Path:
    """The package's tokenizer, with the names and the template of the target."""
    [source] = packages.glob(f"{real.package}-*")
    config = json.loads((source / "tokenizer_config.json").read_text(encoding="utf-8"))
    if real.own_template:
        assert config["chat_template"]
    else:
        config["chat_template"] = family.template
    for token in config.get("added_tokens_decoder", {}).values():
        _rename(token, real, family)
    (directory / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    if not real.renamed:
        shutil.copy(source / "tokenizer.json", directory)
        return directory
    tokenizer = json.loads((source / "tokenizer.json").read_text(encoding="utf-8"))
    for token in tokenizer["added_tokens"]:
        _rename(token, real, family)
    (directory / "tokenizer.json").write_text(json.dumps(tokenizer), encoding="utf-8")
    return directory


def _rename(token: dict[str, Any], real: Real, family: Family) -> None:
    name = real.renamed.get(token["content"])
    if name is not None:
        token.update(content=name, special=name not in family.kept and token["special"])


@pytest.mark.parametrize("name", REAL)
def test_a_real_tokenizer_has_the_profile_and_genuine_samples_pass(name: str, load: Callable[[str], Any]) -> None:
    real, family, tokenizer = REAL[name], FAMILIES[name], load(name)
    profile = resolve_profile(tokenizer, vocab_size=real.vocab_size, rendered=rendered_modes(tokenizer))
    assert profile.name == name
    assert {token: profile.label(i) for token, i in real.ids.items()} == {t: f"{t} ({i})" for t, i in real.ids.items()}
    assert (list(profile.suffixes["thinking"]), list(profile.suffixes["no_thinking"])) == real.suffixes
    assert "tokenizer_canary" in judged_laws(tokenizer, profile, family.samples)
    assert broken_laws(tokenizer, profile, family.samples) == set()


@pytest.mark.parametrize("name", REAL)
def test_built_in_ids_are_those_of_the_real_tokenizer(name: str, load: Callable[[str], Any]) -> None:
    known, tokenizer = KNOWN_IDS[name], load(name)
    assert known.vocab_size == REAL[name].vocab_size
    vocabulary = tokenizer.get_vocab()
    ours = {token: i for token, i in known.get_vocab().items() if token in known.tokens}
    assert ours == {token: vocabulary.get(token) for token in ours}
    for text, ids in known.words.items():
        assert tokenizer.encode(text, add_special_tokens=False) == list(ids), text
    assert broken_laws(tokenizer, known_profile(name), FAMILIES[name].samples) == set()
    there, built_in = resolve_profile(tokenizer, name=name, vocab_size=known.vocab_size), known_profile(name)
    # Llama 3.1 counts its reserved tokens anew, which renaming a few of Llama 3's does not.
    assert built_in == (replace(there, tokens=built_in.tokens) if name == "llama3" else there)
    assert built_in.tokens.keys() == there.tokens.keys()


TALKS: list[list[dict[str, Any]]] = [
    [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Cold in Oslo?"},
        {"role": "assistant", "content": "Yes.", "reasoning_content": "Minus three."},
        {"role": "user", "content": "Cold in Oslo?"},
        {"role": "assistant", "content": "", "reasoning_content": "Only thoughts."},
        {"role": "user", "content": "And now?"},
    ],
    [
        {"role": "user", "content": "Cold in Oslo?"},
        {
            "role": "assistant",
            "content": "I look.",
            "tool_calls": [{"type": "function", "function": {"name": "f", "arguments": {"city": "Oslo"}}}],
        },
        {"role": "tool", "content": "-3"},
        {"role": "tool", "content": "minus three"},
        {"role": "assistant", "content": "Yes."},
        {"role": "user", "content": "And now?"},
    ],
]


@pytest.mark.parametrize("thinking", [True, False])
@pytest.mark.parametrize("name", [name for name, real in REAL.items() if real.own_template])
def test_a_real_template_drops_no_message(name: str, thinking: bool, load: Callable[[str], Any]) -> None:
    tokenizer = load(name)
    rows = pl.DataFrame([{"sample_id": f"{n}", "messages": json.dumps(talk)} for n, talk in enumerate(TALKS)])
    inert = inert_rows(rows.with_columns(tools=pl.lit(None, pl.String)), "</think>")

    def lost(template: str) -> list[list[str] | None]:
        made = tokenize_rows(tokenizer, inert, thinking=thinking, chat_template=template, call_id=None)
        both = zip(inert["messages"], made["prompt_ids"], strict=True)
        return [None if ids is None else unrendered(messages, tokenizer.decode(ids)) for messages, ids in both]

    # DeepSeek's and Llama 3's leave out calls, and the rows with them are refused.
    assert lost(tokenizer.chat_template) == [[], [] if name == "qwen3" else None]
    without_the_first = "{%- set messages = messages[1:] -%}" + tokenizer.chat_template
    assert lost(without_the_first)[0] == ["message 0 (system)"]


def test_llama_3_itself_lacks_the_stop_token_of_its_successors(packages: Path) -> None:
    [source] = packages.glob("llama3_1-*")
    tokenizer = load_tokenizer(source, trust_remote_code=False)
    profile = resolve_profile(tokenizer, vocab_size=128256, rendered=rendered_modes(tokenizer))
    assert (profile.name, profile.stop_ids) == ("llama3", frozenset({128001, 128009}))
    assert 128008 in profile.reserved_ids
    plain = {name: FAMILIES["llama3"].samples[name] for name in ("answer", "call", "cut")}
    assert broken_laws(tokenizer, profile, plain) == set()


def test_a_deepseek_tokenizer_without_reasoning_is_no_known_target(packages: Path) -> None:
    [source] = packages.glob("deepseek_v3-*")
    tokenizer = load_tokenizer(source, trust_remote_code=False)
    with pytest.raises(ProfileError, match="no built-in profile fits"):
        resolve_profile(tokenizer, vocab_size=129280, rendered=rendered_modes(tokenizer))


def test_without_npm_the_script_says_how_to_get_it(tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "scripts" / "fetch-tokenizers"), str(tmp_path)]
    done = subprocess.run(command, env={"PATH": ""}, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "npm is not there; install Node.js" in done.stderr
