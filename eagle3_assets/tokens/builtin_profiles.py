"""The built-in profiles: data only, in the order in which ``auto`` tries them."""

from eagle3_assets.tokens.profile_spec import ProfileSpec, ToolTokens

KIMI = ProfileSpec(
    name="kimi",
    detected_by=("<|im_middle|>", "<|im_assistant|>", "<|tool_calls_section_begin|>", "</think>"),
    stop=("<|im_end|>", "[EOS]"),
    suffixes={
        "thinking": "<|im_assistant|>assistant<|im_middle|><think>",
        "no_thinking": "<|im_assistant|>assistant<|im_middle|><think></think>",
    },
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
    reserved=r"<\|reserved_(token_)?\d+\|>",
    prompt_bos=False,
    turns=dict.fromkeys(("<|im_user|>", "<|im_assistant|>", "<|im_system|>"), ("<|im_end|>",)),
    tool_call_id="functions.{name}:{number}",
)

QWEN3 = ProfileSpec(
    name="qwen3",
    detected_by=("<|im_start|>", "<|im_end|>", "<think>", "</think>", "<tool_call>"),
    stop=("<|im_end|>", "<|endoftext|>"),
    suffixes={
        # The target opens its reasoning itself, as the first id of the output.
        "thinking": "<|im_start|>assistant\n",
        "no_thinking": "<|im_start|>assistant\n<think>\n\n</think>\n\n",
    },
    reasoning_start="<think>",
    reasoning_end="</think>",
    tools=ToolTokens(call_begin="<tool_call>", call_end="</tool_call>"),
    prompt_only=("<|im_start|>",),
    pad="<|endoftext|>",
    media=("<|vision_start|>", "<|vision_end|>", "<|vision_pad|>", "<|image_pad|>", "<|video_pad|>"),
    turns={"<|im_start|>": ("<|im_end|>",)},
    tool_call_json=True,
)

CHATML = ProfileSpec(
    name="chatml",
    detected_by=("<|im_start|>", "<|im_end|>"),
    stop=("<|im_end|>",),
    suffixes={"thinking": "<|im_start|>assistant\n", "no_thinking": "<|im_start|>assistant\n"},
    prompt_only=("<|im_start|>",),
    turns={"<|im_start|>": ("<|im_end|>",)},
)

PLAIN = ProfileSpec(name="plain")
"""Describes nothing; never chosen by itself."""

PROFILES = {spec.name: spec for spec in (KIMI, QWEN3, CHATML, PLAIN)}
