"""Genuine output of every built-in profile passes every law that judges it, and damaged output does not."""

# ruff: noqa: RUF001 - DeepSeek writes its tokens with a wide bar.

from dataclasses import dataclass, replace
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eagle3_assets.decoding import Decoder
from eagle3_assets.prompts.render import rendered_modes
from eagle3_assets.target import load_tokenizer
from eagle3_assets.tokens.anatomy import anatomy
from eagle3_assets.tokens.builtin_profiles import PROFILES
from eagle3_assets.tokens.context import Context
from eagle3_assets.tokens.judge import judge_prompts
from eagle3_assets.tokens.profile import TargetProfile, Tokenizer, resolve_profile
from eagle3_assets_tests.tokens import families
from eagle3_assets_tests.tokens.families import BOS, EOS, FAMILIES, Sample
from eagle3_assets_tests.tokens.judging import broken_laws, judged_laws, remarks

SHARED_TOKENS = {
    "kimi": ["kimi", "kimi-k2-thinking", "kimi-k2"],
    "deepseek-r1": ["deepseek-r1", "deepseek-r1-0528"],
    "qwen3": ["qwen3", "qwen3-thinking", "qwen3-instruct", "chatml"],
}
"""Profiles that one tokenizer's tokens fit, the first the one that is taken where nothing else is known."""


@dataclass(frozen=True)
class Loaded:
    tokenizer: Tokenizer
    profile: TargetProfile


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Loaded]:
    """A tokenizer of each family, as a user's would be loaded, and the profile that ``auto`` finds for it."""
    found = {}
    for name, family in FAMILIES.items():
        tokenizer = load_tokenizer(
            families.save_small_tokenizer(family, tmp_path_factory.mktemp("family")), trust_remote_code=False
        )
        profile = resolve_profile(tokenizer, vocab_size=400, rendered=rendered_modes(tokenizer))
        found[name] = Loaded(tokenizer, profile)
    return found


def test_every_profile_has_genuine_samples() -> None:
    assert set(FAMILIES) == set(PROFILES) - {"plain"}


@pytest.mark.parametrize("name", FAMILIES)
def test_auto_finds_the_profile_by_tokens_and_template(name: str, loaded: dict[str, Loaded]) -> None:
    assert loaded[name].profile.name == name


@pytest.mark.parametrize(("tokens_of", "names"), SHARED_TOKENS.items())
def test_equal_tokens_are_told_apart_by_the_template_alone(
    tokens_of: str, names: list[str], loaded: dict[str, Loaded]
) -> None:
    tokenizer = loaded[tokens_of].tokenizer
    assert resolve_profile(tokenizer, vocab_size=400).name == names[0]
    assert resolve_profile(tokenizer, vocab_size=400, rendered={"thinking": "Hello"}).name == names[0]
    for name in names:
        rendered = rendered_modes(loaded[name].tokenizer)  # type: ignore[arg-type] # a transformers tokenizer is both
        found = resolve_profile(tokenizer, vocab_size=400, rendered=rendered).name
        # Where profiles end prompts alike, the one that describes more is taken.
        same_end = [n for n in names if PROFILES[n].suffixes == PROFILES[name].suffixes]
        assert found == same_end[0]


GENUINE = [(name, sample) for name, family in FAMILIES.items() for sample in family.samples]


@pytest.mark.parametrize(("name", "sample"), GENUINE)
def test_genuine_samples_pass_every_law_that_judges_them(name: str, sample: str, loaded: dict[str, Loaded]) -> None:
    samples = {sample: FAMILIES[name].samples[sample]}
    one = loaded[name]
    assert broken_laws(one.tokenizer, one.profile, samples) == set()
    expected = {"reasoning_closed"} if sample == "implicit-end" else set()
    assert remarks(one.tokenizer, one.profile, samples) == expected


@pytest.mark.parametrize("name", FAMILIES)
def test_ends_of_genuine_prompts_whose_mode_is_not_recorded(name: str, loaded: dict[str, Loaded]) -> None:
    one, samples = loaded[name], FAMILIES[name].samples
    prompts = families.prompts(one.tokenizer, samples).drop("thinking")
    context = Context(one.profile)
    verdict = judge_prompts([prompts], context)["prompt_suffix"]
    assert (verdict.status, verdict.judged) == ("passed", len(samples))
    glued = prompts.with_columns(pl.col("prompt_ids").list.concat(pl.lit([7])).cast(prompts.schema["prompt_ids"]))
    assert judge_prompts([glued], context)["prompt_suffix"].violations == len(samples)


