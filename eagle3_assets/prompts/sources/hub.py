"""Datasets of the Hugging Face Hub: the files of a pinned commit in the local cache.

What belongs here: asking ``huggingface_hub`` for a snapshot. Not here: which of its files are read, addresses
(``config.addresses``).
"""

import os
from dataclasses import dataclass
from pathlib import Path

from eagle3_assets.config import parse_address
from eagle3_assets.hub import TOKEN_VARIABLE, said, token_fault


class HubError(Exception):
    """Files of the Hub cannot be had; the text goes on from the address."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The files of one commit, on this machine."""

    root: Path
    repository: str
    path: str
    """As in the address."""


def local_snapshot(text: str, *, ask: bool = True) -> Snapshot:
    """The files of an address, downloaded where they are not in the cache yet.

    With ``HF_HUB_OFFLINE=1``, or without a connection, the cache must have them all. The only token that is used is
    the one in ``HF_TOKEN``, without white space around it.

    Args:
        text: the address.
        ask: whether the Hub may be asked.

    Raises:
        HubError: the files cannot be had.
    """
    address = parse_address(text)
    token = os.environ.get(TOKEN_VARIABLE, "").strip()
    if fault := token_fault(token):
        raise HubError(fault)
    unasked = "cannot be asked" if ask else "is not asked here"
    # These are slow to import, and most sources need none of it.
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import (
        GatedRepoError,
        HfHubHTTPError,
        IncompleteSnapshotError,
        LocalEntryNotFoundError,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    page = f"https://huggingface.co/datasets/{address.repository}"
    fetch = (
        f"fetch them where there is a connection: hf download {address.repository} --repo-type dataset"
        f" --revision {address.commit}"
    )

    try:
        root = snapshot_download(
            address.repository,
            repo_type="dataset",
            revision=address.commit,
            allow_patterns=_patterns(address.path),
            token=token or False,
            local_files_only=not ask,
        )
    except IncompleteSnapshotError as error:
        raise HubError(
            f"the local cache has not all of the files, and the Hub {unasked}; {fetch} ({said(error, token)})"
        ) from None
    except LocalEntryNotFoundError as error:
        raise HubError(
            f"the files are not in the local cache, and the Hub {unasked}; {fetch} ({said(error, token)})"
        ) from None
    except GatedRepoError as error:
        raise HubError(
            f"the dataset is gated: ask for access on {page} and set {TOKEN_VARIABLE} to a token of the account"
            f" that has it ({said(error, token)})"
        ) from None
    except RevisionNotFoundError as error:
        raise HubError(
            f"the dataset has no such commit: take all 40 digits of one from {page}/commits/main ({said(error, token)})"
        ) from None
    except RepositoryNotFoundError as error:
        hint = f"the account of {TOKEN_VARIABLE} does not see it" if token else f"it needs {TOKEN_VARIABLE}"
        raise HubError(
            f"there is no such dataset, or it is private and {hint}; see {page} ({said(error, token)})"
        ) from None
    except HfHubHTTPError as error:
        hint = f"; a private dataset needs {TOKEN_VARIABLE}" if not token else ""
        raise HubError(f"the Hub refused it: {said(error, token)}{hint}") from None
    except Exception as error:  # noqa: BLE001 - the HTTP client raises its own, which may show the request
        raise HubError(f"the files cannot be had: {said(error, token)}") from None
    return Snapshot(Path(root), address.repository, address.path)


def _patterns(path: str) -> list[str] | None:
    """Patterns of the download, whose ``*`` goes into directories too: they take what is wanted, and maybe more."""
    return [path, f"{path}/*", path.replace("**/", "")] if path else None
