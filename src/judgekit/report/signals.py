"""What in a run's rewards looks like a hacked or an exhausted reward: a figure each, with the limit it is held to.

    for signal in signals(Table("ledger.jsonl"), Limits(length=0.4)): ...

A signal is evidence, not a verdict: a reward may well grow with length where long answers are right. Nothing acts on it.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from msgspec import Struct

from judgekit.metrics import Moments
from judgekit.report.table import STATES, Table

_SAMPLE = 2000
"""Rollouts whose texts are read for the signals that need them."""
_LEAST = 64
"""Rewards below which a correlation or a share says nothing."""


class Limits(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where a signal is raised. Correlations are Pearson's and by amount, shares are of 1."""

    length: float = 0.5
    """Correlation of reward and response length among the rollouts of one prompt."""
    repetition: float = 0.4
    """… of reward and the share of repeated word sequences, where repetition pays."""
    formatting: float = 0.5
    """… of reward and Markdown marks per character."""
    flat_groups: float = 0.5
    """Share of groups whose rewards are all equal: no gradient for a group-relative estimator."""
    saturation: float = 0.9
    """Share of rewards that equal the highest, or the lowest, one seen."""
    missing: float = 0.05
    """Share of a grader's evaluations that failed."""
    disagreement: float = -0.3
    """Correlation of a judge and a rule below which they contradict each other."""


class Signal(Struct, frozen=True):
    """One figure and whether it is beyond its limit."""

    name: str
    """Field of `Limits`."""
    subject: str
    """The grader, or pair of graders, that it is about; empty for the reward."""
    value: float
    limit: float
    count: int
    """Rollouts, groups or evaluations that it was computed from."""
    raised: bool
    text: str


def signals(table: Table, limits: Limits | None = None) -> list[Signal]:
    """Compute all signals of a ledger; the raised ones come first."""
    limits = limits or Limits()
    rows = [row for row in table.shown() if table.numbers["raw"][row] == table.numbers["raw"][row]]
    found = [
        *_of_groups(table, rows, limits),
        *_of_texts(table, rows, limits),
        *_of_graders(table, limits),
        *_of_pairs(table, rows, limits),
    ]
    return sorted(found, key=lambda signal: not signal.raised)


def _of_groups(table: Table, rows: Sequence[int], limits: Limits) -> Iterator[Signal]:
    reward, length, group, run = (
        table.numbers["raw"],
        table.lengths,
        table.codes["group"],
        table.codes["run"],
    )
    members: dict[tuple[int, int], list[int]] = defaultdict(list)
    for row in rows:
        members[run[row], group[row]].append(row)
    groups = [m for m in members.values() if len(m) > 1]
    n, value = _within(groups, length, reward)
    if n >= _LEAST:
        yield _correlated("length", value, limits.length, n, f"length in {table.length}")
    if len(groups) >= 16:
        flat = sum(len({reward[row] for row in m}) == 1 for m in groups) / len(groups)
        yield Signal(
            "flat_groups", "", flat, limits.flat_groups, len(groups), flat > limits.flat_groups,
            f"{flat:.1%} of {len(groups)} groups have equal rewards: they give a group-relative estimator no gradient",
        )  # fmt: skip
    if len(rows) >= _LEAST:
        values = Counter(reward[row] for row in rows)
        for extreme, which in ((max(values), "highest"), (min(values), "lowest")):
            share = values[extreme] / len(rows)
            yield Signal(
                "saturation", which, share, limits.saturation, len(rows), share > limits.saturation,
                f"{share:.1%} of {len(rows)} rewards are the {which} one, {extreme:.4g}",
            )  # fmt: skip


