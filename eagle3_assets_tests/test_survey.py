"""What is there and what is missing: counted as a run then finds it, without changing a file."""

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import polars as pl
import pytest

from eagle3_assets.build import build_defs
from eagle3_assets.config import Dataset
from eagle3_assets.generation.errors import SealedError
from eagle3_assets.generation.journal import Journal
from eagle3_assets.generation.sealed import CURRENT, read_identity, scan_sealed
from eagle3_assets.jobs import PARTITION_JOB
from eagle3_assets.partitions import Partition, dataset_partitions
from eagle3_assets.planning import Outputs
from eagle3_assets.project import Project
from eagle3_assets.prompts.rows import read_partition
from eagle3_assets.prompts.sources import SourceRow
from eagle3_assets.storage.files import sealed_generations, write_parquet
from eagle3_assets.survey import Survey, Surveyed
from eagle3_assets.target import load_target
from eagle3_assets_tests.conftest import DEMO, ProjectMaker, demo_rows, write_jsonl

TEMPLATE = (DEMO / "model" / "chat_template.jinja").read_text(encoding="utf-8")


@pytest.fixture
def quick() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as made:
        yield made


def counted(project: Project, key: str = "d") -> Surveyed:
    """Surveys a partition, and sees to it that no file is touched by that."""
    before = contents(project)
    found = Survey(project, load_target(project.config.target)).of(project.partition(key))
    assert contents(project) == before
    assert found.prompts == found.generated + found.failed + found.refused + found.missing
    return found


def contents(project: Project) -> dict[str, str]:
    root = Path(str(project.layout.root))
    files = (path for path in root.rglob("*") if path.is_file()) if root.exists() else ()
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def make(project: Project, instance: dg.DagsterInstance, *assets: str, key: str = "d") -> None:
    job = build_defs(project).resolve_job_def(PARTITION_JOB)
    subset = job.get_subset(asset_selection={dg.AssetKey(asset) for asset in assets}, asset_check_selection=set())
    subset.execute_in_process(instance=instance, partition_key=key)


def test_every_state_of_a_prompt_is_counted_as_a_run_finds_it(
    make_project: ProjectMaker, quick: dg.DagsterInstance, tmp_path: Path
) -> None:
    long = {"id": "long", "messages": [{"role": "user", "content": "a very long word " * 2000}]}
    rows = [*demo_rows("function_calling", 3), long]
    project = make_project(rows, dataset={"quarantine_limit": 1.0})
    found = counted(project)
    assert (found.generated, found.failed, found.refused, found.missing) == (0, 0, 1, 3)
    assert found.why_tokenized == "none are stored yet"
    assert found.commonest_refusal and found.commonest_refusal.startswith("1 of 1: too long: ")
    assert not found.blocked

    make(project, quick, "prompts", "tokenized_prompts", "raw_generations")
    found = counted(project)
    assert (found.generated, found.failed, found.refused, found.missing) == (3, 0, 1, 0)
    assert found.why_tokenized is None
    sealed = sealed_generations(project.layout, "d")
    made = scan_sealed(sealed).collect()
    assert found.outputs == Outputs(3, int(made["completion_tokens"].sum()))
    assert found.lengths.to_list() == [len(ids) for ids in made.filter(status="generated")["prompt_ids"]]

    # One failed in a former run, and the source has two rows more.
    failed = pl.col("sample_id") == made["sample_id"][1]
    harmed = made.with_columns(
        status=pl.when(failed).then(pl.lit("failed")).otherwise("status"),
        reason=pl.when(failed).then(pl.lit("the server was gone")).otherwise("reason"),
        output_ids=pl.when(~failed).then("output_ids"),
        completion_tokens=pl.when(~failed).then("completion_tokens"),
    )
    write_parquet(harmed, sealed.path)
    write_jsonl(tmp_path / "prompts.jsonl", [*rows, *demo_rows("chat", 2), "{broken"])
    found = counted(project)
    assert (found.generated, found.failed, found.refused, found.missing) == (2, 1, 1, 2)
    assert found.why_tokenized == "the source has changed since they were stored"
    assert (found.source.accounts.rows, found.source.accounts.refused) == (7, 1)
    assert found.outputs.count == 2

    # What an unfinished run has in its journal is there too, though another process holds it.
    identity = read_identity(sealed.directory, sealed.pointer.fingerprint)
    with Journal(project.layout.journals("d")) as journal:
        journal.begin(identity, fresh=False)
        key = made["request_key"][1]
        journal.append({"request_key": key, "status": "generated", "output_ids": [5, 6, 7]})
        now = counted(project)
        assert (now.generated, now.failed, now.refused, now.missing) == (3, 0, 1, 2)
        assert now.outputs == found.outputs + Outputs(1, 3)
        # One that starts anew counts alone.
        journal.discard()
        journal.begin(identity, fresh=True)
        journal.append({"request_key": key, "status": "generated", "output_ids": [5, 6, 7]})
        now = counted(project)
        assert (now.generated, now.failed, now.refused, now.missing) == (1, 0, 1, 4)
        assert now.outputs == Outputs(1, 3)


