"""`judgekit export`: a ledger as a table, for data sets and notebooks."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from judgekit.cli.console import many, out, say


def export(
    ledger: Annotated[Path, typer.Argument(help="A ledger written by judgekit: a file or a folder.")],
    to: Annotated[
        Path,
        typer.Argument(
            help="The file to write: .parquet, .jsonl, .json, .csv or .tsv; - for JSON lines on standard output."
        ),
    ],
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")] = False,
) -> None:
    """Write a ledger's rollouts as a flat table, a row each: texts, reward, status, and each grader's score and reason."""
    from judgekit.data.result_files import write_ledger_table
    from judgekit.errors import DataError
    from judgekit.ledger.output_files import STDOUT, check_targets
    from judgekit.ledger.reader import read_ledger

    check_targets([to], inputs=[ledger], force=force)
    if to == STDOUT:
        out.file = sys.stderr
    reading = read_ledger(ledger)
    entries = [reading.entries[i] for run in reading.runs() for i in run]
    if not entries:
        raise DataError(f"the ledger {ledger} holds no rollouts yet")
    write_ledger_table(to, entries)
    if bare := sum(entry.response is None for entry in entries):
        say(
            f"warning: the ledger holds no texts of {many(bare, 'rollout')}: ledger: {{texts: true}} keeps them"
        )
    if to != STDOUT:
        say(f"{many(len(entries), 'rollout')}  {to}")
