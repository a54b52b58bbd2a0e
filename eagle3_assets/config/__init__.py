"""``eagle3.yaml``: what may stand in it, how it is found, and what a person is told when it is wrong."""

from eagle3_assets.config.engines import (
    REFUSED_ARGUMENTS,
    EngineSettings,
    ManagedServer,
    SglangEngineSettings,
    TransformersEngineSettings,
)
from eagle3_assets.config.faults import inner_models
from eagle3_assets.config.loading import CONFIG_VARIABLE, STORAGE_VARIABLE, ConfigError, config_path, load_config
from eagle3_assets.config.models import TRIAL_SUFFIX, Band, Dataset, Eagle3Config, LengthBand, Sampling, Target

__all__ = [
    "CONFIG_VARIABLE",
    "REFUSED_ARGUMENTS",
    "STORAGE_VARIABLE",
    "TRIAL_SUFFIX",
    "Band",
    "ConfigError",
    "Dataset",
    "Eagle3Config",
    "EngineSettings",
    "LengthBand",
    "ManagedServer",
    "Sampling",
    "SglangEngineSettings",
    "Target",
    "TransformersEngineSettings",
    "config_path",
    "inner_models",
    "load_config",
]
