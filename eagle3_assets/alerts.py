"""What a chat is told of a run that needs a person: the message, and sending it to a webhook.

What belongs here: text, HTTP. Not here: when something is told (``automation``), Dagster.

A chat has more readers than the UI, and shows a URL that it is sent as a link. So what a target or a source may have
written stands between backticks, where chats make nothing of it; and errors that were not written for people are left
in the run's log, since they may quote anything.
"""

import asyncio
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tenacity import (
    AsyncRetrying,
    RetryCallState,
    retry_if_exception_type,
    stop_after_attempt,
    stop_before_delay,
    wait_exponential,
)

from eagle3_assets.tokens.safe_text import excerpt

if TYPE_CHECKING:
    import aiohttp

SHOWN = 5
"""Failures, and checks, that one message names."""
SENTENCE = 400
"""Characters of what failed or was found."""

ATTEMPTS = 3
ATTEMPT_S = 2.5
"""Seconds for one attempt, however slowly the webhook answers."""
FIRST_WAIT_S = 0.5
"""Doubles with every attempt, unless the webhook asks for more."""
LAST_ATTEMPT_S = 6.5
"""No attempt begins later. So a message takes 9 seconds at most: Dagster tells a sensor of five runs at once, gives it
up after 60 seconds, and would then tell it of the same runs again."""


class AlertError(Exception):
    """A message did not get through. The text never holds the webhook's URL."""


class _TryAgainError(AlertError):
    """It may get through if it is sent once more."""

    def __init__(self, text: str, after_s: float = 0.0) -> None:
        """A failed attempt.

        Args:
            text: for people.
            after_s: seconds that the webhook asks to be left alone.
        """
        super().__init__(text)
        self.after_s = after_s


@dataclass(frozen=True, slots=True)
class FoundByCheck:
    """One check that did not pass."""

    name: str
    said: str
    """Plain text."""
    look: str | None = None
    """The command that shows the first offender."""


@dataclass(frozen=True, slots=True)
class RunReport:
    """What there is to tell of a run."""

    run_id: str
    job: str
    partition: str | None
    failures: Sequence[tuple[str, str | None]] = ()
    """Step and why it failed, as far as that was written for people."""
    reason: str | None = None
    """Why the run failed where no step did, in words of our own: Dagster's may quote what a container logged."""
    checks: Sequence[FoundByCheck] = ()


def failed_run_text(report: RunReport, ui_url: str | None) -> str:
    """The message about a run that failed."""
    lines = [f"Run failed: {_code(report.partition or report.job)}"]
    for step, why in report.failures[:SHOWN]:
        lines.append(f"{_code(step)}: {_code(why) if why else 'an error that the log of the run shows'}")
    lines += _more(len(report.failures), "steps failed")
    if not report.failures:
        lines.append(report.reason or "no step failed: its process may be gone; the log of the run says why")
    return "\n".join([*lines, *_checks(report.checks), *_place(report, ui_url)])


def failed_checks_text(report: RunReport, ui_url: str | None) -> str:
    """The message about checks that did not pass in a run that succeeded."""
    heading = f"Run succeeded, but checks failed: {_code(report.partition or report.job)}"
    return "\n".join([heading, *_checks(report.checks), *_place(report, ui_url)])


def webhook_url(variable: str) -> str:
    """The URL in an environment variable.

    Raises:
        AlertError: it is not set, or holds no URL.
    """
    url = os.environ.get(variable, "").strip()
    if not url:
        raise AlertError(f"alerts.webhook_env: {variable} is not set where the code location runs; no alert was sent")
    if not url.startswith(("http://", "https://")):
        raise AlertError(f"alerts.webhook_env: {variable} holds no http(s) URL; no alert was sent")
    return url


def send(url: str, text: str) -> None:
    """Posts ``{"text": ...}``, as incoming webhooks of Slack and of others that speak its language take it.

    Connection errors, 5xx and 429 are tried again, after as long as the webhook asks for where there is time for that.
    A redirect is not followed: it would take the message elsewhere.

    Raises:
        AlertError: the webhook did not take it.
    """
    failure = asyncio.run(_sent(url, text))
    if failure:  # raised out here, so that no error which names the URL hangs on to it
        raise AlertError(f"{failure}; the alert was not sent")


async def _sent(url: str, text: str) -> str | None:
    """Sends it; what went wrong in words, if anything."""
    import aiohttp  # here, since loading the definitions shall stay cheap

    retrying = AsyncRetrying(
        retry=retry_if_exception_type(_TryAgainError),
        stop=stop_after_attempt(ATTEMPTS) | stop_before_delay(LAST_ATTEMPT_S),
        wait=_pause,
        reraise=True,
    )
    timeout = aiohttp.ClientTimeout(total=ATTEMPT_S)
    try:
        async with aiohttp.ClientSession(timeout=timeout, trust_env=True) as session:
            await retrying(_post, session, url, text)
    except AlertError as error:
        return str(error)
    return None


def _pause(state: RetryCallState) -> float:
    error = state.outcome.exception() if state.outcome else None
    asked = error.after_s if isinstance(error, _TryAgainError) else 0.0
    return max(asked, wait_exponential(FIRST_WAIT_S)(state))


async def _post(session: "aiohttp.ClientSession", url: str, text: str) -> None:
    import aiohttp

    try:
        async with session.post(url, json={"text": text}, allow_redirects=False) as reply:
            status, retry_after = reply.status, reply.headers.get("Retry-After", "")
    except aiohttp.InvalidURL:
        raise AlertError("the webhook's URL is none") from None
    except (aiohttp.ClientError, OSError, ValueError) as error:  # TimeoutError is an OSError
        raise _TryAgainError(f"the webhook cannot be reached ({type(error).__name__})") from None
    if status >= 500 or status == 429:
        after_s = int(retry_after) if retry_after.isascii() and retry_after.isdigit() else 0
        asks = f" and asks to be left alone for {after_s} s" if after_s else ""
        raise _TryAgainError(f"the webhook answered {status}{asks}", after_s)
    if status >= 300:
        raise AlertError(f"the webhook answered {status}")


def _checks(checks: Sequence[FoundByCheck]) -> Iterable[str]:
    for check in checks[:SHOWN]:
        yield f"check {_code(check.name)}: {_code(check.said)}"
        if check.look:
            yield f"look: {_code(check.look)}"
    yield from _more(len(checks), "checks did not pass")


def _more(count: int, what: str) -> list[str]:
    return [f"and {count - SHOWN:,} more {what}"] if count > SHOWN else []


def _place(report: RunReport, ui_url: str | None) -> list[str]:
    return [f"{ui_url}/runs/{report.run_id}" if ui_url else f"run {_code(report.run_id)}, job {_code(report.job)}"]


def _code(text: str) -> str:
    """Text between backticks; a backtick in it becomes an apostrophe, since a chat has no way to escape it."""
    shown = excerpt(text, SENTENCE).replace("`", "'")
    return f"`{shown.replace('&', '&amp;').replace('<', '&lt;').replace('>', '&gt;')}`"
