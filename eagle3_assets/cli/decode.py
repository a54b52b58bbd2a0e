"""``eagle3-assets decode``: what the target said, for figures that say fine and intuition that says otherwise.

What belongs here: the command and the decoder that it takes. Not here: choosing samples (``sample_sources``), the
form in which they are shown (``decoding``).
"""

import sys
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from eagle3_assets.cli.page import HtmlOption, write_page_of
from eagle3_assets.cli.terminal import OWN_PROCESS, WARNING, say, writer
from eagle3_assets.cli.tokenizers import before_loading, vocab_size_beside

if TYPE_CHECKING:
    from eagle3_assets.config import Target
    from eagle3_assets.decoding import Decoder
    from eagle3_assets.generation.sealed import Sealed
    from eagle3_assets.project import Project
    from eagle3_assets.target import LoadedTarget


SpreadOption = Annotated[
    bool, typer.Option("--spread", help="Not the first ones, but spread over the lengths from shortest to longest.")
]
IdsOption = Annotated[bool, typer.Option("--ids", help="A row for each token: index, id, text.")]


def decode(
    ctx: typer.Context,
    source: Annotated[
        str,
        typer.Argument(
            metavar="PARTITION|FILE", help="A partition's key, or a file of raw responses (*.jsonl), - for stdin."
        ),
    ],
    count: Annotated[
        int | None,
        typer.Option("-n", min=1, metavar="N", help="How many samples; with --id, all of those.", show_default="5"),
    ] = None,
    spread: SpreadOption = False,
    sample_ids: Annotated[
        list[str] | None,
        typer.Option("--id", help="This sample; may be given several times. Shown in the source's order."),
    ] = None,
    ids: IdsOption = False,
    prompt: Annotated[bool, typer.Option("--prompt", help="The prompt before the output.")] = False,
    html: HtmlOption = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="A line of JSON for each sample; docs/looking.md says what is in it.")
    ] = False,
    tokenizer: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Tokenizer to decode with, instead of the target's in the config."),
    ] = None,
    trust_remote_code: Annotated[
        bool,
        typer.Option("--trust-remote-code", help="Run the Python code that lies beside the tokenizer. Read it first."),
    ] = False,
    config: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The config; without it $EAGLE3_CONFIG, or the demo's.")
    ] = None,
) -> None:
    """Shows what the target said, decoded from its ids: every token, structural ones included.

    The first line of a sample names it, its number of tokens, the index of its end-of-reasoning token (-1: none), and
    whether it was cut off.
    Control characters in model text are made visible; ids that the tokenizer does not know are shown as <id 999999>.

    Of a FILE the first -n samples are read and no more: what comes after them is not checked, and a line on stderr says
    so. With --spread or --id the whole file is read.

    The page of --html shows the samples of decoded_previews, and those asked for by --id before them. Whether a law
    refuses the partition is said, and no matter of the exit code: stats judges.

    Exit code 0: all that was read is fine. 1: lines of the FILE are broken or hold a sample again; each is named on
    stderr, and what can be decoded is shown. 2: nothing to show, or a sample asked for by --id is not there.
    """
    from eagle3_assets.config import load_config
    from eagle3_assets.decoding import Decoder, sample_json, sample_lines
    from eagle3_assets.files import STDIN
    from eagle3_assets.project import Project
    from eagle3_assets.sample_sources import Choice, FileSource, PartitionSource, SampleSource, SourceError

    if spread and sample_ids:
        raise SourceError("--spread and --id exclude each other")
    if html is not None and (count or spread or ids or prompt or as_json or tokenizer):
        raise SourceError("--html goes with --id and --config alone: its page has ids and prompts of its own choice")
    project = cache(lambda: Project(load_config(config)))
    sealed = None if _names_file(source) else _sealed(project(), source)
    if html is not None and not sealed:
        raise SourceError(f"{source}: --html shows a partition; for a file there is --json, and eagle3-assets audit")
    samples: SampleSource
    samples = PartitionSource(sealed) if sealed else FileSource(STDIN if source == "-" else Path(source), report=say)
    own_process = ctx.obj == OWN_PROCESS
    if tokenizer:
        decoder = _directory_decoder(tokenizer, trust_remote_code=trust_remote_code, own_process=own_process)
    else:
        settings = project().config.target
        settings = settings.model_copy(update={"trust_remote_code": trust_remote_code or settings.trust_remote_code})
        target = loaded_target(settings, own_process=own_process)
        decoder = Decoder(target.tokenizer, target.profile)
        if sealed:
            _say_if_of_another_tokenizer(sealed, target)
        if html is not None:
            write_page_of(project(), source, target, html, sample_ids or ())
            return
    if decoder.reasoning_end_id is None and decoder.profile:
        say(f"the profile {decoder.profile.name} names no end of reasoning, so every sample says response@-1")
    write = writer(sys.stdout)
    for sample in samples.samples(Choice(count or 5, spread, tuple(sample_ids or ()))):
        if as_json:
            typer.echo(sample_json(sample, decoder, ids=ids, prompt=prompt))
            continue
        for piece in sample_lines(sample, decoder, ids=ids, prompt=prompt):
            write(piece)
    if samples.faults:
        raise typer.Exit(1)


