"""Renders a ledger as a self-contained HTML page: rewards, grades, failures, and single rollouts.

Texts that a policy wrote are untrusted: they are escaped, and the page runs no scripts.
"""

from __future__ import annotations

import html
import math
import os
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from judgekit.errors import DataError
from judgekit.ledger.files import whole_file
from judgekit.ledger.reader import read_ledger
from judgekit.ledger.schema import Entry, Spec
from judgekit.types import Abstained, Failed, Grade, Graded, Skipped, Usage, content_text

_MAX_TEXT = 6000
"""Longer texts are cut in the middle to this many characters."""


def write_report(ledger: str | os.PathLike[str], path: str | os.PathLike[str], *, rows: int = 300) -> None:
    """Write an HTML page about *ledger* to *path*, with *rows* rollouts in full.

    Raises DataError if the ledger cannot be read or has no rollouts.
    """
    reading = read_ledger(ledger)
    if not reading.entries:
        raise DataError(f"the ledger {ledger} holds no rollouts yet")
    page = render(
        reading.entries, reading.specs, title=os.path.basename(ledger), torn=len(reading.torn), rows=rows
    )
    with whole_file(path) as file:
        file.write(page)


def render(
    entries: Sequence[Entry], specs: Mapping[str, Spec], *, title: str, torn: int = 0, rows: int = 300
) -> str:
    """Render the page."""
    scores: dict[str, list[float]] = defaultdict(list)
    kinds: dict[str, Counter[str]] = defaultdict(Counter)
    failures: Counter[tuple[str, str, str]] = Counter()
    usage = Usage()
    for entry in entries:
        usage += entry.usage
        for name, grade in entry.grades.items():
            kinds[name][_kind(grade)] += 1
            if isinstance(grade, Graded):
                scores[name].append(grade.score)
            elif isinstance(grade, Failed):
                failures[name, grade.cause, grade.error] += 1
    rewards = [e.reward for e in entries if e.reward is not None]
    statuses: Counter[str] = Counter(e.status for e in entries)
    groups = {(e.run, str(e.group)) for e in entries}
    parts = [
        _HEAD.replace("{title}", html.escape(title)),
        f"<h1>{html.escape(title)}</h1>",
        "<p>" + _facts(entries, statuses, len(groups), usage, torn) + "</p>",
        "<h2>Reward</h2>",
        _figure(rewards, "reward of a rollout") if rewards else "<p>No rollout has a reward.</p>",
        _specs(specs),
        "<h2>Graders</h2>",
        _grader_table(kinds, scores),
        '<div class="figures">',
        *(_figure(values, name) for name, values in scores.items()),
        "</div>",
        "<h2>Failures by cause</h2>",
        _failure_table(failures),
        "<h2>Rollouts</h2>",
        *_rollouts(entries, rows),
        "</body></html>",
    ]
    return "\n".join(parts)


def _facts(
    entries: Sequence[Entry], statuses: Mapping[str, int], groups: int, usage: Usage, torn: int
) -> str:
    facts = [
        f"{len(entries)} rollouts in {groups} groups",
        ", ".join(f"{n} {s}" for s, n in statuses.items()),
    ]
    if usage.calls:
        cached = 100 * usage.cached_tokens / max(1, usage.prompt_tokens)
        facts.append(
            f"{usage.calls} judge calls with {usage.prompt_tokens:,} prompt tokens ({cached:.0f} % from the prefix "
            f"cache) and {usage.completion_tokens:,} written"
        )
    if torn:
        facts.append(f"{torn} torn lines were skipped")
    return html.escape("; ".join(facts) + ".")


def _specs(specs: Mapping[str, Spec]) -> str:
    lines = [
        f"<code>{html.escape(str(s.reward))}</code>, transform {html.escape(s.transform)}, missing rewards: {html.escape(str(s.missing_reward))}"
        for s in specs.values()
    ]
    return "<p>Reward tree: " + "<br>".join(lines) + "</p>" if lines else ""


def _grader_table(kinds: Mapping[str, Counter[str]], scores: Mapping[str, Sequence[float]]) -> str:
    head = "".join(
        f"<th>{c}</th>" for c in ("grader", "graded", "mean", "std", "abstained", "skipped", "failed")
    )
    lines = []
    for name, count in kinds.items():
        values = scores.get(name, [])
        mean = math.fsum(values) / len(values) if values else math.nan
        std = math.sqrt(math.fsum((v - mean) ** 2 for v in values) / len(values)) if values else math.nan
        cells = [
            html.escape(name),
            count["graded"],
            f"{mean:.3f}",
            f"{std:.3f}",
            count["abstained"],
            count["skipped"],
            count["failed"],
        ]
        lines.append("<tr>" + "".join(f"<td>{c}</td>" for c in cells) + "</tr>")
    return f"<table><tr>{head}</tr>{''.join(lines)}</table>"


def _failure_table(failures: Counter[tuple[str, str, str]]) -> str:
    if not failures:
        return "<p>None.</p>"
    rows = "".join(
        f"<tr><td>{html.escape(name)}</td><td>{html.escape(cause)}</td><td>{html.escape(error)}</td><td>{count}</td></tr>"
        for (name, cause, error), count in failures.most_common()
    )
    return f"<table><tr><th>grader</th><th>cause</th><th>error</th><th>count</th></tr>{rows}</table>"


