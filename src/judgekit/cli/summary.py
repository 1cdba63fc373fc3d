"""What `judgekit grade` tells at its end: a table for people, JSON for scripts."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from judgekit.cli.console import many, one_line, out, say

if TYPE_CHECKING:
    from judgekit.cli.load import LoadWatch
    from judgekit.metrics import Metrics
    from judgekit.types import RewardResult


def as_json(
    metrics: Metrics,
    results: Sequence[RewardResult],
    warnings: Sequence[str],
    seconds: float,
    loads: Sequence[LoadWatch] = (),
) -> dict[str, Any]:
    """The summary for scripts. Figures that are not known are null; times are in seconds."""
    counts = metrics.counts
    rewards = scored(results)
    usage = [result.usage for result in results]
    return {
        "rollouts": len(results),
        "groups": counts.groups,
        "seconds": round(seconds, 3),
        "statuses": dict(counts.statuses),
        "reward_mean": sum(rewards) / len(rewards) if rewards else None,
        "zero_variance_groups": counts.flat_groups,
        "graders": {
            name: {
                "graded": g.graded,
                "mean": _known(g.mean) if g.graded else None,
                "std": _known(g.std),
                "abstained": g.abstained,
                "skipped": g.skipped,
                "failed": g.failed,
                "p50_s": _known(metrics.percentile(name, 0.5)),
                "p95_s": _known(metrics.percentile(name, 0.95)),
                "starved": _known(metrics.starved(name)),
            }
            for name, g in counts.graders.items()
        },
        "usage": {
            key: sum(getattr(u, key) for u in usage)
            for key in ("calls", "prompt_tokens", "cached_tokens", "completion_tokens")
        },
        "engines": [told for load in loads if (told := load.as_json()) is not None],
        "problems": list(problems(results)),
        "warnings": [text for text in warnings if text not in _told(counts)],
    }


def _known(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _told(counts: Any) -> set[str]:
    """Warnings whose figures stand elsewhere in the summary."""
    return set(counts.trouble())


def scored(results: Sequence[RewardResult]) -> list[float]:
    """Return the rewards that were computed: filled-in ones would make a dead judge look like a mean."""
    return [r.reward for r in results if r.reward is not None and r.status == "scored"]


def print_summary(
    metrics: Metrics,
    results: Sequence[RewardResult],
    warnings: Sequence[str],
    seconds: float,
    loads: Sequence[LoadWatch] = (),
) -> None:
    """Print a table of the graders, the rewards' histogram, and what went wrong."""
    counts = metrics.counts
    rows = [
        {
            "grader": name,
            "graded": str(g.graded),
            "mean": _number(g.mean if g.graded else math.nan),
            "std": _number(g.std),
            "abstained": str(g.abstained),
            "skipped": str(g.skipped),
            "failed": str(g.failed),
            "p50": _duration(metrics.percentile(name, 0.5)),
            "p95": _duration(metrics.percentile(name, 0.95)),
        }
        for name, g in counts.graders.items()
    ]
    out.print()
    _print_table(rows)
    statuses = ", ".join(f"{count} {status}" for status, count in counts.statuses.items())
    say(f"\n{many(len(results), 'rollout')} in {many(counts.groups, 'group')}, {seconds:.1f} s: {statuses}")
    rewards = scored(results)
    if rewards:
        say(
            f"reward of the scored: mean {sum(rewards) / len(rewards):.3f}, "
            f"{many(counts.flat_groups, 'zero-variance group')}"
        )
        for line in histogram(rewards, width=max(1, min(40, out.width - 28))):
            say(line)
    for load in filter(str, loads):
        say(f"{load.name}: {load}")
    for name in counts.graders:
        if (share := metrics.starved(name)) > _STARVED and seconds >= _SHORT_S:
            say(
                f"{name}: its engine would have run more requests while rollouts waited, {100 * share:.0f} % of the time: a number "
                "for max_concurrency, of the runner or in the judge's layers, is too low"
            )
    for line in problems(results):
        say(line)
    for text in warnings:
        if text not in _told(counts):
            say(f"warning: {text}")


_SHORT_S = 10.0
"""A run that ends sooner is over before "auto" has found out how many requests the engine takes."""
_STARVED = 0.1
"""Share of a grader's evaluations from which on it is said that its engine had too few requests."""
_DROPPED = ("p95", "p50", "std", "skipped", "abstained")
"""Columns that a narrow terminal does not show, the first one first."""


def _print_table(rows: Sequence[Mapping[str, str]]) -> None:
    """Print the rows below their column names, with as many columns as the terminal is wide; no number is ever cut."""
    from rich.table import Table

    widths = {key: max(len(key), *(len(row[key]) for row in rows)) for key in rows[0]}
    for column in _DROPPED:
        if sum(widths.values()) + 2 * len(widths) <= out.width:
            break
        del widths[column]
    table = Table(box=None, pad_edge=False, header_style="" if os.environ.get("NO_COLOR") else "bold")
    for column, width in widths.items():
        if column == "grader":  # a long name may be cut
            table.add_column(column, no_wrap=True, overflow="ellipsis")
        else:
            table.add_column(column, justify="right", no_wrap=True, min_width=width)
    for row in rows:
        table.add_row(*(row[column] for column in widths))
    out.print(table)


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
        yield f"{name} {what} on {len(messages)} rollouts, the first time with: {_first(messages[0])}"


def _first(text: str, limit: int = 300) -> str:
    text = one_line(text)
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
