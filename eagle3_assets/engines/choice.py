"""Which token comes next, row by row: what the embedded engine puts into ``transformers``' own generation loop.

What belongs here: a row's state, greedy and seeded choice, log-probabilities, when a row is done. Not here: loading a
model (``checkpoint``), forming batches (``transformers``).

``Choice`` and ``Stop`` keep the interfaces of ``LogitsProcessor`` and ``StoppingCriteria`` without deriving from them,
so that importing this module imports no torch.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from eagle3_assets.config import Sampling
from eagle3_assets.engines.base import EngineError, Request, RequestRefusedError

if TYPE_CHECKING:
    from torch import Generator, LongTensor, Tensor, device

Warper = Callable[["LongTensor", "Tensor"], "Tensor"]


@dataclass(eq=False, slots=True)
class Row:
    """One request on its way through one or more batches."""

    request: Request
    cap: int
    """Most output tokens, from the request and what the context has room for."""
    stops: frozenset[int]
    on_done: Callable[["Row"], None]
    """Called once, in the worker thread, as soon as the row is done."""
    abandoned: Callable[[], bool]
    """Whether nobody waits for it any more."""
    output_ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    noise: "Generator | None" = None
    """Where its random numbers come from; lives as long as the row, so that a change of batch changes nothing."""
    fault: EngineError | None = None
    done: bool = False

    @property
    def length(self) -> int:
        """Tokens that the next batch has to read: the prompt, and the output so far."""
        return len(self.request.prompt_ids) + len(self.output_ids)

    @property
    def stopped(self) -> bool:
        """Whether it ended with a stop id; one that comes exactly at the cap counts."""
        return bool(self.output_ids) and self.output_ids[-1] in self.stops

    def take(self, token: int, logprob: float, *, sound: bool) -> None:
        """Adds the next token, unless the logits which it was chosen from are no numbers."""
        if sound:
            self.output_ids.append(token)
            if self.request.want_logprobs:
                self.logprobs.append(logprob)
        else:
            self.fault = RequestRefusedError(
                f"the model's logits are NaN or infinite at output token {len(self.output_ids)}: damaged weights, or a "
                "dtype which this model does not bear (float32 is the safe one)"
            )
        if self.fault or self.stopped or len(self.output_ids) >= self.cap:
            self.done = True
            self.on_done(self)


class Choice:
    """Chooses each row's next token and leaves ``generate``, which takes the best score, no other choice.

    Greedy: the likeliest token. Sampled: the best of warped logits plus Gumbel noise, which is a draw from their
    softmax; each row has its own random numbers, so that its neighbours in the batch have no part in it.
    """

    def __init__(self, rows: Sequence[Row], sampling: Sampling, device: "device") -> None:
        """Sets up the warpers.

        Args:
            rows: of the batch, in its order.
            sampling: the same for all of them.
            device: of the logits.
        """
        self._rows = rows
        self._warpers = warpers(sampling)
        self._sampled = sampling.temperature > 0
        self._want_logprobs = any(row.request.want_logprobs for row in rows)
        self._noise: Tensor | None = None
        if self._sampled:
            import torch

            for row in rows:
                if row.noise is None:
                    row.noise = torch.Generator(device).manual_seed(row.request.seed)

    def __call__(self, input_ids: "LongTensor", scores: "Tensor") -> "Tensor":
        """Takes one step.

        Args:
            input_ids: ``[rows, length]``, each row padded in front with its own first id, which no warper can tell from
            it.
            scores: ``[rows, vocabulary]`` float32, the raw logits of the next token.

        Returns:
            ``[rows, vocabulary]``: 0 at the chosen token, minus infinity elsewhere.
        """
        import torch

        warped = scores
        for warper in self._warpers:
            warped = warper(input_ids, warped)
        if self._sampled:
            warped = warped + self._gumbel(scores)
        best, chosen = warped.max(dim=-1)
        total = scores.logsumexp(dim=-1)
        sound = (torch.isfinite(best) & torch.isfinite(total)).tolist()
        picked = scores.gather(-1, chosen[:, None])[:, 0] - total
        logprobs = picked.tolist() if self._want_logprobs else [0.0] * len(sound)
        for row, token, logprob, is_sound in zip(self._rows, chosen.tolist(), logprobs, sound, strict=True):
            if not row.done:
                row.take(token, logprob, sound=is_sound)
        return torch.full_like(scores, -torch.inf).scatter_(-1, chosen[:, None], 0.0)

    def _gumbel(self, scores: "Tensor") -> "Tensor":
        import torch

        if self._noise is None:
            self._noise = torch.ones_like(scores)
        for index, row in enumerate(self._rows):
            if not row.done:
                self._noise[index].exponential_(generator=row.noise)
        # A draw of exactly 0 would make its token infinitely likely.
        return -self._noise.clamp_min(torch.finfo(self._noise.dtype).tiny).log()


class Stop:
    """Ends a batch when every row is done or abandoned, or when it is better to form a new one."""

    def __init__(self, rows: Sequence[Row], leave: Callable[[int], bool]) -> None:
        """Watches a batch.

        Args:
            rows: of the batch, in its order.
            leave: told how many rows are unfinished, says whether to end the batch without waiting for them.
        """
        self._rows = rows
        self._leave = leave

    def __call__(self, input_ids: "LongTensor", *_: object, **__: object) -> "Tensor":
        """Which rows are done: ``[rows]`` bool."""
        import torch

        ended = [row.done or row.abandoned() for row in self._rows]
        left = ended.count(False)
        if left and self._leave(left):
            ended = [True] * len(ended)
        return torch.tensor(ended, device=input_ids.device)


def warpers(sampling: Sampling) -> list[Warper]:
    """The library's own processors for what the sampling asks, in the library's order.

    Without temperature only the repetition penalty can change which token is the likeliest.
    """
    from transformers.generation import logits_process as library

    chain: list[Warper] = []
    if sampling.repetition_penalty != 1.0:
        chain.append(library.RepetitionPenaltyLogitsProcessor(sampling.repetition_penalty))
    if sampling.temperature == 0:
        return chain
    if sampling.temperature != 1.0:
        chain.append(library.TemperatureLogitsWarper(sampling.temperature))
    if sampling.top_k > 0:
        chain.append(library.TopKLogitsWarper(sampling.top_k))
    if sampling.top_p < 1.0:
        chain.append(library.TopPLogitsWarper(sampling.top_p))
    if sampling.min_p > 0.0:
        chain.append(library.MinPLogitsWarper(sampling.min_p))
    return chain
