"""Makes the demo target from nothing: `python -m eagle3_assets.demo.train --out DIR`.

Belongs here: the recipe (seeds, sizes, steps) and the command line. Does not belong here: the parts it puts together.
"""

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING

from eagle3_assets.demo.batches import make_batches
from eagle3_assets.demo.corpus import demo_prompt_texts, make_samples
from eagle3_assets.demo.evaluate import evaluate, held_out_cases
from eagle3_assets.demo.model import Schedule, Sizes, load_model, new_model, save_model, train
from eagle3_assets.demo.tokenizer import plain_texts, save_tokenizer, train_tokenizer

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

TOKENIZER_SEED = 1
SHORT_WIDTH = 128


@dataclass(frozen=True)
class Finish:
    """A further training on other conversations, from the weights that the one before it saved.

    Attributes:
        schedule: steps and learning rates.
        no_tool_share: see `make_samples`.
    """

    schedule: Schedule
    no_tool_share: float = 0.0


@dataclass(frozen=True)
class Recipe:
    """All that decides the weights.

    Attributes:
        seed: decides conversations, order and first weights; the tokenizer has its own seed, so that ids stay.
        sizes: the network's sizes.
        schedule: steps and learning rates.
        short_steps: first steps, of conversations up to `SHORT_WIDTH` tokens only.
        finishes: the trainings after the first one, in order.
        batch_tokens: tokens in a batch, padding included.
        tokenizer_samples: conversations that the BPE is trained on.
    """

    seed: int = 7
    sizes: Sizes = field(default_factory=Sizes)
    schedule: Schedule = field(default_factory=lambda: Schedule(steps=4000))
    short_steps: int = 500
    finishes: tuple[Finish, ...] = (
        Finish(Schedule(steps=1100, matrix_rate=0.012, other_rate=0.0024, warmup=20)),
        # Calling a tool that is not declared is what the model unlearns last.
        Finish(Schedule(steps=2400, matrix_rate=0.012, other_rate=0.0024, warmup=20), no_tool_share=0.12),
    )
    batch_tokens: int = 2048
    tokenizer_samples: int = 6000


def make_model(out: Path, recipe: Recipe) -> None:
    """Trains tokenizer and model and writes the model directory.

    Args:
        out: the model directory, made where it is missing.
        recipe: all that decides the weights.
    """
    import torch

    # One thread: sums are then always taken in the same order, and the same seed gives the same weights.
    torch.set_num_threads(1)
    out.mkdir(parents=True, exist_ok=True)
    texts = (
        text
        for sample in islice(make_samples(TOKENIZER_SEED), recipe.tokenizer_samples)
        for text in plain_texts(sample)
    )
    tokenizer = train_tokenizer(texts)
    save_tokenizer(tokenizer, out)
    samples = make_samples(recipe.seed, held_out=_held_out())
    batches = partial(make_batches, samples, tokenizer, seed=recipe.seed, batch_tokens=recipe.batch_tokens)
    # Copying is learned first and soonest from short conversations; the long ones then build on it.
    short_first = chain(islice(batches(max_width=SHORT_WIDTH), recipe.short_steps), batches())
    model = new_model(tokenizer, recipe.sizes, recipe.seed)
    _say(f"{sum(p.numel() for p in model.parameters()):,} parameters")
    train(model, short_first, recipe.schedule, _say)
    save_model(model, tokenizer, out)
    for seed, finish in enumerate(recipe.finishes, start=recipe.seed + 1):
        finish_model(out, tokenizer, finish, seed=seed, batch_tokens=recipe.batch_tokens)


def finish_model(
    out: Path, tokenizer: "PreTrainedTokenizerBase", finish: Finish, *, seed: int, batch_tokens: int
) -> None:
    """Trains a saved model further and saves it again.

    Args:
        out: the model directory.
        tokenizer: its tokenizer.
        finish: how.
        seed: decides conversations and order.
        batch_tokens: tokens in a batch, padding included.
    """
    samples = make_samples(seed, held_out=_held_out(), no_tool_share=finish.no_tool_share)
    model = load_model(out)
    train(model, make_batches(samples, tokenizer, seed=seed, batch_tokens=batch_tokens), finish.schedule, _say)
    save_model(model, tokenizer, out)


def _held_out() -> frozenset[str]:
    return demo_prompt_texts() | {case.sample.text_key() for case in held_out_cases()}


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main(argv: Sequence[str] | None = None) -> None:
    """Runs the command line.

    Args:
        argv: arguments without the program's name; `sys.argv` where left out.
    """
    recipe = Recipe()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="the model directory to write")
    parser.add_argument("--seed", type=int, default=recipe.seed)
    parser.add_argument("--steps", type=int, default=recipe.schedule.steps)
    arguments = parser.parse_args(argv)
    started = time.monotonic()
    make_model(arguments.out, Recipe(seed=arguments.seed, schedule=Schedule(steps=arguments.steps)))
    _say(f"trained in {time.monotonic() - started:.0f} s")
    _say(evaluate(arguments.out))


if __name__ == "__main__":
    main()
