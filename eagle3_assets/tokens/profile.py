"""What laws know of a target: which ids stop, reason, call tools, and how a prompt ends before generation.

What belongs here: a profile as ids, and how it is found from a tokenizer. Not here: the built-in descriptions, how laws
use a profile, loading a tokenizer.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

from pydantic import ValidationError

from eagle3_assets.tokens.builtin_profiles import PROFILES
from eagle3_assets.tokens.profile_spec import MODES, Habit, MessageTokens, Mode, ProfileSpec, ToolTokens


class ProfileError(ValueError):
    """A profile cannot be used with this tokenizer; the text says which token or key and what may be done."""


class Tokenizer(Protocol):
    """The part of a transformers tokenizer that token laws use."""

    @property
    def added_tokens_decoder(self) -> Mapping[int, Any]:
        """Tokens beside the trained vocabulary, by id; each has its text as ``content`` and a flag ``special``."""
        ...

    def get_vocab(self) -> dict[str, int]:
        """Every token's text and id."""
        ...

    def convert_tokens_to_ids(self, tokens: str) -> Any:  # noqa: ANN401 - an int, or None
        """The id of one token's text."""
        ...

    def encode(self, text: str, *, add_special_tokens: bool = ...) -> list[int]:
        """The ids of a text."""
        ...

    def decode(
        self,
        token_ids: list[int],
        *,
        skip_special_tokens: bool = ...,
        clean_up_tokenization_spaces: bool = ...,
        spaces_between_special_tokens: bool = ...,
    ) -> Any:  # noqa: ANN401 - a str
        """The text of ids."""
        ...


@dataclass(frozen=True)
class ToolIds:
    """Ids of tool-call markup; None where the target has no such token."""

    section_begin: int | None
    call_begin: int
    argument_begin: int | None
    call_end: int
    section_end: int | None
    text_between: bool = False
    """Whether ordinary ids may stand between calls and before the section's end."""
    json_arguments: bool = True
    """Whether the arguments are JSON by themselves."""

    @property
    def opening(self) -> int:
        """The id that opens tool markup: the section's where there are sections, else the call's."""
        return self.call_begin if self.section_begin is None else self.section_begin

    @property
    def closing(self) -> int:
        """The id that closes tool markup."""
        return self.call_end if self.section_end is None else self.section_end

    @property
    def all(self) -> tuple[int, ...]:
        """Every id of the markup, in the order of the grammar."""
        ids = (self.section_begin, self.call_begin, self.argument_begin, self.call_end, self.section_end)
        return tuple(i for i in ids if i is not None)


@dataclass(frozen=True)
class MessageIds:
    """Ids of the markup of messages; see :class:`MessageTokens`."""

    begin: int
    channel: int
    format: int | None
    body: int
    role: tuple[int, ...]
    ends: Mapping[int, frozenset[str]]
    """Ids that end a message, each with the names of the channels that it is for."""
    channels: Mapping[str, tuple[int, ...]]
    """Each channel's name as ids."""

    @property
    def all(self) -> tuple[int, ...]:
        """Every single id of the markup."""
        return (self.begin, self.channel, *([] if self.format is None else [self.format]), self.body, *self.ends)