@pytest.mark.parametrize("name", FAMILIES)
def test_what_a_profile_does_not_describe_is_not_judged(name: str, loaded: dict[str, Loaded]) -> None:
    one, spec = loaded[name], PROFILES[name]
    judged = judged_laws(one.tokenizer, one.profile, FAMILIES[name].samples)
    assert {"tokenizer_canary", "prompt_suffix", "stop_token_last", "nothing_after_stop"} <= judged.keys()
    never = "never" in spec.reasoning_habit.values()
    assert ("reasoning_closed" in judged) == (spec.reasoning_end is not None and not never)
    assert ("reasoning_off" in judged) == (never or "thinking-off" in FAMILIES[name].samples)
    assert ("tool_grammar" in judged) == (spec.tools is not None)


def test_a_channel_of_reasoning_is_named_as_the_reason(loaded: dict[str, Loaded]) -> None:
    one = loaded["gpt-oss"]
    reasons = judged_laws(one.tokenizer, one.profile, FAMILIES["gpt-oss"].samples, judged=False)
    for law in ("reasoning_closed", "reasoning_off", "reasoning_not_reopened"):
        assert reasons[law] == "the profile 'gpt-oss' has reasoning in the channel 'analysis', not between two tokens"


def test_arguments_within_a_fence_are_named_as_the_reason(loaded: dict[str, Loaded]) -> None:
    one = loaded["deepseek-r1"]
    reasons = judged_laws(one.tokenizer, one.profile, FAMILIES["deepseek-r1"].samples, judged=False)
    assert reasons["tool_arguments_json"] == "the profile 'deepseek-r1' has arguments within other text"


@dataclass(frozen=True)
class Damage:
    """How a sample is damaged, and the laws that must notice."""

    family: str
    sample: str
    old: str
    """Text that is replaced where it stands last, in the output or, with ``in_prompt``, in the prompt."""
    new: str
    laws: frozenset[str]
    in_prompt: bool = False

    def apply(self, sample: Sample) -> Sample:
        text = sample.prompt if self.in_prompt else sample.output
        assert self.old in text
        damaged = self.new.join(text.rsplit(self.old, 1))
        return replace(sample, prompt=damaged) if self.in_prompt else replace(sample, output=damaged)

    def __str__(self) -> str:
        return f"{self.family}-{self.sample}-{'-'.join(sorted(self.laws))}"


def output_damage(family: str, sample: str, old: str, new: str, *laws: str) -> Damage:
    return Damage(family, sample, old, new, frozenset(laws))


def prompt_damage(family: str, sample: str, old: str, new: str) -> Damage:
    return Damage(family, sample, old, new, frozenset({"prompt_suffix"}), in_prompt=True)


