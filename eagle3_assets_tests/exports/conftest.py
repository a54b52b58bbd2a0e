"""A partition with a prompt of every fate, made once on the packaged target."""

import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import dagster as dg
import polars as pl
import pytest
from upath import UPath

from eagle3_assets.build import build_defs
from eagle3_assets.config import Export, load_config
from eagle3_assets.exporting import export
from eagle3_assets.exports.manifest import Manifest
from eagle3_assets.generation.sealed import Sealed, scan_sealed
from eagle3_assets.jobs import EXPORT_JOB, PARTITION_JOB
from eagle3_assets.project import Project
from eagle3_assets.storage.files import sealed_generations, write_parquet
from eagle3_assets.target import LoadedTarget, load_target
from eagle3_assets_tests.conftest import demo_rows, write_project


@dataclass(frozen=True)
class Made:
    """The project, its target, and samples that something is known of."""

    project: Project
    target: LoadedTarget
    failed: str
    quarantined: str

    def export(
        self, place: Path | UPath, tell: Callable[[str], object] = lambda _: None, **settings: object
    ) -> Manifest:
        chosen = Export.model_validate({"eval_share": 0.55, **settings})
        partitions = [self.project.partition("d")]
        return export(self.project, self.target, partitions, UPath(place), chosen, tell).manifest

    def copy(self, folder: Path) -> "Made":
        """The same in another folder, to be changed."""
        shutil.copytree(Path(str(self.project.layout.root)).parent, folder)
        return replace(self, project=Project(load_config(folder / "eagle3.yaml")))

    @property
    def samples(self) -> UPath:
        return self.project.layout.asset_file("training_samples", "d")

    @property
    def sealed(self) -> Sealed:
        return sealed_generations(self.project.layout, "d")

    @property
    def raw(self) -> pl.DataFrame:
        return scan_sealed(self.sealed).collect()


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    rows = [*demo_rows("function_calling", 14), "{broken"]
    limits = {"quarantine_limit": 0.5, "coverage": 0.5, "refused_limit": 0.5, "max_prompt_tokens": 340}
    sampling = {"max_new_tokens": 80, "temperature": 0.0}
    project = write_project(tmp_path_factory.mktemp("export"), rows, dataset={**limits, "sampling": sampling})
    instance = dg.DagsterInstance.ephemeral()
    defs = build_defs(project)

    def run(*assets: str, name: str = PARTITION_JOB) -> None:
        keys = [dg.AssetKey(asset) for asset in assets]
        job = defs.resolve_job_def(name)
        assert job.execute_in_process(instance=instance, partition_key="d", asset_selection=keys).success

    run("prompts", "tokenized_prompts", "raw_generations")
    sealed = sealed_generations(project.layout, "d")
    raw = scan_sealed(sealed).collect()
    failed, quarantined = raw.filter(pl.col("status") == "generated")["sample_id"].head(2)
    fails, breaks = pl.col("sample_id") == failed, pl.col("sample_id") == quarantined
    write_parquet(
        raw.with_columns(
            status=pl.when(fails).then(pl.lit("failed")).otherwise("status"),
            reason=pl.when(fails).then(pl.lit("server: gone")).otherwise("reason"),
            output_ids=pl.when(~fails).then("output_ids"),
            ids_sha256=pl.when(~fails).then("ids_sha256"),
            completion_tokens=pl.when(breaks).then(pl.col("completion_tokens") + 1).otherwise("completion_tokens"),
        ),
        sealed.path,
    )
    run("training_samples")
    run("training_export", name=EXPORT_JOB)
    return Made(project, load_target(project.config.target), failed, quarantined)
