"""The loop around an engine: what is missing, asking for it, keeping every answer, sealing the partition.

What belongs here: the names that other rooms use. Not here: Dagster, and how an engine makes tokens.
"""

from eagle3_assets.generation.errors import (
    EnvironmentChangedError,
    GenerationError,
    GenerationStoppedError,
    IdentityMismatchError,
    JournalError,
    PromptsError,
    SealedError,
)
from eagle3_assets.generation.loop import Outcome, RetryPolicy, generate_partition, generate_partition_async
from eagle3_assets.generation.progress import Progress, Throttle
from eagle3_assets.generation.sealed import Pointer, Sealed, read_current, read_identity, scan_sealed

__all__ = [
    "EnvironmentChangedError",
    "GenerationError",
    "GenerationStoppedError",
    "IdentityMismatchError",
    "JournalError",
    "Outcome",
    "Pointer",
    "Progress",
    "PromptsError",
    "RetryPolicy",
    "Sealed",
    "SealedError",
    "Throttle",
    "generate_partition",
    "generate_partition_async",
    "read_current",
    "read_identity",
    "scan_sealed",
]
