"""Addresses: those of datasets on the Hugging Face Hub, and how any address may be shown.

What belongs here: their form. Not here: what lies there (``prompts.sources.hub``).
"""

import re
from dataclasses import dataclass

HUB_SCHEME = "hf://"

_ADDRESS = re.compile(
    r"hf://datasets/(?P<repository>[\w.-]+/[\w.-]+)(?:@(?P<revision>[^/]+))?(?:/(?P<path>.*))?", re.ASCII
)
_USER = re.compile(r"(?<=://)[^/\s]*@")
_ARGUMENT = re.compile(r"(?<=[?&])([\w.-]+=)[^&#\s]+")
_COMMIT = re.compile(r"[0-9a-f]{40}")


@dataclass(frozen=True, slots=True)
class Address:
    """``hf://datasets/OWNER/NAME@COMMIT/PATH``."""

    repository: str
    commit: str
    path: str
    """File, directory or glob in the repository; empty for all of it."""


def without_secrets(text: str) -> str:
    """A text in which no address shows a user, a password, or the values of its query."""
    return _ARGUMENT.sub(r"\1...", _USER.sub("...@", text))


def parse_address(text: str) -> Address:
    """Reads an address.

    Raises:
        ValueError: it is none, or not pinned to a commit; the text says what is allowed.
    """
    found = _ADDRESS.fullmatch(text)
    path = found["path"] or "" if found else ""
    if not found or ".." in path.split("/"):
        raise ValueError(f"must be like hf://datasets/OWNER/NAME@COMMIT/PATH, not {without_secrets(text)}")
    if not _COMMIT.fullmatch(found["revision"] or ""):
        # A branch moves: shards that are made on different days would be of different data.
        raise ValueError(
            f"must be pinned to a commit, hf://datasets/{found['repository']}@ and its 40 hex digits, as listed at"
            f" https://huggingface.co/datasets/{found['repository']}/commits/main"
        )
    return Address(found["repository"], found["revision"], path.strip("/"))
