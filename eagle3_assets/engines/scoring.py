"""Scoring in the embedded engine: one forward pass over sequences that are there already.

What belongs here: a batch of sequences and their log-probabilities. Not here: waiting for a batch (``transformers``),
what the figures mean (``tokens.laws.replay``).
"""

import inspect
import math
from collections.abc import Sequence
from dataclasses import dataclass

from eagle3_assets.engines.base import EngineError, RequestRefusedError, Scores
from eagle3_assets.engines.checkpoint import Loaded

MOST_LOGITS = 1 << 28
"""Logits of one forward pass, 1 GiB in float32; a single sequence may need more."""


@dataclass(frozen=True, slots=True, eq=False)
class Scored:
    """A prompt with its output."""

    prompt_ids: list[int]
    output_ids: list[int]

    @property
    def length(self) -> int:
        """Ids of both."""
        return len(self.prompt_ids) + len(self.output_ids)


def first_batch(waiting: Sequence[Scored], most: int, vocab_size: int) -> int:
    """How many of those that wait, in their order, go into one forward pass.

    Args:
        waiting: one at least.
        most: rows.
        vocab_size: logits in one place.
    """
    width = 0
    for number, row in enumerate(waiting[:most]):
        width = max(width, row.length)
        if number and (number + 1) * width * vocab_size > MOST_LOGITS:
            return number
    return min(most, len(waiting))


def score_batch(loaded: Loaded, rows: Sequence[Scored]) -> list[Scores | EngineError]:
    """Scores a batch in float32.

    Rows are padded at their end, where a causal model cannot see it, so that a row does not depend on its batch.

    Args:
        loaded: the model.
        rows: one at least; ids inside the vocabulary, lengths inside the context.

    Returns:
        For each row its scores, or an error where the model's logits are no numbers.
    """
    import torch

    width = max(row.length for row in rows)
    ids = [row.prompt_ids + row.output_ids + row.prompt_ids[:1] * (width - row.length) for row in rows]
    mask = [[1] * row.length + [0] * (width - row.length) for row in rows]
    # The logits of prompts are of no use and are many.
    first = min(len(row.prompt_ids) for row in rows) - 1
    fewer = "logits_to_keep" in inspect.signature(loaded.model.forward).parameters
    with torch.inference_mode():
        logits = loaded.model(
            input_ids=torch.tensor(ids, device=loaded.device),
            attention_mask=torch.tensor(mask, device=loaded.device),
            use_cache=False,
            **({"logits_to_keep": width - first} if fewer else {}),
        ).logits
        if not fewer:
            logits = logits[:, first:]
        scores: list[Scores | EngineError] = []
        for row, row_logits in zip(rows, logits, strict=True):
            start = len(row.prompt_ids) - 1 - first
            values = row_logits[start : start + len(row.output_ids)].float()
            total = values.logsumexp(dim=-1)
            of_output = values.gather(-1, torch.tensor(row.output_ids, device=loaded.device)[:, None])[:, 0] - total
            best = values.max(dim=-1).values - total
            scores.append(_finite(Scores(of_output.tolist(), best.tolist())))
    return scores


def _finite(scores: Scores) -> Scores | EngineError:
    wrong = next((i for i, value in enumerate(scores.best) if not math.isfinite(value)), None)
    if wrong is None:
        return scores
    return RequestRefusedError(f"the model's logits are NaN or infinite at output token {wrong}: damaged weights")
