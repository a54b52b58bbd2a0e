"""The built-in profiles: data only, in the order in which ``auto`` tries them.

Facts are those of the targets' public tokenizers and chat templates; copies of the templates can be read in
``ggml-org/llama.cpp`` under ``models/templates``.
"""

# ruff: noqa: RUF001 - DeepSeek writes its tokens with a wide bar.

from eagle3_assets.tokens.profile_spec import MessageTokens, ProfileSpec, ToolTokens

_KIMI_TURN = "<|im_assistant|>assistant<|im_middle|>"

KIMI = ProfileSpec(
    name="kimi",
    summary="Kimi-K2.5. May end its reasoning by tool markup alone.",
    detected_by=("<|im_middle|>", "<|im_assistant|>", "<|tool_calls_section_begin|>", "</think>"),
    stop=("<|im_end|>", "[EOS]"),
    suffixes={"thinking": f"{_KIMI_TURN}<think>", "no_thinking": f"{_KIMI_TURN}<think></think>"},
    reasoning_start="<think>",
    reasoning_end="</think>",
    tools=ToolTokens(
        section_begin="<|tool_calls_section_begin|>",
        call_begin="<|tool_call_begin|>",
        argument_begin="<|tool_call_argument_begin|>",
        call_end="<|tool_call_end|>",
        section_end="<|tool_calls_section_end|>",
    ),
    prompt_only=("<|im_user|>", "<|im_assistant|>", "<|im_system|>", "<|im_middle|>"),
    bos="[BOS]",
    eos="[EOS]",
    pad="[PAD]",
    unk="[UNK]",
    media=("<|media_begin|>", "<|media_content|>", "<|media_end|>", "<|media_pad|>"),
    # The named ones are of the tokenizer's base and have no use in chat.
    reserved=r"<\|reserved_(token_)?\d+\|>|\[EOT\]|<\|(start|end)_header_id\|>",
    prompt_bos=False,
    turns=dict.fromkeys(("<|im_user|>", "<|im_assistant|>", "<|im_system|>"), ("<|im_end|>",)),
    tool_call_id="functions.{name}:{number}",
)

KIMI_K2_THINKING = KIMI.model_copy(
    update={
        "name": "kimi-k2-thinking",
        "summary": "Kimi-K2-Thinking. Always reasons, and opens its reasoning itself.",
        "suffixes": {"thinking": _KIMI_TURN, "no_thinking": _KIMI_TURN},
        "reasoning_habit": {"thinking": "opens", "no_thinking": "opens"},
    }
)

KIMI_K2 = KIMI.model_copy(
    update={
        "name": "kimi-k2",
        "summary": "Kimi-K2-Instruct. Does not reason; its tokenizer has no `<think>`.",
        "detected_by": ("<|im_middle|>", "<|im_assistant|>", "<|tool_calls_section_begin|>"),
        "suffixes": {"thinking": _KIMI_TURN, "no_thinking": _KIMI_TURN},
        "reasoning_start": None,
        "reasoning_end": None,
    }
)

_CHATML_TURN = "<|im_start|>assistant\n"

QWEN3 = ProfileSpec(
    name="qwen3",
    summary="Qwen3 with a thinking switch. With it on, opens its reasoning itself, as the first id of the output, also"
    " where a prompt's text asks for none: then it closes it at once.",
    detected_by=("<|im_start|>", "<|im_end|>", "<think>", "</think>", "<tool_call>"),
    stop=("<|im_end|>", "<|endoftext|>"),
    suffixes={"thinking": _CHATML_TURN, "no_thinking": f"{_CHATML_TURN}<think>\n\n</think>\n\n"},
    reasoning_start="<think>",
    reasoning_end="</think>",
    reasoning_habit={"thinking": "opens"},
    tools=ToolTokens(call_begin="<tool_call>", call_end="</tool_call>"),
    prompt_only=("<|im_start|>",),
    pad="<|endoftext|>",
    media=("<|vision_start|>", "<|vision_end|>", "<|vision_pad|>", "<|image_pad|>", "<|video_pad|>"),
    turns={"<|im_start|>": ("<|im_end|>",)},
    tool_call_json=True,
)

