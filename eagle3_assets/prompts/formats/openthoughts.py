"""OpenThoughts: ``{system, conversations: [{from, value}]}``.

The first set writes ``<|begin_of_thought|>...<|end_of_thought|>`` and ``<|begin_of_solution|>...<|end_of_solution|>``,
the later ones ``<think>...</think>`` and the answer. It is read as ``sharegpt`` is. The system prompt of the first set
tells the model to write that markup; it is kept, as the source has it.
"""

from eagle3_assets.prompts.dialogue import Json
from eagle3_assets.prompts.formats import sharegpt
from eagle3_assets.prompts.formats.reasoning import has_markup
from eagle3_assets.prompts.formats.values import first


def recognises(row: Json) -> bool:
    """Whether the row has ShareGPT's keys and a turn that begins with reasoning in markup."""
    turns = first(row, *sharegpt.KEYS)
    said = (
        [first(turn, "value", "content") for turn in turns if isinstance(turn, dict)] if isinstance(turns, list) else []
    )
    return any(isinstance(text, str) and has_markup(text) for text in said)
