"""The check of ``draft_vocabulary``: its files as they lie there, against the training samples."""

from collections.abc import Iterator
from dataclasses import replace

import dagster as dg

from eagle3_assets.assets.common import failing_clearly
from eagle3_assets.exports.vocabulary import read_vocabulary
from eagle3_assets.exports.vocabulary_laws import LAWS, VocabularyVerdict, judge_vocabulary
from eagle3_assets.project import Project
from eagle3_assets.resources import TargetResource
from eagle3_assets.tokens.safe_text import markdown_text, visible
from eagle3_assets.vocabularies import recount

_OF_THE_SAMPLES = ("counts_are_trained_tokens", "record_agrees")
REMEDY = "Materialize training_samples where it is older than its generations, then draft_vocabulary by the job corpus."


def build(project: Project) -> dg.AssetChecksDefinition:
    """The checks for one config."""

    @dg.multi_asset_check(
        name="laws_of_draft_vocabulary",
        specs=[
            dg.AssetCheckSpec(
                law.name,
                asset="draft_vocabulary",
                description=law.definition,
                additional_deps=["training_samples"] if law.name in _OF_THE_SAMPLES else [],
            )
            for law in LAWS
        ],
        description="Every law of the draft vocabulary, on the files as read back.",
    )
    def vocabulary_laws(target: dg.ResourceParam[TargetResource]) -> Iterator[dg.AssetCheckResult]:
        with failing_clearly():
            loaded, place = target.load(), project.layout.vocabulary()
            read = read_vocabulary(place, structural=loaded.profile.structural_ids)
            if not isinstance(read, str):
                again = recount(project, read.record.partitions, loaded.vocab_size)
                read = replace(read, why_no_recount=again) if isinstance(again, str) else replace(read, recount=again)
            results = [_result(verdict) for verdict in judge_vocabulary(read)]
        yield from results

    return vocabulary_laws


def _result(verdict: VocabularyVerdict) -> dg.AssetCheckResult:
    law = verdict.law
    said = f"{verdict.sentence}."
    if verdict.fault:
        said += f" Broken, it means: {law.meaning} {REMEDY}"
    return dg.AssetCheckResult(
        asset_key="draft_vocabulary",
        check_name=law.name,
        passed=not (verdict.fault or verdict.unjudged),
        severity=dg.AssetCheckSeverity.ERROR if verdict.fault else dg.AssetCheckSeverity.WARN,
        description=markdown_text(visible(said)),
        metadata={"status": "failed" if verdict.fault else "not_judged" if verdict.unjudged else "passed"},
    )
