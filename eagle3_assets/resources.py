"""Dagster's resources: the target, the engine, and who listens to progress.

What belongs here: their faces in Dagster. Not here: what they do (``target``, ``engines``).
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import dagster as dg
from pydantic import PrivateAttr, TypeAdapter

from eagle3_assets.config import EngineSettings, SglangEngineSettings, Target
from eagle3_assets.engines.base import Engine
from eagle3_assets.engines.create import create_engine
from eagle3_assets.generation.progress import Progress
from eagle3_assets.sharing import SlotShare
from eagle3_assets.target import LoadedTarget, load_target


class TargetResource(dg.ConfigurableResource[Any]):
    """The target's tokenizer, template and profile, loaded when first needed."""

    settings: dict[str, Any]
    """``target`` of the config."""

    _loaded: LoadedTarget | None = PrivateAttr(default=None)

    def load(self) -> LoadedTarget:
        """The loaded target.

        Raises:
            TargetError: it cannot be used.
        """
        if self._loaded is None:
            self._loaded = load_target(Target.model_validate(self.settings))
        return self._loaded


class EngineResource(dg.ConfigurableResource[Any]):
    """Who generates. A managed server begins and ends with the engine: it runs while ids are generated, no longer."""

    settings: dict[str, Any]
    """``engine`` of the config."""
    target: dict[str, Any]
    """``target`` of the config."""
    servers: str
    """Directory for the logs of managed servers."""

    def create(self, instance: dg.DagsterInstance, run_id: str) -> Engine:
        """A new engine for one run, not yet started.

        Raises:
            EngineError: the run shall share servers with others, and the instance cannot have that.
        """
        settings: EngineSettings = TypeAdapter(EngineSettings).validate_python(self.settings)
        share = None
        if isinstance(settings, SglangEngineSettings) and settings.share_servers:
            share = SlotShare(instance, run_id)
        return create_engine(settings, Target.model_validate(self.target), Path(self.servers), share)


class ProgressListener:
    """Is told how far a partition's generation is; the terminal puts a bar here."""

    def __init__(self, tell: Callable[[str, Progress], None] | None = None) -> None:
        self._tell = tell

    def __call__(self, partition: str, progress: Progress) -> None:
        """Passes a snapshot on."""
        if self._tell:
            self._tell(partition, progress)
