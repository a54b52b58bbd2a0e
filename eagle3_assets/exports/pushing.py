"""An export uploaded to the Hugging Face Hub, once it is verified.

What belongs here: the upload and what a person is told when it fails. Not here: the card (``card``).
"""

from typing import Any

from upath import UPath

from eagle3_assets.exports.errors import ExportError
from eagle3_assets.exports.verifying import verify
from eagle3_assets.exports.writing import UNFINISHED
from eagle3_assets.files import local_path


def push(place: UPath, repository: str, api: Any = None) -> str:  # noqa: ANN401 - a huggingface_hub.HfApi
    """Uploads an export to a dataset of the Hub, which is made private if it is not there.

    Args:
        place: the export, on a local disk.
        repository: ``owner/name``.
        api: what uploads; without one the Hub's, which takes its token from the environment (``HF_TOKEN``) itself.

    Returns:
        The dataset's address.

    Raises:
        ExportError: the export does not verify, or the Hub refuses it.
    """
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError

    faults = verify(place).faults
    if faults:
        raise ExportError(f"{place}: is not as it was made, and is not uploaded: {faults[0]}")
    api = api or HfApi()
    try:
        address = api.create_repo(repository, repo_type="dataset", private=True, exist_ok=True)
        api.upload_folder(
            folder_path=str(local_path(place)),
            repo_id=repository,
            repo_type="dataset",
            commit_message="Training data, verified",
            ignore_patterns=[UNFINISHED, ".writing-*"],
            # What an earlier export had and this one has not must not be trained on.
            delete_patterns=["train/*", "eval/*", "index/*", "vocabulary/*"],
        )
    except (HfHubHTTPError, HFValidationError, OSError) as error:
        said = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise ExportError(
            f"{repository}: cannot be uploaded: {said}. HF_TOKEN must hold a token that may write there."
        ) from None
    return str(address)
