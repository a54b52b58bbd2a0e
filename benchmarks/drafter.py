"""Trains EAGLE-3 drafters of the demo target, with the code of the trainer speculators, and counts what they save.

What belongs here: the target's hidden states, training, proposals; all that needs torch and speculators. It runs in the
trainers' environment, which has neither this project nor its dependencies. Not here: the data (``damaged_data``), which
drafters are compared (``drafter_learning``), counting (``acceptance``).

Model, loss, shifting of batches and optimizers are speculators' own, with the settings that run on a CPU: attention by
``sdpa``, loss ``eager``. Its training loop is not used: it wants hidden states from a vLLM server.

Usage: python -m benchmarks.drafter PLAN, where PLAN is a ``Plan`` in JSON. Prints a line of JSON for each drafter.
"""

# ruff: noqa: TID253 - nothing but this program imports this module

import json
import random
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from loguru import logger
from speculators.losses import resolve_loss_config
from speculators.models.eagle3 import Eagle3DraftModel
from speculators.models.eagle3.data import shift_batch
from speculators.train.optimizers import build_optimizers
from speculators.train.trainer import TrainerConfig
from transformers import AutoConfig, AutoModelForCausalLM

from benchmarks.acceptance import Acceptance, Proposals, decode, replayed

CHAIN = 5
"""Ids proposed in a round, speculators' default."""
UNROLLED = 3
"""Steps of training-time test, speculators' default."""
LAYERS = (1, 2, 3)
"""Of the target's four, those whose outputs the drafter sees: low, middle, high."""
RATE = 0.01
WARMUP = 20
"""Steps in which the learning rate grows; then it falls to 0 along a line."""

Batch = dict[str, torch.Tensor]


@dataclass(frozen=True, slots=True)
class Row:
    """A row of an export."""

    id: str
    input_ids: list[int]
    loss_mask: list[int]

    @property
    def prompt_tokens(self) -> int:
        """Ids before the output."""
        return self.loss_mask.index(1)


@dataclass(frozen=True, slots=True)
class Job:
    """One drafter."""

    data: str
    """A name for what it learns from."""
    train: str
    """JSON lines to train on."""
    seed: int
    """Of its first weights and of the order of rows."""
    steps: int
    """0 for a drafter that learned nothing."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What one process does."""

    model: str
    """Directory of the target."""
    held_out: str
    """JSON lines of prompts and the target's greedy outputs."""
    rows: int
    """In a step."""
    jobs: list[Job]


class Target:
    """The demo target in float32."""

    def __init__(self, model: str) -> None:
        """Loads it from local files."""
        self._network = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32, local_files_only=True).eval()
        self.stop: int = self._network.config.eos_token_id
        self._last = torch.empty(0)
        # What transformers calls the last hidden state is behind the final norm, which the trainer applies itself.
        self._network.model.norm.register_forward_pre_hook(self._keep)

    def _keep(self, _: torch.nn.Module, arguments: tuple[torch.Tensor, ...]) -> None:
        self._last = arguments[0]

    @torch.no_grad()
    def states(self, ids: Sequence[int]) -> tuple[torch.Tensor, torch.Tensor]:
        """``[tokens, 3 * hidden]`` of the three layers, and ``[tokens, hidden]`` before the final norm; float32."""
        seen = self._network(input_ids=torch.tensor([ids]), output_hidden_states=True, use_cache=False)
        return torch.cat([seen.hidden_states[layer][0] for layer in LAYERS], dim=-1), self._last[0]

    @torch.no_grad()
    def says(self, ids: list[int], last: int) -> list[int]:
        """Its greedy choice after each of the last ids."""
        logits = self._network(input_ids=torch.tensor([ids]), use_cache=False, logits_to_keep=last).logits
        chosen: list[int] = logits[0].argmax(dim=-1).tolist()
        return chosen


def read(path: str) -> list[Row]:
    """The rows of a JSON lines file."""
    lines = Path(path).read_text(encoding="utf-8").splitlines()
    return [Row(row["id"], row["input_ids"], row["loss_mask"]) for row in map(json.loads, lines)]


def batch(target: Target, rows: Sequence[Row]) -> Batch:
    """Rows one behind the other, as the trainer packs them."""
    shifted: list[Batch] = []
    for number, row in enumerate(rows):
        states, last = target.states(row.input_ids)
        one = {
            "input_ids": torch.tensor(row.input_ids),
            "hidden_states": states,
            "verifier_last_hidden_states": last,
            "loss_mask": torch.tensor(row.loss_mask),
            "lengths": torch.tensor([len(row.input_ids)]),
            "position_ids": torch.arange(len(row.input_ids)),
        }
        kept = shift_batch(one)
        kept["document_ids"] = torch.full((int(kept.pop("lengths")),), number)
        shifted.append(kept)
    return {name: torch.cat([one[name] for one in shifted])[None] for name in shifted[0]}