def _of_texts(table: Table, rows: Sequence[int], limits: Limits) -> Iterator[Signal]:
    """Signals of a sample that is spread evenly over the run."""
    measures: dict[str, tuple[Callable[[str], float], Moments]] = {
        "repetition": (repetition, Moments()),
        "formatting": (formatting, Moments()),
    }
    for row in rows[:: max(1, len(rows) // _SAMPLE)]:
        response = table.rollout(row).get("response")
        if isinstance(response, str):
            for measure, moments in measures.values():
                moments.add(measure(response), table.numbers["raw"][row])
    for name, (_, moments) in measures.items():
        if moments.n >= _LEAST:
            yield _correlated(
                name, moments.correlation, getattr(limits, name), moments.n, name, both=name != "repetition"
            )


def _of_graders(table: Table, limits: Limits) -> Iterator[Signal]:
    shown = list(table.shown())
    failed = STATES.index("failed")
    asked = {STATES.index("graded"), STATES.index("abstained"), failed}
    for name, column in table.graders.items():
        total = sum(column.state[row] in asked for row in shown)
        failures = [row for row in shown if column.state[row] == failed]
        if not total:
            continue
        causes = Counter(column.error[row] for row in failures)
        told = ", ".join(
            f"{table.names['error'].values[code][0]} × {count}" for code, count in causes.most_common(3)
        )
        share = len(failures) / total
        yield Signal(
            "missing", name, share, limits.missing, total, share > limits.missing,
            f"{name} failed on {share:.1%} of {total} rollouts" + (f" ({told})" if told else ""),
        )  # fmt: skip


def _of_pairs(table: Table, rows: Sequence[int], limits: Limits) -> Iterator[Signal]:
    """A judge against each rule: where they rise and fall against each other, one of the two is wrong or fooled."""
    judges = {name: column for name, column in table.graders.items() if column.judged}
    rules = {name: column for name, column in table.graders.items() if not column.judged}
    for judge, judged in judges.items():
        for rule, ruled in rules.items():
            moments = Moments()
            for row in rows:
                if not (math.isnan(judged.score[row]) or math.isnan(ruled.score[row])):
                    moments.add(ruled.score[row], judged.score[row])
            if moments.n >= _LEAST and moments.xx and moments.yy:
                value = moments.correlation
                yield Signal(
                    "disagreement", f"{judge} / {rule}", value, limits.disagreement, moments.n, value < limits.disagreement,
                    f"{judge} and {rule} correlate by {value:.2f} over {moments.n} rollouts",
                )  # fmt: skip


def _correlated(name: str, value: float, limit: float, count: int, what: str, both: bool = True) -> Signal:
    return Signal(
        name, "", value, limit, count, (abs(value) if both else value) > limit,
        f"reward and {what} correlate by {value:.2f} over {count} rollouts",
    )  # fmt: skip


def _within(groups: Iterable[Sequence[int]], xs: Sequence[float], ys: Sequence[float]) -> tuple[int, float]:
    """The correlation of deviations from each group's means: a hard prompt has long answers and low rewards anyway."""
    moments = Moments()
    for rows in groups:
        mean_x, mean_y = (math.fsum(v[row] for row in rows) / len(rows) for v in (xs, ys))
        for row in rows:
            moments.add(xs[row] - mean_x, ys[row] - mean_y)
    if not (moments.xx and moments.yy):
        return moments.n, 0.0
    return moments.n, max(-1.0, min(1.0, moments.xy / math.sqrt(moments.xx * moments.yy)))


def repetition(text: str, size: int = 5) -> float:
    """Share of a text's sequences of *size* words that stood in it before, 0..1."""
    words = text.split()
    total = len(words) - size + 1
    if total < 2:
        return 0.0
    return 1 - len({tuple(words[i : i + size]) for i in range(total)}) / total


def formatting(text: str) -> float:
    """Markdown marks (headings, bullets, bold, fences, tables) for each 100 characters."""
    return 100 * len(_MARKS.findall(text)) / len(text) if text else 0.0


_MARKS = re.compile(r"^[ \t]{0,3}(?:#{1,6} |[-*+] |\d+[.)] |\||```)|\*\*", re.MULTILINE)


def to_json(found: Iterable[Signal]) -> list[dict[str, Any]]:
    return [{key: getattr(signal, key) for key in signal.__struct_fields__} for signal in found]
