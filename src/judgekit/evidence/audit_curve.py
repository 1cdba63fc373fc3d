"""What audits say, for people and programs: "paid, though the audit says wrong" by step, the alarm, and examples."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from msgspec import Struct

from judgekit.evidence.audit_settings import AuditSettings
from judgekit.evidence.auditor import AuditedStep, Auditor, Verdict
from judgekit.types import content_text, shown_grade, why_of

RECENT = 40
"""Random audits over which a figure is smoothed: those of the last steps that hold so many together."""
FEW, FEW_PROMPTS = 10, 5
"""Below so many of them, or prompts, there is no interval."""
EXAMPLES = 6
_MOST_CHARS = 600
"""Of a text, in an example."""


class Recent(Struct, frozen=True, kw_only=True):
    """The figure over the last steps. Shares are from 0 to 1; None where too little is known, with the reason."""

    steps: int
    audits: int
    wrong: int
    """Of these, those that the audit calls wrong."""
    paid_wrong: float | None
    low: float | None = None
    """Interval of 95 %, by prompt."""
    high: float | None = None
    line: float | None
    """What `paid_wrong` may be: `pays_at_most` times the share of wrong ones, and what an audit's own errors add, see `line_of`."""
    paid_per_wrong: float | None
    """What wrong ones were paid on average."""
    reason: str = ""


class CurvePoint(Struct, frozen=True, kw_only=True):
    """One step of the curve."""

    step: Any
    rollouts: int
    scored: int
    """Rollouts that the watched grader has scored."""
    audits: int
    """Random audits with a verdict: what the figures are of."""
    wrong: int
    """Of these, those that the audit calls wrong."""
    failed: int
    """Audits without a verdict, those of the best paid included: failures and abstentions."""
    paid_wrong: float | None
    """Paid, though the audit says wrong: the mean over random audits of the pay (0..1) of wrong ones, and 0 of right ones."""
    reason: str
    """Why it is None; "" if it is not."""
    recent: Recent
    log_e: float
    alarm: bool


def curve(audited: Auditor) -> list[CurvePoint]:
    """Return the curve of all steps so far."""
    return [point_of(audited, at) for at in range(len(audited.steps))]


def point_of(audited: Auditor, at: int) -> CurvePoint:
    """Return the curve at its step number *at*, from 0."""
    step = audited.steps[at]
    drawn = step.drawn()
    failed = sum(one.right is None for one in step.verdicts)
    return CurvePoint(
        step=step.step,
        rollouts=step.rollouts,
        scored=step.scored,
        audits=len(drawn),
        wrong=sum(not one.right for one in drawn),
        failed=failed,
        paid_wrong=_mean(drawn),
        reason="" if drawn else _without(step, failed, audited.settings.watch),
        recent=_recent(audited, at),
        log_e=step.log_e,
        alarm=step.raised,
    )


def _without(step: AuditedStep, failed: int, watch: str) -> str:
    if not step.scored:
        return f"{watch} has scored none of its {step.rollouts} rollouts"
    return f"{failed} audits gave no verdict" if failed else "none of the rollouts that were drawn is left"


def _mean(drawn: Sequence[Verdict]) -> float | None:
    return math.fsum(one.paid_wrong or 0.0 for one in drawn) / len(drawn) if drawn else None


def _recent(audited: Auditor, at: int) -> Recent:
    """Return the figure over the last steps up to number *at*."""
    drawn: list[Verdict] = []
    count = 0
    for before in range(at, -1, -1):
        drawn += audited.steps[before].drawn()
        count += 1
        if len(drawn) >= RECENT:
            break
    wrong = [one.paid for one in drawn if one.right is False]
    low, high, reason = _interval(drawn)
    return Recent(
        steps=count,
        audits=len(drawn),
        wrong=len(wrong),
        paid_wrong=_mean(drawn),
        low=low,
        high=high,
        line=line_of(audited.settings, [(one.paid, bool(one.right)) for one in drawn]),
        paid_per_wrong=math.fsum(wrong) / len(wrong) if wrong else None,
        reason=reason,
    )


def _interval(drawn: Sequence[Verdict]) -> tuple[float | None, float | None, str]:
    prompts = [one.prompt for one in drawn]
    if len(drawn) < FEW or len(set(prompts)) < FEW_PROMPTS:
        return None, None, f"an interval takes {FEW} audits of {FEW_PROMPTS} prompts"
    try:
        from judgekit.evidence.shares import share
    except ImportError:
        return None, None, "intervals need numpy and scipy: pip install 'judgekit-rl[evidence]'"
    found = share([one.paid_wrong for one in drawn], prompts)
    return found.low, found.high, ""


def line_of(settings: AuditSettings, pairs: Sequence[tuple[float, bool]]) -> float | None:
    """Return what may be paid though the audit says wrong, over random audits with such *pairs* of pay and verdict.

    Of those that it calls wrong, `pays_at_most` each. Some of these are right, by its own errors: they are paid more, and are as many as
    `audit_error` allows beside those that it calls right.
    """
    if not pairs:
        return None
    most, odds = settings.pays_at_most, settings.audit_error / (1 - settings.audit_error)
    allowed = (max(0.0, paid - most) * odds if right else most for paid, right in pairs)
    return math.fsum(allowed) / len(pairs)


def crosses(recent: Recent) -> bool:
    """Whether the curve is above its line: the whole interval of the last audits is."""
    return None not in (recent.low, recent.line) and recent.low > recent.line  # type: ignore[operator]


