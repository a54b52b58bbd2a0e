"""The settings of Dagster that are shipped say the same wherever they stand, and hold no secret."""

from pathlib import Path
from typing import Any

import yaml

from eagle3_assets.assets.raw_generations import POOL

DEPLOY = Path(__file__).parents[1] / "deploy"


def settings(name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((DEPLOY / name).read_text(encoding="utf-8"))
    return loaded


def test_ray_and_kubernetes_have_postgres_settings() -> None:
    postgres, ray, helm = settings("postgres/dagster.yaml"), settings("ray/dagster.yaml"), settings("k8s/values.yaml")
    assert {name: ray[name] for name in postgres} == postgres
    assert ray.keys() - postgres.keys() == {"run_launcher", "compute_logs"}
    chart = {**helm["additionalInstanceConfig"], "telemetry": helm["telemetry"], "storage": postgres["storage"]}
    assert chart == postgres


def test_the_database_is_named_by_the_environment_alone() -> None:
    database = settings("postgres/dagster.yaml")["storage"]["postgres"]["postgres_db"]
    assert all(value.keys() == {"env"} for value in database.values())


def test_what_generates_is_of_the_pool_that_the_settings_name() -> None:
    assert f'"{POOL}"' in (DEPLOY / "postgres" / "dagster.yaml").read_text(encoding="utf-8")
    assert f"`{POOL}`" in (DEPLOY.parent / "docs" / "cluster.md").read_text(encoding="utf-8")
