from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from eagle3_assets.tokens.builtin_profiles import PROFILES
from eagle3_assets.tokens.profile import ProfileError, TargetProfile, Tokenizer, resolve_profile
from eagle3_assets_tests.tokens import kimi


class Words:
    """A tokenizer whose tokens are given; other text falls into characters."""

    def __init__(self, tokens: Sequence[str]) -> None:
        self.vocabulary = {token: 100 + n for n, token in enumerate(tokens)}

    @property
    def added_tokens_decoder(self) -> Mapping[int, Any]:
        return {}

    def get_vocab(self) -> dict[str, int]:
        return self.vocabulary

    def convert_tokens_to_ids(self, tokens: str) -> int | None:
        return self.vocabulary.get(tokens)

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        assert not add_special_tokens
        ids = []
        while text:
            token = next((t for t in self.vocabulary if text.startswith(t)), text[0])
            ids.append(self.vocabulary[token] if token in self.vocabulary else ord(token) % 100)
            text = text.removeprefix(token)
        return ids

    def decode(self, token_ids: list[int], **_: bool) -> str:
        raise NotImplementedError


CHATML = ["<|im_start|>", "<|im_end|>", "<|endoftext|>"]
QWEN3 = [*CHATML, "<think>", "</think>", "<tool_call>", "</tool_call>"]


def test_kimi_ids(profile: TargetProfile) -> None:
    assert profile.name == "kimi"
    assert profile.vocab_size == kimi.VOCAB_SIZE
    assert profile.stop_ids == {kimi.IM_END, kimi.EOS}
    assert (profile.reasoning_start, profile.reasoning_end) == (kimi.THINK, kimi.END_THINK)
    assert profile.tools is not None
    assert profile.tools.all == (
        kimi.SECTION_BEGIN,
        kimi.CALL_BEGIN,
        kimi.ARG_BEGIN,
        kimi.CALL_END,
        kimi.SECTION_END,
    )
    assert profile.suffixes == {"thinking": tuple(kimi.SUFFIX), "no_thinking": (*kimi.SUFFIX, kimi.END_THINK)}
    assert (profile.bos, profile.eos, profile.pad, profile.unk) == (kimi.BOS, kimi.EOS, kimi.PAD, kimi.UNK)
    assert profile.prompt_only_ids == {kimi.IM_USER, kimi.IM_ASSISTANT, kimi.IM_SYSTEM, kimi.IM_MIDDLE}
    assert len(profile.media_ids) == 4
    assert len(profile.reserved_ids) == 256 - 20
    assert not profile.reserved_ids & profile.structural_ids


def test_labels(profile: TargetProfile) -> None:
    assert profile.label(kimi.END_THINK) == "</think> (163607)"
    assert profile.label(17) == "id 17"


@pytest.mark.parametrize(("tokens", "name"), [(QWEN3, "qwen3"), (CHATML, "chatml")])
def test_auto_finds_the_family_by_token_names(tokens: list[str], name: str) -> None:
    assert resolve_profile(Words(tokens), vocab_size=200).name == name


def test_qwen3_opens_reasoning_itself_and_has_calls_without_sections() -> None:
    profile = resolve_profile(Words(QWEN3), vocab_size=200)
    assert profile.suffixes["thinking"][0] == 100
    assert profile.reasoning_start not in profile.suffixes["thinking"]
    assert profile.reasoning_end in profile.suffixes["no_thinking"]
    assert profile.tools is not None
    assert (profile.tools.opening, profile.tools.closing) == (105, 106)


def test_no_family_fits() -> None:
    with pytest.raises(ProfileError, match=r"no built-in profile fits.*kimi by .*profile_overrides.*plain"):
        resolve_profile(Words(["a"]), vocab_size=200)


def test_unknown_name() -> None:
    with pytest.raises(ProfileError, match=r"no profile 'gpt'; built in are: auto, kimi, kimi-k2-thinking, .*, plain"):
        resolve_profile(Words(QWEN3), name="gpt", vocab_size=200)


def test_missing_token_names_profile_token_and_override() -> None:
    with pytest.raises(ProfileError, match=r"'qwen3': the tokenizer has no token '</think>' \(reasoning_end\)"):
        resolve_profile(Words([t for t in QWEN3 if t != "</think>"]), name="qwen3", vocab_size=200)


def test_an_optional_stop_token_that_the_tokenizer_lacks_is_left_out_wherever_it_is_named() -> None:
    overrides = {"stop_optional": ["<|eom|>"], "turns": {"<|im_start|>": ["<|im_end|>", "<|eom|>"]}}
    without = resolve_profile(Words(CHATML), name="chatml", vocab_size=200, overrides=overrides)
    assert (without.stop_ids, without.turns) == (frozenset({101}), {100: frozenset({101})})
    having = resolve_profile(Words([*CHATML, "<|eom|>"]), name="chatml", vocab_size=200, overrides=overrides)
    assert (having.stop_ids, having.turns) == (frozenset({101, 103}), {100: frozenset({101, 103})})


