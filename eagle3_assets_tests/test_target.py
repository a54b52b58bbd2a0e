"""What a checkpoint's config files say of it, and what a person is told where they say nothing usable."""

import json
import logging
from pathlib import Path
from typing import Any

import pytest

from eagle3_assets.config import Target
from eagle3_assets.prompts.render import prompt_ids
from eagle3_assets.remote_code import code_files
from eagle3_assets.target import TargetError, load_target, read_model_facts
from eagle3_assets_tests.conftest import DEMO

USABLE = {"vocab_size": 100, "max_position_embeddings": 50, "eos_token_id": 3}


def facts_of(directory: Path, config: dict[str, Any], generation: dict[str, Any] | None = None) -> Any:
    (directory / "config.json").write_text(json.dumps(config), encoding="utf-8")
    if generation is not None:
        (directory / "generation_config.json").write_text(json.dumps(generation), encoding="utf-8")
    return read_model_facts(directory)


@pytest.mark.parametrize(
    ("config", "generation", "expected"),
    [
        (USABLE, None, (100, 50, (3,))),
        (USABLE, {"eos_token_id": [7, 5]}, (100, 50, (3, 5, 7))),
        ({"text_config": USABLE, "eos_token_id": 9}, None, (100, 50, (3, 9))),
        ({"vocab_size": 100, "n_positions": 20}, None, (100, 20, ())),
        (USABLE | {"text_config": None, "eos_token_id": None}, {}, (100, 50, ())),
    ],
)
def test_facts_are_read_wherever_they_stand(
    tmp_path: Path, config: dict[str, Any], generation: dict[str, Any] | None, expected: tuple[int, int, tuple[int]]
) -> None:
    facts = facts_of(tmp_path, config, generation)
    assert (facts.vocab_size, facts.context_length, facts.stop_token_ids) == expected


@pytest.mark.parametrize(
    ("config", "generation", "said"),
    [
        ({}, None, "config.json: `vocab_size` is None and `max_position_embeddings` is None; must be a whole number"),
        (USABLE | {"vocab_size": "100"}, None, "config.json: `vocab_size` is '100'; must be a whole number above 0"),
        (USABLE | {"max_position_embeddings": True}, None, "`max_position_embeddings` is True"),
        (USABLE | {"max_position_embeddings": 0}, None, "`max_position_embeddings` is 0"),
        (USABLE | {"eos_token_id": "</s>"}, None, "config.json: `eos_token_id` is '</s>'; must be a token id"),
        (USABLE, {"eos_token_id": [3, "x"]}, "generation_config.json: `eos_token_id` is [3, 'x']"),
        (USABLE, {"eos_token_id": -1}, "generation_config.json: `eos_token_id` is -1"),
    ],
)
def test_what_is_unusable_is_named_with_its_file(
    tmp_path: Path, config: dict[str, Any], generation: dict[str, Any] | None, said: str
) -> None:
    with pytest.raises(TargetError) as raised:
        facts_of(tmp_path, config, generation)
    assert said in str(raised.value)


def test_a_config_that_is_nested_without_end_is_named(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"a":' + "[" * 10_000 + "]" * 10_000 + "}")
    with pytest.raises(TargetError, match=r"config\.json: is nested too deeply"):
        read_model_facts(tmp_path)
    assert code_files(tmp_path) == ()


@pytest.mark.parametrize(
    ("template", "said"),
    [
        ("a\n{% for m in messages %}x", "line 2: Unexpected end of template"),
        ("a\nb\n{{ messages | sorted_well }}", "line 3: No filter named 'sorted_well'."),
    ],
)
def test_what_is_no_template_is_named_with_file_and_line(template: str, said: str, tmp_path: Path) -> None:
    file = tmp_path / "t.jinja"
    file.write_text(template, encoding="utf-8")
    with pytest.raises(TargetError) as error:
        load_target(Target(model=str(DEMO / "model"), chat_template=str(file)))
    assert f"target.chat_template: {file}, {said}" in str(error.value)


def test_a_template_that_refuses_one_conversation_is_a_template(tmp_path: Path) -> None:
    file = tmp_path / "t.jinja"
    file.write_text("{{ raise_exception('tools only') }}", encoding="utf-8")
    settings = Target(model=str(DEMO / "model"), chat_template=str(file), profile="kimi")
    assert load_target(settings).chat_template == "{{ raise_exception('tools only') }}"


def test_nobody_is_warned_of_long_texts_that_no_model_is_asked_about() -> None:
    """Outputs longer than a tokenizer's ``model_max_length`` are ordinary; such prompts are refused by name."""
    tokenizer = load_target(Target(model=str(DEMO / "model"))).tokenizer
    logger, heard = logging.getLogger("transformers"), list[str]()
    handler = logging.Handler()
    handler.emit = lambda record: heard.append(record.getMessage())  # type: ignore[method-assign] # a test's own
    logger.addHandler(handler)
    try:
        for ids in (
            tokenizer.encode("word " * 3_000, add_special_tokens=False),
            *prompt_ids(tokenizer, ["word " * 3_000]),
        ):
            assert len(ids) > tokenizer.model_max_length
        logging.getLogger("transformers.tokenization_utils_base").warning("something else")
    finally:
        logger.removeHandler(handler)
    assert heard == ["something else"]
