"""Code that comes with a target: off unless it is trusted, named with its hashes where it is."""

import hashlib
import json
import re
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from typer.testing import CliRunner

from eagle3_assets.assets.common import failing_clearly
from eagle3_assets.cli import app
from eagle3_assets.config import Sampling, Target
from eagle3_assets.decoding import Decoder
from eagle3_assets.engines.base import Description
from eagle3_assets.generating import identity_of
from eagle3_assets.identity import Identity
from eagle3_assets.judging import tokenize
from eagle3_assets.remote_code import CodeFile, RemoteCodeError, code_files
from eagle3_assets.running import materialize
from eagle3_assets.sourcing import take_prompts
from eagle3_assets.target import LoadedTarget, TargetError, load_target, load_tokenizer
from eagle3_assets_tests import own_code
from eagle3_assets_tests.conftest import DEMO, ProjectMaker
from eagle3_assets_tests.tokens import kimi


def identity(target: LoadedTarget) -> Identity:
    served = Description("w", target.stop_token_ids, target.vocab_size, target.context_length)
    return identity_of(target, served, thinking=True, sampling=Sampling())


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_code_does_not_run_unless_it_is_trusted(tmp_path: Path) -> None:
    directory = own_code.save_target(tmp_path / "own")
    marker = tmp_path / "ran"
    (directory / own_code.FILE).write_text(f"open({str(marker)!r}, 'w')\n{own_code.TOKENIZER}", encoding="utf-8")
    with pytest.raises(TargetError, match=r"needs target\.trust_remote_code: true"):
        load_target(Target(model=str(directory)))
    assert not marker.exists()
    target = load_target(Target(model=str(directory), trust_remote_code=True))
    assert marker.exists()
    assert target.profile.name == "kimi"


def test_trusted_code_is_named_with_its_hash_and_decides_the_identity(tmp_path: Path) -> None:
    directory = own_code.save_target(tmp_path / "own")
    settings = Target(model=str(directory), trust_remote_code=True)
    before = load_target(settings)
    assert before.code == (
        CodeFile(own_code.HELPER, sha256(directory / own_code.HELPER), ()),
        CodeFile(own_code.FILE, sha256(directory / own_code.FILE), ("AutoTokenizer",)),
    )
    first = identity(before)
    assert first.remote_code == {file.name: file.sha256 for file in before.code}
    assert Identity.model_validate_json(first.model_dump_json()).fingerprint == first.fingerprint
    # The tokenizer's own hash sees it, too; the name of the file is what a person needs.
    (directory / own_code.HELPER).write_text(own_code.HELPER_CODE + "\n", encoding="utf-8")
    changed = first.differences(identity(load_target(settings)))
    assert any(line.startswith(f"remote_code.{own_code.HELPER}: ") for line in changed), changed


def test_an_identity_without_code_has_the_name_that_it_had_before_there_was_such_a_field() -> None:
    facts: dict[str, Any] = {"weights": "w", "tokenizer": "t", "chat_template": "c", "thinking": True}
    plain = Identity(**facts, sampling=Sampling(), stop_token_ids=(1,))
    assert plain.fingerprint == "c6ab631b79ea5378"
    assert plain.model_copy(update={"remote_code": {"a.py": "0"}}).fingerprint != plain.fingerprint


def test_code_of_the_model_counts_where_the_tokenizer_lies_elsewhere(tmp_path: Path) -> None:
    tokenizer = own_code.save_target(tmp_path / "tokenizer")
    model = tmp_path / "model"
    (model / "deep").mkdir(parents=True)
    (model / "modeling_own.py").write_text("1", encoding="utf-8")
    (model / "deep" / "layers.py").write_text("2", encoding="utf-8")
    (model / "config.json").write_text(json.dumps({"auto_map": {"AutoModelForCausalLM": "modeling_own.Own"}}))
    named = {file.name: file.loaded_as for file in code_files(model, tokenizer)}
    assert named == {
        "model/deep/layers.py": (),
        "model/modeling_own.py": ("AutoModelForCausalLM",),
        "tokenizer/own_helper.py": (),
        "tokenizer/tokenization_own.py": ("AutoTokenizer",),
    }


@pytest.mark.parametrize(
    ("reference", "said"),
    [
        ("someone/else--code.Own", "code of another repository"),
        ("gone.Own", r"auto_map names gone\.py, which is not there"),
    ],
)
def test_code_that_nobody_can_see_here_is_refused(tmp_path: Path, reference: str, said: str) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"auto_map": {"AutoConfig": reference}}))
    with pytest.raises(RemoteCodeError, match=said):
        code_files(tmp_path)
    # A tokenizer's older form, which transformers still loads.
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"auto_map": [reference, None]}))
    with pytest.raises(RemoteCodeError, match=said):
        code_files(tmp_path)


