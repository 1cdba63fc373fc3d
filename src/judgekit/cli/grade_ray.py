"""`judgekit grade --ray`: Parquet files through the actors of a Ray cluster."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from judgekit.cli.console import fail, many, out, say
from judgekit.errors import ConfigError

if TYPE_CHECKING:
    from judgekit.data.job import Job, Outcome
    from judgekit.metrics import Counts

TELL_S = 30.0
"""Seconds between two lines of progress, where there is no terminal."""


def grade_on_ray(
    config: Path,
    rollouts: str,
    to: Path | None,
    *,
    address: str,
    concurrency: int | None,
    columns: Mapping[str, str],
    limit: int | None,
    ledger: Path | None,
    resume: bool,
    force: bool,
    json_summary: bool,
) -> None:
    """Grade on a cluster and print a summary; exits as `judgekit grade` does."""
    from judgekit.data.distributed import grade_job, plan_job
    from judgekit.judges.engines.ray.judge import connect
    from judgekit.ledger.jsonl import json_line
    from judgekit.ledger.output_files import STDOUT

    if to is None or to == STDOUT:
        raise ConfigError("--ray writes Parquet files into a folder: give one with --out")
    if rollouts == "-" or rollouts.startswith("hf:"):
        raise ConfigError(f"--ray reads Parquet files, not {rollouts}: give their path, glob, folder or URI")
    if json_summary:
        out.file = sys.stderr
    connect(address)
    start = time.perf_counter()
    job = plan_job(
        config, rollouts, to, columns=columns, limit=limit, ledger=ledger, resume=resume, force=force
    )
    if not job.blocks:
        say(f"{to} is finished: nothing is left to grade")
    else:
        total = sum(block.rows for block in job.blocks)
        left = sum(block.rows for block in job.unfinished())
        say(f"grading {left} of {total} rows in {len(job.blocks)} blocks …")
    try:
        summary = _Summary(grade_job(job, concurrency=concurrency), job)
    except KeyboardInterrupt:
        say(f"stopped: finished blocks are in {to}; --resume goes on from there")
        raise
    seconds = time.perf_counter() - start
    if json_summary:
        sys.stdout.write(json_line(summary.as_json(seconds)))
    else:
        summary.tell(seconds)
    say(f"graded rollouts  {to}")
    if ledger is not None:
        say(f"ledgers          {ledger}")
    if summary.excess:
        fail(f"{summary.excess[0]} (and so in {len(summary.excess)} blocks)", code=1)
    if job.blocks and summary.counts.rollouts and not summary.counts.statuses.get("scored"):
        fail("no rollout could be scored", code=1)


class _Summary:
    """What became of all blocks of this call."""

    def __init__(self, outcomes: Iterator[Outcome], job: Job) -> None:
        from tqdm.auto import tqdm

        from judgekit.metrics import Counts

        self.counts: Counts = Counts()
        self.excess: list[str] = []
        self.blocks = self.failing = self.known = 0
        total = sum(block.rows for block in job.unfinished())
        shown = sys.stderr is not None and sys.stderr.isatty()
        bar = tqdm(total=total, unit="rollout", desc="grading", disable=not shown)
        start = told = time.monotonic()
        try:
            for outcome in outcomes:
                self._add(outcome)
                bar.update(outcome.rollouts)
                now = time.monotonic()
                if not shown and now - told >= TELL_S:
                    told = now
                    done = self.counts.rollouts
                    say(
                        f"graded {done} of {total} ({done / max(1, total):.0%}), {done / (now - start):.3g} per second"
                    )
        finally:
            bar.close()

    def _add(self, outcome: Outcome) -> None:
        self.blocks += 1
        self.failing += outcome.failed
        self.known += outcome.known
        if outcome.counts is not None:
            self.counts.merge(outcome.counts)
        if outcome.excess:
            self.excess.append(outcome.excess)

    def as_json(self, seconds: float) -> dict[str, Any]:
        counts, usage = self.counts, self.counts.usage
        return {
            "rollouts": counts.rollouts,
            "groups": counts.groups,
            "blocks": self.blocks,
            "failing_blocks": self.failing,
            "known_rollouts": self.known,
            "seconds": round(seconds, 3),
            "statuses": dict(counts.statuses),
            "zero_variance_groups": counts.flat_groups,
            "graders": {
                name: {
                    "graded": g.graded,
                    "mean": g.mean if g.graded else None,
                    "std": g.std if math.isfinite(g.std) else None,
                    "abstained": g.abstained,
                    "skipped": g.skipped,
                    "failed": g.failed,
                }
                for name, g in counts.graders.items()
            },
            "usage": {
                key: getattr(usage, key)
                for key in ("calls", "prompt_tokens", "cached_tokens", "completion_tokens")
            },
            "warnings": list(counts.warnings()),
        }

    def tell(self, seconds: float) -> None:
        from rich.table import Table

        counts: Counts = self.counts
        table = Table(box=None, pad_edge=False, header_style="bold")
        for column in ("grader", "graded", "mean", "std", "abstained", "skipped", "failed"):
            table.add_column(column, justify="left" if column == "grader" else "right", no_wrap=True)
        for name, g in counts.graders.items():
            figures = (f"{value:.3f}" if g.graded else "–" for value in (g.mean, g.std))
            table.add_row(name, str(g.graded), *figures, str(g.abstained), str(g.skipped), str(g.failed))
        if counts.rollouts:
            out.print()
            out.print(table)
            statuses = ", ".join(f"{count} {status}" for status, count in counts.statuses.items())
            say(
                f"\n{many(counts.rollouts, 'rollout')} in {many(counts.groups, 'group')}, {seconds:.1f} s: {statuses}"
            )
        for text in counts.warnings():
            say(f"warning: {text}")
        if self.failing:
            say(f"grades failed in {self.failing} blocks: --resume asks for these grades again")
