"""What Dagster has on record of partitions: when each asset was made last, and what each check said last.

What belongs here: reading the instance. Not here: judging anything anew (``judging``), how it is shown (``metrics``).
"""

from collections import defaultdict
from collections.abc import Sequence

import dagster as dg
from dagster._core.event_api import PartitionKeyFilter
from dagster._core.storage.asset_check_execution_record import AssetCheckExecutionRecord

from eagle3_assets.build import build_defs
from eagle3_assets.generation.errors import SealedError
from eagle3_assets.generation.sealed import read_current
from eagle3_assets.metrics import Found, PartitionState
from eagle3_assets.partitions import Partition
from eagle3_assets.project import Project
from eagle3_assets.running import check_outcome

GENERATIONS = "raw_generations"

AT_ONCE = 500
"""Records asked for in one query; databases limit how many values one may name."""


def partition_states(project: Project, instance: dg.DagsterInstance | None) -> list[PartitionState]:
    """The state of every partition but the trials, from pointers to sealed files and from records.

    Args:
        project: a config made ready.
        instance: with the records; without one the states are those of the files alone.
    """
    partitions = [partition for partition in project.partitions.values() if not partition.trial]
    graph = build_defs(project).resolve_asset_graph()
    assets = [key for key in graph.get_all_asset_keys() if graph.get(key).partitions_def is not None]
    made = _materializations(instance, assets, partitions) if instance else {}
    states = []
    for partition in partitions:
        sealed, damaged = None, False
        try:
            sealed = read_current(project.layout.generations(partition.key))
        except SealedError:
            damaged = True
        latest = made.get(partition.key, {})
        states.append(
            PartitionState(
                partition,
                sealed.pointer if sealed else None,
                damaged,
                {asset: record.timestamp for asset, record in latest.items()},
                _output_tokens(latest.get(GENERATIONS)),
                _checks(instance, list(graph.asset_check_keys), partition.key) if instance else {},
            )
        )
    return states


def _materializations(
    instance: dg.DagsterInstance, assets: Sequence[dg.AssetKey], partitions: Sequence[Partition]
) -> dict[str, dict[str, dg.EventLogRecord]]:
    """The newest record of each asset, by partition and asset."""
    kept = {partition.key for partition in partitions}
    found: dict[str, dict[str, dg.EventLogRecord]] = defaultdict(dict)
    for asset in assets:
        newest = instance.get_latest_storage_id_by_partition(asset, dg.DagsterEventType.ASSET_MATERIALIZATION, kept)
        ids = sorted(newest.values())
        for start in range(0, len(ids), AT_ONCE):
            chunk = ids[start : start + AT_ONCE]
            wanted = dg.AssetRecordsFilter(asset_key=asset, storage_ids=chunk)
            for record in instance.fetch_materializations(wanted, limit=len(chunk)).records:
                found[record.partition_key or ""][asset.path[-1]] = record
    return found


def _output_tokens(record: dg.EventLogRecord | None) -> int | None:
    made = record.asset_materialization if record else None
    tokens = made.metadata.get("output_tokens") if made else None
    return tokens.value if isinstance(tokens, dg.IntMetadataValue) else None


def _checks(
    instance: dg.DagsterInstance, checks: Sequence[dg.AssetCheckKey], partition: str
) -> dict[tuple[str, str], Found]:
    newest = instance.event_log_storage.get_latest_asset_check_execution_by_key(
        checks, partition_filter=PartitionKeyFilter(key=partition)
    )
    return {(key.asset_key.path[-1], key.name): _found(record) for key, record in newest.items()}


def _found(record: AssetCheckExecutionRecord) -> Found:
    event = record.event.dagster_event if record.event else None
    if event is None or event.event_type != dg.DagsterEventType.ASSET_CHECK_EVALUATION:
        return "no_result"
    return check_outcome(event.asset_check_evaluation_data).status
