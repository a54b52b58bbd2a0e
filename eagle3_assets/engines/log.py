"""What a run logs, for those who show it: servers that die or come back, uploads that are tried again.

What belongs here: passing the lines on. Not here: where they are shown (a run's log, the terminal).
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from eagle3_assets.tokens.safe_text import visible


class _Passing(logging.Handler):
    def __init__(self, tell: Callable[[int, str], object]) -> None:
        super().__init__(logging.INFO)
        self._tell = tell

    def emit(self, record: logging.LogRecord) -> None:
        self._tell(record.levelno, visible(record.getMessage(), keep_lines=True))


@contextmanager
def heard(tell: Callable[[int, str], object]) -> Iterator[None]:
    """Passes on what engines and the loop log meanwhile, made safe to show: it quotes what servers say.

    Args:
        tell: takes the level and the line; called in whatever thread it is logged in.
    """
    passing = _Passing(tell)
    rooms = [logging.getLogger(f"eagle3_assets.{room}") for room in ("engines", "generation")]
    levels = [room.level for room in rooms]
    for room in rooms:
        room.addHandler(passing)
        room.setLevel(logging.INFO)
    try:
        yield
    finally:
        for room, level in zip(rooms, levels, strict=True):
            room.removeHandler(passing)
            room.setLevel(level)