DAMAGES = [
    output_damage("kimi", "answer", "</think>", "", "reasoning_closed"),
    output_damage("kimi", "answer", "Two", "<think>Two", "reasoning_not_reopened"),
    output_damage("kimi", "thinking-off", "It", "</think>It", "reasoning_off"),
    output_damage("kimi", "parallel-calls", "<|tool_call_begin|>", " <|tool_call_begin|>", "tool_grammar"),
    prompt_damage("kimi", "answer", "<think>", ""),
    output_damage("kimi-k2-thinking", "answer", "</think>", "", "reasoning_closed"),
    output_damage("kimi-k2-thinking", "after-tool", "</think>", "</think></think>", "reasoning_closed"),
    output_damage("kimi-k2-thinking", "answer", "<think>", "", "reasoning_closed"),
    output_damage("kimi-k2-thinking", "answer", "Two", "Two<think>", "reasoning_not_reopened"),
    prompt_damage("kimi-k2-thinking", "answer", "<|im_middle|>", "<|im_middle|><think>"),
    output_damage("kimi-k2", "parallel-calls", "<|tool_calls_section_end|>", "", "tool_grammar"),
    prompt_damage("kimi-k2", "answer", "<|im_assistant|>assistant<|im_middle|>", ""),
    output_damage("qwen3", "answer", "</think>", "", "reasoning_closed"),
    output_damage("qwen3", "answer", "<think>", "", "reasoning_closed"),
    output_damage("qwen3", "thinking-off", "It", "<think>It", "reasoning_off"),
    output_damage("qwen3", "parallel-calls", "</tool_call>\n", "", "tool_grammar"),
    prompt_damage("qwen3", "thinking-off", "<think>\n\n</think>\n\n", ""),
    prompt_damage("qwen3", "answer", "\n", ""),
    output_damage("qwen3-thinking", "answer", "Two", "<think>\nTwo", "reasoning_not_reopened"),
    output_damage("qwen3-thinking", "answer", "\n</think>", "", "reasoning_closed"),
    prompt_damage("qwen3-thinking", "answer", "<think>\n", ""),
    output_damage("qwen3-instruct", "answer", "It", "<think>\n</think>It", "reasoning_off"),
    output_damage("qwen3-instruct", "parallel-calls", "</tool_call>", "", "tool_grammar"),
    prompt_damage("qwen3-instruct", "answer", "assistant\n", "assistant\n<think>\n\n</think>\n\n"),
    output_damage("deepseek-v3.1", "answer", "</think>", "", "reasoning_closed"),
    output_damage("deepseek-v3.1", "thinking-off", "It", "</think>It", "reasoning_off"),
    output_damage("deepseek-v3.1", "parallel-calls", "<｜tool▁sep｜>", "", "tool_grammar"),
    output_damage(
        "deepseek-v3.1", "parallel-calls", "<｜tool▁call▁begin｜>", "\n<｜tool▁call▁begin｜>", "tool_grammar"
    ),
    prompt_damage("deepseek-v3.1", "thinking-off", "</think>", "<think>"),
    prompt_damage("deepseek-v3.1", "thinking-off", "<｜Assistant｜></think>", ""),
    prompt_damage("deepseek-v3.1", "after-tool", "<｜tool▁output▁end｜>", ""),
    prompt_damage(
        "deepseek-v3.1", "after-tool", "<｜tool▁output▁end｜>", "<｜tool▁output▁end｜><｜Assistant｜></think>"
    ),
    output_damage("deepseek-r1", "answer", "</think>", "</think></think>", "reasoning_closed"),
    output_damage(
        "deepseek-r1", "parallel-calls", "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁begin｜>\n", "tool_grammar"
    ),
    prompt_damage("deepseek-r1", "answer", "<think>\n", ""),
    prompt_damage(
        "deepseek-r1", "after-tool", "<｜tool▁outputs▁end｜>", "<｜tool▁outputs▁end｜><｜Assistant｜><think>\n"
    ),
    output_damage("deepseek-r1-0528", "answer", "</think>", "", "reasoning_closed"),
    output_damage("deepseek-r1-0528", "answer", "<think>", "", "reasoning_closed"),
    prompt_damage("deepseek-r1-0528", "answer", "<｜Assistant｜>", "<｜Assistant｜><think>\n"),
    output_damage("deepseek-v3.1", "answer", "It", "<｜User｜>It", "no_role_ids"),
    output_damage("deepseek-v3.1", "answer", "It", "<｜place▁holder▁no▁0｜>It", "no_reserved_ids"),
    output_damage("deepseek-v3.1", "parallel-calls", '{"city"', "{city", "tool_arguments_json"),
    output_damage("gpt-oss", "answer", "It", "<|reserved_200000|>It", "no_reserved_ids"),
    output_damage("llama3", "answer", "It", "<|start_header_id|>It", "no_role_ids"),
    output_damage("gpt-oss", "call", "<|call|>", "<|call|><|start|>assistant", "nothing_after_stop"),
    output_damage("gpt-oss", "answer", "<|return|>", "<|end|>", "stop_token_last"),
    output_damage("gpt-oss", "answer", "<|end|>", "<|return|>", "nothing_after_stop"),
    prompt_damage("gpt-oss", "answer", "<|start|>assistant", ""),
    prompt_damage("gpt-oss", "after-tool", "assistant", "assistant<|channel|>analysis<|message|>"),
    output_damage("llama3", "built-in-tool", "<|eom_id|>", "<|python_tag|>", "stop_token_last"),
    output_damage("llama3", "built-in-tool", "brave", "<|eom_id|>brave", "nothing_after_stop"),
    output_damage("gpt-oss", "end-of-text", "It", "<|endoftext|>It", "nothing_after_stop"),
    output_damage("llama3", "answer", "<|eot_id|>", "<|eot_id|>\n\nMore", "nothing_after_stop", "stop_token_last"),
    prompt_damage("llama3", "answer", "\n\n", "\n"),
    output_damage("chatml", "answer", "It is", "It is<|im_end|>", "nothing_after_stop"),
    prompt_damage("chatml", "answer", "<|im_start|>assistant\n", ""),
    *(
        output_damage(family, "answer", stop, "", "stop_token_last")
        for family, stop in {
            **dict.fromkeys(("kimi", "kimi-k2-thinking", "kimi-k2"), "<|im_end|>"),
            **dict.fromkeys(("qwen3", "qwen3-thinking", "qwen3-instruct", "chatml"), "<|im_end|>"),
            **dict.fromkeys(("deepseek-v3.1", "deepseek-r1", "deepseek-r1-0528"), EOS),
            "gpt-oss": "<|return|>",
            "llama3": "<|eot_id|>",
        }.items()
    ),
]


STOPS = ("<|im_end|>", EOS, "<|return|>", "<|call|>", "<|endoftext|>", "<|eot_id|>", "<|eom_id|>")


