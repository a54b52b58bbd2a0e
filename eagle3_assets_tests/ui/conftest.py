"""A real browser: Debian's Chromium, without a window."""

import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

SIZE = {"width": 1440, "height": 1000}


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    program = shutil.which("chromium")
    assert program, "no browser: apt-get install chromium"
    with sync_playwright() as playwright:
        # Chromium refuses its sandbox to root, and what it opens here is our own.
        yield playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])


@dataclass(slots=True)
class Watched:
    """A page, and what went wrong on it."""

    page: Page
    errors: list[str] = field(default_factory=list)
    """What the console was told as an error, and exceptions that nobody caught."""
    asked: list[str] = field(default_factory=list)
    """Every address that was asked for."""


@pytest.fixture
def watched(browser: Browser) -> Iterator[Watched]:
    context = browser.new_context(viewport=SIZE)  # type: ignore[arg-type]
    page = context.new_page()
    made = Watched(page)
    page.on("console", lambda message: made.errors.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: made.errors.append(str(error)))
    page.on("request", lambda request: made.asked.append(request.url))
    yield made
    context.close()
