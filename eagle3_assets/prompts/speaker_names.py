"""Names of speakers that a chat template does not print: ``name`` beside a message's role.

What belongs here: finding of whose messages a template leaves them out, and which prompts have such. Not here: reading
names (``formats.messages``), the names of tools' results, which are those of the calls before them.

Most templates print none. A few (Kimi's) print it in place of the role.
"""

import json
from collections.abc import Callable

import polars as pl

from eagle3_assets.prompts.dialogue import Json

_NAME = "probed_name"
_USER: Json = {"role": "user", "content": "Hello"}
_AROUND: dict[str, tuple[list[Json], list[Json]]] = {
    "system": ([], [_USER]),
    "user": ([], []),
    "assistant": ([_USER], [_USER]),
}
"""What templates want before and after a message of each of those who may have a name."""


def roles_without_names(render: Callable[[list[Json]], str]) -> frozenset[str]:
    """Those of whose messages a template leaves out the ``name``.

    Args:
        render: gives the prompt's text of messages; may raise whatever a template raises.
    """
    return frozenset(role for role in _AROUND if _left_out(render, role))


def rows_without_names(rows: pl.DataFrame, roles: frozenset[str]) -> list[str]:
    """Sample ids of the prompt rows in which one of these roles has a name.

    Args:
        rows: columns ``sample_id`` and ``messages`` of ``contract.PROMPTS``.
        roles: as of :func:`roles_without_names`.
    """
    if not roles:
        return []
    maybe = rows.filter(pl.col("messages").str.contains('"name":', literal=True)).select("sample_id", "messages")
    return [
        sample
        for sample, messages in maybe.iter_rows()
        if any("name" in message and message["role"] in roles for message in json.loads(messages))
    ]


def _left_out(render: Callable[[list[Json]], str], role: str) -> bool:
    before, after = _AROUND[role]
    try:
        return _NAME not in render([*before, {"role": role, "content": "Hello", "name": _NAME}, *after])
    except Exception:  # noqa: BLE001 - a template is data: that it fails it says of every such row itself
        return False
