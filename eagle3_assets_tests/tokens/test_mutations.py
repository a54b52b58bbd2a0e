"""One sample of many is damaged in one way; exactly the laws that are about that damage name exactly that sample."""

import json

import pytest

from eagle3_assets.config import Sampling
from eagle3_assets.identity import canonical_json
from eagle3_assets.tokens.context import Context
from eagle3_assets.tokens.judge import judge_generations
from eagle3_assets_tests.tokens import kimi
from eagle3_assets_tests.tokens.damages import DAMAGES, TABLES
from eagle3_assets_tests.tokens.mutations import damaged, judged


def test_genuine_samples_break_no_law(context: Context) -> None:
    report = judge_generations([kimi.generations()], context)
    assert report.findings.rows() == [
        (
            "implicit-end",
            "reasoning_closed",
            "warning",
            2,
            "implicit end: reasoning ends with tool markup at index 2, without </think> (163607)",
        ),
        ("tools-then-text", "tool_order", "warning", 20, "id 1066 at index 20 follows the tool markup"),
    ]
    assert {v.law.name for v in report.verdicts if v.status != "passed"} == {
        "reasoning_closed",
        "tool_order",
        "cut_off_share",  # a quarter of these few samples is cut off on purpose
        "length_band",
        "message_grammar",  # Kimi's outputs are no messages
    }
    assert report.quarantined == frozenset()
    assert report.refusals == ()


@pytest.mark.parametrize("position", ["first", "middle", "last"])
@pytest.mark.parametrize("name", DAMAGES)
def test_damage_is_found_by_its_laws_alone(name: str, position: str, context: Context) -> None:
    damage = DAMAGES[name]
    rows, whole, victim = damaged(damage, position)
    assert judged(whole, whole, context).findings.is_empty()
    report = judged(rows, whole, context)
    found = {(f["sample_id"], f["law"], f["severity"]) for f in report.findings.iter_rows(named=True)}
    assert found == {(victim, law, damage.severity) for law in damage.laws}
    for finding in report.findings.iter_rows(named=True):
        assert damage.laws[finding["law"]] in finding["detail"]
        if damage.index is not None:
            assert finding["index"] == damage.index
    for law in damage.laws:
        verdict = report[law]
        effect_breaks = damage.severity == "error" or verdict.effect == "warn"
        assert (verdict.violations, verdict.warnings) == ((1, 0) if effect_breaks else (0, 1))
        assert verdict.severity == ("ERROR" if verdict.effect == "refuse" else "WARN")
        assert verdict.refuses == (verdict.effect == "refuse")
        assert victim in verdict.summary
    quarantined = any(report[law].effect == "quarantine" for law in damage.laws) and damage.severity == "error"
    assert report.quarantined == (frozenset({victim}) if quarantined else frozenset())


def test_every_row_law_about_outputs_has_a_damage() -> None:
    from eagle3_assets.tokens.laws import RowLaw, laws_of

    covered = {law for damage in DAMAGES.values() for law in damage.laws}
    elsewhere = {"no_prompt_echo", "message_grammar"}
    assert {law.name for law in laws_of("raw_generations") if isinstance(law, RowLaw)} == covered | elsewhere


def test_sampling_model_and_law_name_the_same_parameters() -> None:
    record = canonical_json(Sampling().model_dump(mode="json"))
    assert set(json.loads(record)) == set(Sampling.model_fields)


def test_no_damage_hides_another_of_its_name() -> None:
    assert len(DAMAGES) == sum(map(len, TABLES))