def test_outputs_of_other_settings_are_no_measure_and_not_counted(
    make_project: ProjectMaker, quick: dg.DagsterInstance
) -> None:
    project = make_project()
    for key in ("d", "d-trial"):
        make(project, quick, "prompts", "tokenized_prompts", "raw_generations", key=key)
    assert counted(project).outputs.count == 6
    hotter = make_project(dataset={"sampling": {"max_new_tokens": 160, "temperature": 0.5}})
    found = counted(hotter)
    assert (found.generated, found.missing, found.outputs) == (0, 4, Outputs())
    assert found.other_identity == ("sampling.temperature: 0.0 -> 0.5",)
    assert found.blocked
    assert not counted(hotter, "d-trial").blocked  # a trial begins anew by itself

    # A file that its pointer names no more is not there.
    (Path(str(project.layout.generations("d"))) / CURRENT).unlink()
    found = counted(project)
    assert (found.generated, found.missing, found.outputs.count) == (0, 4, 2)


def test_stored_prompts_are_used_while_they_are_those_of_source_and_template(
    make_project: ProjectMaker, quick: dg.DagsterInstance, tmp_path: Path
) -> None:
    (tmp_path / "other.jinja").write_text(TEMPLATE.replace("tool_declare", "tools"), encoding="utf-8")
    (tmp_path / "strict.jinja").write_text(
        "{% if not messages[0].content.startswith('strange') %}" + TEMPLATE + "{% else %}{{ raise_exception('never') }}"
        "{% endif %}",
        encoding="utf-8",
    )
    strange = {"id": "strange", "messages": [{"role": "user", "content": "strange question"}]}
    rows = [*demo_rows("function_calling", 3), strange]
    strict = make_project(rows, target={"model": "demo", "chat_template": "strict.jinja"})
    make(strict, quick, "prompts", "tokenized_prompts")
    found = counted(strict)
    assert (found.why_tokenized, found.refused) == (None, 1)

    # Where a template refuses less than before, the others' ids are the same.
    found = counted(make_project(rows))
    assert found.why_tokenized == "the stored ones are not what template and tokenizer make of the source now"
    assert found.refused == 0
    make(make_project(rows), quick, "tokenized_prompts")
    assert counted(make_project(rows)).why_tokenized is None

    found = counted(make_project(rows, target={"model": "demo", "chat_template": "other.jinja"}))
    assert found.why_tokenized == "the stored ones are not what template and tokenizer make of the source now"

    project = make_project(rows)
    path = Path(str(project.layout.asset_file("tokenized_prompts", "d")))
    path.write_bytes(b"no parquet")
    assert counted(project).why_tokenized == "the stored ones cannot be read"


