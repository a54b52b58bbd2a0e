"""Which assistant turns of a dialogue shall be generated, what stands before each, and the conversation's id.

What belongs here: choosing among the turns that are there. Not here: reading a row, files, templates.
"""

from eagle3_assets.config import Turns
from eagle3_assets.identity import digest
from eagle3_assets.prompts.dialogue import Dialogue, Json, RefusedRowError
from eagle3_assets.prompts.written_calls import first_written_call


def turns_to_generate(dialogue: Dialogue, turns: Turns) -> list[int]:
    """Indices among the dialogue's messages of the assistant turns to be generated; what is before one is its history.

    No history has calls written as text: the target would read a markup that is not its own.

    A stored prompt has its own turn and no other.

    Assistant messages in a row are one turn, which begins with the first of them. After a last message that is none of
    the assistant's, a turn begins too. A turn without a user or tool message before it is none that could be asked for.

    Args:
        dialogue: with all of its turns.
        turns: the last of these turns, the first, or all of them.

    Raises:
        RefusedRowError: there is no such turn, or its history has calls written as text.
    """
    if dialogue.stored:
        _require_no_written_call(dialogue, len(dialogue.messages))
        return [dialogue.stored.turn]
    roles = [message["role"] for message in dialogue.messages]
    asked = next((i for i, role in enumerate(roles) if role in ("user", "tool")), len(roles))
    after = [*roles[1:], "assistant"][: len(roles)]
    begins = [
        i + 1
        for i, (role, following) in enumerate(zip(roles, after, strict=True))
        if i >= asked and role != "assistant" and following == "assistant"
    ]
    if not begins:
        raise RefusedRowError("no user message before the turn to generate")
    chosen = begins if turns == "all" else begins[:1] if turns == "first" else begins[-1:]
    _require_no_written_call(dialogue, chosen[-1])
    return chosen


def _require_no_written_call(dialogue: Dialogue, end: int) -> None:
    tools = [tool["function"]["name"] for tool in dialogue.tools or ()]
    found = first_written_call(dialogue.messages[:end], tools)
    if found is not None:
        raise RefusedRowError(f"{found}: give calls as `tool_calls` and results as `tool` messages")


def conversation_id(dialogue: Dialogue) -> str:
    """The source's id, else a hash of the content up to the last message that is none of the assistant's.

    Raises:
        RefusedRowError: the content is none that JSON could hold.
    """
    if dialogue.source_id is not None:
        return dialogue.source_id
    messages = dialogue.messages
    end = next((i for i in range(len(messages), 0, -1) if messages[i - 1]["role"] != "assistant"), 0)
    try:
        return digest([messages[:end], dialogue.tools])
    except TypeError as error:  # parquet holds dates
        raise RefusedRowError(f"holds a value that JSON has not: {error}") from None


def history(dialogue: Dialogue, turn: int, system_prompt: str | None) -> list[Json]:
    """The messages before a turn.

    Args:
        dialogue: with all of its turns.
        turn: index of the turn among its messages.
        system_prompt: put first where the dialogue has no system message anywhere.
    """
    before = dialogue.messages if dialogue.stored else dialogue.messages[:turn]
    if system_prompt is None or any(message["role"] == "system" for message in dialogue.messages):
        return before
    return [{"role": "system", "content": system_prompt}, *before]
