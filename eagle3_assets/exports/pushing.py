"""An export uploaded to the Hugging Face Hub, once it is verified.

What belongs here: the upload and what a person is told when it fails. Not here: the card (``card``).
"""

from typing import Any

from upath import UPath

from eagle3_assets.exports.errors import ExportError
from eagle3_assets.exports.manifest import BESIDE, CARD, FOLDERS, MANIFEST
from eagle3_assets.exports.verifying import verify
from eagle3_assets.files import local_path
from eagle3_assets.hub import said, token_fault


def require_pushable(place: UPath, repository: str) -> None:
    """Says what would keep an export from being uploaded, before it is made and without asking the Hub.

    Args:
        place: of the export.
        repository: ``owner/name``.

    Raises:
        ExportError: the place is no local disk, the name is none, or there is no token that could be one.
    """
    from huggingface_hub import get_token
    from huggingface_hub.errors import HFValidationError
    from huggingface_hub.utils import validate_repo_id  # type: ignore[attr-defined] # public, by its docs

    if local_path(place) is None:
        raise ExportError(f"{place}: is no local disk, from which alone is uploaded; export into a directory")
    try:
        validate_repo_id(repository)
    except HFValidationError as error:
        raise ExportError(f"{repository!r}: is no name of a dataset of the Hub: {error}") from None
    if "/" not in repository:
        raise ExportError(f"{repository!r}: is no name of a dataset of the Hub; give its owner too, OWNER/NAME")
    token = get_token()
    if not token:
        raise ExportError(f"{repository}: cannot be uploaded without a token; set HF_TOKEN to one that may write there")
    if fault := token_fault(token):
        raise ExportError(fault)


def push(place: UPath, repository: str, api: Any = None) -> str:  # noqa: ANN401 - a huggingface_hub.HfApi
    """Uploads an export to a dataset of the Hub, which is made private if it is not there.

    Only the export's own files are uploaded, whatever else lies beside them.

    Args:
        place: the export, on a local disk.
        repository: ``owner/name``.
        api: what uploads; without one the Hub's, which takes its token from the environment (``HF_TOKEN``) itself.

    Returns:
        The dataset's address.

    Raises:
        ExportError: the export does not verify, or the Hub refuses it or cannot be reached.
    """
    from huggingface_hub import HfApi, get_token
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError
    from huggingface_hub.utils import httpx  # type: ignore[attr-defined] # its own version, as its docs say

    found = verify(place)
    if found.faults:
        raise ExportError(f"{place}: is not as it was made, and is not uploaded: {found.faults[0]}")
    api = api or HfApi()
    try:
        address = api.create_repo(repository, repo_type="dataset", private=True, exist_ok=True)
        api.upload_folder(
            folder_path=str(local_path(place)),
            repo_id=repository,
            repo_type="dataset",
            commit_message="Training data, verified",
            # Patterns, of which no path of an export has a character.
            allow_patterns=[MANIFEST, CARD, *found.manifest.paths],
            # What an earlier export had and this one has not must not be trained on.
            delete_patterns=[*(f"{folder}/*" for folder in FOLDERS), *BESIDE],
        )
    # HTTPError is the Hub's answers and faults of the connection; uploads of large files raise RuntimeError.
    except (httpx.HTTPError, HFValidationError, OSError, RuntimeError) as error:
        token = api.token or get_token() or ""
        why = said(error, token) or type(error).__name__
        advice = " HF_TOKEN must hold a token that may write there." if isinstance(error, HfHubHTTPError) else ""
        raise ExportError(
            f"{repository}: cannot be uploaded: {why}. The export is whole: export again to upload it.{advice}"
        ) from None
    return str(address)
