"""From samples to training batches: lengths, padding, and how much each token counts in the loss.

Belongs here: arrays. Does not belong here: wording, the model, the optimiser.
"""

import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from eagle3_assets.demo.samples import Sample
from eagle3_assets.demo.tokenizer import PAD, EncodedSample, encode_sample

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedTokenizerBase

# Few widths, because the CPU kernels are compiled anew for every shape of matrix they meet.
WIDTHS = (48, 64, 96, 128, 160, 192, 224, 256, 320, 384, 512, 640)
_COUNT_STEP = 128
_NO_THINKING_SHARE = 0.2
_ARGUMENT_WEIGHT = 3.0


@dataclass(frozen=True)
class Batch:
    """One training batch of B rows, padded on the right to L tokens, with N predictions that count.

    Attributes:
        input_ids: int64 [B, L].
        positions: int64 [N]; where the predictions are made, as indices into the flattened rows.
        targets: int64 [N]; the id to predict at each position.
        weights: float32 [N]; how much a prediction counts, 0 where N was only rounded up.
    """

    input_ids: "torch.Tensor"
    positions: "torch.Tensor"
    targets: "torch.Tensor"
    weights: "torch.Tensor"


def make_batches(
    samples: Iterable[Sample],
    tokenizer: "PreTrainedTokenizerBase",
    *,
    seed: int,
    batch_tokens: int,
    max_width: int = WIDTHS[-1],
) -> Iterator[Batch]:
    """Makes batches of samples of about the same length.

    Args:
        samples: a stream.
        tokenizer: the demo tokenizer.
        seed: decides which samples go without reasoning.
        batch_tokens: the most tokens in one batch, padding included.
        max_width: longer samples are left out; one of `WIDTHS`.

    Yields:
        Batches, each as soon as its rows are there.
    """
    pad_id = tokenizer.get_vocab()[PAD]
    rng = random.Random(seed)  # noqa: S311 - training data, nothing secret
    waiting: dict[int, list[EncodedSample]] = {width: [] for width in WIDTHS if width <= max_width}
    for sample in samples:
        row = encode_sample(tokenizer, sample, thinking=rng.random() >= _NO_THINKING_SHARE)
        width = next((width for width in waiting if width >= _length(row)), None)
        if width is None:
            continue
        rows = waiting[width]
        rows.append(row)
        if len(rows) == max(1, batch_tokens // width):
            yield _collate(rows, width, pad_id)
            rows.clear()


def _length(row: EncodedSample) -> int:
    return len(row.prompt_ids) + len(row.output_ids)


def _collate(rows: list[EncodedSample], width: int, pad_id: int) -> Batch:
    import torch

    input_ids = torch.full((len(rows), width), pad_id, dtype=torch.int64)
    positions: list[int] = []
    targets: list[int] = []
    weights: list[float] = []
    for index, row in enumerate(rows):
        start, count = len(row.prompt_ids), len(row.output_ids)
        input_ids[index, : start + count] = torch.tensor(row.prompt_ids + row.output_ids)
        # The prediction of a token is made one place before it.
        positions += range(index * width + start - 1, index * width + start - 1 + count)
        targets += row.output_ids
        weights += [1.0] * row.argument_from + [_ARGUMENT_WEIGHT] * (count - row.argument_from)
    spare = -len(positions) % _COUNT_STEP
    return Batch(
        input_ids,
        torch.tensor(positions + [0] * spare),
        torch.tensor(targets + [pad_id] * spare),
        torch.tensor(weights + [0.0] * spare),
    )
