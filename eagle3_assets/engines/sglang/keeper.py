"""A small process between this one and a server that it started: it ends the server when this one is gone.

What belongs here: keeping one command and all that it starts in one process group, and ending that group, whatever
becomes of who asked for it. Not here: which command, health, restarts (``managed``).

Run as a file by a plain interpreter, so it imports the standard library only:
``python keeper.py PARENT_PID GRACE_SECONDS COMMAND...``, as the leader of a process group of its own. SIGTERM asks it
to end the server. A parent that is killed cannot ask, so it also looks at who its parent is: that works on every POSIX
system, does not depend on the thread that started it, and reaches the server's own children too.
"""

import ctypes
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress

LOOK_EVERY_S = 0.1
MARK = "eagle3-assets: "
"""Begins the lines which are added to the server's log."""
ENDED = f"{MARK}the server ended: "

_PR_SET_PDEATHSIG = 1


def _say(text: str) -> None:
    print(text, flush=True)  # noqa: T201 - its standard output is the server's log


def _die_with_the_keeper() -> None:
    """Has the kernel end the server if the keeper itself is killed; only Linux knows how."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def how_it_ended(status: int) -> str:
    """An exit status in words."""
    if status >= 0:
        return f"exit status {status}"
    name = signal.Signals(-status).name if -status in set(signal.Signals) else f"signal {-status}"
    return f"{name}, as when memory runs out" if name == "SIGKILL" else name


def main() -> None:
    """Runs the command until it ends, is asked to end it, or is left alone; then ends the whole group, itself too."""
    parent, grace_s, command = int(sys.argv[1]), float(sys.argv[2]), sys.argv[3:]
    asked: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: asked.append(number))
    try:
        server = subprocess.Popen(command, stdin=subprocess.DEVNULL, preexec_fn=_die_with_the_keeper)  # noqa: S603
    except OSError as error:
        _say(f"{MARK}{command[0]} cannot be run: {error.strerror}")
        sys.exit(1)
    while server.poll() is None and not asked and os.getppid() == parent:
        time.sleep(LOOK_EVERY_S)
    if server.returncode is None:
        _say(f"{MARK}ending the server" + ("" if asked else ", since what started it is gone"))
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        os.killpg(0, signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            server.wait(grace_s)
    if server.returncode is None:
        _say(f"{MARK}the server did not end within {grace_s:g} s and is killed")
    else:
        _say(f"{ENDED}{how_it_ended(server.returncode)}")
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    main()
