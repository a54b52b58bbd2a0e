"""The target model as this project needs to know it: tokenizer, template, profile and sizes, loaded once.

What belongs here: loading and hashing what the target's directory says, and errors that name what is missing there.
Not here: weights (an engine loads those), laws about tokens (``tokens``).
"""

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from eagle3_assets.config import Target
from eagle3_assets.identity import digest, files_sha256
from eagle3_assets.prompts.render import render_text, rendered_modes
from eagle3_assets.remote_code import CodeFile, RemoteCodeError, code_files
from eagle3_assets.tokens.profile import ProfileError, TargetProfile, resolve_profile

TOKENIZER_FILES = (
    "tokenizer*",
    "*.model",
    "*.tiktoken",
    "vocab*",
    "merges*",
    "special_tokens_map*",
    "added_tokens*",
    "*.py",
)
"""Everything beside a checkpoint that decides ids; code too, which runs where it is trusted."""

BROKEN_TRANSFORMERS = {"5.4.0", "5.5.0"}
"""Releases that decode a Kimi tokenizer's end of reasoning to nothing (huggingface/transformers#45356)."""


_LENGTH_KEYS = ("max_position_embeddings", "n_positions")


class TargetError(Exception):
    """The target cannot be used; the text says which file or setting and what to do."""


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """What the config files of a model say; needs no tokenizer and no weights."""

    vocab_size: int
    context_length: int
    """Prompt and output together, in tokens."""
    stop_token_ids: tuple[int, ...]
    """From config and generation config, sorted."""


@dataclass(frozen=True)
class LoadedTarget:
    """Everything about the target but its weights."""

    settings: Target
    tokenizer: Any
    """A transformers tokenizer."""
    profile: TargetProfile
    vocab_size: int
    """Of the model's config, which counts ids that the tokenizer does not name."""
    context_length: int
    """Prompt and output together, in tokens."""
    stop_token_ids: tuple[int, ...]
    """From config, generation config and tokenizer, sorted."""
    tokenizer_sha256: str

    chat_template: str | None
    """The config's template; without one the tokenizer chooses among its own, by whether there are tools."""

    code: tuple[CodeFile, ...] = ()
    """Python files that came with the target and may run; none where its code is not trusted."""

    @cached_property
    def template_sha256(self) -> str:
        """Hash of the template, or of all that the tokenizer may choose, and the extra arguments."""
        templates = self.chat_template or self.tokenizer.chat_template
        return digest([templates, self.settings.template_arguments], length=64)


@contextmanager
def not_ended_by_code() -> Iterator[None]:
    """Code that came with the target, where it is trusted, may do anything but end this process without a word.

    Raises:
        TargetError: it asked for that.
    """
    try:
        yield
    except SystemExit as end:
        raise ended_by_code(end) from None


def ended_by_code(end: SystemExit) -> TargetError:
    """What it means that something asked for the end of this process: nothing of ours does while it works."""
    code = "" if end.code is None else repr(end.code)
    return TargetError(f"code that came with the target called sys.exit({code}): it is no target then")


@not_ended_by_code()
def load_target(settings: Target) -> LoadedTarget:
    """Loads the tokenizer and reads the configs beside it; offline.

    Raises:
        TargetError: a directory or file is missing or unusable, or the profile does not fit.
    """
    model = Path(settings.model)
    source = Path(settings.tokenizer or settings.model)
    for key, directory in (("target.model", model), ("target.tokenizer", source)):
        if not directory.is_dir():
            raise TargetError(f"{key}: there is no directory {directory}; give a local checkpoint's directory")
    facts = read_model_facts(model)
    code = trusted_code(settings)
    tokenizer = load_tokenizer(source, trust_remote_code=settings.trust_remote_code)
    if settings.chat_template is None and not getattr(tokenizer, "chat_template", None):
        raise TargetError(f"{source}: has no chat template; name one with target.chat_template")
    end = getattr(tokenizer, "eos_token_id", None)
    stops = {*facts.stop_token_ids, *([] if end is None else [end])}
    template = _template(Path(settings.chat_template)) if settings.chat_template else None
    _require_syntax(tokenizer, template, settings, source)
    try:
        profile = resolve_profile(
            tokenizer,
            name=settings.profile,
            overrides=settings.profile_overrides,
            vocab_size=facts.vocab_size,
            stop_token_ids=tuple(sorted(stops)),
            rendered=rendered_modes(tokenizer, chat_template=template, arguments=settings.template_arguments),
        )
    except ProfileError as error:
        raise TargetError(f"target.profile: {error}") from None
    return LoadedTarget(
        settings=settings,
        tokenizer=tokenizer,
        profile=profile,
        vocab_size=facts.vocab_size,
        context_length=facts.context_length,
        stop_token_ids=tuple(sorted(stops)),
        tokenizer_sha256=files_sha256(
            [p for p in source.iterdir() if any(map(p.match, TOKENIZER_FILES)) and p.is_file()]
        ),
        chat_template=template,
        code=code,
    )


