"""How many requests one server gets at once.

What belongs here: slow start, additive increase, multiplicative decrease. Not here: which server gets a request
(``pool``).
"""

UNTOLD_START = 32
"""The first limit where a server does not tell its own."""
LARGEST = 256
"""The highest limit that is not configured: beyond it a server only queues."""


class Window:
    """A limit that halves when the server is overloaded, and grows by one after as many answers as it lets through.

    Until the first overload it grows by one with every answer, and so doubles in the time that one answer takes.
    """

    def __init__(self, told: int | None, configured: int | None) -> None:
        """A window at its start.

        Args:
            told: how many requests the server says it runs at once.
            configured: the limit that a person set.
        """
        self.ceiling = configured or min(told or LARGEST, LARGEST)
        self.epoch = 0
        """Counts the decreases: faults of requests that were sent before the last one say nothing new."""
        self._limit = float(min(self.ceiling, told or UNTOLD_START))
        self._answers = 0

    @property
    def limit(self) -> int:
        """Requests that may be in flight now, one at least."""
        return int(self._limit)

    def answered(self) -> None:
        """Notes an answer."""
        self._answers += 1
        if self.epoch == 0 or self._answers >= self.limit:
            self._limit = min(self._limit + 1.0, float(self.ceiling))
            self._answers = 0

    def overloaded(self, epoch: int) -> bool:
        """Halves the limit, once for all the requests that were in flight together.

        Args:
            epoch: when the failed request was sent.

        Returns:
            whether the limit was halved.
        """
        if epoch != self.epoch:
            return False
        self.epoch += 1
        self._limit = max(1.0, self._limit / 2)
        self._answers = 0
        return True
