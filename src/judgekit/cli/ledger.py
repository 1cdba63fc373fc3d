"""`judgekit report` and `judgekit replay`: what can be made of a ledger."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from judgekit.cli.console import say


def report(
    ledger: Annotated[Path, typer.Argument(help="A ledger written by judgekit.")],
    to: Annotated[
        Path | None, typer.Option("--out", help="The HTML file; by default beside the ledger.")
    ] = None,
    rows: Annotated[int, typer.Option(help="Show N rollouts in full, failures first.", min=0)] = 300,
) -> None:
    """Write a self-contained HTML page about a ledger."""
    from judgekit.ledger.report import write_report

    target = to or ledger.with_suffix(".html")
    write_report(ledger, target, rows=rows)
    say(f"report  {target}  (open it in a browser)")


def replay(
    ledger: Annotated[Path, typer.Argument(help="A ledger written by judgekit.")],
    to: Annotated[Path, typer.Option("--out", help="The file for the new rewards (JSONL).")],
    config: Annotated[
        Path | None,
        typer.Option("--reward", help="A reward.yaml; only its sections reward and runner are used."),
    ] = None,
) -> None:
    """Recompute the rewards of a ledger without calling a grader."""
    from judgekit.config import load_config
    from judgekit.ledger.jsonl import json_line, whole_file
    from judgekit.reward.spec import parse
    from judgekit.run.replay import replay as recompute

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
    say(f"rewards  {to}")
