"""A machine that generates a partition on an object store: run as a process, so that it can be killed.

``python -m eagle3_assets_tests.scale.worker URL JOURNALS PROMPTS LEASE_SECONDS DELAY``: prints which samples it asked.
"""

import asyncio
import json
import sys
from pathlib import Path

from eagle3_assets.files import place_of
from eagle3_assets.generation.errors import GenerationError
from eagle3_assets.generation.loop import generate_partition
from eagle3_assets.generation.shared import Sharing
from eagle3_assets_tests.generation.fake import AT_ONCE, DESCRIPTION, IDENTITY, FakeEngine, prompt_frame

ROWS = 20
"""Rows of an upload."""
CAPACITY = 8
"""Requests in flight."""


def main(url: str, journals: str, prompts: str, lease_seconds: str, delay: str) -> int:
    engine = FakeEngine(capacity=CAPACITY, delay=float(delay))
    root = place_of(url)
    said = {"kept": -1, "error": ""}
    try:
        outcome = asyncio.run(
            generate_partition(
                directory=root / "data",
                journal_directory=Path(journals),
                sharing=Sharing(root / "journals", rows=ROWS, seconds=5.0, lease_seconds=float(lease_seconds)),
                prompts=prompt_frame(int(prompts)).lazy(),
                identity=IDENTITY,
                description=DESCRIPTION,
                engine=engine,
                retry=AT_ONCE,
            )
        )
        said["kept"] = outcome.kept
    except GenerationError as error:
        said["error"] = str(error)
    print(json.dumps({**said, "asked": sorted(engine.asked)}))
    return 1 if said["error"] else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
