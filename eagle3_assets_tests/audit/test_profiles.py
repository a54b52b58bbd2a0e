"""``--profile NAME`` alone judges every family by its real ids."""

from pathlib import Path
from typing import Any

import pytest

from eagle3_assets.tokens.known_ids import KNOWN_IDS, known_profile
from eagle3_assets_tests.audit.conftest import Audit, errors, write

TEXT = list(range(5_000, 5_009))
HARMONY = [200005, 35644, 200008, *TEXT, 200007, 200006, 173781, 200005, 17196, 200008, *TEXT]
"""A message of analysis and a final one, without the id that ends it."""


def line(name: str, sample: int, thinking: bool) -> dict[str, Any]:
    """An answer of the family, after reasoning where it reasons."""
    profile = known_profile(name)
    suffix = profile.suffixes["thinking" if thinking else "no_thinking"]
    prompt = [*([profile.bos] if profile.prompt_bos else []), *suffix]
    text = [token + sample * 10 for token in TEXT]
    always = len(set(profile.suffixes.values())) == 1
    never = "never" in profile.reasoning_habit.values()
    reasons = (thinking or always) and profile.reasoning_end is not None and not never
    opened = [] if profile.reasoning_start in suffix or not reasons else [profile.reasoning_start]
    output = [*opened, *text, profile.reasoning_end, *text[:3]] if reasons else text
    return {
        "id": sample,
        "prompt_ids": [*prompt[: len(prompt) - len(suffix)], *_asked(name, sample), *suffix],
        "thinking": thinking,
        "output_ids": [*(HARMONY if name == "gpt-oss" else output), min(profile.stop_ids)],
        "finish_reason": "stop",
    }


def _asked(name: str, sample: int) -> list[int]:
    """A turn of the user, as far as the profile describes turns."""
    begin, ends = next(iter(known_profile(name).turns.items()), (None, frozenset[int]()))
    turn = [6_000 + sample]
    return turn if begin is None else [begin, *turn, *sorted(ends)[:1]]


@pytest.mark.parametrize("name", KNOWN_IDS)
def test_genuine_ids_pass_and_one_stripped_stop_id_is_found(name: str, tmp_path: Path, audit: Audit) -> None:
    lines = [line(name, sample, thinking=sample % 2 == 0) for sample in range(8)]
    options = ("--profile", name)
    whole = audit(write(tmp_path / "o.jsonl", *lines), options=options)
    assert whole.only["findings"] == {}
    judged = {law["name"] for law in whole.only["laws"] if law["judged"]}
    assert {"target_structure", "stop_token_last", "prompt_suffix", "prompt_well_formed", "ids_in_vocabulary"} <= judged
    assert "target_structure" not in {found["law"] for found in whole.only["file_findings"]}
    for place in (0, 4, 7):
        broken = [entry | ({"output_ids": entry["output_ids"][:-1]} if entry["id"] == place else {}) for entry in lines]
        result = audit(write(tmp_path / "o.jsonl", *broken), options=options).only
        assert result["findings"].keys() == {str(place)}
        assert "stop_token_last" in errors(result, str(place))


@pytest.mark.parametrize("name", KNOWN_IDS)
def test_ids_of_every_other_family_are_not_taken_for_its_own(name: str, tmp_path: Path, audit: Audit) -> None:
    own = known_profile(name)
    for other in KNOWN_IDS:
        if own.stop_ids & known_profile(other).stop_ids:
            continue
        lines = [{key: line(other, n, thinking=False)[key] for key in ("id", "output_ids")} for n in range(3)]
        for n, entry in enumerate(lines):
            entry["output_ids"] = [*TEXT[n:], entry["output_ids"][-1]]
        found = audit(write(tmp_path / "o.jsonl", *lines), options=("--profile", name)).only
        assert "target_structure" in {finding["law"] for finding in found["file_findings"]}, other


@pytest.mark.parametrize(
    ("name", "padding"),
    [
        ("qwen3", 151_669),
        ("qwen3", 151_935),
        ("qwen3-thinking", 151_700),
        ("qwen3-instruct", 151_669),
        ("deepseek-v3.1", 128_900),
        ("deepseek-r1", 129_279),
        ("gpt-oss", 200_500),
    ],
)
def test_ids_that_no_token_has_are_found(name: str, padding: int, tmp_path: Path, audit: Audit) -> None:
    good, in_output, in_prompt = (line(name, sample, thinking=True) for sample in range(3))
    in_output["output_ids"][-2:-1] = [padding, padding]
    place = len(in_output["output_ids"]) - 3
    in_prompt["prompt_ids"].insert(1, padding)
    result = audit(write(tmp_path / "o.jsonl", good, in_output, in_prompt), options=("--profile", name)).only
    assert {sample: errors(result, sample) for sample in "012"} == {
        "0": set(),
        "1": {"no_reserved_ids"},
        "2": {"prompt_well_formed"},
    }
    details = {law["name"]: law["examples"] for law in result["laws"]}
    tokens, size = known_profile(name).token_count, known_profile(name).vocab_size
    of_none = f"which is no token's (the tokenizer has {tokens:,}, the embedding {size:,}), has no"
    [example] = details["no_reserved_ids"]
    assert example["index"] == place
    assert example["detail"] == f"id {padding} at index {place}, {of_none} use in an output, 1 more such id follows"
    assert details["prompt_well_formed"][0]["detail"] == f"id {padding} at index 1, {of_none} place in a prompt"
