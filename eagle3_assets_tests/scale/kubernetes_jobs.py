"""What the sensor of starting runs makes of Kubernetes' answers about a run's job; run in the environment of clusters.

``python -m eagle3_assets_tests.scale.kubernetes_jobs`` prints, as JSON by the name of an answer, why a run is gone, or
null. The launcher is dagster-k8s' own; the API server is a stand-in, since none runs here.
"""

import json
import sys
import tempfile
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import dagster as dg
import yaml
from dagster._core.test_utils import create_run_for_test, instance_for_test

from eagle3_assets.starting import why_gone


def job(**status: Any) -> dict[str, Any]:
    spec: dict[str, Any] = {"template": {"spec": {"containers": []}}}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "job"}, "spec": spec, "status": status}


ANSWERS: dict[str, tuple[int, dict[str, Any]]] = {
    "pending": (200, job(active=1)),
    "failed": (200, job(failed=1)),
    "succeeded": (200, job(succeeded=1)),
    "deleted": (404, {"kind": "Status", "reason": "NotFound"}),
    "forbidden": (403, {"kind": "Status", "reason": "Forbidden", "message": "jobs.batch is forbidden"}),
}


class ApiServer(BaseHTTPRequestHandler):
    answer = ANSWERS["pending"]

    def do_GET(self) -> None:
        status, said = self.answer
        body = json.dumps(said).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Nothing."""


def launcher(folder: Path, port: int) -> dict[str, Any]:
    account = folder / "account.yaml"
    account.write_text(
        yaml.safe_dump(
            {
                "clusters": [{"name": "here", "cluster": {"server": f"http://127.0.0.1:{port}"}}],
                "users": [{"name": "nobody", "user": {}}],
                "contexts": [{"name": "it", "context": {"cluster": "here", "user": "nobody"}}],
                "current-context": "it",
            }
        )
    )
    config = {
        "service_account_name": "dagster",
        "instance_config_map": "dagster-instance",
        "dagster_home": "/opt/dagster",
        "job_image": "image",
        "load_incluster_config": False,
        "kubeconfig_file": str(account),
    }
    return {"module": "dagster_k8s", "class": "K8sRunLauncher", "config": config}


def main() -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), ApiServer)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        overrides = {"run_launcher": launcher(Path(folder), server.server_port)}
        with instance_for_test(overrides=overrides, temp_dir=folder) as instance:
            run = create_run_for_test(instance, status=dg.DagsterRunStatus.STARTING)
            for name, answer in ANSWERS.items():
                ApiServer.answer = answer
                found[name] = why_gone(instance.run_launcher.check_run_worker_health(run))
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