def new_drafter(model: str, seed: int) -> Eagle3DraftModel:
    """One layer of the target's sizes, with the target's embeddings and head, which it does not train."""
    torch.manual_seed(seed)
    layer = AutoConfig.from_pretrained(model, local_files_only=True)
    layer.num_hidden_layers, layer.layer_types = 1, ["full_attention"]
    return Eagle3DraftModel.from_training_args(
        layer,
        verifier_name_or_path=model,
        draft_vocab_size=layer.vocab_size,
        norm_before_residual=True,
        ttt_steps=UNROLLED,
        target_layer_ids=list(LAYERS),
        draft_attn_impl="sdpa",
    )


def train(drafter: Eagle3DraftModel, target: Target, rows: Sequence[Row], job: Job, rows_in_step: int) -> None:
    """Trains in place. The same seed takes the same rows in the same order, whatever is in them."""
    settings = TrainerConfig(lr=RATE, num_epochs=1, save_path="", optimizer="muon", muon_lr=RATE)
    optimizers = build_optimizers(drafter, settings)
    schedules = [
        torch.optim.lr_scheduler.LambdaLR(one, lambda step: min((step + 1) / WARMUP, 1 - step / job.steps))
        for one in optimizers
    ]
    loss_config = resolve_loss_config("kl_div", "eager")
    drafter.train()
    for chosen in order(len(rows), rows_in_step, job):
        _, loss, _ = drafter(
            **batch(target, [rows[index] for index in chosen]), ttt_steps=UNROLLED, loss_config=loss_config
        )
        loss.backward()
        torch.nn.utils.clip_grad_norm_(drafter.parameters(), 1.0)
        for optimizer, schedule in zip(optimizers, schedules, strict=True):
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()


def order(rows: int, rows_in_step: int, job: Job) -> Iterator[list[int]]:
    """The indices of the rows of each step: all rows in a drawn order, then again in another one."""
    draw = random.Random(job.seed)  # noqa: S311 - an order, nothing secret
    left: list[int] = []
    for _ in range(job.steps):
        while len(left) < rows_in_step:
            left = draw.sample(range(rows), rows) + left
        yield [left.pop() for _ in range(rows_in_step)]


@torch.no_grad()
def proposals(drafter: Eagle3DraftModel, target: Target, row: Row) -> Proposals:
    """What it proposes at every index of a row.

    The trainer's unrolled forward pass gives the row's own ids to the later steps of a chain, not the proposed ones. Up
    to the first proposal that is not the row's they are the same, and what comes behind it counts for nothing.
    """
    seen = batch(target, [row])
    asked = {name: seen[name] for name in ("hidden_states", "input_ids", "document_ids", "position_ids")}
    chains = torch.stack(drafter(**asked, ttt_steps=CHAIN))[:, 0].T.tolist()
    # Its first chain is that after two ids.
    return [[], [], *chains]


@torch.no_grad()
def draft(drafter: Eagle3DraftModel, target: Target, ids: list[int]) -> list[int]:
    """Proposes a chain after ids, each proposal made of those before it."""
    states = target.states(ids[:-1])[0]
    chain: list[int] = []
    for _ in range(CHAIN):
        # At the index of the last id, a step of the unrolled pass sees the proposal that is as far behind it, and
        # nothing else of what is there.
        given = torch.tensor([ids[1:] + chain])
        padded = torch.cat([states, states.new_zeros(len(chain), states.shape[1])])[None]
        documents, positions = torch.zeros_like(given), torch.arange(1, given.shape[1] + 1)[None]
        steps = drafter(
            hidden_states=padded,
            input_ids=given,
            document_ids=documents,
            position_ids=positions,
            ttt_steps=len(chain) + 1,
        )
        chain.append(int(steps[-1][0, len(ids) - 2]))
    return chain


def measured(plan: Plan, job: Job, target: Target, held_out: Sequence[Row]) -> dict[str, Any]:
    """Trains one drafter, and counts.

    Returns:
        the job; ``held_out``, tokens and rounds of each held-out row by its id; ``seconds`` of training; ``same``,
        whether one of those rows, decoded round by round, gave the output and the counts of replaying.
    """
    began = time.monotonic()
    drafter = new_drafter(plan.model, job.seed)
    if job.steps:
        train(drafter, target, read(job.train), job, plan.rows)
    seconds = time.monotonic() - began
    drafter.eval()
    counted = {row.id: replayed(row.input_ids, row.prompt_tokens, proposals(drafter, target, row)) for row in held_out}
    row = held_out[job.seed % len(held_out)]
    prompt, output = row.input_ids[: row.prompt_tokens], row.input_ids[row.prompt_tokens :]
    decoded = decode(prompt, lambda ids: draft(drafter, target, ids), target.says, (target.stop,), len(output))
    return {
        **asdict(job),
        "seconds": seconds,
        "held_out": {name: as_pair(counts) for name, counts in counted.items()},
        "same": decoded == (output, counted[row.id]),
    }


def as_pair(counts: Acceptance) -> tuple[int, int]:
    """Tokens and rounds."""
    return counts.tokens, counts.rounds


def main() -> None:
    """Runs a plan."""
    torch.set_num_threads(1)
    logger.disable("speculators")
    given = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    plan = Plan(**{**given, "jobs": [Job(**job) for job in given["jobs"]]})
    target, held_out = Target(plan.model), read(plan.held_out)
    for job in plan.jobs:
        print(json.dumps(measured(plan, job, target, held_out)), flush=True)


if __name__ == "__main__":
    main()
