"""The `judgekit` command.

    judgekit grade reward.yaml rollouts.jsonl --out graded.jsonl    grade a file of rollouts
    judgekit report ledger.jsonl                                    an HTML page about what was graded
    judgekit serve --model Qwen/Qwen2.5-1.5B-Instruct               judges for other programs
    judgekit serve-rewards reward.yaml                              rewards for trainers elsewhere, over HTTP

Every command exits with 0 on success, 1 where it failed (nothing could be scored, a judge is down), 2 where it was
called wrongly (a file, an argument), 130 after Ctrl-C and 143 after SIGTERM.
"""

from __future__ import annotations

import errno
import logging
import os
import sys
from typing import Annotated

import typer

from judgekit.cli import (
    attack,
    audit,
    certify,
    compare,
    export,
    grade,
    graders,
    init,
    lint,
    replay,
    report,
    serve,
    serve_rewards,
)
from judgekit.cli.console import fail
from judgekit.errors import ConfigError, DataError, JudgekitError
from judgekit.version import __version__

logger = logging.getLogger("judgekit")

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit codes: 0 success, 1 failed, 2 wrong arguments or files, 130 Ctrl-C, 143 SIGTERM.",
)
app.command()(init.init)
app.command()(grade.grade)
app.command()(attack.attack)
app.command()(report.report)
app.command()(report.view)
app.command()(compare.compare)
app.command()(certify.certify)
app.command()(audit.audit)
app.command()(replay.replay)
app.command()(export.export)
app.command()(graders.graders)
app.command()(lint.lint)
app.command()(lint.schema)
app.command()(serve.serve)
app.command()(serve.check)
app.command()(serve_rewards.serve_rewards)


def main() -> None:
    """Run the command; an error of judgekit is one sentence on stderr and an exit code."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # closed streams are None
            stream.reconfigure(errors="replace")  # an ASCII terminal shows "?" for "…"
    try:
        code = app(prog_name="judgekit", standalone_mode=False)
        if sys.stdout is not None:
            sys.stdout.flush()
    except JudgekitError as error:
        fail(error, code=2 if isinstance(error, ConfigError | DataError) else 1)
    except OSError as error:
        if error.filename is not None or error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EIO):
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # for Python's own flush at the end
        fail(f"cannot write to standard output: {error.strerror}", code=1)
    except Exception as error:
        usage = getattr(error, "format_message", None)  # of the command line's own errors only
        if usage is None:
            raise
        context = getattr(error, "ctx", None)
        if context is not None and context.command_path == "judgekit" and len(sys.argv) < 2:
            print(context.get_help(), file=sys.stderr)  # noqa: T201
            sys.exit(2)
        command = "judgekit" if context is None else context.command_path
        fail(f"{usage().rstrip('.')} ({command} -h shows what it takes)", code=2)
    sys.exit(code or 0)


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
    if other := _unrelated():
        logger.warning(
            "the distribution judgekit %s is installed, another project: the two overwrite each other's files. "
            "Remove it (pip uninstall judgekit) and install judgekit-rl again",
            other,
        )


def _unrelated() -> str | None:
    """The version of the distribution that has our package's name on the index; None if it is not installed."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("judgekit")
    except PackageNotFoundError:
        return None
