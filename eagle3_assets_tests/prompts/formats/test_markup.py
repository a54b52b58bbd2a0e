"""Conversations in one text are told from prompts."""

import pytest

from eagle3_assets.prompts.dialogue import RefusedRowError
from eagle3_assets.prompts.formats import read

CONVERSATIONS = [
    "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\nho<|im_end|>\n",
    "You are kind.\n<|im_start|>user\nhi<|im_end|>",
    "<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\nhi<|eot_id|>",
    "<|begin_of_text|><|header_start|>user<|header_end|>\n\nhi<|eot|>",
    "<bos><start_of_turn>user\nhi<end_of_turn>",
    "<|prompter|>hi<|endoftext|><|assistant|>ho<|endoftext|>",
    "Be kind.<|prompter|>hi<|endoftext|><|assistant|>",
    "<\uff5cUser\uff5c>hi<\uff5cAssistant\uff5c>ho",
    "<\uff5cbegin▁of▁sentence\uff5c>Be kind.<\uff5cUser\uff5c>hi<\uff5cAssistant\uff5c>",
    "<s><|user|>\nhi<|end|>",
    "[gMASK]<sop><|user|>\nhi",
    "<|system|>\nBe kind.</s>\n<|user|>\nhi",
    "<|im_system|>system<|im_middle|>x<|im_end|><|im_user|>user<|im_middle|>hi<|im_end|>",
    "<|start|>system<|message|>Be kind.<|end|><|start|>user<|message|>hi<|end|>",
    "<s>[INST] <<SYS>>\nBe kind.\n<</SYS>>\n\nhi [/INST] ho </s>",
    "USER: hi ASSISTANT: ho",
    "A chat between a curious user and an assistant. USER: hi ASSISTANT:",
    "<human>: hi\n<bot>: ho",
    "The following is a talk.\n\n<human>: hi\n<bot>:",
    "Human: hi\n\nAssistant: ho",
    "Be kind.\n\nHuman: hi\n\nAssistant:",
    "user: hi\nassistant: ho",
    "### Human: hi### Assistant: ho",
    "Below is an instruction.\n\n### Instruction:\nhi\n\n### Response:\nho",
    "Q: hi\nA: ho\nQ: why?\nA:",
]
PROMPTS = [
    "Explain <|im_start|> of ChatML",
    "Which models end a turn with `<|user|>` or <start_of_turn>, and what is [INST]?",
    "Human: a being. Why?",
    "What does ### Response: mean?",
    "As a user: how does an assistant: work?",
    "List every USER: line of the log",
    "Q: Which is a fruit?\nA: apple\nB: stone",
    "Q: What is 2+2?\nA:",
    "Anna: hi\nBen: ho\nSummarise it.",
    "<html><body>fix this</body></html>",
]


@pytest.mark.parametrize("text", CONVERSATIONS)
@pytest.mark.parametrize("key", ["prompt", "instruction"])
def test_a_conversation_in_markup_is_no_prompt(text: str, key: str) -> None:
    with pytest.raises(RefusedRowError, match=r"the text is a conversation in markup \(.*write it as `messages`"):
        read("plain" if key == "prompt" else "alpaca", {key: text})


@pytest.mark.parametrize("text", PROMPTS)
def test_a_prompt_that_speaks_of_markup_stays_one(text: str) -> None:
    assert read("plain", text).messages == [{"role": "user", "content": text}]