def test_unknown_override_lists_the_allowed_ones() -> None:
    with pytest.raises(
        ProfileError, match=r"'stops' is no fact of a profile; allowed are: stop, stop_optional, suffixes, "
    ):
        resolve_profile(Words(QWEN3), overrides={"stops": []}, vocab_size=200)


def test_override_of_a_wrong_type() -> None:
    with pytest.raises(ProfileError, match=r"override 'stop\.0'.*string"):
        resolve_profile(Words(QWEN3), overrides={"stop": [1]}, vocab_size=200)


def test_override_with_a_broken_pattern() -> None:
    with pytest.raises(ProfileError, match="no regular expression"):
        resolve_profile(Words(QWEN3), overrides={"reserved": "("}, vocab_size=200)


def test_override_replaces_the_fact(tokenizer: Tokenizer) -> None:
    text = "<|im_assistant|>assistant<|im_middle|>"
    profile = resolve_profile(tokenizer, overrides={"suffixes": {"thinking": text}}, vocab_size=kimi.VOCAB_SIZE)
    assert profile.suffixes == {"thinking": tuple(kimi.SUFFIX[:-1])}


def test_ids_beyond_the_models_vocabulary() -> None:
    with pytest.raises(ProfileError, match=r"</think> has id 104, outside the model's vocabulary of 104"):
        resolve_profile(Words(QWEN3), vocab_size=104)
    with pytest.raises(ProfileError, match="stop id 200 is outside"):
        resolve_profile(Words(QWEN3), vocab_size=200, stop_token_ids=[200])


def test_the_engines_stop_ids_join_the_profiles() -> None:
    profile = resolve_profile(Words(CHATML), vocab_size=200, stop_token_ids=[102])
    assert profile.stop_ids == {101, 102}
    assert profile.label(102) == "<|endoftext|> (102)"


def test_plain_describes_only_the_stop_set() -> None:
    profile = resolve_profile(Words(["a"]), name="plain", vocab_size=200, stop_token_ids=[3])
    assert profile.stop_ids == {3}
    assert profile.tools is None
    assert not profile.suffixes


def test_missing_media_and_padding_tokens_are_no_fault() -> None:
    profile = resolve_profile(Words(QWEN3), vocab_size=200)
    assert profile.media_ids == frozenset()
    assert profile.pad == 102


def test_built_in_names_agree() -> None:
    assert [spec.name for spec in PROFILES.values()] == list(PROFILES)


def test_turns_of_prompts(profile: TargetProfile) -> None:
    begins = (kimi.IM_USER, kimi.IM_ASSISTANT, kimi.IM_SYSTEM)
    assert profile.turns == dict.fromkeys(begins, frozenset({kimi.IM_END}))
    assert profile.prompt_bos is False
    assert PROFILES["plain"].turns == {}
    assert PROFILES["plain"].prompt_bos is None


@pytest.mark.parametrize(
    ("form", "head", "parts"),
    [
        ("functions.{name}:{number}", "functions.get_weather:12", {"name": "get_weather", "number": "12"}),
        ("functions.{name}:{number}", "functions.a.b-c:0", {"name": "a.b-c", "number": "0"}),
        ("functions.{name}:{number}", "functions.погода:0", {"name": "погода", "number": "0"}),
        ("functions.{name}:{number}", "functionsXa:0", None),
        ("functions.{name}:{number}", "functions.a:0 ", None),
        ("functions.{name}:{number}", "functions.a:\u0663", None),
        ("{name}", "get_weather", {"name": "get_weather"}),
        ("{name}", "", None),
    ],
)
def test_form_of_call_ids(form: str, head: str, parts: dict[str, str] | None) -> None:
    profile = resolve_profile(Words(QWEN3), vocab_size=200, overrides={"tool_call_id": form})
    assert profile.tool_call_pattern is not None
    match = profile.tool_call_pattern.fullmatch(head)
    assert (None if match is None else match.groupdict()) == parts


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        ({"tool_call_id": "functions.x:{number}"}, r"'tool_call_id'.*must hold \{name\} once"),
        ({"turns": {"<|im_start|>": ["<|nothing|>"]}}, r"no token '<\|nothing\|>' \(turns\)"),
        ({"turns": {"<|nothing|>": []}}, r"no token '<\|nothing\|>' \(turns\)"),
        ({"turns": ["<|im_start|>"]}, "profile override 'turns'"),
        ({"reasoning_habit": {"thinking": "always"}}, r"'reasoning_habit\.thinking': .*'opens' or 'never'"),
    ],
)
def test_wrong_description_of_turns_and_calls(overrides: dict[str, object], said: str) -> None:
    with pytest.raises(ProfileError, match=said):
        resolve_profile(Words(QWEN3), vocab_size=200, overrides=overrides)
