"""`judgekit report` and `judgekit replay`: what can be made of a ledger."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from judgekit.cli.console import out, say


def report(
    ledger: Annotated[Path, typer.Argument(help="A ledger written by judgekit.")],
    to: Annotated[
        Path | None, typer.Option("--out", help="The HTML file; by default beside the ledger.")
    ] = None,
    rows: Annotated[int, typer.Option(help="Show N rollouts in full, failures first.", min=0)] = 300,
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")] = False,
) -> None:
    """Write a self-contained HTML page about a ledger."""
    from judgekit.ledger.files import check_targets
    from judgekit.ledger.report import write_report

    target = to or ledger.with_suffix(".html")
    check_targets([target], inputs=[ledger], force=force)
    write_report(ledger, target, rows=rows)
    say(f"report  {target}  (open it in a browser)")


def replay(
    ledger: Annotated[Path, typer.Argument(help="A ledger written by judgekit.")],
    to: Annotated[Path, typer.Option("--out", help="The file for the new rewards (JSONL).")],
    config: Annotated[
        Path | None,
        typer.Option("--reward", help="A reward.yaml; only its sections reward and runner are used."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")] = False,
) -> None:
    """Recompute the rewards of a ledger without calling a grader."""
    from judgekit.config import load_config
    from judgekit.ledger.files import STDOUT, check_targets, whole_file
    from judgekit.ledger.jsonl import json_line
    from judgekit.reward.spec import parse
    from judgekit.run.replay import replay as recompute

    check_targets([to], inputs=[ledger, config], force=force)
    if to == STDOUT:
        out.file = sys.stderr
    options: dict[str, Any] = {}
    if config is not None:
        loaded = load_config(config)
        if loaded.reward is not None:
            options["reward"] = parse(loaded.reward)
        # what the file leaves out stays as the ledger has it
        options |= {
            key: loaded.runner[key] for key in ("transform", "missing_reward") if key in loaded.runner
        }
    found = recompute(ledger, **options)
    with whole_file(to) as file:
        for entry, result in zip(found.entries, found.results, strict=True):
            row = {
                "run": entry.run,
                "index": entry.index,
                "id": entry.id,
                "group": entry.group,
                "was": entry.reward,
                "reward": result.reward,
                "status": result.status,
                "contributions": result.contributions,
            }
            file.write(json_line(row))
    changed = sum(e.reward != r.reward for e, r in zip(found.entries, found.results, strict=True))
    say(f"{len(found.results)} rewards recomputed, {changed} changed")
    if to != STDOUT:
        say(f"rewards  {to}")
