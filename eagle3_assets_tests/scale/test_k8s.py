"""``deploy/k8s`` by the schemas of those who read it; no cluster runs here."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from eagle3_assets_tests.scale.cluster import BIN, DEPLOY, ROOT, needed

pytestmark = pytest.mark.scale


def check(folder: Path) -> subprocess.CompletedProcess[str]:
    needed(BIN.is_dir(), "the environment that scripts/scale/make-env makes")
    command = [str(BIN / "python"), str(ROOT / "scripts" / "scale" / "check-k8s"), str(folder)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_what_is_shipped_is_of_its_schemas() -> None:
    done = check(DEPLOY / "k8s")
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 10
    # Of the merged context: 1 core and 2 GiB, as docs/cluster.md says.
    assert 'a run takes {"limits": {"memory": "4Gi"}, "requests": {"cpu": "1", "memory": "2Gi"}}' in done.stdout


@pytest.mark.parametrize(
    ("name", "right", "wrong", "told"),
    [
        ("sglang.yaml", "serviceName: sglang", "serviceNam: sglang", "sglang.yaml: StatefulSet sglang"),
        ("network.yaml", "podSelector:\n    match", "podSelectr:\n    match", "network.yaml: NetworkPolicy"),
        ("config.yaml", "kind: sglang", "kind: sglong", "config.yaml: ConfigMap eagle3-config"),
        ("values.yaml", "loadInclusterConfig: true", "loadInclusterConf: true", "runLauncher"),
        ("values.yaml", "mountPath: /scratch", "mountPaht: /scratch", "what runs take over"),
        ("values.yaml", "maxRetries: 2", "maxRetrys: 2", "the instance's settings"),
        ("values.yaml", "startTimeoutSeconds: 86400", "startTimeoutSecs: 86400", "the instance's settings"),
        ("values.yaml", "pools: {", "pool: {", "the instance's settings"),
        ("values.yaml", "dagsterDaemon:", "dagsterDaemon:\n  runCoordinator: {enabled: false}", "dagsterDaemon"),
        ("values.yaml", "  nux: {", "  run_retries: {}\n  nux: {", "additionalInstanceConfig"),
    ],
)
def test_a_slip_of_the_pen_is_found(tmp_path: Path, name: str, right: str, wrong: str, told: str) -> None:
    folder = Path(shutil.copytree(DEPLOY / "k8s", tmp_path / "k8s"))
    text = (folder / name).read_text(encoding="utf-8")
    assert right in text
    (folder / name).write_text(text.replace(right, wrong), encoding="utf-8")
    done = check(folder)
    assert done.returncode == 1 and done.stderr.startswith(told) and "Traceback" not in done.stderr, done.stderr


def test_a_run_whose_job_is_gone_before_it_began_is_told_from_one_that_nobody_may_ask_for() -> None:
    needed(BIN.is_dir(), "the environment that scripts/scale/make-env makes")
    command = [str(BIN / "python"), "-m", "eagle3_assets_tests.scale.kubernetes_jobs"]
    found = json.loads(subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout)
    deleted = found.pop("deleted")
    assert deleted.startswith("Job dagster-run-") and deleted.endswith(" could not be found.")
    assert found == {
        "pending": None,
        "failed": "K8s job failed",
        "succeeded": "Its job has ended.",
        "forbidden": None,
    }