def test_what_would_stop_a_run_is_known_before(make_project: ProjectMaker, tmp_path: Path) -> None:
    (tmp_path / "strict.jinja").write_text("{{ raise_exception('never') }}", encoding="utf-8")
    found = counted(make_project(target={"model": "demo", "chat_template": "strict.jinja"}))
    assert found.blocked
    assert found.refused == 4
    assert found.commonest_refusal == "4 of 4: the chat template refused it: TemplateError: never"
    assert any("nothing judged" in why for why in found.refusals)

    found = counted(make_project(["{broken"]))
    assert (found.blocked, found.prompts, len(found.source.refused)) == (True, 0, 1)

    shards = make_project(demo_rows("chat", 1), dataset={"shards": 2})
    both = [counted(shards, "d-00of02"), counted(shards, "d-01of02")]
    assert sorted(found.missing for found in both) == [0, 1]  # a shard without rows is none of the ills
    assert not any(found.blocked for found in both)


def test_a_damaged_page_is_one_clear_error(make_project: ProjectMaker, quick: dg.DagsterInstance) -> None:
    project = make_project()
    make(project, quick, "prompts", "tokenized_prompts", "raw_generations")
    path = Path(str(sealed_generations(project.layout, "d").path))
    data = bytearray(path.read_bytes())
    pages = len(data) - 8 - int.from_bytes(data[-8:-4], "little")  # before the footer, whose length is written there
    data[4:pages] = b"\xff" * (pages - 4)
    path.write_bytes(bytes(data))
    with pytest.raises(SealedError, match="cannot be read to its end"):
        counted(project)


def test_a_dataset_is_looked_through_once_however_many_of_its_partitions_are_counted(
    make_project: ProjectMaker, quick: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a survey of all costs grows with their number, not with its square; and of none it keeps the rows."""
    project = make_project(dataset={"shards": 4})
    looked_through: list[str] = []

    def noted(dataset: Dataset) -> list[Partition]:
        looked_through.append(dataset.name)
        return dataset_partitions(dataset)

    monkeypatch.setattr("eagle3_assets.survey.dataset_partitions", noted)
    survey = Survey(project, load_target(project.config.target))
    keys = [key for key, partition in project.partitions.items() if not partition.trial]
    make(project, quick, "prompts", "tokenized_prompts", "raw_generations", key=keys[0])
    found = [survey.of(project.partition(key)) for key in keys]
    assert sum(one.prompts for one in found) == 4
    assert len({one.outputs for one in found}) == 1
    assert found[0].outputs == found[0].kept == Outputs(found[0].generated, found[0].kept.tokens)
    assert looked_through == ["d"]


@pytest.mark.parametrize("by_a_run", [False, True], ids=["nothing was read before", "a run has read it"])
def test_rows_of_a_source_are_parsed_once_however_many_of_its_missing_shards_are_counted(
    by_a_run: bool, make_project: ProjectMaker, quick: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [{"id": f"c{i}", "messages": [{"role": "user", "content": f"What is {i}?"}]} for i in range(60)]
    project = make_project(rows, dataset={"shards": 6})
    keys = [key for key, partition in project.partitions.items() if not partition.trial]
    if by_a_run:
        make(project, quick, "prompts", key=keys[0])
    expected = [read_partition(project.partition(key), 20).rows for key in keys]
    parsed: list[int] = []
    value = SourceRow.value

    def noted(row: SourceRow) -> Any:
        parsed.append(row.number)
        return value(row)

    monkeypatch.setattr(SourceRow, "value", noted)
    before = contents(project)
    survey = Survey(project, load_target(project.config.target))
    for number, (key, own) in enumerate(zip(keys, expected, strict=True)):
        parsed.clear()
        assert survey.of(project.partition(key)).source.rows.equals(own)
        if number == 0:
            assert parsed == ([] if by_a_run else list(range(1, 61)))
        else:
            assert parsed == own["source_row"].to_list()
    assert contents(project) == before