def test_log_metadata_and_check_name_the_code(
    make_project: ProjectMaker, instance: dg.DagsterInstance, tmp_path: Path
) -> None:
    directory = own_code.save_target(tmp_path / "own")
    rows = [{"id": "a", "messages": [{"role": "user", "content": "hi"}]}]
    project = make_project(rows, target={"model": str(directory), "trust_remote_code": True})
    [run] = materialize(project, ["d"], instance)
    assert any("no weights" in failure for failure in run.failures), run.failures  # all before it was made
    code = sha256(directory / own_code.FILE)
    [canary] = [check for check in run.checks if check.name == "tokenizer_canary"]
    assert canary.status == "passed"
    assert f"{own_code.FILE} (AutoTokenizer, sha256 {code[:16]})" in canary.said
    event = instance.get_latest_materialization_event(dg.AssetKey("tokenized_prompts"))
    assert event
    assert event.asset_materialization
    table: Any = event.asset_materialization.metadata["remote_code"]
    assert table.records[1].data == {"file": own_code.FILE, "loaded_as": "AutoTokenizer", "sha256": code}
    logged = [entry.user_message for entry in instance.all_logs(event.run_id)]
    assert any("with all your rights: own_helper.py" in line and own_code.FILE in line for line in logged)


@pytest.mark.parametrize("version", ["5.4.0", "5.5.0"])
def test_versions_that_load_kimi_wrongly_are_refused(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # By name: transformers puts another module in its own place when it loads a model.
    monkeypatch.setattr("transformers.__version__", version)
    with pytest.raises(TargetError, match=rf"transformers {version} decodes .*#45356\); install 5\.6 or newer"):
        load_tokenizer(DEMO / "model", trust_remote_code=False)


def test_a_slow_tokenizer_gives_the_ids_that_it_should(tmp_path: Path) -> None:
    target = load_target(Target(model=str(own_code.save_target(tmp_path / "own")), trust_remote_code=True))
    text = "<|im_user|>a</think>"
    assert target.tokenizer(text, add_special_tokens=False)["input_ids"] == [kimi.IM_USER, 1097, kimi.END_THINK]


@pytest.mark.parametrize("place", ["when it is imported", "when it tokenizes"])
def test_code_that_would_end_this_process_is_an_error(place: str, tmp_path: Path, make_project: ProjectMaker) -> None:
    directory = own_code.save_target(tmp_path / "own")
    helper = directory / own_code.HELPER
    rows = [{"messages": [{"role": "user", "content": "Go away"}]}]
    project = make_project(rows, target={"model": str(directory), "trust_remote_code": True})
    partition = project.partition("d")
    if place == "when it is imported":
        helper.write_text(f"import sys\nsys.exit(0)\n{own_code.HELPER_CODE}", encoding="utf-8")
        with pytest.raises(TargetError, match=r"called sys\.exit\(0\)"):
            load_target(project.config.target)
        return
    begins = "def pieces(text):\n"
    assert begins in own_code.HELPER_CODE
    ending = f"{begins}    if 'away' in text:\n        raise SystemExit\n"
    helper.write_text(own_code.HELPER_CODE.replace(begins, ending), encoding="utf-8")
    target = load_target(project.config.target)
    with pytest.raises(TargetError, match=r"code that came with the target called sys\.exit\(\)"):
        tokenize(project, partition, target, take_prompts(project, partition)[0].rows)


def test_code_that_would_end_this_process_when_it_decodes_is_an_error(
    tmp_path: Path, make_project: ProjectMaker
) -> None:
    directory = own_code.save_target(tmp_path / "own")
    file = directory / own_code.FILE
    begins = "    def convert_tokens_to_string(self, tokens):\n"
    file.write_text(own_code.TOKENIZER.replace(begins, f"{begins}        raise SystemExit(0)\n"), encoding="utf-8")
    rows = [{"messages": [{"role": "user", "content": "Hello"}]}]
    project = make_project(rows, target={"model": str(directory), "trust_remote_code": True})
    said = "code that came with the target called sys.exit(0): it is no target then"
    with pytest.raises(dg.Failure, match=re.escape(said)), failing_clearly():
        Decoder(load_target(project.config.target).tokenizer, None).text([1097])
    # Exit code 0 would say that all is well.
    result = CliRunner().invoke(app, ["check-config", str(tmp_path / "eagle3.yaml")])
    assert (result.exit_code, said in result.stderr) == (2, True), result.output
