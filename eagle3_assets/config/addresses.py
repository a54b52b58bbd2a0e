"""Addresses: of datasets on the Hugging Face Hub, of object stores, and how any address may be shown.

What belongs here: their form. Not here: what lies there (``prompts.sources.hub``, ``files``).
"""

import re
from dataclasses import dataclass

import fsspec  # type: ignore[import-untyped] # it ships no types

HUB_SCHEME = "hf://"

STORES = {
    "s3": "s3",
    "s3a": "s3",
    "gs": "gs",
    "gcs": "gs",
    "az": "az",
    "abfs": "az",
    "abfss": "az",
    "memory": None,
}
"""Object stores by scheme, each with the extra that installs its client. They write an object only if there is none, so
that of two writers one wins. ``memory`` is a process's own, for trying."""

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


def fault_of_store(url: str) -> str | None:
    """Why an object store's URL cannot be used; None where it can."""
    scheme, _, rest = url.partition("://")
    shown = without_secrets(url)
    if (":" in rest.partition("@")[0] and "@" in rest) or "?" in rest:
        return f"{shown}: must not hold credentials or options: they are taken from the environment (docs/storage.md)"
    if scheme not in STORES:
        return (
            f"{shown} cannot be used: {scheme}:// is no store that is known to keep two writers apart; those are:"
            f" {', '.join(f'{name}://' for name, extra in STORES.items() if extra)}"
        )
    try:
        fsspec.get_filesystem_class(scheme)
    except ImportError:
        return (
            f"{shown} cannot be used: its client is missing; install it with: pip install"
            f" 'eagle3-assets[{STORES[scheme]}]'"
        )
    return None


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
