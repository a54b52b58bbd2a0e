"""What all pages share: templates, the files beside them, and the locks of a page.

What belongs here: how a page is made and what it may do. Not here: what is on any page.
"""

import base64
import hashlib
from functools import cache
from importlib.resources import files

from jinja2 import Environment, PackageLoader, StrictUndefined

from eagle3_assets.tokens.safe_text import visible
from eagle3_assets.tokens.wording import percent


def policy(style: str, script: str = "") -> str:
    """The content security policy of a page: no network, no style or script but its own.

    Args:
        style: the text of its one ``style`` element.
        script: the text of its one ``script`` element that runs; empty without one.
    """
    return (
        f"default-src 'none'; style-src '{_source_hash(style)}'; script-src {_script(script)};"
        " base-uri 'none'; form-action 'none'"
    )


def _script(script: str) -> str:
    return f"'{_source_hash(script)}'" if script else "'none'"


def _source_hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


@cache
def own_file(name: str) -> str:
    """The text of a file beside the templates."""
    return (files("eagle3_assets.pages") / name).read_text(encoding="utf-8")


@cache
def environment() -> Environment:
    """Where templates come from; what they are given is escaped."""
    made = Environment(
        loader=PackageLoader("eagle3_assets.pages", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    made.filters["number"] = _number
    made.filters["percent"] = _percent
    made.filters["visible"] = visible
    return made


def _number(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.1f}" if isinstance(value, float) and not value.is_integer() else f"{value:,.0f}"


def _percent(value: float | None, decimals: int = 1) -> str:
    return "" if value is None else percent(value, decimals)
