"""Makes the demo's conversations: the mixture of the three kinds, free of the held-out prompts.

Belongs here: how many of what, and what is kept out. Does not belong here: the wording of a kind
(`tool_talk`, `reasoning_talk`, `chat_talk`) and anything about tokens.
"""

import json
import random
from collections.abc import Collection, Iterator
from pathlib import Path

from eagle3_assets.demo import chat_talk, reasoning_talk, tool_talk
from eagle3_assets.demo.samples import Kind, Sample, spoken_text

PROMPTS_DIR = Path(__file__).with_name("prompts")
KINDS: tuple[Kind, ...] = ("function_calling", "reasoning", "chat")
_MAKERS = {"function_calling": tool_talk.make, "reasoning": reasoning_talk.make, "chat": chat_talk.make}
_SHARES = {"function_calling": 0.56, "reasoning": 0.24, "chat": 0.20}


def make_samples(
    seed: int, kinds: Collection[Kind] = KINDS, held_out: Collection[str] = (), *, no_tool_share: float = 0.0
) -> Iterator[Sample]:
    """Makes conversations without end.

    Args:
        seed: the same seed makes the same conversations.
        kinds: the kinds to make.
        held_out: texts (`Sample.text_key`) which shall not come up.
        no_tool_share: share of requests that no declared tool serves, beside those which the mixture has anyway.

    Yields:
        Samples, their kinds drawn by the demo's shares.
    """
    rng = random.Random(seed)  # noqa: S311 - training data, nothing secret
    chosen = [kind for kind in KINDS if kind in kinds]
    while True:
        kind = rng.choices(chosen, [_SHARES[kind] for kind in chosen])[0]
        no_tool = no_tool_share and rng.random() < no_tool_share
        sample = tool_talk.no_tool(rng) if no_tool else _MAKERS[kind](rng)
        if sample.text_key() not in held_out:
            yield sample


def demo_prompt_texts(prompts_dir: Path = PROMPTS_DIR) -> frozenset[str]:
    """Reads the texts of the committed demo prompts, which training must never see.

    Args:
        prompts_dir: folder of the `*.jsonl` prompt files.

    Returns:
        One text per prompt, as `Sample.text_key` gives it.
    """
    lines = (
        line for path in sorted(prompts_dir.glob("*.jsonl")) for line in path.read_text(encoding="utf-8").splitlines()
    )
    return frozenset(spoken_text(json.loads(line)["messages"]) for line in lines)
