"""How a family of targets is described: by token names and texts, before any tokenizer is at hand.

What belongs here: the form of a description. Not here: the descriptions themselves, their resolution to ids.
"""

from typing import Literal, get_args

from pydantic import BaseModel, ConfigDict, Field

Mode = Literal["thinking", "no_thinking"]
"""What a prompt's end leaves to the target: to reason, or to answer at once."""
MODES: tuple[Mode, ...] = get_args(Mode)


class ToolTokens(BaseModel):
    """Names of native tool-call markup: ``section (call id argument args end)+ section_end``; null for what is not."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    section_begin: str | None = None
    call_begin: str
    argument_begin: str | None = None
    call_end: str
    section_end: str | None = None
    text_between: bool = False
    """Whether the target writes ordinary text, such as a newline, between calls and before the section's end."""


class ProfileSpec(BaseModel):
    """A family of targets, described by token names and texts: data, good for any tokenizer that has the names."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    summary: str = Field("", description="The targets it is for, and what is odd about them.")
    detected_by: tuple[str, ...] = Field((), description="Tokens which together tell this family from the others.")
    stop: tuple[str, ...] = Field((), description="Tokens that end an output.")
    suffixes: dict[Mode, str] = Field(default_factory=dict, description="Text that ends a prompt, by thinking mode.")
    suffixes_after_tool: dict[Mode, str] = Field(
        default_factory=dict,
        description="Text that ends a prompt whose last message is a tool result, where `suffixes` is not added then.",
    )
    reasoning_start: str | None = None
    reasoning_end: str | None = None
    reasoning_channel: str | None = Field(
        None,
        description="Channel that holds reasoning, where no pair of tokens does; laws of reasoning do not read it.",
    )
    tools: ToolTokens | None = None
    prompt_only: tuple[str, ...] = Field((), description="Role and turn tokens which the target itself never writes.")
    bos: str | None = None
    eos: str | None = None
    pad: str | None = None
    unk: str | None = None
    media: tuple[str, ...] = ()
    reserved: str | None = Field(None, description="Regular expression of the names of tokens without a use.")
