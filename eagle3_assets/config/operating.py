"""Settings of what tells people how it goes: alerts and metrics.

What belongs here: settings models, their defaults and limits. Not here: sending (``alerts``), measuring (``metrics``).
"""

import re
from urllib.parse import urlsplit

from pydantic import Field, field_validator

from eagle3_assets.config.base import Settings

VARIABLE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class Alerts(Settings):
    """Where failed runs and failed checks are told. Their sensors are off until somebody switches them on."""

    webhook_env: str | None = Field(
        None,
        description="Name of the environment variable that holds the webhook's URL, which is a secret"
        " (docs/operations.md); unset, there are no alerts.",
    )
    ui_url: str | None = Field(
        None, description="Where people open the Dagster UI, such as `https://dagster.example.org`; alerts link to it."
    )
    warnings: bool = Field(default=False, description="Whether checks that only warn are told as well.")

    @field_validator("webhook_env")
    @classmethod
    def _names_a_variable(cls, value: str | None) -> str | None:
        if value is not None and not VARIABLE_NAME.fullmatch(value):
            raise ValueError(
                "must be the name of an environment variable, such as EAGLE3_WEBHOOK; never the URL itself"
            )
        return value

    @field_validator("ui_url")
    @classmethod
    def _without_secrets(cls, value: str | None) -> str | None:
        if value is None:
            return None
        try:
            parts = urlsplit(value)
            valid = parts.scheme in ("http", "https") and parts.hostname and "@" not in parts.netloc
        except ValueError:
            valid = False
        if not valid or parts.query or parts.fragment or not value.isprintable() or " " in value:
            raise ValueError("must be the UI's address, such as https://dagster.example.org, without user and password")
        return value.rstrip("/")


class Metrics(Settings):
    """Figures for Prometheus."""

    directory: str | None = Field(
        None,
        description="Directory that node_exporter's textfile collector reads on the machine of the run; a run that"
        " generates keeps a file there (docs/operations.md). Needs the extra `metrics`. Relative to the config file.",
    )
