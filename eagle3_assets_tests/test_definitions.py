"""Loading: what Dagster gets, what it costs, and what a person is told when the config is wrong."""

import json
import os
import subprocess
import sys
from pathlib import Path

import dagster as dg
import yaml

from eagle3_assets.build import build_defs
from eagle3_assets.config import CONFIG_VARIABLE
from eagle3_assets.exports import vocabulary_laws
from eagle3_assets.tokens.laws import LAWS, ON_REQUEST
from eagle3_assets_tests.conftest import ProjectMaker

ROOT = Path(__file__).parent.parent

GRAPH = {
    "prompts": set(),
    "tokenized_prompts": {"prompts"},
    "raw_generations": {"prompts", "tokenized_prompts"},
    "decoded_previews": {"prompts", "tokenized_prompts", "raw_generations"},
    "length_statistics": {"raw_generations"},
    "training_samples": {"prompts", "tokenized_prompts", "raw_generations"},
    "corpus_summary": {"prompts", "tokenized_prompts", "raw_generations"},
    "draft_vocabulary": {"prompts", "tokenized_prompts", "raw_generations"},
    "training_export": {"prompts", "tokenized_prompts", "raw_generations", "training_samples"},
}


def test_the_graph(make_project: ProjectMaker) -> None:
    defs = build_defs(make_project(dataset={"shards": 2}))
    graph = defs.resolve_asset_graph()
    assert {
        key.path[-1]: {parent.path[-1] for parent in graph.get(key).parent_keys} for key in graph.get_all_asset_keys()
    } == GRAPH
    for key in graph.get_all_asset_keys():
        node = graph.get(key)
        if key in (dg.AssetKey("corpus_summary"), dg.AssetKey("draft_vocabulary")):
            assert node.partitions_def is None
        else:
            assert node.partitions_def, key
            assert node.partitions_def.get_partition_keys() == ["d-00of02", "d-01of02", "d-trial"], key
        assert node.group_name in {"prompts", "generation", "inspection", "training", "corpus"}, key
        assert node.description, key
        assert node.code_version, key
        assert node.kinds, key
        schema = node.metadata["dagster/column_schema"]
        assert all(column.description and column.description[0] != ";" for column in schema.columns), key
        # Longer ones push the descriptions out of the window.
        assert all(len(column.type) < 20 for column in schema.columns), key


def test_every_law_is_a_check_and_only_laws_that_save_generating_block(make_project: ProjectMaker) -> None:
    graph = build_defs(make_project()).resolve_asset_graph()
    checks = {key.name: graph.get_check_spec(key) for key in graph.asset_check_keys}
    assert set(checks) == {law.name for law in (*LAWS, *ON_REQUEST)} | {
        *("source_rows_accounted", "source_unchanged"),
        *(law.name for law in vocabulary_laws.LAWS),
    }
    blocking = {name for name, spec in checks.items() if spec.blocking}
    assert blocking == {"tokenizer_canary", "prompts_accounted", "prompt_reproducible"}
    assert {checks[name].asset_key for name in blocking} == {dg.AssetKey("tokenized_prompts")}


def loaded(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **environment},
        timeout=120,
    )


def test_loading_imports_no_heavy_package_and_little_else() -> None:
    done = loaded(
        "import resource, json, sys\n"
        "cpu = lambda: sum(resource.getrusage(resource.RUSAGE_SELF)[:2])\n"
        "import dagster\n"
        "before = cpu()\n"
        "import eagle3_assets.definitions\n"
        "print(json.dumps([cpu() - before, [m for m in ('torch', 'transformers', 'sglang') if m in sys.modules]]))\n"
    )
    assert done.returncode == 0, done.stderr
    seconds, heavy = json.loads(done.stdout.splitlines()[-1])
    assert heavy == []
    # CPU seconds: the part that other work on the machine has least to do with.
    assert seconds < 1.0


def test_no_warning_is_left_when_loading() -> None:
    done = loaded("import warnings; warnings.simplefilter('error'); import eagle3_assets.definitions")
    assert done.returncode == 0, done.stderr


def test_a_wrong_config_is_one_message_where_dagster_loads(tmp_path: Path) -> None:
    config = tmp_path / "eagle3.yaml"
    config.write_text(
        yaml.safe_dump({"target": {"model": "demo"}, "datasets": [{"name": "d", "source": "s", "shard": 2}]}),
        encoding="utf-8",
    )
    done = subprocess.run(
        [sys.executable, "-m", "dagster", "definitions", "validate", "-m", "eagle3_assets.definitions"],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, CONFIG_VARIABLE: str(config)},
        cwd=tmp_path,
        timeout=120,
    )
    said = done.stdout + done.stderr
    assert done.returncode != 0
    assert "datasets[0].shard: is not a known key; allowed here: name, source," in said
    assert "Traceback" not in said
    assert "Stack Trace" not in said
    assert "definitions.py" not in said


def test_every_way_of_starting_dagster_finds_the_same_definitions() -> None:
    workspace = yaml.safe_load((ROOT / "workspace.yaml").read_text(encoding="utf-8"))
    [entry] = workspace["load_from"]
    assert entry["python_module"]["module_name"] == "eagle3_assets.definitions"
    for arguments in (["-w", "workspace.yaml"], []):
        done = subprocess.run(
            [sys.executable, "-m", "dagster", "definitions", "validate", *arguments],
            capture_output=True,
            text=True,
            check=False,
            cwd=ROOT,
            timeout=120,
        )
        assert done.returncode == 0, done.stdout + done.stderr
