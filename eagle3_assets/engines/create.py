"""From the config to an engine. Not here: any engine."""

from eagle3_assets.config import EngineSettings, Target
from eagle3_assets.engines.base import Engine


def create_engine(settings: EngineSettings, target: Target) -> Engine:
    """The engine that the config names, not yet started."""
    from eagle3_assets.engines.transformers import TransformersEngine

    return TransformersEngine(
        target.model, settings, trust_remote_code=target.trust_remote_code, tokenizer_path=target.tokenizer
    )
