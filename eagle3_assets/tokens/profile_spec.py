"""How a family of targets is described: by token names and texts, before any tokenizer is at hand.

What belongs here: the form of a description. Not here: the descriptions themselves, their resolution to ids.
"""

from typing import Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, field_validator

Mode = Literal["thinking", "no_thinking"]
"""What a prompt's end leaves to the target: to reason, or to answer at once."""
MODES: tuple[Mode, ...] = get_args(Mode)

Habit = Literal["opens", "never"]
"""What a target does about reasoning of its own accord: it opens it with its first id, or does not reason."""


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
    json_arguments: bool = True
    """Whether the arguments are JSON by themselves, not within other text such as a fence."""


class MessageTokens(BaseModel):
    """Markup of outputs that are made of messages, each ``role? channel name (format)? body text? end``.

    The first message has its beginning and role in the prompt. The name of its channel begins the text after `channel`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    begin: str
    """Begins every message but the first."""
    role: str
    """Text that follows it: whose message the target may write."""
    channel: str
    format: str | None = None
    """May stand between the channel's name and the body."""
    body: str
    ends: dict[str, tuple[str, ...]]
    """Tokens that end a message, each with the names of the channels whose messages it may end."""


class ProfileSpec(BaseModel):
    """A family of targets, described by token names and texts: data, good for any tokenizer that has the names."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    summary: str = Field("", description="The targets it is for, and what is odd about them.")
    detected_by: tuple[str, ...] = Field((), description="Tokens which together tell this family from the others.")
    stop: tuple[str, ...] = Field((), description="Tokens that end an output.")
    stop_optional: tuple[str, ...] = Field(
        (),
        description="Tokens that end an output, too, of those members of the family whose tokenizer has them; where"
        " another fact names one, it is optional there as well.",
    )
    suffixes: dict[Mode, str] = Field(default_factory=dict, description="Text that ends a prompt, by thinking mode.")
    suffixes_after_tool: dict[Mode, str] = Field(
        default_factory=dict,
        description="Text that ends a prompt whose last message is a tool result, where `suffixes` is not added then.",
    )
    reasoning_start: str | None = None
    reasoning_end: str | None = None
    reasoning_habit: dict[Mode, Habit] = Field(
        default_factory=dict,
        description="What the target does in a mode whose suffix neither opens nor closes reasoning; not a certainty,"
        " so that an output without it is remarked on and kept.",
    )
    reasoning_channel: str | None = Field(
        None,
        description="Channel that holds reasoning, where no pair of tokens does; laws of reasoning do not read it.",
    )
    tools: ToolTokens | None = None
    messages: MessageTokens | None = Field(
        None, description="Markup of outputs made of messages; `ends` says which channels each end is for."
    )
    prompt_only: tuple[str, ...] = Field((), description="Role and turn tokens which the target itself never writes.")
    bos: str | None = None
    eos: str | None = None
    pad: str | None = None
    unk: str | None = None
    media: tuple[str, ...] = ()
    reserved: str | None = Field(None, description="Regular expression of the names of tokens without a use.")
    prompt_bos: bool | None = Field(
        None, description="Whether every prompt begins with the BOS token; null: not known."
    )
    turns: dict[str, tuple[str, ...]] = Field(
        default_factory=dict,
        description="Tokens that begin a turn of a prompt, each with the tokens of which one ends it, if any.",
    )
    tool_call_id: str | None = Field(
        None,
        description="What stands before a call's arguments, with {name} for the tool and {number} for a counter. Where"
        " the chat template prints ids of calls in place of names, those of the history are given this form.",
    )
    tool_call_json: bool = Field(
        default=False, description="Whether a call without an argument token is JSON with `name` and `arguments`."
    )

    @field_validator("tool_call_id")
    @classmethod
    def _names_the_tool(cls, form: str | None) -> str | None:
        if form is not None and form.count("{name}") != 1:
            raise ValueError("must hold {name} once")
        return form
