"""`judgekit grade`, and the summary that it prints."""

from __future__ import annotations

import math
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import anyio
import typer

from judgekit.cli.console import fail, out, run, say

if TYPE_CHECKING:
    from judgekit.metrics import Metrics
    from judgekit.types import RewardResult


def grade(
    config: Annotated[Path, typer.Argument(help="The reward.yaml.")],
    rollouts: Annotated[Path, typer.Argument(help="A JSONL file with one rollout per line.")],
    to: Annotated[
        Path, typer.Option("--out", help="The file for the graded rollouts (JSONL); - for standard output.")
    ],
    ledger: Annotated[
        Path | None, typer.Option(help="Keep every grade in this file, with texts, for reports and replay.")
    ] = None,
    report: Annotated[Path | None, typer.Option(help="Write an HTML report here (needs --ledger).")] = None,
    limit: Annotated[int | None, typer.Option(help="Grade only the first N rollouts.", min=1)] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite existing files.")] = False,
) -> None:
    """Grade the rollouts of a file and print a summary."""
    from judgekit.cli.logs import diverted
    from judgekit.config import load_runner
    from judgekit.errors import ConfigError, FailureRateError
    from judgekit.ledger.files import STDOUT, check_targets, whole_file
    from judgekit.ledger.jsonl import json_line, read_rollouts, result_row
    from judgekit.ledger.writer import Ledger

    if report is not None and ledger is None:
        raise ConfigError("--report reads the ledger: give --ledger, too")
    check_targets([to, report], inputs=[config, rollouts, ledger], force=force)
    if ledger is not None and not ledger.is_dir():
        check_targets([ledger], inputs=[config, rollouts], force=True)  # it is appended to
    if to == STDOUT:
        out.file = sys.stderr  # the summary must not stand among the rows
    batch = read_rollouts(rollouts, limit=limit)
    overrides = {} if ledger is None else {"ledger": Ledger(ledger, texts=True)}
    runner = load_runner(config, progress=sys.stderr is not None and sys.stderr.isatty(), **overrides)
    before = ledger.stat().st_size if ledger is not None and ledger.exists() else 0
    excess: FailureRateError | None = None

    async def work() -> tuple[Sequence[RewardResult], float]:
        nonlocal excess
        try:
            await runner.start()
            start = time.perf_counter()
            try:
                results: Sequence[RewardResult] = await runner.run(batch)
            except FailureRateError as error:  # the alarm costs the exit code, not the results
                excess, results = error, error.results
            return results, time.perf_counter() - start
        finally:
            with anyio.CancelScope(shield=True):  # SIGTERM still ends the judges and flushes the ledger
                await runner.close()

    with whole_file(to) as file:
        if runner.has_judges:
            say("starting the judges (a local engine takes about half a minute) …")
        say(f"grading {len(batch)} rollouts with {', '.join(runner.graders)} …")
        with diverted("metrics") as warnings:  # the summary shows them, below its table
            # Ctrl-C is left to asyncio, whose second one also stops a rule that blocks the loop
            results, seconds = run(work, signal.SIGTERM)
        file.writelines(json_line(result_row(r, result)) for r, result in zip(batch, results, strict=True))
    _print_summary(runner.metrics, results, warnings, seconds)
    if to != STDOUT:
        say(f"\ngraded rollouts  {to}")
    if ledger is not None:
        say(f"ledger           {ledger}{' (appended)' if before else ''}")
    if report is not None and ledger is not None:
        from judgekit.ledger.report import write_report

        write_report(ledger, report)
        say(f"report           {report}  (open it in a browser)")
    if excess is not None:
        fail(excess, code=1)
    if not any(result.status == "scored" for result in results):
        fail("no rollout could be scored", code=1)


def _print_summary(
    metrics: Metrics, results: Sequence[RewardResult], warnings: Sequence[str], seconds: float
) -> None:
    from rich.table import Table

    counts = metrics.counts
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("grader", "graded", "mean", "std", "abstained", "skipped", "failed", "p50", "p95"):
        table.add_column(column, justify="left" if column == "grader" else "right", no_wrap=True)
    for name, g in counts.graders.items():
        table.add_row(
            name,
            str(g.graded),
            _number(g.mean if g.graded else math.nan),
            _number(g.std),
            str(g.abstained),
            str(g.skipped),
            str(g.failed),
            _duration(metrics.percentile(name, 0.5)),
            _duration(metrics.percentile(name, 0.95)),
        )
    out.print()
    out.print(table)
    statuses = ", ".join(f"{count} {status}" for status, count in counts.statuses.items())
    say(f"\n{len(results)} rollouts in {counts.groups} groups, {seconds:.1f} s: {statuses}")
    # filled-in rewards would make a dead judge look like a mean
    rewards = [r.reward for r in results if r.reward is not None and r.status == "scored"]
    if rewards:
        say(
            f"reward of the scored: mean {sum(rewards) / len(rewards):.3f}, "
            f"{counts.flat_groups} zero-variance groups"
        )
        for line in histogram(rewards):
            say(line)
    for line in problems(results):
        say(line)
    shown = set(counts.line().split("; "))  # in the table and among the statuses
    for text in warnings:
        if text not in shown:
            say(f"warning: {text}")


def problems(results: Sequence[RewardResult]) -> Iterator[str]:
    """A line per grader and kind of failure, with its count and first message.

    Abstentions are among them where a grader did nothing else: then a field is missing or has another name.
    """
    from judgekit.types import Abstained, Failed, Graded

    graded = {name for r in results for name, grade in r.grades.items() if isinstance(grade, Graded)}
    found: dict[tuple[str, str], list[str]] = {}
    for result in results:
        for name, grade in result.grades.items():
            if isinstance(grade, Failed):
                found.setdefault((name, f"failed with {grade.error}"), []).append(grade.detail)
            elif isinstance(grade, Abstained) and name not in graded:
                found.setdefault((name, "abstained"), []).append(grade.reason)
    for (name, what), messages in found.items():
        yield f"{name} {what} on {len(messages)} rollouts, the first time with: {_one_line(messages[0])}"


def _one_line(text: str, limit: int = 300) -> str:
    """*text* for a terminal: it may quote a rollout, whose control characters must not reach it."""
    text = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return (text if len(text) <= limit else text[: limit - 2] + " …") or "(no message)"


def _number(value: float) -> str:
    return "–" if math.isnan(value) else f"{value:.3f}"


def _duration(seconds: float) -> str:
    if math.isnan(seconds):
        return "–"
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}" if seconds < 1000 * size else f"{seconds / size:.0f} {unit}"
    return f"{seconds * 1e6:.3g} µs"


def histogram(values: Sequence[float], bins: int = 10, width: int = 40) -> list[str]:
    """Lines of a bar chart of *values*."""
    low, high = min(values), max(values)
    if low == high:
        return [f"{low:8.3f}           {'█' * width} {len(values)}"]
    counts = [0] * bins
    for value in values:
        counts[min(bins - 1, int((value - low) / (high - low) * bins))] += 1
    step = (high - low) / bins
    top = max(counts)
    return [
        f"{low + i * step:8.3f} … {low + (i + 1) * step:<7.3f}{'█' * round(width * count / top)} {count}"
        for i, count in enumerate(counts)
    ]
