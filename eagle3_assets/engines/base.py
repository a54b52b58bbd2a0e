"""The contract between the generation loop and whatever generates.

What belongs here: the request, what is never sent, the reply, the errors and the protocol. Not here: any engine, any
retry, any storage.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from eagle3_assets.config import Sampling


class EngineError(Exception):
    """The base of an engine's errors; its text is for the person who started the run."""


class EngineUnavailableError(EngineError):
    """The engine cannot run at all: a missing package, a missing model directory, a server that never came up."""


class RequestRefusedError(EngineError):
    """This request will never work (too long, an id outside the vocabulary): a failure row at once, no retry."""


class TransientEngineError(EngineError):
    """This request may work when sent again: connection lost, server busy, aborted."""


class LostRequestError(TransientEngineError):
    """The request was lost on the way or in a server: it may be what takes the server down."""


class ShareError(EngineError):
    """It cannot be found out what share of a server this run has."""


@dataclass(frozen=True, slots=True)
class Request:
    """One prompt to be continued."""

    key: str
    sample_id: str
    prompt_ids: list[int]
    sampling: Sampling
    seed: int
    """Seed of this sample alone, so that a result does not depend on what else is generated with it."""
    want_logprobs: bool = False


@dataclass(frozen=True, slots=True)
class Generation:
    """What the target emitted for one request, as the engine reports it: nothing stripped, nothing decoded."""

    output_ids: list[int]
    completion_tokens: int
    """The engine's own count, which a law compares with ``len(output_ids)``."""
    finish_type: str
    """``stop`` or ``length``, as SGLang words it; anything else is a fault."""
    matched_stop: int | str | None
    """The stop id or stop string that ended the output."""
    finish_length: int | None
    """The cap in tokens that was applied, where ``finish_type`` is ``length``."""
    prompt_tokens: int
    endpoint: str
    latency_s: float
    cached_tokens: int | None = None
    output_logprobs: list[float] | None = None
    """Natural log, one for each output id."""
    logprob_kind: str | None = None
    """``sampled``: after temperature and truncation; ``model``: the raw distribution."""
    text: str | None = None
    weight_version: str | None = None


@dataclass(frozen=True, slots=True)
class Scores:
    """What the target says of an output that is there already: natural-log probabilities of the raw distribution."""

    logprobs: list[float]
    """Of each output id, given the prompt and the ids before it; kind ``model``."""
    best: list[float]
    """Of the likeliest token in each place."""


@dataclass(frozen=True, slots=True)
class Description:
    """What an engine says of itself."""

    weights: str
    """Goes into the identity; see ``Identity.weights``."""
    stop_token_ids: tuple[int, ...]
    """Stop ids of the model's configs and tokenizer, without the request's own."""
    vocab_size: int
    """Of the model's config: ids at or beyond it must never be sent."""
    context_length: int
    """Prompt and output together, in tokens."""
    environment: dict[str, Any] = field(default_factory=dict)
    """Versions, flags, endpoints: recorded and shown, no part of the identity. Holds no secret."""


@dataclass(frozen=True, slots=True)
class ServerLoad:
    """One server at one moment, for a person who watches a run."""

    endpoint: str
    in_flight: int
    live: bool
    """Whether it gets requests now."""
    evictions: int
    """How often it was left out since the engine was started."""


@dataclass(frozen=True, slots=True)
class Standing:
    """What one run has and wants of one server. All numbers are requests."""

    endpoint: str
    ceiling: int
    """What all runs together may have under way there."""
    allowed: int
    """What this run was allowed until now."""
    in_flight: int
    wanted: int
    """What this run could have under way there, those in flight included."""


class Share(Protocol):
    """Divides servers among runs that know nothing of each other. Its methods block."""

    def settle(self, standings: Sequence[Standing]) -> Mapping[str, int]:
        """How many requests this run may have under way at each endpoint, until the next call.

        Raises:
            ShareError: that cannot be found out now; what was allowed stays so.
            EngineUnavailableError: this run must not go on.
        """
        ...

    def release(self) -> None:
        """Leaves everything to the others."""
        ...


def require_scorable(prompt_ids: list[int], output_ids: list[int], description: Description) -> None:
    """Refuses what cannot be scored.

    Raises:
        RequestRefusedError: prompt or output is empty, they do not fit into the context, or hold an id outside the
            vocabulary.
    """
    if not output_ids:
        raise RequestRefusedError("there is no output to score")
    require_known_ids(prompt_ids, description.vocab_size)
    require_known_ids(output_ids, description.vocab_size)
    length = len(prompt_ids) + len(output_ids)
    if length > description.context_length:
        raise RequestRefusedError(
            f"prompt and output have {length:,} ids, the target's context holds {description.context_length:,}"
        )


def require_known_ids(prompt_ids: list[int], vocab_size: int) -> None:
    """Refuses what no engine may be given: one id outside the vocabulary takes a whole SGLang server down.

    Raises:
        RequestRefusedError: the prompt is empty, or holds such an id.
    """
    if not prompt_ids:
        raise RequestRefusedError("the prompt is empty")
    if min(prompt_ids) < 0 or max(prompt_ids) >= vocab_size:
        wrong = next(token for token in prompt_ids if not 0 <= token < vocab_size)
        raise RequestRefusedError(f"id {wrong} is outside the target's vocabulary of {vocab_size:,}")


class Engine(Protocol):
    """A source of generations. Its methods are coroutines; ``generate`` runs concurrently, up to ``capacity`` at once.

    The methods may be awaited from different event loops, one after another: what belongs to a loop is made in it.
    """

    @property
    def capacity(self) -> int:
        """How many requests the engine wants in flight."""
        ...

    async def start(self) -> Description:
        """Loads the model or asks the servers, and says what they are.

        Raises:
            EngineUnavailableError: with what is missing and what to install or start.
        """
        ...

    async def generate(self, request: Request) -> Generation:
        """Continues one prompt.

        Raises:
            RequestRefusedError: the request can never work.
            TransientEngineError: the request may be sent again.
        """
        ...

    async def healthy(self) -> bool:
        """Whether a request sent now has a chance."""
        ...

    async def close(self) -> None:
        """Frees what ``start`` took. May be called twice."""
        ...


@runtime_checkable
class ScoringEngine(Engine, Protocol):
    """An engine that can also say how likely recorded tokens are."""

    async def score(self, prompt_ids: list[int], output_ids: list[int]) -> Scores:
        """Scores every id of an output after its prompt. Runs concurrently, as ``generate`` does.

        Raises:
            RequestRefusedError: they can never be scored: too long, an empty output, an id outside the vocabulary.
            TransientEngineError: it may be tried again.
            EngineUnavailableError: the engine was not started, or cannot run any more.
        """
        ...


@runtime_checkable
class OverServers(Protocol):
    """What an engine over servers can tell besides. The embedded engine has none, and is no such thing."""

    @property
    def servers(self) -> tuple[ServerLoad, ...]:
        """Each server now, in the config's order; empty while the engine is not running."""
        ...
