"""`judgekit certify`: how far a grader can be trusted, by labels of rollouts that it has graded."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from judgekit.cli.console import many, out, say

if TYPE_CHECKING:
    from judgekit.evidence.certificate import Certificate
    from judgekit.evidence.shares import Share


def certify(
    ledger: Annotated[Path, typer.Argument(help="A ledger written by judgekit: a file or a folder.")],
    grader: Annotated[str, typer.Option(help="The grader of the ledger to certify.")],
    labels: Annotated[
        Path | None,
        typer.Option(
            help='JSON lines such as {"id": "q7-3", "label": 1}: which rollouts are right. By default the marks set in `judgekit view`.'
        ),
    ] = None,
    to: Annotated[
        Path | None,
        typer.Option(
            "--out",
            help="Write the certificate to this file: Markdown if it ends with .md, else JSON; - for standard output.",
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")] = False,
) -> None:
    """Say how often a grader is right, with intervals by prompt, and between which scores it cannot be trusted."""
    from judgekit.errors import ConfigError, DataError, MissingExtra
    from judgekit.ledger.jsonl import json_line
    from judgekit.ledger.output_files import STDOUT, check_targets, whole_file
    from judgekit.ledger.reader import read_ledger
    from judgekit.ledger.standing import Standing
    from judgekit.report.marks import marks_path, read_marks

    try:
        from judgekit.evidence.certificate import certify as certified
        from judgekit.evidence.certificate_page import page
        from judgekit.evidence.gold_labels import WAYS, of_marks, read_labels
    except ImportError:
        raise MissingExtra("judgekit certify needs numpy and scipy", "evidence") from None
    if to is not None:
        check_targets([to], inputs=[ledger, labels or marks_path(ledger)], force=force)
    if to == STDOUT:
        out.file = sys.stderr
    reading = read_ledger(ledger)
    if not reading.entries:
        raise DataError(f"the ledger {ledger} holds no rollouts yet")
    if labels is not None:
        gold = read_labels(labels, reading.entries)
    else:
        places: dict[tuple[str, int], tuple[str, int]] = {}
        if reading.replaced:
            whole = read_ledger(ledger, replaced=True).entries
            names = [(entry.run, entry.index) for entry in whole]
            places = {names[at]: names[other] for at, other in Standing.of(whole).successors().items()}
        marks = {key: mark.mark == "good" for key, mark in read_marks(ledger, places).items() if mark.mark}
        gold = of_marks(marks, reading.entries)
        if len(gold) < len(marks):
            say(
                f"{len(marks) - len(gold)} of {len(marks)} marks are of rollouts that this ledger does not hold (any more)"
            )
        if not gold:
            raise ConfigError(
                f"there are no marks of {ledger}: set some in `judgekit view {ledger}`, or give --labels; {WAYS}"
            )
    found = certified(reading, gold, grader)
    _print(found)
    if to is not None:
        with whole_file(to) as file:
            file.write(page(found) if to.suffix == ".md" else json_line(found))
    if to not in (None, STDOUT):
        say(f"certificate  {to}")
    if found.refused:
        raise typer.Exit(1)


def _print(found: Certificate) -> None:
    counts = found.counts
    say(
        f"{found.grader}: {many(counts['scored'], 'labelled score')} on {many(counts['prompts'], 'prompt')}, "
        f"{counts['right']} right and {counts['wrong']} wrong; it calls right what scores {found.cut:g} or more"
    )
    for label, kinds in found.missing.items():
        if any(kinds.values()):
            say(
                f"  without a score, labelled {label}: "
                + ", ".join(f"{n} {kind}" for kind, n in kinds.items() if n)
            )
    if found.refused:
        say(f"not certified: {found.refused}")
    else:
        for what, value in found.shares():
            say(f"  {what:32}{_shown(value)}")
        for one in found.thresholds:
            if one.low is None:
                why = f"no threshold; it takes some {one.labels} labels without an error among them"
            else:
                why = (
                    f"not trusted between {one.low:.4g} and {one.high:.4g}: {one.kept or 0:.0%} of the scores are kept, "
                    f"{one.wrong or 0:.1%} of them wrong"
                )
            say(f"  {f'at most {one.error:.0%} wrong':32}{why}")
    if found.next_labels and (found.refused or any(one.low is None for one in found.thresholds)):
        say("  to label next, one of a prompt (run and index): " + ", ".join(found.next_labels[:5]))


def _shown(value: Share) -> str:
    if value.value is None:
        return "unknown"
    if value.low is None or value.high is None:
        return f"{value.value:.1%} of {value.n}, of one prompt: no interval"
    return f"{value.value:.1%}  [{value.low:.1%}, {value.high:.1%}]  of {value.n} on {many(value.prompts, 'prompt')}"
