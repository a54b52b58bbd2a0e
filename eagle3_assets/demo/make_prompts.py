"""Writes the committed demo prompts: `python -m eagle3_assets.demo.make_prompts`.

Belongs here: which conversations become demo prompts, and their files. Does not belong here: making conversations.
"""

import json
from pathlib import Path

from eagle3_assets.demo.corpus import KINDS, PROMPTS_DIR, make_samples
from eagle3_assets.demo.samples import Kind, Sample

PROMPT_SEED = 3
PROMPTS_EACH = 40


def choose(kind: Kind) -> dict[str, Sample]:
    """Chooses the demo prompts of a kind.

    Args:
        kind: a kind of conversation.

    Returns:
        Samples of different texts, by prompt id.
    """
    chosen: dict[str, Sample] = {}
    texts: set[str] = set()
    for sample in make_samples(PROMPT_SEED, [kind]):
        if sample.text_key() in texts:
            continue
        texts.add(sample.text_key())
        chosen[f"demo-{kind}-{len(chosen):02d}"] = sample
        if len(chosen) == PROMPTS_EACH:
            break
    return chosen


def write_prompts(out: Path) -> None:
    """Writes a `KIND.jsonl` for each kind, and `expected.json` with the right turns.

    Args:
        out: the folder to write to.
    """
    out.mkdir(parents=True, exist_ok=True)
    expected: dict[str, object] = {}
    for kind in KINDS:
        lines: list[str] = []
        for prompt_id, sample in choose(kind).items():
            row = {"id": prompt_id, "messages": sample.messages} | ({"tools": sample.tools} if sample.tools else {})
            lines.append(json.dumps(row, ensure_ascii=False))
            calls = [{"name": call.name, "arguments": dict(call.arguments)} for call in sample.turn.calls]
            expected[prompt_id] = {"content": sample.turn.content, "calls": calls}
        (out / f"{kind}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (out / "expected.json").write_text(json.dumps(expected, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    write_prompts(PROMPTS_DIR)