@dataclass(frozen=True)
class TargetProfile:
    """One target's facts as ids. What is None or empty is not described: laws about it are not judged."""

    name: str
    vocab_size: int
    """Of the model's config: the number of ids that the target can emit, often more than the tokenizer has tokens."""
    stop_ids: frozenset[int]
    suffixes: Mapping[Mode, tuple[int, ...]] = field(default_factory=dict)
    suffix_texts: Mapping[Mode, str] = field(default_factory=dict)
    suffixes_after_tool: Mapping[Mode, tuple[int, ...]] = field(default_factory=dict)
    """Where a prompt that ends with a tool result gets no suffix: the ids it ends with instead."""
    reasoning_start: int | None = None
    reasoning_end: int | None = None
    reasoning_habit: Mapping[Mode, Habit] = field(default_factory=dict)
    """What the target does in a mode whose suffix neither opens nor closes reasoning."""
    reasoning_channel: str | None = None
    """Name of the channel that holds reasoning, where no pair of ids does."""
    tools: ToolIds | None = None
    messages: MessageIds | None = None
    prompt_only_ids: frozenset[int] = frozenset()
    bos: int | None = None
    eos: int | None = None
    pad: int | None = None
    unk: int | None = None
    media_ids: frozenset[int] = frozenset()
    reserved_ids: frozenset[int] = frozenset()
    prompt_bos: bool | None = None
    """Whether every prompt begins with the BOS id, and holds no other; False where it holds none at all."""
    turns: Mapping[int, frozenset[int]] = field(default_factory=dict)
    """Ids that begin a turn of a prompt, each with the ids of which one ends it; an empty set where none does."""
    tool_call_id: str | None = None
    """Form of what stands before a call's arguments: ``functions.{name}:{number}``."""
    tool_call_json: bool = False
    """Whether what stands in a call without an argument id is JSON with ``name`` and ``arguments``."""
    tokens: Mapping[int, str] = field(default_factory=dict)
    """Text of every structural id above."""
    token_count: int | None = None
    """Ids up to the tokenizer's last token; None where that is not known. What follows up to ``vocab_size`` pads the
    embedding: no text has such an id, and the target was never trained on it. An id in a gap before it is not taken for
    one of these: a vocabulary is listed by text, so of two ids with one text it lacks one that the target may write."""

    @cached_property
    def end_of_tokens(self) -> int:
        """The first id that no token has; ``vocab_size`` where that is not known to be less."""
        return self.vocab_size if self.token_count is None else self.token_count

    @cached_property
    def structural_ids(self) -> frozenset[int]:
        """Ids with a meaning of their own, reserved ones aside."""
        return frozenset(self.tokens) - self.reserved_ids | self.stop_ids

    @cached_property
    def tool_call_pattern(self) -> re.Pattern[str] | None:
        """:attr:`tool_call_id` with its groups ``name`` and, where it has a counter, ``number``."""
        if self.tool_call_id is None:
            return None
        form = re.escape(self.tool_call_id).replace(r"\{name\}", r"(?P<name>[\w.-]+)", 1)
        return re.compile(form.replace(r"\{number\}", r"(?P<number>[0-9]{1,9})", 1))

    def label(self, token_id: int) -> str:
        """An id as people read it: ``</think> (163607)``, or ``id 17`` for an ordinary one."""
        text = self.tokens.get(token_id)
        return f"{text} ({token_id})" if text is not None else f"id {token_id}"

    def labels(self, ids: Iterable[int]) -> str:
        """Several ids as people read them, in order of their ids."""
        return ", ".join(self.label(i) for i in sorted(ids)) or "none"


def resolve_profile(
    tokenizer: Tokenizer,
    *,
    name: str = "auto",
    overrides: Mapping[str, Any] | None = None,
    vocab_size: int,
    stop_token_ids: Iterable[int] = (),
    rendered: Mapping[Mode, str] | None = None,
) -> TargetProfile:
    """Finds a target's ids.

    Args:
        tokenizer: any transformers tokenizer.
        name: a built-in profile; ``auto`` takes one whose telling tokens the vocabulary has. Of several the one whose
            suffixes end what is rendered, thinking first; of those that are equal in this, the first.
        overrides: fields of :class:`ProfileSpec` that replace the built-in ones.
        vocab_size: of the model's config.
        stop_token_ids: the stop set that the engine names; joined with the profile's own stop tokens.
        rendered: a conversation of one user message as the target's chat template renders it, by thinking mode.

    Raises:
        ProfileError: an unknown name or override, a token that the vocabulary lacks, an id beyond ``vocab_size``.
    """
    vocabulary = tokenizer.get_vocab()
    spec = _overridden(_chosen(vocabulary, name, rendered or {}), overrides or {})
    return _Resolution(spec, tokenizer, vocabulary, vocab_size).profile(frozenset(stop_token_ids))


