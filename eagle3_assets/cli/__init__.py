"""The terminal face: ``eagle3-assets``.

What belongs here: commands, their options, what goes to stdout and stderr, exit codes. Not here: the work itself, which
the modules do that commands import. They import inside functions: a command shall not wait for what others need.

Exit codes of every command: 0, all is well; 1, done, but something is wrong with the data; 2, nothing could be done.
"""

import typer

from eagle3_assets.cli.audit import audit
from eagle3_assets.cli.check_config import check_config
from eagle3_assets.cli.decode import decode
from eagle3_assets.cli.export import export, verify
from eagle3_assets.cli.metrics import metrics
from eagle3_assets.cli.partitions import datasets, demo, materialize, stats, ui
from eagle3_assets.cli.plan import plan
from eagle3_assets.cli.prompt import prompt
from eagle3_assets.cli.replay import replay
from eagle3_assets.cli.summary import summary
from eagle3_assets.cli.terminal import OWN_PROCESS, Commands
from eagle3_assets.cli.vocabulary import vocabulary
from eagle3_assets.cli.whereabouts import whereabouts

app = typer.Typer(
    cls=Commands,
    name="eagle3-assets",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_show_locals=False,
)


@app.callback()
def _eagle3_assets() -> None:
    """Training data for EAGLE-3 drafters: made of the target's own tokens, and proven to be."""


COMMANDS = (
    check_config,
    plan,
    materialize,
    replay,
    export,
    verify,
    vocabulary,
    whereabouts,
    prompt,
    decode,
    audit,
    stats,
    summary,
    datasets,
    metrics,
    ui,
    demo,
)
for command in COMMANDS:
    app.command()(command)


def main() -> None:
    """The console script."""
    app(prog_name="eagle3-assets", obj=OWN_PROCESS)
