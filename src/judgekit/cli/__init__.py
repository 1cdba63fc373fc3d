"""The `judgekit` command.

    judgekit grade reward.yaml rollouts.jsonl --out graded.jsonl    grade a file of rollouts
    judgekit report ledger.jsonl                                    an HTML page about what was graded
    judgekit serve --model Qwen/Qwen2.5-1.5B-Instruct               judges for other programs

Every command exits with 0 on success, 1 where it failed (nothing could be scored, a judge is down), 2 where it was
called wrongly (a file, an argument), 130 after Ctrl-C and 143 after SIGTERM.
"""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from judgekit.cli import config, grade, ledger, serve
from judgekit.cli.console import fail
from judgekit.errors import ConfigError, DataError, JudgekitError
from judgekit.version import __version__

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit codes: 0 success, 1 failed, 2 wrong arguments or files, 130 Ctrl-C, 143 SIGTERM.",
)
app.command()(grade.grade)
app.command()(ledger.report)
app.command()(ledger.replay)
app.command()(config.lint)
app.command()(config.schema)
app.command()(serve.serve)
app.command()(serve.check)


def main() -> None:
    """Run the command; an error of judgekit is one sentence on stderr and an exit code."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # closed streams are None
            stream.reconfigure(errors="replace")  # an ASCII terminal shows "?" for "…"
    try:
        app()
    except JudgekitError as error:
        fail(error, code=2 if isinstance(error, ConfigError | DataError) else 1)


def _version(show: bool) -> None:
    if show:
        typer.echo(f"judgekit {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Rewards for RL post-training, from rules and frozen local judges."""
    from judgekit.cli import logs

    logs.set_up()
