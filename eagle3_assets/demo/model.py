"""The demo's network: its sizes, its training loop, and the files it is saved as.

Belongs here: what touches weights. Does not belong here: conversations, the command line, the evaluation.
"""

import json
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING

from eagle3_assets.demo.batches import Batch
from eagle3_assets.demo.tokenizer import BOS, MAX_TOKENS, PAD, STOP, VOCAB_SIZE

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedTokenizerBase, Qwen3ForCausalLM


@dataclass(frozen=True)
class Sizes:
    """The network's sizes.

    Attributes:
        hidden: width of the residual stream.
        feed_forward: width of the feed-forward layers.
        layers: number of layers.
        heads: number of query heads.
        key_value_heads: number of key and value heads.
        head: width of a head; 64 is the smallest which GPU attention kernels usually take.
    """

    hidden: int = 192
    feed_forward: int = 512
    layers: int = 4
    heads: int = 4
    key_value_heads: int = 2
    head: int = 64


@dataclass(frozen=True)
class Schedule:
    """How long and how fast to train.

    Attributes:
        steps: optimiser steps.
        matrix_rate: peak learning rate of the layers' matrices (Muon).
        other_rate: peak learning rate of embeddings and norms (AdamW).
        warmup: steps of linear warm-up; a cosine to 1 % follows.
    """

    steps: int
    matrix_rate: float = 0.03
    other_rate: float = 0.006
    warmup: int = 50

    def factor(self, step: int) -> float:
        """Returns the share of the peak learning rates at a step."""
        if step < self.warmup:
            return (step + 1) / self.warmup
        progress = (step - self.warmup) / max(1, self.steps - self.warmup)
        return 0.01 + 0.99 * 0.5 * (1 + math.cos(math.pi * progress))


def new_model(tokenizer: "PreTrainedTokenizerBase", sizes: Sizes, seed: int) -> "Qwen3ForCausalLM":
    """Makes an untrained network.

    Args:
        tokenizer: the demo tokenizer, for the structural ids.
        sizes: the network's sizes.
        seed: decides the first weights.

    Returns:
        A float32 network in training mode.
    """
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    torch.manual_seed(seed)
    ids = _named_ids(tokenizer)
    config = Qwen3Config(
        vocab_size=VOCAB_SIZE,
        hidden_size=sizes.hidden,
        intermediate_size=sizes.feed_forward,
        num_hidden_layers=sizes.layers,
        num_attention_heads=sizes.heads,
        num_key_value_heads=sizes.key_value_heads,
        head_dim=sizes.head,
        max_position_embeddings=MAX_TOKENS,
        # The usual 10,000 is for longer contexts; with less, "the token before" is learned sooner.
        rope_parameters={"rope_type": "default", "rope_theta": 1000.0},
        tie_word_embeddings=True,
        bos_token_id=ids["bos_token_id"],
        eos_token_id=ids["eos_token_id"],
        pad_token_id=ids["pad_token_id"],
    )
    model = Qwen3ForCausalLM(config)
    for name, parameter in model.named_parameters():
        if name.endswith(("o_proj.weight", "down_proj.weight")):
            # Layers that add nothing at first leave the embeddings readable: copying is learned in half the steps.
            torch.nn.init.zeros_(parameter)
    model.train()
    return model


def train(
    model: "Qwen3ForCausalLM", batches: Iterator[Batch], schedule: Schedule, report: Callable[[str], None]
) -> None:
    """Trains in place.

    Args:
        model: from `new_model`.
        batches: at least `schedule.steps` batches.
        schedule: steps and learning rates.
        report: takes a line of progress now and then.
    """
    import torch

    optimizers = _optimizers(model, schedule)
    started, tokens = time.monotonic(), 0
    losses: list[float] = []
    for step, batch in enumerate(islice(batches, schedule.steps)):
        loss = _loss(model, batch)
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for optimizer, peak in optimizers:
            for group in optimizer.param_groups:
                group["lr"] = peak * schedule.factor(step)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        tokens += batch.input_ids.numel()
        losses.append(loss.item())
        if step % 100 == 99 or step + 1 == schedule.steps:
            seconds = time.monotonic() - started
            speed = f"{tokens / seconds:.0f} tokens/s  {seconds:.0f} s"
            report(f"step {step + 1}/{schedule.steps}  loss {fmean(losses):.4f}  {speed}")
            losses.clear()


def _optimizers(model: "Qwen3ForCausalLM", schedule: Schedule) -> list[tuple["torch.optim.Optimizer", float]]:
    import torch

    matrices = [p for name, p in model.named_parameters() if p.ndim == 2 and "embed_tokens" not in name]
    chosen = {id(p) for p in matrices}
    others = [p for p in model.parameters() if id(p) not in chosen]
    return [
        (
            torch.optim.Muon(matrices, lr=schedule.matrix_rate, weight_decay=0.01, adjust_lr_fn="original"),
            schedule.matrix_rate,
        ),
        (torch.optim.AdamW(others, lr=schedule.other_rate, betas=(0.9, 0.98), weight_decay=0.0), schedule.other_rate),
    ]


def _loss(model: "Qwen3ForCausalLM", batch: Batch) -> "torch.Tensor":
    """Computes the weighted cross-entropy; logits are made only where they count, which saves a fifth of the time."""
    import torch

    # bfloat16 products take half as long on a CPU with AMX; weights, sums and the loss stay in float32.
    with torch.autocast("cpu", dtype=torch.bfloat16):
        # No attention mask: padding is on the right, where a causal model never looks.
        hidden = model.model(input_ids=batch.input_ids, use_cache=False).last_hidden_state
        logits = model.lm_head(hidden.flatten(0, 1)[batch.positions])
    losses = torch.nn.functional.cross_entropy(logits.float(), batch.targets, reduction="none")
    return (losses * batch.weights).sum() / batch.weights.sum()


def save_model(model: "Qwen3ForCausalLM", tokenizer: "PreTrainedTokenizerBase", out: Path) -> None:
    """Writes `config.json`, `generation_config.json` and half-precision `model.safetensors`.

    Args:
        model: a trained network; it is in half precision afterwards.
        tokenizer: the demo tokenizer, for the structural ids.
        out: the model directory.
    """
    import torch

    for parameter in model.parameters():
        parameter.data = parameter.data.to(torch.float16)
    model.config.dtype = torch.float16
    model.save_pretrained(out)
    generation = json.dumps(_named_ids(tokenizer), indent=2)
    (out / "generation_config.json").write_text(f"{generation}\n", encoding="utf-8")


def load_model(directory: Path) -> "Qwen3ForCausalLM":
    """Reads a saved network back to train it further: single precision, of the stored half-precision weights.

    Args:
        directory: the model directory.
    """
    import torch
    from transformers import Qwen3ForCausalLM

    model = Qwen3ForCausalLM.from_pretrained(directory, dtype=torch.float32)
    model.train()
    return model


def _named_ids(tokenizer: "PreTrainedTokenizerBase") -> dict[str, int]:
    # As in Kimi, generation stops at the end of a turn, which is not the tokenizer's own end of text.
    vocabulary = tokenizer.get_vocab()
    return {"bos_token_id": vocabulary[BOS], "eos_token_id": vocabulary[STOP], "pad_token_id": vocabulary[PAD]}
