"""Profiles from built-in ids are those that a tokenizer gives."""

import polars as pl
import pytest

from eagle3_assets.tokens.context import Context
from eagle3_assets.tokens.judge import judge_generations
from eagle3_assets.tokens.known_ids import KNOWN_IDS, known_profile
from eagle3_assets.tokens.profile import ProfileError, TargetProfile, Tokenizer, resolve_profile
from eagle3_assets_tests.tokens import kimi


def test_kimi_is_the_profile_of_its_tokenizer(profile: TargetProfile, tokenizer: Tokenizer) -> None:
    known = known_profile("kimi")
    assert known == profile
    for text in ("<|im_user|>user<|im_middle|>", *known.suffix_texts.values()):
        assert KNOWN_IDS["kimi"].encode(text) == tokenizer.encode(text, add_special_tokens=False)
    assert KNOWN_IDS["kimi"].decode([kimi.THINK, kimi.END_THINK]) == "<think></think>"


def test_kimis_before_k2_5_have_fewer_tokens() -> None:
    newest, thinking, first = (known_profile(name) for name in ("kimi", "kimi-k2-thinking", "kimi-k2"))
    assert (thinking.reasoning_start, thinking.reasoning_end) == (kimi.THINK, kimi.END_THINK)
    assert first.reasoning_start is None
    assert {kimi.THINK, kimi.END_THINK} <= first.reserved_ids
    assert thinking.reserved_ids - newest.reserved_ids == newest.media_ids
    for known in (thinking, first):
        assert (known.stop_ids, known.tools) == (newest.stop_ids, newest.tools)
        assert known.suffixes["thinking"] == tuple(kimi.SUFFIX[:-1])


def test_qwen3_has_the_ids_that_its_tokenizer_gives() -> None:
    known = known_profile("qwen3")
    assert known.vocab_size == 151_936
    assert known.stop_ids == {151645, 151643}
    assert known.suffixes["no_thinking"] == (151644, 77091, 198, 151667, 271, 151668, 271)


@pytest.mark.parametrize("name", KNOWN_IDS)
def test_every_table_fits_its_profile(name: str) -> None:
    assert known_profile(name) == resolve_profile(KNOWN_IDS[name], name=name, vocab_size=KNOWN_IDS[name].vocab_size)
    assert max(KNOWN_IDS[name].get_vocab().values()) < KNOWN_IDS[name].vocab_size


def test_what_is_not_built_in_is_said_so() -> None:
    with pytest.raises(ProfileError, match="'other text' are not built in"):
        KNOWN_IDS["kimi"].encode("<think>other text")
    with pytest.raises(ProfileError, match="id 7 is not built in"):
        KNOWN_IDS["kimi"].decode([7])
    with pytest.raises(ProfileError, match="--tokenizer DIR"):
        known_profile("plain")


def test_the_number_of_tokens_is_the_tokenizers(tokenizer: Tokenizer) -> None:
    known = {name: known_profile(name).token_count for name in ("kimi", "qwen3", "deepseek-r1", "gpt-oss", "llama3")}
    assert known == {"kimi": 163_840, "qwen3": 151_669, "deepseek-r1": 128_815, "gpt-oss": 200_019, "llama3": 128_256}
    padded = resolve_profile(tokenizer, name="plain", vocab_size=164_000, stop_token_ids=[kimi.IM_END])
    assert padded.token_count == 163_840
    outputs = pl.DataFrame({"sample_id": ["a", "b"], "output_ids": [[5, 163_840, kimi.IM_END], [5, 6, kimi.IM_END]]})
    for context in (Context(padded), Context(padded, tokenizer=tokenizer)):
        report = judge_generations([outputs], context)
        assert report["no_reserved_ids"].violations == 1
        assert report.quarantined == {"a"}