def _figure(values: Sequence[float], caption: str, bins: int = 20) -> str:
    """A histogram as inline SVG."""
    low, high = min(values), max(values)
    if low == high:
        low, high, bins = low - 0.5, high + 0.5, 1
    counts = [0] * bins
    for value in values:
        counts[min(bins - 1, int((value - low) / (high - low) * bins))] += 1
    top = max(counts)
    width, height, step = 360, 120, 360 / bins
    bars = "".join(
        f'<rect x="{i * step + 1:.1f}" y="{height - height * n / top:.1f}" width="{max(step - 2, 1):.1f}" '
        f'height="{height * n / top:.1f}"><title>{low + i * (high - low) / bins:.3g} … '
        f"{low + (i + 1) * (high - low) / bins:.3g}: {n}</title></rect>"
        for i, n in enumerate(counts)
    )
    mean = math.fsum(values) / len(values)
    at = (mean - low) / (high - low) * width
    return (
        f'<figure><svg viewBox="0 -8 {width} {height + 26}" role="img" aria-label="{html.escape(caption)}">{bars}'
        f'<line x1="{at:.1f}" x2="{at:.1f}" y1="-6" y2="{height}"/>'
        f'<text x="0" y="{height + 15}">{low:.3g}</text>'
        f'<text x="{width}" y="{height + 15}" text-anchor="end">{high:.3g}</text></svg>'
        f"<figcaption>{html.escape(caption)}: mean {mean:.3f} of {len(values)}</figcaption></figure>"
    )


def _rollouts(entries: Sequence[Entry], rows: int) -> list[str]:
    def urgency(entry: Entry) -> int:
        failed = any(isinstance(g, Failed) for g in entry.grades.values())
        return 0 if entry.reward is None else 1 if failed or entry.status != "scored" else 2

    shown = sorted(entries, key=urgency)[:rows]
    left = len(entries) - len(shown)
    parts = [f"<p>{left} more are in the ledger; failures come first.</p>"] if left else []
    return parts + [_rollout(entry) for entry in shown]


def _rollout(entry: Entry) -> str:
    reward = "no reward" if entry.reward is None else f"{entry.reward:.4g}"
    parts = [
        f'<details><summary><b class="{entry.status}">{reward}</b> {html.escape(entry.status)} · group '
        f"{html.escape(str(entry.group))} · {' '.join(_chip(name, grade) for name, grade in entry.grades.items())}</summary>"
    ]
    if entry.contributions:
        shown = " + ".join(
            f"{name} {value:.4g}"
            for name, value in entry.contributions.items()
            if value or name != "residual"
        )
        parts.append(f"<p>{html.escape(shown)}</p>")
    parts += [f"<p>{html.escape(policy)}</p>" for policy in entry.policies]
    for label, text in (
        ("prompt", _text(entry.prompt)),
        ("response", entry.response),
        ("reference", _text(entry.ground_truth)),
    ):
        if text:
            parts.append(f"<h4>{label}</h4><pre>{_cut(text)}</pre>")
    for name, grade in entry.grades.items():
        raw = (getattr(grade, "metadata", None) or {}).get("raw")
        if raw:
            parts.append(f"<h4>{html.escape(name)}: the judge's reply</h4><pre>{_cut(str(raw))}</pre>")
    return "".join(parts) + "</details>"


def _chip(name: str, grade: Grade) -> str:
    if isinstance(grade, Graded):
        text, why = f"{grade.score:.3g}", grade.reason
    elif isinstance(grade, Failed):
        text, why = grade.error, f"{grade.detail} ({grade.cause})"
    elif isinstance(grade, Skipped):
        text, why = "skipped", f"behind {grade.gate}"
    else:
        text, why = "abstained", grade.reason
    return f'<span class="chip {_kind(grade)}" title="{html.escape(why[:400])}">{html.escape(name)} {html.escape(text)}</span>'


def _kind(grade: Grade) -> str:
    return {Graded: "graded", Abstained: "abstained", Skipped: "skipped", Failed: "failed"}[type(grade)]


def _text(value: Any) -> str:
    if isinstance(value, list):  # chat messages
        return "\n\n".join(
            f"[{m.get('role', '')}] {content_text(m.get('content'))}" if isinstance(m, Mapping) else str(m)
            for m in value
        )
    return "" if value is None else str(value)


def _cut(text: str) -> str:
    if len(text) > _MAX_TEXT:
        text = (
            f"{text[: _MAX_TEXT // 2]}\n[… {len(text) - _MAX_TEXT} characters …]\n{text[-_MAX_TEXT // 2 :]}"
        )
    return html.escape(text)


_HEAD = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title>
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<style>
body { font: 15px/1.5 system-ui, sans-serif; max-width: 1000px; margin: 2rem auto; padding: 0 1rem; color: #222; }
table { border-collapse: collapse; } th, td { text-align: right; padding: .15rem .8rem; border-bottom: 1px solid #ddd; }
th:first-child, td:first-child { text-align: left; padding-left: 0; }
.figures { display: flex; flex-wrap: wrap; gap: 1.5rem; } figure { margin: 1rem 0; width: 360px; }
figcaption { font-size: 13px; color: #555; } svg rect { fill: #4a7fb5; } svg line { stroke: #c33; stroke-width: 1.5; }
svg text { font-size: 12px; fill: #777; }
details { border-bottom: 1px solid #e5e5e5; padding: .3rem 0; } summary { cursor: pointer; }
pre { white-space: pre-wrap; overflow-wrap: anywhere; background: #f6f6f6; padding: .6rem; max-height: 22rem; overflow: auto; }
h4 { margin: .6rem 0 .2rem; } b.scored { color: #111; } b.masked, b.neutral, b.written { color: #a60; }
.chip { font-size: 12px; padding: .05rem .45rem; border-radius: .6rem; background: #e6eef6; }
.chip.failed { background: #f7d7d3; } .chip.abstained, .chip.skipped { background: #eee; color: #777; }
</style></head><body>"""