def check_profile(name: str, overrides: Mapping[str, Any]) -> str | None:
    """What is wrong with a profile's name or overrides whatever the tokenizer; None where nothing is."""
    try:
        spec = PROFILES["plain"] if name == "auto" else _named(name)
        _overridden(spec, overrides)
    except ProfileError as error:
        return str(error)
    return None


def _named(name: str) -> ProfileSpec:
    if name not in PROFILES:
        raise ProfileError(f"there is no profile {name!r}; built in are: auto, {', '.join(PROFILES)}")
    return PROFILES[name]


def _chosen(vocabulary: Mapping[str, int], name: str, rendered: Mapping[Mode, str]) -> ProfileSpec:
    if name != "auto":
        return _named(name)
    fitting = [s for s in PROFILES.values() if s.detected_by and all(token in vocabulary for token in s.detected_by)]
    if fitting:
        # Members of a family share their tokens and differ in the template's end. Of equals max takes the first.
        return max(fitting, key=lambda spec: _agreement(spec, rendered))
    known = "; ".join(f"{s.name} by {' '.join(s.detected_by)}" for s in PROFILES.values() if s.detected_by)
    raise ProfileError(
        f"no built-in profile fits this tokenizer's tokens ({known}); name the nearest one as target.profile and"
        " correct"
        " it with target.profile_overrides, or take `plain`, which describes nothing but the stop set"
    )


def _agreement(spec: ProfileSpec, rendered: Mapping[Mode, str]) -> tuple[bool, ...]:
    """For each mode, whether the rendered prompt ends as the profile says."""
    return tuple(rendered.get(mode, "").endswith(spec.suffixes.get(mode, "\0")) for mode in MODES)


def _overridden(spec: ProfileSpec, overrides: Mapping[str, Any]) -> ProfileSpec:
    allowed = [key for key in ProfileSpec.model_fields if key not in ("name", "summary", "detected_by")]
    unknown = sorted(set(overrides) - set(allowed))
    if unknown:
        raise ProfileError(
            f"profile override {unknown[0]!r} is no fact of a profile; allowed are: {', '.join(allowed)}"
        )
    try:
        return ProfileSpec.model_validate(spec.model_dump() | dict(overrides))
    except ValidationError as error:
        fault = error.errors()[0]
        place = ".".join(str(part) for part in fault["loc"])
        raise ProfileError(f"profile override {place!r}: {fault['msg']}") from None


