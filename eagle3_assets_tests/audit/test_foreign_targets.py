"""Files of another target than the one that is named."""

from pathlib import Path

from typer.testing import CliRunner

from eagle3_assets.cli import app
from eagle3_assets_tests.audit.conftest import Audit, genuine_lines, reply, write
from eagle3_assets_tests.tokens import kimi
from eagle3_assets_tests.tokens.test_structure_law import foreign


def test_a_file_that_breaks_no_law_is_named_as_another_targets(tmp_path: Path, audit: Audit) -> None:
    path = write(tmp_path / "o.jsonl", *({"id": n, "output_ids": foreign(n)} for n in range(30)))
    answered = audit(path)
    assert (answered.exit_code, answered.only["verdict"], answered.only["findings"]) == (0, "warn", {})
    [finding] = answered.only["file_findings"]
    assert (finding["law"], finding["effect"], finding["lines"]) == ("target_structure", "warn", [])
    assert "the ids are probably another target's" in finding["detail"]
    assert "of the profile 'qwen3'" in finding["detail"]
    shown = CliRunner().invoke(app, ["audit", str(path), "--profile", "kimi"])
    assert f"target_structure: {finding['detail']}" in shown.stdout.replace("\n", " ")


def test_its_own_profile_does_not_accuse_it(tmp_path: Path, audit: Audit) -> None:
    path = write(tmp_path / "o.jsonl", *({"id": n, "output_ids": foreign(n)} for n in range(30)))
    answered = audit(path, options=("--profile", "qwen3"))
    assert (answered.only["verdict"], answered.only["file_findings"]) == ("pass", [])


def test_a_file_that_says_stop_fails_and_is_explained_first(tmp_path: Path, audit: Audit) -> None:
    lines = [reply(str(n), foreign(n), matched=151645) for n in range(10)]
    answered = audit(write(tmp_path / "o.jsonl", *lines))
    assert answered.only["verdict"] == "fail"
    assert answered.only["file_findings"][0]["law"] == "target_structure"


def test_genuine_samples_cut_off_everywhere_are_not_accused(tmp_path: Path, audit: Audit) -> None:
    cut = [{"id": n, "output_ids": kimi.letters("abcdefg"[: 2 + n]), "finish_reason": "length"} for n in range(5)]
    for lines in (cut, genuine_lines()):
        found = audit(write(tmp_path / "o.jsonl", *lines)).only["file_findings"]
        assert "target_structure" not in {finding["law"] for finding in found}
