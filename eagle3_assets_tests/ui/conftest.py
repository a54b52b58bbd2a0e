"""Debian's Chromium, driven by Playwright: `make test-ui`."""

import shutil
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import pytest


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """A headless Chromium. Where it is missing that is an error: whoever asks for these tests wants them run."""
    playwright_api = import_module("playwright.sync_api")  # where it is not installed, types are checked all the same
    chromium = shutil.which("chromium")
    assert chromium, "there is no chromium; install it first: apt-get install chromium"
    with playwright_api.sync_playwright() as playwright:
        # Root has no sandbox to use; the page is our own.
        started = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield started
        started.close()
