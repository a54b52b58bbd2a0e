"""What the running program has used so far."""

import resource
from pathlib import Path


def cpu_s() -> float:
    """CPU seconds of all threads, user and system."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def peak_mib() -> float:
    """Of this program alone: the peak that ``getrusage`` tells begins with that of the process which started it."""
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) / 1024