class _Resolution:
    """One spec meeting one tokenizer."""

    def __init__(self, spec: ProfileSpec, tokenizer: Tokenizer, vocabulary: Mapping[str, int], vocab_size: int) -> None:
        self.spec, self.tokenizer, self.vocabulary, self.vocab_size = spec, tokenizer, vocabulary, vocab_size
        self.tokens: dict[int, str] = {}

    def profile(self, stop_token_ids: frozenset[int]) -> TargetProfile:
        spec = self.spec
        beyond = sorted(i for i in stop_token_ids if not 0 <= i < self.vocab_size)
        if beyond:
            raise ProfileError(f"stop id {beyond[0]} is outside the model's vocabulary of {self.vocab_size}")
        names = {token_id: text for text, token_id in self.vocabulary.items()} if stop_token_ids else {}
        self.tokens.update((i, names[i]) for i in stop_token_ids if i in names)
        return TargetProfile(
            name=spec.name,
            vocab_size=self.vocab_size,
            stop_ids=stop_token_ids | self._required_set((*spec.stop, *spec.stop_optional), "stop"),
            reasoning_start=self._required(spec.reasoning_start, "reasoning_start"),
            reasoning_end=self._required(spec.reasoning_end, "reasoning_end"),
            tools=self._tools(spec.tools),
            messages=self._messages(spec.messages),
            reasoning_habit=spec.reasoning_habit,
            reasoning_channel=spec.reasoning_channel,
            suffixes={mode: self._suffix(mode, text) for mode, text in spec.suffixes.items()},
            suffix_texts=spec.suffixes,
            suffixes_after_tool={mode: self._suffix(mode, text) for mode, text in spec.suffixes_after_tool.items()},
            prompt_only_ids=self._required_set(spec.prompt_only, "prompt_only"),
            bos=self._optional(spec.bos),
            eos=self._optional(spec.eos),
            pad=self._optional(spec.pad),
            unk=self._optional(spec.unk),
            media_ids=frozenset(i for t in spec.media if (i := self._optional(t)) is not None),
            turns=self._turns(spec.turns),
            prompt_bos=spec.prompt_bos,
            tool_call_id=spec.tool_call_id,
            tool_call_json=spec.tool_call_json,
            reserved_ids=self._reserved(spec.reserved),
            tokens=self.tokens,
            token_count=self._token_count(),
        )

    def _token_count(self) -> int | None:
        ids = {*self.vocabulary.values(), *self.tokenizer.added_tokens_decoder}
        return min(max(ids) + 1, self.vocab_size) if ids else None

    def _optional(self, token: str | None) -> int | None:
        token_id = self.vocabulary.get(token) if token is not None else None
        if token is None or token_id is None:
            return None
        if token_id >= self.vocab_size:
            raise ProfileError(f"{token} has id {token_id}, outside the model's vocabulary of {self.vocab_size}")
        self.tokens[token_id] = token
        return token_id

    def _required(self, token: str | None, key: str) -> int | None:
        token_id = self._optional(token)
        if token is not None and token_id is None and token not in self.spec.stop_optional:
            raise ProfileError(
                f"profile {self.spec.name!r}: the tokenizer has no token {token!r} ({key}); choose another"
                " target.profile"
                f" or correct it with target.profile_overrides.{key}"
            )
        return token_id

    def _required_set(self, tokens: Iterable[str], key: str) -> frozenset[int]:
        return frozenset(i for t in tokens if (i := self._required(t, key)) is not None)

    def _tools(self, tools: ToolTokens | None) -> ToolIds | None:
        if tools is None:
            return None
        names = tools.model_dump(exclude={"text_between", "json_arguments"})
        ids = {part: self._required(token, "tools") for part, token in names.items()}
        return ToolIds(**ids, text_between=tools.text_between, json_arguments=tools.json_arguments)  # type: ignore[arg-type] # call begin and end are required by the model

    def _messages(self, messages: MessageTokens | None) -> MessageIds | None:
        if messages is None:
            return None
        single = messages.model_dump(include={"begin", "channel", "format", "body"})
        ids = {part: self._required(token, "messages") for part, token in single.items()}
        ends = ((self._required(token, "messages"), names) for token, names in messages.ends.items())
        channels = dict.fromkeys(name for names in messages.ends.values() for name in names)
        return MessageIds(
            **ids,  # type: ignore[arg-type] # begin, channel and body are required by the model
            role=self._ids(messages.role),
            ends={token_id: frozenset(names) for token_id, names in ends if token_id is not None},
            channels={name: self._ids(name) for name in channels},
        )

    def _ids(self, text: str) -> tuple[int, ...]:
        return tuple(self.tokenizer.encode(text, add_special_tokens=False))

    def _turns(self, turns: Mapping[str, Iterable[str]]) -> dict[int, frozenset[int]]:
        begins = ((self._required(begin, "turns"), ends) for begin, ends in turns.items())
        return {begin: self._required_set(ends, "turns") for begin, ends in begins if begin is not None}

    def _reserved(self, pattern: str | None) -> frozenset[int]:
        if pattern is None:
            return frozenset()
        try:
            matches = re.compile(pattern).fullmatch
        except re.error as error:
            raise ProfileError(f"profile override 'reserved' is no regular expression: {error}") from None
        used = frozenset(self.tokens)
        found = {i: t for t, i in self.vocabulary.items() if i < self.vocab_size and i not in used and matches(t)}
        self.tokens |= found
        return frozenset(found)

    def _suffix(self, mode: Mode, text: str) -> tuple[int, ...]:
        ids = self._ids(text)
        if any(i >= self.vocab_size for i in ids):
            raise ProfileError(
                f"the {mode} suffix {text!r} has an id outside the model's vocabulary of {self.vocab_size}"
            )
        return ids
