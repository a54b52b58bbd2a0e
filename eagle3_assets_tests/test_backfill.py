"""A backfill as the UI launches it: webserver and daemon are real processes, everything goes through GraphQL."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from eagle3_assets.tokens.laws import LAWS
from eagle3_assets_tests.conftest import ProjectMaker, demo_rows
from eagle3_assets_tests.served import Api, served

ASSETS = (
    "prompts",
    "tokenized_prompts",
    "raw_generations",
    "decoded_previews",
    "length_statistics",
    "training_samples",
)

LAUNCH = """
mutation ($params: LaunchBackfillParams!) {
  launchPartitionBackfill(backfillParams: $params) {
    __typename
    ... on LaunchBackfillSuccess { backfillId }
    ... on PythonError { message }
  }
}
"""
STATUS = """
query ($id: String!) {
  partitionBackfillOrError(backfillId: $id) {
    ... on PartitionBackfill { status error { message } }
  }
}
"""
CHECKS = """
query ($asset: AssetKeyInput!, $check: String!) {
  assetCheckExecutions(assetKey: $asset, checkName: $check, limit: 10) {
    partition status evaluation { success description metadataEntries { label ... on TextMetadataEntry { text } } }
  }
}
"""


@pytest.fixture
def api(make_project: ProjectMaker, tmp_path: Path) -> Iterator[Api]:
    make_project(demo_rows("function_calling", 6), dataset={"shards": 2})
    with served(tmp_path) as made:
        yield made


@pytest.mark.slow
def test_a_backfill_of_two_partitions_and_its_checks(api: Api, tmp_path: Path) -> None:
    keys = ["d-00of02", "d-01of02"]
    launched = api(
        LAUNCH, params={"assetSelection": [{"path": [asset]} for asset in ASSETS], "partitionNames": keys, "tags": []}
    )["launchPartitionBackfill"]
    assert launched["__typename"] == "LaunchBackfillSuccess", launched

    deadline = time.monotonic() + 240
    while True:
        backfill = api(STATUS, id=launched["backfillId"])["partitionBackfillOrError"]
        if backfill["status"] not in ("REQUESTED", "COMPLETING"):
            break
        assert time.monotonic() < deadline, (tmp_path / "daemon.log").read_text(encoding="utf-8")[-3000:]
        time.sleep(1)
    assert backfill["status"] == "COMPLETED_SUCCESS", backfill

    for law in LAWS:
        executions = api(CHECKS, asset={"path": [law.asset]}, check=law.name)["assetCheckExecutions"]
        assert sorted(e["partition"] for e in executions) == keys, law.name
        for execution in executions:
            evaluation = execution["evaluation"]
            status = {entry["label"]: entry.get("text") for entry in evaluation["metadataEntries"]}["status"]
            # What could not be judged is never shown as passed.
            assert status in ("passed", "warned", "failed", "not_judged")
            assert evaluation["success"] == (status == "passed")
            assert evaluation["description"]
