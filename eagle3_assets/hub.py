"""The Hugging Face Hub's token, and what its client says: the same for what is downloaded and what is uploaded.

What belongs here: keeping the token out of every text. Not here: downloads (``prompts.sources.hub``), uploads
(``exports.pushing``).
"""

import re

from eagle3_assets.config import without_secrets

TOKEN_VARIABLE = "HF_TOKEN"  # noqa: S105 - a name


def token_fault(token: str) -> str | None:
    """Why a text is no token, without showing it; None where it may be one. None at all is no fault."""
    if re.fullmatch(r"[!-~]*", token):
        return None
    return f"{TOKEN_VARIABLE} holds what no token has: white space or letters that are not ASCII"


def said(error: Exception, token: str) -> str:
    """What an error says, in one line and without the token, the password of an address, or a header that has one."""
    text = " ".join(str(error).split())
    text = text.replace(token, "[the token]") if token else text
    text = re.sub(r"\b(Basic|Bearer) \S+", r"\1 ...", text)
    return without_secrets(text)[:300]
