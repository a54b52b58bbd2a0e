"""What engines log, for those who show it: servers that start, die, come back or are restarted.

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
    """Passes on what engines log meanwhile, made safe to show: it quotes what servers say.

    Args:
        tell: takes the level and the line; called in whatever thread the engine logs in.
    """
    engines = logging.getLogger("eagle3_assets.engines")
    passing, level = _Passing(tell), engines.level
    engines.addHandler(passing)
    engines.setLevel(logging.INFO)
    try:
        yield
    finally:
        engines.removeHandler(passing)
        engines.setLevel(level)
