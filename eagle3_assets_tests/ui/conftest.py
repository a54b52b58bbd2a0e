"""A real browser: Debian's Chromium, without a window, driven by Playwright: ``make test-ui``."""

import shutil
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, sync_playwright


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """Where it is missing that is an error: whoever asks for these tests wants them run."""
    chromium = shutil.which("chromium")
    assert chromium, "there is no chromium; install it first: apt-get install chromium"
    with sync_playwright() as playwright:
        # Root has no sandbox to use; the pages are our own.
        started = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield started
        started.close()
