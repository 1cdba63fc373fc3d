"""A certificate as a page of Markdown, for people."""

from __future__ import annotations

import datetime

from judgekit.evidence.certificate import Certificate, Threshold
from judgekit.evidence.shares import Share


def page(found: Certificate) -> str:
    """Return the certificate as Markdown."""
    counts, about = found.counts, found.population
    lines = [
        f"# Certificate of {_cell(found.grader)}",
        "",
        f"{counts['scored']} labelled scores on {counts['prompts']} prompts: {counts['right']} right, {counts['wrong']} wrong. "
        f"It calls right what scores {found.cut:g} or more. Intervals are by prompt, of 95 %.",
        "",
    ]
    if found.refused:
        lines += [f"**Not certified**: {found.refused}.", ""]
    else:
        lines += ["| | share | interval | of |", "|---|---|---|---|"]
        for what, value in found.shares():
            lines.append(f"| {what} | {_share(value)} |")
        lines += [
            "",
            "| at most so many wrong | not trusted between | kept | of these wrong |",
            "|---|---|---|---|",
        ]
        lines += [f"| {one.error:.0%} | {_threshold(one)} |" for one in found.thresholds]
        lines.append("")
    lines += ["| without a score | abstained | failed | not asked |", "|---|---|---|---|"]
    for label, kinds in found.missing.items():
        lines.append(
            f"| labelled {label} | {kinds['abstained']} | {kinds['failed']} | {kinds['not asked']} |"
        )
    lines += ["", f"Grader: version {_cell(found.version)}, settings {found.fingerprint or 'unknown'}."]
    if about:
        days = [
            datetime.datetime.fromtimestamp(about[end], datetime.UTC).date().isoformat()
            for end in ("from", "to")
        ]
        sources = ", ".join(_cell(name) for name in about["data_sources"] if name) or "unnamed"
        lines.append(f"Rollouts: data sources {sources}; graded {days[0]} to {days[1]}.")
    return "\n".join(lines) + "\n"


def _share(value: Share) -> str:
    if value.value is None:
        return "unknown | |"
    held = (
        "none: one prompt"
        if value.low is None or value.high is None
        else f"{value.low:.1%} to {value.high:.1%}"
    )
    return f"{value.value:.1%} | {held} | {value.n} on {value.prompts} prompts"


def _threshold(one: Threshold) -> str:
    if one.low is None or one.high is None:
        return f"no threshold: some {one.labels} labels without an error | |"
    return f"{one.low:.4g} and {one.high:.4g} | {one.kept or 0:.0%} | {one.wrong or 0:.1%}"


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())
