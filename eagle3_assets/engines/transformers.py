"""The embedded engine: any local checkpoint, generated from in this process by ``transformers``.

What belongs here: gathering single requests into batches and answering them. Not here: what a batch's next token is
(``choice``), scoring a batch (``scoring``), loading (``checkpoint``).

A batch holds requests of equal sampling parameters and similar length, padded on the left; in float32 that changes no
greedy token. A row is answered as soon as it is done. When most of a batch is done it ends, and its unfinished rows go
on in the next one together with others, so that a long answer does not keep empty places computing.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from eagle3_assets.config import Sampling, TransformersEngineSettings
from eagle3_assets.engines.base import (
    Description,
    EngineError,
    EngineUnavailableError,
    Generation,
    Request,
    RequestRefusedError,
    Scores,
    TransientEngineError,
    require_known_ids,
    require_scorable,
)
from eagle3_assets.engines.checkpoint import Loaded, load
from eagle3_assets.engines.choice import Choice, Row, Stop
from eagle3_assets.engines.scoring import Scored, first_batch, score_batch

ENDPOINT = "embedded"
BATCHES_IN_FLIGHT = 4
"""Requests wanted in flight, in batch sizes: enough to find rows of similar length and to refill a batch."""

SMALL_BATCH = 8
"""Below this size a batch is not made smaller for its own sake: a step then costs about as much with one row less."""

_GATHER_S = 0.002


class TransformersEngine:
    """Keeps the protocol ``Engine``. It may be used from one event loop after another, not from two at once."""

    def __init__(
        self,
        model_path: str | Path,
        settings: TransformersEngineSettings,
        trust_remote_code: bool = False,
        tokenizer_path: str | Path | None = None,
    ) -> None:
        """Loads nothing yet.

        Args:
            model_path: directory of the checkpoint.
            settings: batch size, device, dtype, threads.
            trust_remote_code: whether Python code that lies beside the model may run.
            tokenizer_path: directory of the tokenizer, where it is not the model's.
        """
        self._path = Path(model_path)
        self._tokenizer_path = None if tokenizer_path is None else Path(tokenizer_path)
        self._settings = settings
        self._trust_remote_code = trust_remote_code
        self._loaded: Loaded | None = None
        self._thread: ThreadPoolExecutor | None = None
        self._waiting: list[Row] = []
        self._server: asyncio.Task[None] | None = None
        self._to_score: dict[Scored, asyncio.Future[Scores]] = {}
        self._scorer: asyncio.Task[None] | None = None
        self._closing = False

    @property
    def capacity(self) -> int:
        """A few batches, so that rows of similar length can be put together."""
        return BATCHES_IN_FLIGHT * self._settings.batch_size

    async def start(self) -> Description:
        """Loads the model, unless it is loaded.

        Raises:
            EngineUnavailableError: torch or the checkpoint is missing or unusable.
        """
        if self._loaded is None:
            self._closing = False
            # One thread for the model: torch's thread count belongs to the thread that sets it, and batches take turns.
            self._thread = self._thread or ThreadPoolExecutor(1, thread_name_prefix="transformers-engine")
            self._loaded = await asyncio.get_running_loop().run_in_executor(self._thread, self._load)
        return self._loaded.description

    async def generate(self, request: Request) -> Generation:
        """Continues one prompt, in a batch with others.

        The output ends with the first stop id, which is part of it, or at the cap: ``max_new_tokens`` or what the
        context has room for, whichever is less; ``finish_length`` tells the one applied. Log-probabilities are of kind
        ``model``: of the raw distribution, before penalty, temperature and truncation.

        Raises:
            RequestRefusedError: an empty prompt, an id outside the vocabulary, no room in the context; or the model's
                logits were no numbers.
            TransientEngineError: the engine was closed meanwhile.
            EngineUnavailableError: the engine was not started.
            EngineError: the batch failed as a whole.
        """
        if self._loaded is None or self._closing:
            raise EngineUnavailableError("the embedded engine is not running: await start() first")
        description = self._loaded.description
        _require_sendable(request, description)
        began = time.monotonic()
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Row] = loop.create_future()

        def settle(row: Row) -> None:
            if not answer.done():
                answer.set_result(row)

        def on_done(row: Row) -> None:
            with suppress(RuntimeError):  # the loop has been closed, so nobody waits
                loop.call_soon_threadsafe(settle, row)

        row = Row(
            request=request,
            cap=min(request.sampling.max_new_tokens, description.context_length - len(request.prompt_ids)),
            stops=frozenset((*request.sampling.stop_token_ids, *description.stop_token_ids)),
            on_done=on_done,
            abandoned=lambda: self._closing or answer.done(),
        )
        self._waiting.append(row)
        if self._server is None or self._server.done() or self._server.get_loop() is not loop:
            self._server = loop.create_task(self._serve())
        await answer
        return _generation(row, time.monotonic() - began, description.weights)

    async def score(self, prompt_ids: list[int], output_ids: list[int]) -> Scores:
        """Scores an output, in one forward pass with others.

        Raises:
            RequestRefusedError: an empty prompt or output, an id outside the vocabulary, no room in the context; or the
                model's logits were no numbers.
            TransientEngineError: the engine was closed meanwhile.
            EngineUnavailableError: the engine was not started.
            EngineError: the batch failed as a whole.
        """
        if self._loaded is None or self._closing:
            raise EngineUnavailableError("the embedded engine is not running: await start() first")
        require_scorable(prompt_ids, output_ids, self._loaded.description)
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Scores] = loop.create_future()
        self._to_score[Scored(prompt_ids, output_ids)] = answer
        if self._scorer is None or self._scorer.done() or self._scorer.get_loop() is not loop:
            self._scorer = loop.create_task(self._serve_scores())
        return await answer

    async def healthy(self) -> bool:
        """Whether the model is loaded."""
        return self._loaded is not None and not self._closing

    async def close(self) -> None:
        """Ends what is running, and frees the model."""
        self._closing = True
        thread, self._thread = self._thread, None
        if thread is not None:
            await asyncio.to_thread(thread.shutdown)
        if self._server is not None and self._server.get_loop() is asyncio.get_running_loop():
            await asyncio.wait([self._server])
        if self._scorer is not None and self._scorer.get_loop() is asyncio.get_running_loop():
            await asyncio.wait([self._scorer])
        closed = TransientEngineError("the embedded engine was closed before this request was answered")
        for row in self._waiting:
            _fail(row, closed)
        self._waiting.clear()
        for answer in self._to_score.values():
            if not answer.get_loop().is_closed() and not answer.done():
                answer.set_exception(closed)
        self._to_score.clear()
        self._loaded = None

    def _load(self) -> Loaded:
        return load(self._path, self._tokenizer_path, self._settings, trust_remote_code=self._trust_remote_code)

    async def _serve(self) -> None:
        """Runs batches for as long as requests wait; the next request starts it again."""
        loop = asyncio.get_running_loop()
        while self._waiting and self._thread is not None:
            await self._gather()
            batch = self._take_batch()
            if not batch:
                continue
            try:
                await loop.run_in_executor(self._thread, self._run, batch)
            except Exception as error:  # noqa: BLE001 - whatever it was, every row of the batch has to hear of it
                explained = _explained(error, batch)
                for row in batch:
                    _fail(row, explained)
            unfinished = [row for row in batch if not row.done]
            self._waiting = [*unfinished, *self._waiting]

    async def _serve_scores(self) -> None:
        """Scores for as long as sequences wait, those of similar length together."""
        loop = asyncio.get_running_loop()
        await asyncio.sleep(_GATHER_S)
        while self._to_score and self._thread is not None and (loaded := self._loaded) is not None:
            ordered = sorted(self._to_score, key=lambda row: row.length)
            size = first_batch(ordered, self._settings.batch_size, loaded.description.vocab_size)
            batch = {row: self._to_score.pop(row) for row in ordered[:size]}
            try:
                scores = await loop.run_in_executor(self._thread, score_batch, loaded, list(batch))
            except Exception as error:  # noqa: BLE001 - whatever it was, everyone who waits for this batch has to hear of it
                scores = [_explained(error, list(batch))] * len(batch)
            for answer, score in zip(batch.values(), scores, strict=True):
                if answer.done():
                    continue
                if isinstance(score, Scores):
                    answer.set_result(score)
                else:
                    answer.set_exception(score)

    async def _gather(self) -> None:
        """Waits as long as more requests come in, so that the first batch is not one of a single row."""
        before = -1
        while before < len(self._waiting) < self._settings.batch_size:
            before = len(self._waiting)
            await asyncio.sleep(_GATHER_S)

    def _take_batch(self) -> list[Row]:
        """The request that waits longest, and those of the same sampling which are nearest to it in length."""
        self._waiting = [row for row in self._waiting if not row.abandoned()]
        if not self._waiting:
            return []
        oldest = self._waiting[0]
        alike = sorted(
            (row for row in self._waiting if row.request.sampling == oldest.request.sampling),
            key=lambda row: row.length,
        )
        size = self._settings.batch_size
        first = min(max(0, alike.index(oldest) - size // 2), max(0, len(alike) - size))
        batch = alike[first : first + size]
        taken = set(batch)
        self._waiting = [row for row in self._waiting if row not in taken]
        return batch

    def _run(self, rows: list[Row]) -> None:
        """Generates until every row is done, or until a new batch is better. In the worker thread."""
        import torch
        from transformers.generation.configuration_utils import GenerationConfig
        from transformers.generation.logits_process import LogitsProcessorList
        from transformers.generation.stopping_criteria import StoppingCriteriaList

        if self._loaded is None:
            return
        width = max(row.length for row in rows)
        ids, mask = [], []
        for row in rows:
            known = [*row.request.prompt_ids, *row.output_ids]
            padding = width - len(known)
            # Any id would do under the mask; the row's own cannot be mistaken for a new one by the repetition penalty.
            ids.append([known[0]] * padding + known)
            mask.append([0] * padding + [1] * len(known))
        device, sampling = self._loaded.device, rows[0].request.sampling
        with torch.inference_mode():
            self._loaded.model.generate(
                input_ids=torch.tensor(ids, device=device),
                attention_mask=torch.tensor(mask, device=device),
                generation_config=GenerationConfig(  # type: ignore[no-untyped-call] # transformers' own
                    max_new_tokens=max(row.cap - len(row.output_ids) for row in rows),
                    do_sample=False,
                    num_beams=1,
                    use_cache=True,
                    pad_token_id=0,
                ),
                logits_processor=LogitsProcessorList([Choice(rows, sampling, device)]),
                stopping_criteria=StoppingCriteriaList([Stop(rows, self._better_leave(len(rows), sampling))]),
            )

    def _better_leave(self, size: int, sampling: Sampling) -> Callable[[int], bool]:
        """Whether to end a batch of this size with some rows unfinished, which go on in the next one.

        Reading their tokens again is cheap against computing places that hold no row: when half is done and its places
        can be filled, or three quarters are done.
        """

        def leave(unfinished: int) -> bool:
            if unfinished > size // 2:
                return False
            waiting = sum(row.request.sampling == sampling for row in list(self._waiting))
            return waiting >= size - unfinished or (size >= SMALL_BATCH and unfinished <= size // 4)

        return leave


def _require_sendable(request: Request, description: Description) -> None:
    ids = request.prompt_ids
    require_known_ids(ids, description.vocab_size)
    if len(ids) >= description.context_length:
        raise RequestRefusedError(
            f"the prompt has {len(ids):,} ids, which leaves no room in a context of {description.context_length:,}"
        )


def _generation(row: Row, latency_s: float, weights: str) -> Generation:
    if row.fault is not None:
        raise row.fault
    wants = row.request.want_logprobs
    return Generation(
        output_ids=row.output_ids,
        completion_tokens=len(row.output_ids),
        finish_type="stop" if row.stopped else "length",
        matched_stop=row.output_ids[-1] if row.stopped else None,
        finish_length=None if row.stopped else row.cap,
        prompt_tokens=len(row.request.prompt_ids),
        endpoint=ENDPOINT,
        latency_s=latency_s,
        cached_tokens=0,
        output_logprobs=row.logprobs if wants else None,
        logprob_kind="model" if wants else None,
        weight_version=weights,
    )


def _fail(row: Row, error: EngineError) -> None:
    if not row.done:
        row.fault, row.done = error, True
        row.on_done(row)


def _explained(error: Exception, batch: Sequence[Row | Scored]) -> EngineError:
    what = f"a batch of {len(batch)} prompts of up to {max(row.length for row in batch):,} tokens"
    if "out of memory" in str(error).lower():
        return EngineError(f"{what} does not fit into memory: lower engine.batch_size ({str(error).splitlines()[0]})")
    return EngineError(f"{what} failed: {type(error).__name__}: {error}")
