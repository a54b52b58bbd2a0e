"""From the config to an engine. Not here: any engine."""

from pathlib import Path

from eagle3_assets.config import EngineSettings, SglangEngineSettings, Target
from eagle3_assets.engines.base import Engine
from eagle3_assets.target import read_model_facts


def create_engine(settings: EngineSettings, target: Target) -> Engine:
    """The engine that the config names, not yet started.

    Raises:
        TargetError: the target's config cannot be read.
    """
    if isinstance(settings, SglangEngineSettings):
        from eagle3_assets.engines.sglang import SglangEngine

        return SglangEngine(settings, read_model_facts(Path(target.model)))
    from eagle3_assets.engines.transformers import TransformersEngine

    return TransformersEngine(
        target.model, settings, trust_remote_code=target.trust_remote_code, tokenizer_path=target.tokenizer
    )
