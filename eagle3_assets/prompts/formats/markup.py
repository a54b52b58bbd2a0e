"""Whole conversations that were written as one text, in a template's markup or with the speakers' names.

What belongs here: telling such a text from a prompt. Not here: reading it, since what a role's name within a text is
(a turn, or a word of the user's) nobody knows; reasoning in markup (``reasoning``).
"""

import re

_START = (
    r"(?:<s>|<bos>|<\|begin_of_text\|>|<\uff5cbegin▁of▁sentence\uff5c>"
    r"|<\|startoftext\|>|<\|endoftext\|>|\[gMASK\]|<sop>|\s)*"
)
"""What a rendered text begins with before its first turn."""
_TURN = "|".join(
    [
        r"<\|im_start\|>",  # ChatML, Qwen
        r"<\|im_(?:user|assistant|system)\|>",  # Kimi
        r"<\|start_header_id\|>|<\|header_start\|>",  # Llama 3 and 4
        r"<start_of_turn>",  # Gemma
        r"<\|(?:user|assistant|system|prompter|observation|human|bot)\|>",  # GLM, Phi, Zephyr, OASST
        r"<\uff5c(?:User|Assistant)\uff5c>",  # DeepSeek
        r"<\|start\|>(?:system|developer|user|assistant)",  # gpt-oss
        r"<\|(?:START_OF_TURN_TOKEN|start_of_role)\|>",  # Command, Granite
        r"\[INST\]",  # Llama 2, Mistral
        r"<(?:human|bot)>:",  # RedPajama, Dolly's kin
    ]
)
_OPENING = re.compile(rf"{_START}(?:{_TURN})")
_WITHIN = re.compile(rf"(?:^[ \t]*|(?<=[>\].!?:]))(?:{_TURN})", re.MULTILINE)
"""Where a template puts a turn: on a line of its own, or next to what ended the turn before. Within a sentence, a text
speaks of markup."""
_MARKS = ("<|", "<\uff5c", "<start_of_turn>", "[INST]", "<human>:", "<bot>:")
"""One of these is in all of them: most texts are told by that alone."""
_ANSWERING = ("assistant:", "gpt:", "response:")
_NAMED = tuple(
    (re.compile(asked, flags), re.compile(answered, flags))
    for asked, answered, flags in (
        (
            r"(?:\A|###[ \t]*)(?:human|user|system|instruction):",
            r"(?:^|###[ \t]*)(?:assistant|gpt|response):",
            re.I | re.M,
        ),
        (r"^(?:human|user):", r"^assistant:", re.I | re.M),
        (r"(?<!\S)USER:\s", r"(?<!\S)ASSISTANT:", re.M),  # Vicuna's, all on one line
    )
)
_QUESTIONS, _ANSWERS = re.compile(r"^Q:", re.MULTILINE), re.compile(r"^A:", re.MULTILINE)


def is_conversation(text: str) -> bool:
    """Whether a text is several turns, or one in the markup of a template, instead of what one user says."""
    said = text.lstrip()
    if any(mark in said for mark in _MARKS) and (_OPENING.match(said) or _WITHIN.search(said)):
        return True
    lower = said.lower()
    for asks, answers in _NAMED if any(answering in lower for answering in _ANSWERING) else ():
        asked = asks.search(said)
        if asked and answers.search(said, asked.end()):
            return True
    # `A:` alone may be the first of several choices.
    return said.startswith("Q:") and len(_QUESTIONS.findall(said)) > 1 and bool(_ANSWERS.search(said))
