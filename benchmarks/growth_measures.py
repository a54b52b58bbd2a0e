"""What one run, one sample, one source row and one partition cost, each measured by itself.

What belongs here: measuring. Not here: how much is measured and the report (``growth``), arithmetic (``scale``).
"""

import json
import os
import sqlite3
import sysconfig
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import dagster as dg
import polars as pl
import sqlalchemy as sa
from dagster._core.remote_representation.external_data import RepositorySnap
from upath import UPath

from benchmarks.law_runs import IDS, kimi, outputs_file, prompts_file, write
from benchmarks.scale import TOKENS
from benchmarks.usage import cpu_s
from eagle3_assets.build import build_defs
from eagle3_assets.config import CONFIG_VARIABLE, Dataset, load_config
from eagle3_assets.engines.base import Description, Generation, Request
from eagle3_assets.exports.formats import FORMATS
from eagle3_assets.generating import Wishes, generate
from eagle3_assets.judging import tokenize
from eagle3_assets.partitions import dataset_partitions
from eagle3_assets.project import Project
from eagle3_assets.prompts.row_index import RowIndexes
from eagle3_assets.prompts.rows import read_partition
from eagle3_assets.running import INSTANCE_YAML, materialize
from eagle3_assets.sourcing import take_prompts
from eagle3_assets.storage.files import write_parquet
from eagle3_assets.summary import summarize
from eagle3_assets.survey import Survey
from eagle3_assets.target import LoadedTarget, load_target
from eagle3_assets.training import to_training_samples
from eagle3_assets.vocabularies import corpus_vocabulary
from eagle3_assets_tests.served import Api, free_port, running

DEMO = Path(str(files("eagle3_assets.demo")))
PROMPTS_A_SHARD = 30
"""Of the runs that are measured: more change little, as what a run tells of its rows is bounded."""
RUNS = 3
MISSING = 20
"""Shards of the source that is counted before any of them is made."""
TIMES = 5
"""How often a query is asked."""
CHARACTERS = 4
"""For each id of made-up text."""

QUERIES = {
    "all assets with their counts of partitions": "{ assetNodes { id partitionStats { numMaterialized numFailed } } }",
    "an asset's partitions by state": """{ assetNodeOrError(assetKey: {path: ["raw_generations"]}) { ... on AssetNode {
        assetPartitionStatuses { ... on DefaultPartitionStatuses { materializedPartitions failedPartitions } } } } }""",
    "the last materialization of 100 partitions": """query($some: [String!]) { assetNodeOrError(
        assetKey: {path: ["raw_generations"]}) { ... on AssetNode {
        latestMaterializationByPartition(partitions: $some) { timestamp } } } }""",
}


@contextmanager
def project_of(rows: list[dict[str, Any]], shards: int, **dataset: object) -> Iterator[tuple[Path, Project]]:
    """A project of one dataset in a folder of its own, which is removed at the end."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "prompts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        given = {"name": "d", "source": "prompts.jsonl", "shards": shards, **dataset}
        engine = {"batch_size": 32, "threads": 1, "logprob_share": 1.0}
        values = {"target": {"model": "demo"}, "engine": engine, "storage": {"root": "data"}, "datasets": [given]}
        (folder / "eagle3.yaml").write_text(json.dumps(values), encoding="utf-8")  # which is YAML too
        yield folder, Project(load_config(folder / "eagle3.yaml"))


def demo_prompts(count: int) -> list[dict[str, Any]]:
    """The demo's prompts, again and again under other ids."""
    lines = (DEMO / "prompts" / "function_calling.jsonl").read_text(encoding="utf-8").splitlines()
    demo = [json.loads(line) for line in lines]
    return [{**demo[n % len(demo)], "id": f"c{n}"} for n in range(count)]


def run_growth(postgres: str | None) -> dict[str, float]:
    """What a run adds to an instance: ``run_bytes``, ``run_rows`` and, given a database, ``run_bytes_postgres``.

    Args:
        postgres: URL of a database that holds nothing yet.
    """
    sampling = {"max_new_tokens": 512, "temperature": 0.0}
    found: dict[str, float] = {}
    with project_of(demo_prompts(PROMPTS_A_SHARD * (RUNS + 1)), RUNS + 1, sampling=sampling) as (folder, project):
        keys = [key for key, partition in project.partitions.items() if not partition.trial]
        home = folder / "home"
        home.mkdir()
        (home / "dagster.yaml").write_text(INSTANCE_YAML, encoding="utf-8")
        before = (0, 0)
        with dg.DagsterInstance.from_config(str(home)) as instance:
            for number, _ in enumerate(materialize(project, keys, instance)):
                if number == 0:
                    before = on_disk(home)
        after = on_disk(home)
        found |= {"run_bytes": (after[0] - before[0]) / RUNS, "run_rows": (after[1] - before[1]) / RUNS}
        if postgres:
            (home / "dagster.yaml").write_text(
                f"{INSTANCE_YAML}storage:\n  postgres:\n    postgres_url: {json.dumps(postgres)}\n", encoding="utf-8"
            )
            with dg.DagsterInstance.from_config(str(home)) as instance:
                held = 0
                for number, _ in enumerate(materialize(project, keys, instance)):
                    if number == 0:
                        held = in_postgres(postgres)
            found["run_bytes_postgres"] = (in_postgres(postgres) - held) / RUNS
    return found


