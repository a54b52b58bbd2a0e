"""Rendered prompts to ids."""

import logging

from eagle3_assets.prompts.render import prompt_ids
from eagle3_assets.target import load_tokenizer
from eagle3_assets_tests.conftest import DEMO


def test_of_a_prompt_that_is_too_long_transformers_does_not_speak() -> None:
    said: list[logging.LogRecord] = []
    listener = logging.Handler()
    listener.emit = said.append  # type: ignore[assignment, method-assign]
    logger = logging.getLogger("transformers")  # which passes nothing on to the root
    tokenizer = load_tokenizer(DEMO / "model", trust_remote_code=False)
    logger.addHandler(listener)
    try:
        [ids] = prompt_ids(tokenizer, ["word " * 3_000])
        assert len(ids) > tokenizer.model_max_length
        assert said == []
        tokenizer(["word " * 3_000])
        assert said  # so it would
    finally:
        logger.removeHandler(listener)