def trusted_code(settings: Target) -> tuple[CodeFile, ...]:
    """The Python files of a target that may run: none unless its config trusts them.

    Raises:
        TargetError: a file cannot be read, or code would run that is not beside the target.
    """
    if not settings.trust_remote_code:
        return ()
    try:
        return code_files(Path(settings.model), Path(settings.tokenizer) if settings.tokenizer else None)
    except RemoteCodeError as error:
        raise TargetError(str(error)) from None
    except OSError as error:
        raise TargetError(f"{error.filename}: cannot be read: {error.strerror}") from None


def read_model_facts(model: Path) -> ModelFacts:
    """Reads a model's config files.

    Raises:
        TargetError: a file is missing or unusable.
    """
    config = _read_json(model / "config.json", required=True)
    generation = _read_json(model / "generation_config.json", required=False)
    inner = config.get("text_config")
    text_config = inner if isinstance(inner, dict) else config
    # GPT-2 and its kin call it n_positions.
    length_key = next((key for key in _LENGTH_KEYS if key in text_config), _LENGTH_KEYS[0])
    limits: dict[str, Any] = {key: text_config.get(key) for key in ("vocab_size", length_key)}
    wrong = [f"`{key}` is {value!r}" for key, value in limits.items() if not _is_whole(value) or value < 1]
    if wrong:
        raise TargetError(f"{model / 'config.json'}: {' and '.join(wrong)}; must be a whole number above 0")
    stops = _stop_ids(config, model / "config.json") | _stop_ids(text_config, model / "config.json")
    stops |= _stop_ids(generation, model / "generation_config.json")
    return ModelFacts(limits["vocab_size"], limits[length_key], tuple(sorted(stops)))


@not_ended_by_code()
def load_tokenizer(directory: Path, *, trust_remote_code: bool) -> Any:  # noqa: ANN401 - a transformers tokenizer
    """Loads a tokenizer from its directory; offline.

    Raises:
        TargetError: it cannot be loaded.
    """
    import transformers

    if transformers.__version__ in BROKEN_TRANSFORMERS:
        raise TargetError(
            f"transformers {transformers.__version__} decodes some end-of-reasoning tokens to nothing"
            " (huggingface/transformers#45356); install 5.6 or newer"
        )
    logging.getLogger("transformers.tokenization_utils_base").addFilter(_of_use)
    try:
        return transformers.AutoTokenizer.from_pretrained(
            str(directory), trust_remote_code=trust_remote_code, local_files_only=True
        )
    except Exception as error:  # noqa: BLE001 - transformers raises whatever the files make it raise
        hint = (
            ""
            if trust_remote_code
            else "; a tokenizer that brings its own code needs target.trust_remote_code: true, or --trust-remote-code"
        )
        raise TargetError(f"{directory}: the tokenizer cannot be loaded: {_first_line(error)}{hint}") from None


def _of_use(record: logging.LogRecord) -> bool:
    """Whether a message of transformers' tokenizers is.

    What is too long for the target is refused by name, and long texts are encoded where nothing asks a model for
    anything: a warning of errors that there will not be.
    """
    return not record.getMessage().startswith("Token indices sequence length is longer")


def _require_syntax(tokenizer: Any, template: str | None, settings: Target, source: Path) -> None:  # noqa: ANN401 - a transformers tokenizer
    """Refuses what is no template at all."""
    from jinja2 import TemplateSyntaxError

    try:
        render_text(
            tokenizer,
            [{"role": "user", "content": "Hello"}],
            None,
            thinking=True,
            chat_template=template,
            arguments=settings.template_arguments,
        )
    except TemplateSyntaxError as error:
        where = settings.chat_template or f"the chat template of {source}"
        raise TargetError(f"target.chat_template: {where}, line {error.lineno}: {error.message}") from None
    except Exception:  # noqa: BLE001 - a template is data: what it raises of a conversation, it says of each row
        return


def _template(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise TargetError(f"target.chat_template: there is no file {path}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise TargetError(f"target.chat_template: {path} cannot be read: {error}") from None


def _read_json(path: Path, *, required: bool) -> dict[str, Any]:
    if not path.exists() and not required:
        return {}
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise TargetError(f"{path}: cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise TargetError(f"{path}: is not JSON: {error}") from None
    except RecursionError:
        raise TargetError(f"{path}: is nested too deeply") from None
    if not isinstance(value, dict):
        raise TargetError(f"{path}: must hold a JSON object")
    return value


def _stop_ids(config: dict[str, Any], where: Path) -> set[int]:
    """The ids that a config file names as ends; none where it names none."""
    value = config.get("eos_token_id")
    ids = [] if value is None else value if isinstance(value, list) else [value]
    if not all(_is_whole(item) and item >= 0 for item in ids):
        raise TargetError(f"{where}: `eos_token_id` is {value!r}; must be a token id or a list of them")
    return set(ids)


def _is_whole(value: Any) -> bool:  # noqa: ANN401 - a config's value
    return isinstance(value, int) and not isinstance(value, bool)


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
