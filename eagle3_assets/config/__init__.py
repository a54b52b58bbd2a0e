"""``eagle3.yaml``: what may stand in it, how it is found, and what a person is told when it is wrong."""

from eagle3_assets.config.addresses import HUB_SCHEME, Address, parse_address, without_secrets
from eagle3_assets.config.engines import (
    REFUSED_ARGUMENTS,
    EngineSettings,
    ManagedServer,
    SglangEngineSettings,
    TransformersEngineSettings,
)
from eagle3_assets.config.faults import inner_models
from eagle3_assets.config.loading import CONFIG_VARIABLE, STORAGE_VARIABLE, ConfigError, config_path, load_config
from eagle3_assets.config.models import (
    TRIAL_SUFFIX,
    Band,
    Dataset,
    Eagle3Config,
    Export,
    ExportFormat,
    LengthBand,
    Sampling,
    SourceFormat,
    Target,
    Turns,
)
from eagle3_assets.config.operating import Alerts, Metrics

__all__ = [
    "CONFIG_VARIABLE",
    "HUB_SCHEME",
    "REFUSED_ARGUMENTS",
    "STORAGE_VARIABLE",
    "TRIAL_SUFFIX",
    "Address",
    "Alerts",
    "Band",
    "ConfigError",
    "Dataset",
    "Eagle3Config",
    "EngineSettings",
    "Export",
    "ExportFormat",
    "LengthBand",
    "ManagedServer",
    "Metrics",
    "Sampling",
    "SglangEngineSettings",
    "SourceFormat",
    "Target",
    "TransformersEngineSettings",
    "Turns",
    "config_path",
    "inner_models",
    "load_config",
    "parse_address",
    "without_secrets",
]
