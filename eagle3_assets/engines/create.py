"""From the config to an engine. Not here: any engine."""

from pathlib import Path

from eagle3_assets.config import EngineSettings, SglangEngineSettings, Target
from eagle3_assets.engines.base import Engine, Share
from eagle3_assets.target import read_model_facts


def create_engine(settings: EngineSettings, target: Target, servers: Path, share: Share | None = None) -> Engine:
    """The engine that the config names, not yet started.

    Args:
        settings: of the engine.
        target: what it shall run.
        servers: directory for the logs of managed servers, made when it is needed.
        share: divides running servers among runs; None where no other run uses them.

    Raises:
        TargetError: the target's config cannot be read.
    """
    if isinstance(settings, SglangEngineSettings):
        from eagle3_assets.engines.sglang import ManagedSglang, SglangEngine

        server = ManagedSglang(settings.managed, target, servers) if settings.managed else None
        return SglangEngine(settings, read_model_facts(Path(target.model)), server=server, share=share)
    from eagle3_assets.engines.transformers import TransformersEngine

    return TransformersEngine(
        target.model, settings, trust_remote_code=target.trust_remote_code, tokenizer_path=target.tokenizer
    )
