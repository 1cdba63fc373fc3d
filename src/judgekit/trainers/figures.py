"""What adapters tell of a result beside its reward."""

from __future__ import annotations

from judgekit.types import GRADED, Failed, RewardResult

RESERVED = frozenset(("masked", "missing", "raw"))
"""Figures that adapters log beside the graders' scores: no names for graders."""


def figures_of(result: RewardResult) -> dict[str, float]:
    """Return each score that there is, `raw` (the reward before transforms) and `missing` (0 or 1)."""
    found = {name: score for name in result.grades if (score := result.score(name)) is not None}
    if result.raw_reward is not None:
        found["raw"] = result.raw_reward
    return {**found, "missing": float(result.status not in GRADED)}


def why_missing(result: RewardResult) -> str:
    """Say which grades are missing, with their errors or reasons; empty for a reward that is there."""
    if result.status == "scored":
        return ""
    told = []
    for name in result.missing:
        grade = result.grades.get(name)
        parts = (grade.error, grade.detail) if isinstance(grade, Failed) else (getattr(grade, "reason", ""),)
        told.append(": ".join(filter(None, (name, *parts))))
    return "; ".join(told or result.policies) or "no grade says why"
