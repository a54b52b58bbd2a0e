"""What can go wrong with one server, as the pool needs to tell it apart.

What belongs here: kinds of faults. Not here: what follows from them (``pool``).
"""

from eagle3_assets.engines.base import EngineError, LostRequestError, TransientEngineError


class UnreachableError(TransientEngineError):
    """The server takes no requests now: nothing listens, it is starting or going, it refuses the key."""

    def __init__(self, text: str, *, misconfigured: bool = False) -> None:
        """A fault of a server.

        Args:
            text: for people; names the server.
            misconfigured: whether waiting cannot help, as with a wrong key or another kind of server.
        """
        super().__init__(text)
        self.misconfigured = misconfigured


class SilentError(TransientEngineError):
    """The server did not answer in time."""


class LostError(LostRequestError):
    """The request was lost, on the way or in the server: a reason to look whether the server is well."""


class BusyError(TransientEngineError):
    """The server has too much to do."""

    def __init__(self, text: str, retry_after_s: float | None = None) -> None:
        """A fault of a server.

        Args:
            text: for people; names the server.
            retry_after_s: how long the server asks to be left alone.
        """
        super().__init__(text)
        self.retry_after_s = retry_after_s


class UnsuitableError(EngineError):
    """The server must not be used: its version, its flags, another model than the others'."""