QWEN3_THINKING = QWEN3.model_copy(
    update={
        "name": "qwen3-thinking",
        "summary": "Qwen3-Thinking-2507. Always reasons; the prompt opens its reasoning.",
        "suffixes": {"thinking": f"{_CHATML_TURN}<think>\n", "no_thinking": f"{_CHATML_TURN}<think>\n"},
        "reasoning_habit": {},
    }
)

QWEN3_INSTRUCT = QWEN3.model_copy(
    update={
        "name": "qwen3-instruct",
        "summary": "Qwen3-Instruct-2507. Does not reason, though its tokenizer has `<think>`.",
        "suffixes": {"thinking": _CHATML_TURN, "no_thinking": _CHATML_TURN},
        "reasoning_habit": {"thinking": "never", "no_thinking": "never"},
    }
)

DEEPSEEK_V3_1 = ProfileSpec(
    name="deepseek-v3.1",
    summary="DeepSeek-V3.1. No token ends a user's turn; a prompt that ends with a tool result gets no suffix;"
    " without thinking, the prompt closes a reasoning that it never opened.",
    # V3.1 gave two placeholders of R1's vocabulary the names of search tokens.
    detected_by=("<｜User｜>", "<｜Assistant｜>", "<think>", "</think>", "<｜search▁begin｜>"),
    stop=("<｜end▁of▁sentence｜>",),
    suffixes={"thinking": "<｜Assistant｜><think>", "no_thinking": "<｜Assistant｜></think>"},
    suffixes_after_tool={"thinking": "<｜tool▁output▁end｜>", "no_thinking": "<｜tool▁output▁end｜>"},
    reasoning_start="<think>",
    reasoning_end="</think>",
    tools=ToolTokens(
        section_begin="<｜tool▁calls▁begin｜>",
        call_begin="<｜tool▁call▁begin｜>",
        argument_begin="<｜tool▁sep｜>",
        call_end="<｜tool▁call▁end｜>",
        section_end="<｜tool▁calls▁end｜>",
    ),
    prompt_only=(
        "<｜User｜>",
        "<｜Assistant｜>",
        "<｜tool▁outputs▁begin｜>",
        "<｜tool▁outputs▁end｜>",
        "<｜tool▁output▁begin｜>",
        "<｜tool▁output▁end｜>",
    ),
    bos="<｜begin▁of▁sentence｜>",
    eos="<｜end▁of▁sentence｜>",
    pad="<｜▁pad▁｜>",
    reserved=r"<｜place▁holder▁no▁\d+｜>|<\|EOT\|>",
    prompt_bos=True,
    # No turns: after a tool result the target goes on in a turn that nothing begins.
    tool_call_id="{name}",
)

DEEPSEEK_R1 = DEEPSEEK_V3_1.model_copy(
    update={
        "name": "deepseek-r1",
        "summary": "DeepSeek-R1. Always reasons; the prompt opens its reasoning. No token ends a user's turn; a prompt"
        " that ends with tool results gets no suffix; a newline stands between tool calls.",
        "detected_by": ("<｜User｜>", "<｜Assistant｜>", "<think>", "</think>", "<｜tool▁calls▁begin｜>"),
        "suffixes": {"thinking": "<｜Assistant｜><think>\n", "no_thinking": "<｜Assistant｜><think>\n"},
        "suffixes_after_tool": {"thinking": "<｜tool▁outputs▁end｜>", "no_thinking": "<｜tool▁outputs▁end｜>"},
        "tools": ToolTokens(
            section_begin="<｜tool▁calls▁begin｜>",
            call_begin="<｜tool▁call▁begin｜>",
            argument_begin="<｜tool▁sep｜>",
            call_end="<｜tool▁call▁end｜>",
            section_end="<｜tool▁calls▁end｜>",
            text_between=True,
            json_arguments=False,
        ),
        # Before the arguments stands the word `function`, the tool's name is within them.
        "tool_call_id": None,
    }
)

