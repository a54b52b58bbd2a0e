"""``eagle3-assets audit``: are these files of model outputs the target's own tokens?

What belongs here: the command, and the target that its options name. Not here: judging (``audit``), the tables
(``audit_tables``).
"""

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from eagle3_assets.cli.terminal import ERROR, OWN_PROCESS, console, say
from eagle3_assets.cli.tokenizers import before_loading, vocab_size_beside

if TYPE_CHECKING:
    from eagle3_assets.config import Eagle3Config
    from eagle3_assets.tokens.context import Context

_EXIT_CODES = {"pass": 0, "warn": 0, "fail": 1, "nothing_judged": 2}

_FOREIGN: dict[str, Any] = {"quarantine_limit": 0.0, "coverage": 0.0, "mixed_records": True}
"""How any file is judged: nobody leaves its broken rows out, asked for its missing ones, or wrote all rows alike."""


def audit(
    ctx: typer.Context,
    files: Annotated[
        list[Path],
        typer.Argument(metavar="FILE...", help="JSON lines (packed too: gzip, zstandard), - for stdin, or parquet."),
    ],
    profile: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="The target's family. Alone it suffices for the laws about ids."),
    ] = None,
    tokenizer: Annotated[
        Path | None, typer.Option(metavar="DIR", help="The target's tokenizer: adds the laws that need it, and text.")
    ] = None,
    trust_remote_code: Annotated[
        bool,
        typer.Option("--trust-remote-code", help="Run the Python code that lies beside the tokenizer. Read it first."),
    ] = False,
    config: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A config: its target, and its effects of laws.")
    ] = None,
    every_law: Annotated[bool, typer.Option("--all", help="Also list each law that was not judged.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="For machines: one JSON object a line, one for each FILE.")
    ] = False,
) -> None:
    """Judges files of model outputs, whoever made them, by the laws of token fidelity.

    A row says which sample and which output ids it holds: sample_id (or id) and output_ids (or token_ids), or a
    trainer's input_ids with a loss_mask. What else it says is judged too: prompt_ids, completion_tokens, prompt_tokens,
    finish_reason, meta_info, text, output_token_logprobs, sampling_params, tools. A law that lacks what it needs is not
    judged. A row that cannot be read is refused by line, and the rest goes on.

    Exit code 0: pass or warn. 1: at least one FILE breaks a law. 2: a FILE cannot be used, or nothing of it was judged.
    """
    from eagle3_assets.audit.auditing import audit_file
    from eagle3_assets.audit.report import answer, audit_json, nothing_there, unusable_json
    from eagle3_assets.audit.sources import AuditError
    from eagle3_assets.cli.audit_tables import audit_tables
    from eagle3_assets.files import STDIN

    own_process = ctx.obj == OWN_PROCESS
    context = _context(profile, tokenizer, config, trust_remote_code=trust_remote_code, own_process=own_process)
    code = 0
    for file in files:
        try:
            audited = audit_file(STDIN if file == Path("-") else file, context)
        except AuditError as error:
            code = 2
            if as_json:
                _write_json(unusable_json(file, str(error)))
            say(str(error), style=ERROR)
            continue
        verdict = answer(audited)
        code = max(code, _EXIT_CODES[verdict])
        if as_json:
            _write_json(audit_json(audited))
            if nothing := nothing_there(audited):
                say(nothing)
        else:
            out = console()
            for piece in audit_tables(audited, every_law=every_law):
                out.print(piece)
    if code:
        raise typer.Exit(code)


def _write_json(result: dict[str, object]) -> None:
    sys.stdout.write(f"{json.dumps(result)}\n")


def _context(
    profile: str | None, tokenizer: Path | None, config: Path | None, *, trust_remote_code: bool, own_process: bool
) -> "Context":
    """What the options say of the target."""
    from eagle3_assets.audit.sources import AuditError

    if config is not None:
        if profile is not None or tokenizer is not None:
            raise AuditError("--config names the target already; leave --profile and --tokenizer out")
        return _of_config(config, trust_remote_code=trust_remote_code, own_process=own_process)
    if tokenizer is not None:
        return _of_tokenizer(tokenizer, profile, trust_remote_code=trust_remote_code, own_process=own_process)
    return _of_profile(profile)


def _of_config(path: Path, *, trust_remote_code: bool, own_process: bool) -> "Context":
    from eagle3_assets.config import load_config
    from eagle3_assets.target import load_target
    from eagle3_assets.tokens.context import Context

    loaded = load_config(path)
    settings = loaded.target
    settings = settings.model_copy(update={"trust_remote_code": trust_remote_code or settings.trust_remote_code})
    directory = Path(settings.tokenizer or settings.model)
    before_loading(directory, "the config's target", trust=settings.trust_remote_code, own_process=own_process)
    target = load_target(settings)
    stops = target.profile.stop_ids | _extra_stops(loaded)
    return Context(
        replace(target.profile, stop_ids=stops),
        law_effects=loaded.law_effects,
        tokenizer=target.tokenizer,
        **_FOREIGN,
    )


def _extra_stops(config: "Eagle3Config") -> frozenset[int]:
    """The stop ids that every dataset adds to the target's: which of them a file is of is not known."""
    sets = [frozenset(dataset.sampling.stop_token_ids) for dataset in config.datasets]
    common = frozenset.intersection(*sets)
    if some := frozenset.union(*sets) - common:
        say(
            f"stop ids of some datasets alone, {', '.join(map(str, sorted(some)))}, count in rows that record them in"
            " their sampling_params; for rows that do not, give a config with their dataset alone"
        )
    return common


def _of_tokenizer(directory: Path, profile: str | None, *, trust_remote_code: bool, own_process: bool) -> "Context":
    from eagle3_assets.prompts.render import rendered_modes
    from eagle3_assets.target import TargetError, load_tokenizer
    from eagle3_assets.tokens.context import Context
    from eagle3_assets.tokens.profile import ProfileError, resolve_profile

    if not directory.is_dir():
        raise TargetError(f"--tokenizer: there is no directory {directory}")
    before_loading(directory, "--tokenizer", trust=trust_remote_code, own_process=own_process)
    loaded = load_tokenizer(directory, trust_remote_code=trust_remote_code)
    size = vocab_size_beside(directory)
    if size is None:
        size = max(loaded.get_vocab().values(), default=-1) + 1
        say(f"no config.json lies beside the tokenizer, so the vocabulary is taken to end with its last id, {size - 1}")
    end = getattr(loaded, "eos_token_id", None)
    try:
        found = resolve_profile(
            loaded,
            name=profile or "auto",
            vocab_size=size,
            stop_token_ids=() if end is None else (end,),
            rendered=rendered_modes(loaded),
        )
    except ProfileError as error:
        raise TargetError(f"--profile: {error}") from None
    say(f"profile: {found.name}")
    return Context(found, tokenizer=loaded, **_FOREIGN)


def _of_profile(name: str | None) -> "Context":
    from eagle3_assets.target import TargetError
    from eagle3_assets.tokens.context import Context
    from eagle3_assets.tokens.known_ids import KNOWN_IDS, known_profile
    from eagle3_assets.tokens.profile import ProfileError

    if name is None:
        raise TargetError(
            f"whose tokens should they be? Give --profile NAME ({', '.join(KNOWN_IDS)}), which suffices for the laws"
            " about ids, or the target's tokenizer with --tokenizer DIR, or --config FILE"
        )
    try:
        return Context(known_profile(name), **_FOREIGN)
    except ProfileError as error:
        raise TargetError(f"--profile: {error}") from None