@pytest.mark.parametrize("damage", DAMAGES, ids=str)
def test_damaged_samples_break_the_law_that_is_about_it(damage: Damage, loaded: dict[str, Loaded]) -> None:
    one, sample = loaded[damage.family], FAMILIES[damage.family].samples[damage.sample]
    [matched] = (stop for stop in STOPS if sample.output.endswith(stop))
    found = broken_laws(one.tokenizer, one.profile, {damage.sample: damage.apply(sample)}, matched)
    assert damage.laws <= found


def test_every_profile_has_damages_of_its_own() -> None:
    for name in FAMILIES:
        laws = {law for damage in DAMAGES if damage.family == name for law in damage.laws}
        assert {"prompt_suffix", "stop_token_last"} < laws, name


def test_llama_3_has_no_token_that_awaits_a_tools_result(tmp_path: Path) -> None:
    family = FAMILIES["llama3"]
    before = replace(family, special=tuple(t for t in family.special if t not in ("<|eom_id|>", "<|python_tag|>")))
    tokenizer = load_tokenizer(families.save_small_tokenizer(before, tmp_path), trust_remote_code=False)
    profile = resolve_profile(tokenizer, vocab_size=400, rendered=rendered_modes(tokenizer))
    assert profile.name == "llama3"
    assert {profile.tokens[i] for i in profile.stop_ids} == {"<|eot_id|>", "<|end_of_text|>"}
    plain = {name: family.samples[name] for name in ("answer", "call", "cut")}
    assert broken_laws(tokenizer, profile, plain) == set()


def test_the_role_tokens_of_gpt_oss_are_no_prompt_only_ids(loaded: dict[str, Loaded]) -> None:
    assert loaded["gpt-oss"].profile.prompt_only_ids == frozenset()


def test_deepseek_has_no_token_that_ends_a_users_turn_and_pads_with_another_than_its_end(
    loaded: dict[str, Loaded],
) -> None:
    profile = loaded["deepseek-v3.1"].profile
    assert profile.label(profile.bos or 0).startswith(BOS)
    assert profile.pad not in profile.stop_ids


def test_named_tokens_without_a_use_are_reserved(loaded: dict[str, Loaded]) -> None:
    profile = loaded["kimi-k2"].profile
    named = {profile.tokens[i] for i in profile.reserved_ids}
    assert named == {"<|reserved_token_163606|>", "[EOT]", "<|start_header_id|>"}


def test_a_template_that_raises_says_nothing_of_the_mode(tmp_path: Path) -> None:
    template = "{% if not thinking %}{{ raise_exception('no') }}{% endif %}<|im_start|>assistant"
    family = replace(FAMILIES["chatml"], template=template)
    tokenizer = load_tokenizer(families.save_small_tokenizer(family, tmp_path), trust_remote_code=False)
    assert rendered_modes(tokenizer) == {"thinking": "<|im_start|>assistant"}


PLACES = st.lists(st.integers(0, 99), max_size=12)
SHOWN_AS = {"reasoning": "reasoning", "tools": "tools", "answer": "text", "stop": "text"}


@pytest.mark.parametrize("name", FAMILIES)
@given(places=PLACES, prompt=st.none() | st.integers(0, 9))
@settings(max_examples=30)
def test_what_is_shown_of_an_output_has_the_sections_that_are_counted(
    name: str, places: list[int], prompt: int | None, loaded: dict[str, Loaded]
) -> None:
    profile, tokenizer = loaded[name].profile, loaded[name].tokenizer
    [x] = tokenizer.encode("x", add_special_tokens=False)
    tools = () if profile.tools is None else profile.tools.all
    marks = [
        i for i in (profile.reasoning_start, profile.reasoning_end, *tools, *sorted(profile.stop_ids)) if i is not None
    ]
    output = [x if place % 2 else marks[place // 2 % len(marks)] for place in places]
    prompts = [[x], [], *map(list, profile.suffixes.values())]
    prompt_ids = None if prompt is None else prompts[prompt % len(prompts)]
    ids = pl.List(pl.Int64)
    rows = {"output_ids": pl.Series([output], dtype=ids), "prompt_ids": pl.Series([prompt_ids], dtype=ids)}
    spans = anatomy(pl.DataFrame(rows), profile)["spans"][0].to_list()
    counted = [SHOWN_AS[s["kind"]] for s in spans for i in output[s["start"] : s["end"]] if i == x]
    pieces = Decoder(tokenizer, profile).output_pieces(output, prompt_ids)  # type: ignore[arg-type] # it is a whole one
    assert [p.kind for p in pieces for _ in p.text if p.text.strip("x") == ""] == counted