DEEPSEEK_R1_0528 = DEEPSEEK_R1.model_copy(
    update={
        "name": "deepseek-r1-0528",
        "summary": "DeepSeek-R1-0528, which opens its reasoning itself, and R1 with a template that leaves this to it.",
        "suffixes": {"thinking": "<｜Assistant｜>", "no_thinking": "<｜Assistant｜>"},
        "reasoning_habit": {"thinking": "opens", "no_thinking": "opens"},
    }
)

GPT_OSS = ProfileSpec(
    name="gpt-oss",
    summary="gpt-oss (harmony). Writes several messages, each with its channel, and so the tokens that begin and end"
    " messages; `<|call|>` ends an output that calls a tool.",
    detected_by=("<|start|>", "<|channel|>", "<|message|>", "<|return|>", "<|call|>"),
    # <|end|> only ends a message: the target goes on with the next one (OpenAI's harmony guide).
    # The generation config names <|endoftext|> besides.
    stop=("<|return|>", "<|call|>", "<|endoftext|>"),
    suffixes={"thinking": "<|start|>assistant", "no_thinking": "<|start|>assistant"},
    reasoning_channel="analysis",
    messages=MessageTokens(
        begin="<|start|>",
        role="assistant",
        channel="<|channel|>",
        format="<|constrain|>",
        body="<|message|>",
        ends={
            "<|end|>": ("analysis", "commentary"),
            "<|return|>": ("final",),
            "<|endoftext|>": ("final",),
            # Built-in tools are called from within the reasoning.
            "<|call|>": ("commentary", "analysis"),
        },
    ),
    bos="<|startoftext|>",
    eos="<|return|>",
    pad="<|endoftext|>",
    reserved=r"<\|reserved_\d+\|>|<\|endofprompt\|>",
    prompt_bos=False,
    turns={"<|start|>": ("<|end|>", "<|call|>")},
)

_LLAMA_TURN = "<|start_header_id|>assistant<|end_header_id|>\n\n"

LLAMA3 = ProfileSpec(
    name="llama3",
    summary="Llama 3, 3.1, 3.3 Instruct. Does not reason; calls tools in JSON or after `<|python_tag|>`, which no pair"
    " of tokens encloses; since 3.1 `<|eom_id|>` ends a message after which a tool's result is awaited.",
    detected_by=("<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"),
    stop=("<|eot_id|>", "<|end_of_text|>"),
    stop_optional=("<|eom_id|>",),
    suffixes={"thinking": _LLAMA_TURN, "no_thinking": _LLAMA_TURN},
    prompt_only=("<|start_header_id|>", "<|end_header_id|>"),
    bos="<|begin_of_text|>",
    eos="<|eot_id|>",
    pad="<|finetune_right_pad_id|>",
    reserved=r"<\|reserved_special_token_\d+\|>",
    prompt_bos=True,
    turns={"<|start_header_id|>": ("<|eot_id|>", "<|eom_id|>")},
)

CHATML = ProfileSpec(
    name="chatml",
    summary="Any target of plain ChatML.",
    detected_by=("<|im_start|>", "<|im_end|>"),
    stop=("<|im_end|>",),
    suffixes={"thinking": _CHATML_TURN, "no_thinking": _CHATML_TURN},
    prompt_only=("<|im_start|>",),
    turns={"<|im_start|>": ("<|im_end|>",)},
)

PLAIN = ProfileSpec(name="plain", summary="Any target: nothing is described but the stop set that the engine names.")

PROFILES: dict[str, ProfileSpec] = {
    spec.name: spec
    for spec in (
        KIMI,
        KIMI_K2_THINKING,
        KIMI_K2,
        DEEPSEEK_V3_1,
        DEEPSEEK_R1,
        DEEPSEEK_R1_0528,
        GPT_OSS,
        QWEN3,
        QWEN3_THINKING,
        QWEN3_INSTRUCT,
        LLAMA3,
        CHATML,
        PLAIN,
    )
}