def _names_file(source: str) -> bool:
    """Whether a source is a file: it is there, or called like one. A directory may share a partition's name."""
    path = Path(source)
    return source == "-" or source.endswith(".jsonl") or (path.exists() and not path.is_dir())


def _sealed(project: "Project", key: str) -> "Sealed":
    from eagle3_assets.partitions import UnknownPartitionError
    from eagle3_assets.storage.files import sealed_generations

    try:
        partition = project.partition(key)
    except UnknownPartitionError as error:
        raise UnknownPartitionError(f"there is no file {key!r}, and {error}") from None
    return sealed_generations(project.layout, partition.key)


def loaded_target(settings: "Target", *, own_process: bool) -> "LoadedTarget":
    """The config's target, after saying which tokenizer that is and whose code runs.

    Raises:
        TargetError: it cannot be used.
    """
    from eagle3_assets.target import load_target

    directory = Path(settings.tokenizer or settings.model)
    before_loading(directory, "the config's target", trust=settings.trust_remote_code, own_process=own_process)
    return load_target(settings)


def _directory_decoder(directory: Path, *, trust_remote_code: bool, own_process: bool) -> "Decoder":
    """A decoder from nothing but a tokenizer's directory."""
    from eagle3_assets.decoding import Decoder
    from eagle3_assets.prompts.render import rendered_modes
    from eagle3_assets.target import TargetError, load_tokenizer
    from eagle3_assets.tokens.profile import ProfileError, resolve_profile

    if not directory.is_dir():
        raise TargetError(f"--tokenizer: there is no directory {directory}")
    before_loading(directory, "--tokenizer", trust=trust_remote_code, own_process=own_process)
    tokenizer = load_tokenizer(directory, trust_remote_code=trust_remote_code)
    vocab_size = vocab_size_beside(directory) or max(tokenizer.get_vocab().values(), default=-1) + 1
    try:
        profile = resolve_profile(tokenizer, vocab_size=vocab_size, rendered=rendered_modes(tokenizer))
    except ProfileError as error:
        say(f"no end of reasoning is known, so every sample says response@-1: {error}")
        profile = None
    return Decoder(tokenizer, profile)


def _say_if_of_another_tokenizer(sealed: "Sealed", target: "LoadedTarget") -> None:
    from eagle3_assets.generation.errors import SealedError
    from eagle3_assets.generation.sealed import read_identity

    try:
        identity = read_identity(sealed.directory, sealed.pointer.fingerprint)
    except SealedError as error:
        say(f"whether this tokenizer is the right one is not known: {error}", style=WARNING)
        return
    if identity.tokenizer != target.tokenizer_sha256:
        say(
            "WARNING: these outputs were generated with other tokenizer files than the config's target has now, so the"
            " text may be wrong; --tokenizer DIR takes another tokenizer",
            style=WARNING,
        )
