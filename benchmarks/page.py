"""``docs/benchmarks.md``: every benchmark writes a part of its own there, and leaves the others as they are.

What belongs here: the parts, and what each of them says of the machine. Not here: what is measured.
"""

import os
import platform
from collections.abc import Iterable
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

PAGE = Path(__file__).parent.parent / "docs" / "benchmarks.md"


def write_part(name: str, text: str, page: Path = PAGE) -> None:
    """Replaces what stands between the marks of a part.

    Args:
        name: of the part: its marks are the comments ``<!-- name -->`` and ``<!-- end of name -->``.
        text: Markdown, from a heading of the second level on.
        page: which has the marks.

    Raises:
        ValueError: the page does not have both marks once, the first one first.
    """
    begin, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->\n"
    before, *rest = page.read_text(encoding="utf-8").split(begin)
    after = rest[0].split(end) if len(rest) == 1 else []
    if len(after) != 2:
        raise ValueError(f"{page} must have the marks {begin.strip()} and {end.strip()} once each, in this order")
    page.write_text(f"{before}{begin}\n{text.strip()}\n\n{end}{after[1]}", encoding="utf-8")


def machine(packages: Iterable[str]) -> str:
    """A Markdown list: the time, the machine and what else it did, and the versions of these packages."""
    model = next(
        (line.split(":", 1)[1].strip() for line in _lines("/proc/cpuinfo") if line.startswith("model name")),
        platform.machine(),
    )
    memory = next((int(line.split()[1]) for line in _lines("/proc/meminfo") if line.startswith("MemTotal")), 0)
    versions = ", ".join(f"{name} {version(name)}" for name in packages)
    return "\n".join(
        (
            f"- {datetime.now(UTC):%Y-%m-%d %H:%M} UTC; {model}, {os.cpu_count()} cores, {memory / 2**20:.0f} GiB",
            f"- load average at the end {', '.join(f'{load:.1f}' for load in os.getloadavg())}",
            f"- Linux {platform.release()}, Python {platform.python_version()}, {versions}",
        )
    )


def _lines(path: str) -> list[str]:
    return Path(path).read_text().splitlines()
