"""Dagster's resources: the target, the engine, and who listens to progress.

What belongs here: their faces in Dagster. Not here: what they do (``target``, ``engines``).

They are plain objects, which a run's config cannot replace: the project's config alone says which programs are started,
which code is trusted, and which variables hold keys.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import dagster as dg

from eagle3_assets.config import EngineSettings, SglangEngineSettings, Target
from eagle3_assets.engines.base import Engine
from eagle3_assets.engines.create import create_engine
from eagle3_assets.generation.progress import Progress
from eagle3_assets.sharing import SlotShare
from eagle3_assets.target import LoadedTarget, load_target


class TargetResource:
    """The target's tokenizer, template and profile, loaded when first needed."""

    def __init__(self, settings: Target) -> None:
        """Loads nothing yet.

        Args:
            settings: ``target`` of the config.
        """
        self._settings = settings
        self._loaded: LoadedTarget | None = None

    def load(self) -> LoadedTarget:
        """The loaded target.

        Raises:
            TargetError: it cannot be used.
        """
        if self._loaded is None:
            self._loaded = load_target(self._settings)
        return self._loaded


@dataclass(frozen=True, slots=True)
class EngineResource:
    """Who generates. A managed server begins and ends with the engine: it runs while ids are generated, no longer."""

    settings: EngineSettings
    """``engine`` of the config."""
    target: Target
    """``target`` of the config."""
    servers: Path
    """Directory for the logs of managed servers."""

    def create(self, instance: dg.DagsterInstance, run_id: str) -> Engine:
        """A new engine for one run, not yet started.

        Raises:
            EngineError: the run shall share servers with others, and the instance cannot have that.
        """
        share = None
        if isinstance(self.settings, SglangEngineSettings) and self.settings.share_servers:
            share = SlotShare(instance, run_id)
        return create_engine(self.settings, self.target, self.servers, share)


class ProgressListener:
    """Is told how far a partition's prompts and generation are; the terminal puts a bar here."""

    def __init__(
        self,
        tell: Callable[[str, Progress], None] | None = None,
        tell_prompts: Callable[[str, str, int, int], None] | None = None,
    ) -> None:
        self._tell = tell
        self._tell_prompts = tell_prompts

    def __call__(self, partition: str, progress: Progress) -> None:
        """Passes a snapshot of generation on."""
        if self._tell:
            self._tell(partition, progress)

    def prompts(self, partition: str, what: str, done: int, total: int) -> None:
        """Passes on of how many of a partition's prompts something is done; ``what`` says it in a word."""
        if self._tell_prompts:
            self._tell_prompts(partition, what, done, total)