def on_disk(home: Path) -> tuple[int, int]:
    """Bytes of all files below, and rows of all SQLite databases among them."""
    rows = 0
    for path in home.rglob("*.db"):
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            tables = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
            rows += sum(connection.execute(f'SELECT count(*) FROM "{table}"').fetchone()[0] for (table,) in tables)  # noqa: S608 - its own names
    return sum(path.stat().st_size for path in home.rglob("*") if path.is_file()), rows


def in_postgres(url: str) -> int:
    """Bytes of a database."""
    with sa.create_engine(url).connect() as connection:
        return int(connection.execute(sa.text("SELECT pg_database_size(current_database())")).scalar_one())


def sample_bytes(rows: int) -> dict[str, float]:
    """What a sample takes in each asset."""
    texts = source_texts(rows, TOKENS * CHARACTERS)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write(folder, IDS, kimi(), rows, TOKENS)
        source = folder / "source.jsonl"
        lines = (
            {"id": f"conversation-{n}", "messages": [{"role": "user", "content": text[: len(text) // 5]}]}
            for n, text in enumerate(texts)
        )
        source.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
        *_, partition, _ = dataset_partitions(Dataset(name="d", source=(str(source),)))
        prompts = read_partition(partition, 0).rows
        raw = pl.scan_parquet(outputs_file(folder, IDS))
        samples = to_training_samples(prompts.lazy(), raw, frozenset()).collect()
        exported = samples.with_columns(text=pl.Series(texts), partition=pl.lit("d"))
        paths = {name: folder / name for name in ("prompts", "training_samples", "export_jsonl", "export_parquet")}
        write_parquet(prompts, UPath(paths["prompts"]))
        write_parquet(samples, UPath(paths["training_samples"]))
        for form in ("jsonl", "parquet"):
            FORMATS[form].write(exported, paths[f"export_{form}"])
        paths |= {"tokenized_prompts": prompts_file(folder, IDS), "raw_generations": outputs_file(folder, IDS)}
        return {f"{asset}_bytes": path.stat().st_size / rows for asset, path in paths.items()}


def source_texts(count: int, characters: int) -> list[str]:
    """Different pieces of the standard library's sources."""
    texts: list[str] = []
    for path in sorted(Path(sysconfig.get_paths()["stdlib"]).rglob("*.py")):
        text = path.read_text(encoding="utf-8", errors="replace")
        texts += [text[at : at + characters] for at in range(0, len(text) - characters, characters)]
        if len(texts) >= count:
            return texts[:count]
    raise ValueError(f"the standard library has {len(texts):,} pieces of {characters:,} characters, not {count:,}")


def source_costs(rows: int) -> dict[str, float]:
    """Microseconds of CPU for a row of the source that belongs to another shard: for the first run, and for later ones.

    Of JSON lines ``source_us`` and ``known_source_us``, of Parquet ``parquet_us`` and ``known_parquet_us``.
    """
    found = {}
    prompts = demo_prompts(rows)
    for name, source in (("source_us", "prompts.jsonl"), ("parquet_us", "prompts.parquet")):
        with project_of(prompts, 10_000, source=source) as (folder, project):
            if source.endswith(".parquet"):
                pl.DataFrame(prompts).write_parquet(folder / source)
            partition = next(iter(project.partitions.values()))
            for kind in (name, f"known_{name}"):
                indexes = RowIndexes(project.layout, partition.dataset)
                before = cpu_s()
                read_partition(partition, 0, indexes=indexes)
                found[kind] = (cpu_s() - before) / rows * 1e6
    return found


def missing_ms(rows: int) -> float:
    """Milliseconds of CPU of `plan` for each of ``MISSING`` shards of a source of which none is made yet."""
    with project_of(demo_prompts(rows), MISSING) as (_, project):
        survey = Survey(project, load_target(project.config.target))
        before = cpu_s()
        for partition in project.partitions.values():
            if not partition.trial:
                survey.of(partition)
        return 1_000 * (cpu_s() - before) / MISSING


class Fixed:
    """An engine that says what no law refuses, at once."""

    capacity = 8

    def __init__(self, target: LoadedTarget) -> None:
        self._target = target

    async def start(self) -> Description:
        """Says what the target's config says."""
        target = self._target
        return Description("fixed", target.stop_token_ids, target.vocab_size, target.context_length)

    async def generate(self, request: Request) -> Generation:
        """Some ids that the seed decides, the end of reasoning, the stop id."""
        stop, end = self._target.stop_token_ids[0], self._target.profile.reasoning_end
        ids = [*(100 + (request.seed >> shift) % 1_000 for shift in range(40)), end or 300, 301, stop]
        return Generation(ids, len(ids), "stop", stop, None, len(request.prompt_ids), "fixed", 0.1)

    async def healthy(self) -> bool:
        """It always is."""
        return True

    async def close(self) -> None:
        """Has nothing to free."""


def corpus_costs(partitions: int) -> dict[str, float]:
    """Milliseconds of CPU a partition of what is of all partitions, with five short samples in each."""
    rows = [{"id": f"c{n}", "messages": [{"role": "user", "content": f"What is {n}?"}]} for n in range(5 * partitions)]
    with project_of(rows, partitions, sampling={"max_new_tokens": 64}) as (_, project):
        target = load_target(project.config.target)
        shards = [partition for partition in project.partitions.values() if not partition.trial]
        for partition in shards:
            found, _ = take_prompts(project, partition)
            write_parquet(found.rows, project.layout.asset_file("prompts", partition.key))
            tokenized = tokenize(project, partition, target, found.rows)
            write_parquet(tokenized, project.layout.asset_file("tokenized_prompts", partition.key))
            generate(
                project,
                partition,
                target,
                Fixed(target),
                tokenized.lazy(),
                sampling=partition.dataset.sampling,
                wishes=Wishes(),
                progress=lambda _: None,
            )

        def plan() -> None:
            survey = Survey(project, target)
            for partition in shards:
                survey.of(partition)

        def summary() -> None:
            counted = summarize(project, target)["samples"][-1]
            if counted != len(rows):
                raise AssertionError(f"{counted} of {len(rows)} samples count")

        works = {
            "corpus_summary": summary,
            "draft_vocabulary": lambda: corpus_vocabulary(project, target, 500),
            "plan": plan,
        }
        taken = {}
        for name, work in works.items():
            before = cpu_s()
            work()
            taken[f"{name}_ms"] = 1_000 * (cpu_s() - before) / partitions
        return taken


@dataclass(frozen=True, slots=True)
class Served:
    """What the UI takes with so many partitions."""

    partitions: int
    snapshot_bytes: int
    """Of the definitions, which the webserver fetches from the code location."""
    definitions_cpu_s: float
    """Of making the definitions and their snapshot, as a code location does when it loads."""
    query_s: dict[str, float]
    """By the names of ``QUERIES``, the fastest of ``TIMES``."""


def served(partitions: int) -> Served:
    """Has a webserver answer for a dataset whose partitions are all materialized."""
    with ExitStack() as stack:
        folder, project = stack.enter_context(project_of(demo_prompts(1), partitions))
        keys = [key for key, partition in project.partitions.items() if not partition.trial]
        before = cpu_s()
        snapshot = dg.serialize_value(RepositorySnap.from_def(build_defs(project).get_repository_def()))
        definitions_cpu_s = cpu_s() - before
        home = folder / "home"
        home.mkdir()
        (home / "dagster.yaml").write_text(INSTANCE_YAML, encoding="utf-8")
        fill(home, keys)
        environment = {"DAGSTER_HOME": str(home), CONFIG_VARIABLE: str(folder / "eagle3.yaml")}
        port = free_port()
        arguments = ["dagster_webserver", "--host", "127.0.0.1", "--port", str(port), "-m", "eagle3_assets.definitions"]
        stack.enter_context(running(arguments, {**os.environ, **environment}, folder / "web.log"))
        api = Api(port)
        api.wait_until_up()

        def seconds(query: str) -> float:
            began = time.monotonic()
            answer = api(query, some=keys[:100])
            if "numMaterialized" in query:
                counts = [node["partitionStats"] for node in answer["assetNodes"]]
                assert partitions in [one["numMaterialized"] for one in counts if one]  # noqa: S101 - else nothing was measured
            return time.monotonic() - began

        taken = {name: min(seconds(query) for _ in range(TIMES)) for name, query in QUERIES.items()}
    return Served(partitions, len(snapshot), definitions_cpu_s, taken)


def fill(home: Path, keys: list[str]) -> None:
    """Records a materialization of every partition, without waiting for the disk each time."""

    def hurry(connection: sqlite3.Connection, _: object) -> None:
        connection.execute("PRAGMA synchronous = OFF")

    sa.event.listen(sa.engine.Engine, "connect", hurry)
    try:
        with dg.DagsterInstance.from_config(str(home)) as instance:
            for key in keys:
                instance.report_runless_asset_event(dg.AssetMaterialization("raw_generations", partition=key))
    finally:
        sa.event.remove(sa.engine.Engine, "connect", hurry)
