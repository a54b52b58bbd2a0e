"""The demo's tokenizer and its chat format: structural tokens, byte-level BPE, rendering of samples to ids.

Belongs here: everything between texts and token ids. Does not belong here: wording, batches, the model.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eagle3_assets.demo.samples import Sample, assistant_message, calls_made

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

VOCAB_SIZE = 2048
BOS, EOS, PAD, UNK = "[BOS]", "[EOS]", "[PAD]", "[UNK]"
STOP = "<|im_end|>"
TOOL_SECTION = "<|tool_calls_section_begin|>"
SPECIAL = (BOS, EOS, STOP, "<|im_user|>", "<|im_assistant|>", "<|im_system|>", "<|im_middle|>")
# As in Kimi, these are added tokens but not "special": `skip_special_tokens=True` keeps them.
MARKUP = (
    TOOL_SECTION,
    "<|tool_call_begin|>",
    "<|tool_call_argument_begin|>",
    "<|tool_call_end|>",
    "<|tool_calls_section_end|>",
    "<think>",
    "</think>",
)
FILLERS = (PAD, UNK)
RESERVED = tuple(f"<|reserved_{index}|>" for index in range(16))
STRUCTURAL = (*SPECIAL, *MARKUP, *FILLERS, *RESERVED)
TEMPLATE_FILE = Path(__file__).with_name("chat_template.jinja")
MAX_TOKENS = 2048

# Digits stand alone so that numbers are copied digit by digit, and a quote never fuses with the word it opens,
# so that a value has the same tokens in the reasoning and in the arguments.
_SPLIT = r" ?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"


@dataclass(frozen=True)
class EncodedSample:
    """A sample as token ids.

    Attributes:
        prompt_ids: the rendered conversation up to and including the generation suffix.
        output_ids: the turn to learn, the stop token included.
        argument_from: index into `output_ids` of the first tool-call token, its length where there is none.
    """

    prompt_ids: list[int]
    output_ids: list[int]
    argument_from: int


def train_tokenizer(texts: Iterable[str]) -> "PreTrainedTokenizerBase":
    """Trains the byte-level BPE and puts the structural tokens behind it.

    Args:
        texts: plain texts without structural tokens.

    Returns:
        A tokenizer of exactly `VOCAB_SIZE` entries; the structural ones are the last.
    """
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    core = Tokenizer(models.BPE(byte_fallback=False))
    core.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_SPLIT), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    core.decoder = decoders.ByteLevel()
    core.train_from_iterator(
        texts,
        trainers.BpeTrainer(
            vocab_size=VOCAB_SIZE - len(STRUCTURAL),
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        ),
    )
    # Were the texts too few for all the merges, the structural ids would move: fill up with what nothing spells.
    missing = VOCAB_SIZE - len(STRUCTURAL) - core.get_vocab_size()
    core.add_tokens([AddedToken(f"<|unused_{index}|>", normalized=False) for index in range(missing)])
    markup = {*MARKUP}
    for text in STRUCTURAL:
        token = AddedToken(text, normalized=False, special=text not in markup)
        if text in markup:
            core.add_tokens([token])
        else:
            core.add_special_tokens([token])
    tokenizer = PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=core,
        bos_token=BOS,
        eos_token=EOS,
        pad_token=PAD,
        unk_token=UNK,
        clean_up_tokenization_spaces=False,
        model_max_length=MAX_TOKENS,
        padding_side="left",
    )
    tokenizer.chat_template = TEMPLATE_FILE.read_text(encoding="utf-8")
    return tokenizer


def save_tokenizer(tokenizer: "PreTrainedTokenizerBase", out: Path) -> None:
    """Writes `tokenizer.json`, `tokenizer_config.json` and `chat_template.jinja`.

    Args:
        tokenizer: from `train_tokenizer`.
        out: the model directory.
    """
    tokenizer.save_pretrained(out)
    # transformers 5 writes a class name which older releases do not know; both know this one.
    config_file = out / "tokenizer_config.json"
    config = json.loads(config_file.read_text(encoding="utf-8"))
    config["tokenizer_class"] = "PreTrainedTokenizerFast"
    config_file.write_text(json.dumps(config, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def render_prompt(tokenizer: "PreTrainedTokenizerBase", conversation: dict[str, Any], *, thinking: bool) -> str:
    """Renders a conversation up to the generation suffix.

    Args:
        tokenizer: the demo tokenizer.
        conversation: `messages`, and `tools` where there are any.
        thinking: whether the model shall reason.

    Returns:
        The prompt's text.
    """
    text = tokenizer.apply_chat_template(
        conversation["messages"],
        tools=conversation.get("tools") or None,
        add_generation_prompt=True,
        tokenize=False,
        thinking=thinking,
    )
    return str(text)


def encode_sample(tokenizer: "PreTrainedTokenizerBase", sample: Sample, *, thinking: bool) -> EncodedSample:
    """Encodes a sample as the model will meet it.

    Args:
        tokenizer: the demo tokenizer.
        sample: conversation and right turn.
        thinking: whether the turn reasons; without, its reasoning is left out.

    Returns:
        Prompt and output ids.

    Raises:
        ValueError: if the rendered turn does not continue the rendered prompt.
    """
    prompt = render_prompt(tokenizer, {"messages": sample.messages, "tools": sample.tools}, thinking=thinking)
    turn = assistant_message(sample.turn, calls_made(sample.messages), reasoning=thinking)
    full = str(tokenizer.apply_chat_template([*sample.messages, turn], tools=[*sample.tools] or None, tokenize=False))
    if not full.startswith(prompt):
        msg = f"the rendered turn does not continue its prompt: {full!r} after {prompt!r}"
        raise ValueError(msg)
    prompt_ids, output_ids = (tokenizer.encode(text) for text in (prompt, full[len(prompt) :]))
    section = tokenizer.get_vocab()[TOOL_SECTION]
    argument_from = output_ids.index(section) if section in output_ids else len(output_ids)
    return EncodedSample(prompt_ids, output_ids, argument_from)


def plain_texts(sample: Sample) -> list[str]:
    """Lists the texts of a sample which the BPE shall learn from.

    Args:
        sample: conversation and right turn.

    Returns:
        Role names, contents, reasoning, arguments and declared tools, without structural tokens.
    """
    texts = ["user", "assistant", "system", "tool", "tool_declare"]
    texts += [
        str(message[field])
        for message in sample.messages
        for field in ("content", "reasoning_content")
        if message.get(field)
    ]
    texts += [sample.turn.reasoning, sample.turn.content]
    texts += [f"functions.{call.name}:0{json.dumps(dict(call.arguments))}" for call in sample.turn.calls]
    if sample.tools:
        texts.append(json.dumps(sample.tools, separators=(",", ":")))
    return [text for text in texts if text]