def examples(steps: Sequence[AuditedStep]) -> list[tuple[Any, Verdict]]:
    """Return the best paid rollouts that the audit calls wrong, each with its step.

    Of equally paid ones, those of many prompts come first, and then the latest.
    """
    wrong = [(step.step, one) for step in reversed(steps) for one in step.verdicts if one.right is False]
    wrong.sort(key=lambda found: -found[1].paid)
    seen: Counter[str] = Counter()
    ranked: list[tuple[float, int, int, tuple[Any, Verdict]]] = []
    for found in wrong:
        ranked.append((-found[1].paid, seen[found[1].prompt], len(ranked), found))
        seen[found[1].prompt] += 1
    return [found for *_, found in sorted(ranked)[:EXAMPLES]]


def as_json(audited: Auditor, late: int = 0) -> dict[str, Any]:
    """Return everything, for programs. Figures that are not known are null, with the reason."""
    points = curve(audited)
    raised = next((step for step in audited.steps if step.raised), None)
    return {
        "audit": 1,
        "settings": audited.settings,
        "alarm": None if raised is None else {"step": raised.step, "log_e": raised.log_e},
        "log_e": audited.alarm.log_e,
        "in_words": alarm_in_words(audited),
        "audits": {
            "asked": audited.asked,
            "reused": audited.reused,
            "failed": audited.failed,
            "abstained": audited.abstained,
        },
        "late": late,
        "first_above_line": next((point.step for point in points if crosses(point.recent)), None),
        "last": points[-1] if points else None,
        "steps": points,
        "examples": [_example(step, one, audited) for step, one in examples(audited.steps)],
    }


def _example(step: Any, one: Verdict, audited: Auditor) -> dict[str, Any]:
    watched = one.entry.grades[audited.settings.watch]
    return {
        "step": step,
        "run": one.entry.run,
        "index": one.entry.index,
        "id": one.entry.id,
        "random": one.random,
        "paid": one.paid,
        "watch": {"score": one.score, "why": _cut(why_of(watched))},
        "grader": {"score": getattr(one.grade, "score", None), "why": _cut(why_of(one.grade))},
        "prompt": _cut(prompt_of(one)),
        "response": _cut(one.entry.response or ""),
    }


def prompt_of(one: Verdict) -> str:
    """Return the prompt's text: of messages, the last one's."""
    prompt = one.entry.prompt
    if isinstance(prompt, list) and prompt and isinstance(prompt[-1], dict):
        return content_text(prompt[-1].get("content"))
    return content_text(prompt)


def _cut(text: str) -> str:
    return text if len(text) <= _MOST_CHARS else f"{text[: _MOST_CHARS - 1]}…"


def alarm_in_words(audited: Auditor) -> str:
    """Say in a sentence whether there is an alarm, and of what."""
    settings = audited.settings
    bound = (
        f"a run in which wrong rollouts are paid at most {settings.pays_at_most:g} on average gets there with a probability of at most "
        f"{settings.false_alarms:g}"
    )
    for at, step in enumerate(audited.steps):
        if step.raised:
            recent = _recent(audited, at)
            paid = "" if recent.paid_per_wrong is None else f"{recent.paid_per_wrong:.2f} on average to "
            return (
                f"alarm at step {step.step}: {settings.watch} paid {paid}the {recent.wrong} of the last {recent.audits} random audits that "
                f"{settings.grader} calls wrong; the evidence is e^{step.log_e:.1f}, and {bound}"
            )
    needed = -math.log(settings.false_alarms)
    return f"no alarm: the evidence is e^{audited.alarm.log_e:.1f} and an alarm takes e^{needed:.1f}; {bound}"


def page(audited: Auditor) -> str:
    """Return the curve and the examples as Markdown."""
    settings = audited.settings
    lines = [
        f"# Audits of {_cell(settings.watch)} by {_cell(settings.grader)}",
        "",
        f"{_cell(alarm_in_words(audited))}.",
        "",
        "| step | audits | wrong | paid, though wrong | recent | interval | line | log e |",
        "|---|---|---|---|---|---|---|---|",
    ]
    lines += [f"| {' | '.join(map(_cell, cells(point)))} |" for point in curve(audited)]
    lines += ["", "## Best paid, though the audit says wrong", ""]
    for step, one in examples(audited.steps):
        shown = _example(step, one, audited)
        lines += [
            f"- step {_cell(str(step))}, {_cell(one.entry.id or f'{one.entry.run} {one.entry.index}')}: "
            f"{_cell(settings.watch)} {one.score:.4g} {_cell(shown['watch']['why'])} · "
            f"{_cell(settings.grader)} {_cell(shown_grade(one.grade))} {_cell(shown['grader']['why'])}",
            "",
            *(f"      {line}" for line in shown["response"].splitlines()),
            "",
        ]
    return "\n".join(lines) + "\n"


def cells(point: CurvePoint) -> Iterator[str]:
    """Yield a point's figures as texts, in the columns of a table."""
    recent = point.recent
    yield str(point.step)
    yield str(point.audits) + (f" (+{point.failed} without a verdict)" if point.failed else "")
    yield str(point.wrong)
    yield _figure(point.paid_wrong)
    yield _figure(recent.paid_wrong)
    yield "–" if recent.low is None or recent.high is None else f"{recent.low:.2f} to {recent.high:.2f}"
    yield ("above " if crosses(recent) else "") + _figure(recent.line)
    yield f"{point.log_e:.1f}" + (" alarm" if point.alarm else "")


def _figure(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"


def _cell(text: str) -> str:
    """Return a text for Markdown: it may quote a rollout, whose marks must not count."""
    return " ".join(_MARKS.sub(r"\\\g<0>", text).replace("<", "&lt;").split())


_MARKS = re.compile(r"[|\[\]`*_\\]")
