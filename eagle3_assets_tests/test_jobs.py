"""The jobs for the usual work, and the run configs that the docs give for them."""

import re
from pathlib import Path

import dagster as dg
import pytest
import yaml

from eagle3_assets.assets.raw_generations import GenerationConfig
from eagle3_assets.build import build_defs
from eagle3_assets.checks.replay import ReplayConfig
from eagle3_assets.jobs import CORPUS_JOB, EXPORT_JOB, PARTITION_JOB, REPLAY_JOB, TRIAL_JOB
from eagle3_assets.project import Project
from eagle3_assets.resources import EngineResource
from eagle3_assets.tokens.laws import ON_REQUEST
from eagle3_assets_tests.conftest import ProjectMaker

DOCS = Path(__file__).parent.parent / "docs"
EXAMPLES = sorted((DOCS / "examples" / "run_config").glob("*.yaml"))
RUN_CONFIGS = re.findall(r"```yaml\n(ops:\n.*?)```", (DOCS / "partitions.md").read_text(encoding="utf-8"), re.DOTALL)


def job(project: Project, name: str) -> dg.JobDefinition:
    return build_defs(project).resolve_job_def(name)


def test_every_job_says_what_it_is_for_and_marks_its_runs(make_project: ProjectMaker) -> None:
    project = make_project()
    jobs = {name: job(project, name) for name in (TRIAL_JOB, PARTITION_JOB, EXPORT_JOB, CORPUS_JOB, REPLAY_JOB)}
    assert {name: made.tags["eagle3/work"] for name, made in jobs.items()} == {name: name for name in jobs}
    assert all(made.description for made in jobs.values())
    asked = {law.name for law in ON_REQUEST}
    for name in (TRIAL_JOB, PARTITION_JOB):
        checks = {key.name for key in jobs[name].asset_layer.asset_graph.asset_check_keys}
        assert "stored_as_captured" in checks and not checks & asked, name


def test_a_partitions_run_makes_what_is_its_own_and_no_export(make_project: ProjectMaker) -> None:
    project = make_project()
    made = {
        name: {key.path[-1] for key in job(project, name).asset_layer.executable_asset_keys}
        for name in (PARTITION_JOB, EXPORT_JOB, CORPUS_JOB)
    }
    assert made[EXPORT_JOB] == {"training_export"}
    assert made[CORPUS_JOB] == {"corpus_summary", "draft_vocabulary"}
    everything = {key.path[-1] for key in build_defs(project).resolve_asset_graph().get_all_asset_keys()}
    assert made[PARTITION_JOB] == everything - made[EXPORT_JOB] - made[CORPUS_JOB]


@pytest.mark.parametrize("text", RUN_CONFIGS)
def test_the_docs_run_configs_are_those_of_the_job(text: str, make_project: ProjectMaker) -> None:
    assert dg.validate_run_config(job(make_project(), PARTITION_JOB), yaml.safe_load(text))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_saved_run_configs_are_those_of_the_job_in_their_name(path: Path, make_project: ProjectMaker) -> None:
    text = path.read_text(encoding="utf-8")
    name = path.stem.split("-")[0]
    assert text.startswith(f"# Job {name}: ")
    assert dg.validate_run_config(job(make_project(), name), yaml.safe_load(text))
    assert f"(examples/run_config/{path.name}) | `{name}` |" in (DOCS / "partitions.md").read_text(encoding="utf-8")


def test_every_wish_has_a_saved_run_config() -> None:
    wishes = set(GenerationConfig.model_fields) | set(ReplayConfig.model_fields)
    saved = "".join(path.read_text(encoding="utf-8") for path in EXAMPLES)
    assert {wish for wish in wishes if f"{wish}:" in saved} == wishes


def test_the_docs_show_every_wish() -> None:
    for wish in ("retry_failed", "retry_broken", "regenerate", "trial_sampling"):
        assert any(wish in text for text in RUN_CONFIGS), wish


@pytest.mark.slow
def test_a_trial_has_its_datasets_sampling_and_no_other_partition_is_taken_for_one(
    make_project: ProjectMaker, instance: dg.DagsterInstance
) -> None:
    project = make_project(dataset={"sampling": {"max_new_tokens": 60, "temperature": 0.0, "top_p": 0.9}})
    trial = job(project, TRIAL_JOB)
    assert trial.partitioned_config
    offered = trial.partitioned_config.get_run_config_for_partition_key("d-trial")
    sampling = offered["ops"]["raw_generations"]["config"]["trial_sampling"]
    assert sampling.items() >= {"max_new_tokens": 60, "temperature": 0.0, "top_p": 0.9}.items()
    result = trial.execute_in_process(instance=instance, partition_key="d-trial")
    made = {event.asset_key.path[-1] for event in result.get_asset_materialization_events() if event.asset_key}
    assert made == {"prompts", "tokenized_prompts", "raw_generations", "decoded_previews", "length_statistics"}

    result = trial.execute_in_process(instance=instance, partition_key="d", raise_on_error=False)
    [failure] = [event for event in result.all_events if event.is_step_failure]
    assert failure.step_failure_data.user_failure_data
    assert "d, which is no trial" in (failure.step_failure_data.user_failure_data.description or "")


def test_whoever_may_launch_cannot_choose_what_runs(make_project: ProjectMaker) -> None:
    """The Launchpad has no say in the engine, its interpreter, its keys or the target's code."""
    project = make_project()
    wanted = {"settings": {"kind": "sglang", "managed": {"python": "/anything"}}}
    resources = job(project, PARTITION_JOB).resource_defs
    engine = resources["engine"](dg.build_init_resource_context(config=wanted))
    target = resources["target"](dg.build_init_resource_context(config={"settings": {"model": "/any"}}))
    assert engine == EngineResource(project.config.engine, project.config.target, project.layout.servers())
    assert target.load().settings == project.config.target
