"""Pictures for the docs, taken by the tests on their way."""

import os
from pathlib import Path

from playwright.sync_api import Page

PICTURES = "EAGLE3_PICTURES"


def picture(page: Page, name: str) -> None:
    """A picture for the docs, where the variable says to which folder."""
    if folder := os.environ.get(PICTURES):
        page.screenshot(path=Path(folder) / f"{name}.png")
