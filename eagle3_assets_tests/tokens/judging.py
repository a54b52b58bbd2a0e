"""What the laws say of samples that are written as text."""

from collections.abc import Iterator

from eagle3_assets.tokens.context import Context, PromptIndex
from eagle3_assets.tokens.judge import judge_generations, judge_prompts
from eagle3_assets.tokens.profile import TargetProfile, Tokenizer
from eagle3_assets.tokens.verdict import Verdict
from eagle3_assets_tests.tokens import families
from eagle3_assets_tests.tokens.families import Sample

ABOUT_MIXTURES = {"cut_off_share", "duplicates"}
"""Laws about how samples are mixed; those here are a handful of kinds and share their prompts."""


def verdicts(
    tokenizer: Tokenizer, profile: TargetProfile, samples: dict[str, Sample], matched: str | None = None
) -> Iterator[Verdict]:
    """Every law's verdict on the samples' prompts and outputs."""
    prompts = families.prompts(tokenizer, samples)
    context = Context(
        profile,
        tokenizer=tokenizer,
        current_prompts=PromptIndex.of([prompts]),
        rerendered_prompts=prompts,
        source_sample_ids=frozenset(samples),
    )
    yield from judge_prompts([prompts], context).verdicts
    yield from judge_generations([families.generations(tokenizer, samples, matched)], context).verdicts


def broken_laws(
    tokenizer: Tokenizer, profile: TargetProfile, samples: dict[str, Sample], matched: str | None = None
) -> set[str]:
    """Names of the laws that are broken, whatever their effect."""
    found = {v.law.name for v in verdicts(tokenizer, profile, samples, matched) if v.violations}
    return found - ABOUT_MIXTURES


def remarks(tokenizer: Tokenizer, profile: TargetProfile, samples: dict[str, Sample]) -> set[str]:
    """Names of the laws that have a remark."""
    return {v.law.name for v in verdicts(tokenizer, profile, samples) if v.warnings}


def judged_laws(
    tokenizer: Tokenizer, profile: TargetProfile, samples: dict[str, Sample], *, judged: bool = True
) -> dict[str, str | None]:
    """Names of the laws which could judge the samples, or of those which could not, with the reason."""
    every = verdicts(tokenizer, profile, samples)
    return {v.law.name: v.reason for v in every if (v.status != "not_judged") == judged}
