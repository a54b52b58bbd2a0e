"""What a check says and shows: the samples that break the law, before those that it only has a remark for."""

from typing import Any

import dagster as dg

from eagle3_assets.checks.results import check_results
from eagle3_assets.tokens.context import Context
from eagle3_assets.tokens.judge import judge_generations
from eagle3_assets.tokens.known_ids import known_profile
from eagle3_assets_tests.tokens import kimi
from eagle3_assets_tests.tokens.mutations import with_output

CONTEXT = Context(known_profile("kimi"), stop_token_ids=frozenset({kimi.IM_END, kimi.EOS}))
REMARKED = {f"i{n}": kimi.genuine()["implicit-end"] for n in range(8)}
NEVER_CLOSED = with_output(kimi.genuine()["answer"], [1064, 1065, kimi.IM_END])


def reasoning_closed(rows: dict[str, dict[str, Any]]) -> dg.AssetCheckResult:
    frame = kimi.generations(rows)
    results = check_results(judge_generations([frame], CONTEXT), frame.lazy(), CONTEXT, look="look --id")
    return next(result for result in results if result.check_name == "reasoning_closed")


def test_remarks_that_come_first_do_not_hide_what_is_broken() -> None:
    result = reasoning_closed({**REMARKED, "broken": NEVER_CLOSED})
    assert not result.passed and result.severity == dg.AssetCheckSeverity.ERROR
    assert result.metadata["look"].value == "look --id broken"
    offenders = result.metadata["offenders"]
    assert isinstance(offenders, dg.TableMetadataValue)
    assert [record.data["sample_id"] for record in offenders.records] == ["broken", "i0", "i1", "i2", "i3"]
    assert result.description is not None and "first broken" in result.description


def test_a_remark_is_not_told_as_a_broken_law() -> None:
    frame = kimi.generations(REMARKED)
    law = judge_generations([frame], CONTEXT)["reasoning_closed"].law
    result = reasoning_closed(REMARKED)
    assert result.description is not None and "8 of 8 samples have a remark" in result.description
    assert law.meaning not in result.description
    assert result.severity == dg.AssetCheckSeverity.WARN
