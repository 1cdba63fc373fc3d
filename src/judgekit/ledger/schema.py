"""The ledger: an append-only JSONL file with one line per graded rollout, and what can be done with it.

A line holds everything that its reward came from, so that rewards can be computed anew with other weights
(`replay`) and every verdict can be followed back. Runs write a `spec` line before their first rollout.
Whole lines are written with one `write` to a file opened for appending, so several processes may share a
ledger, and what was written survives a killed process. A torn last line is skipped on reading, and reported.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from judgekit.types import Grade, Status, Usage

logger = logging.getLogger("judgekit")


class Spec(Struct, frozen=True, kw_only=True, tag_field="type", tag="spec"):
    """How the rollouts that follow were graded."""

    digest: str
    """Names this spec in the lines of its rollouts."""
    graders: Mapping[str, GraderSpec]
    reward: Any
    """The reward tree, in its YAML form."""
    transform: str
    missing_reward: Any
    judgekit: str
    """Version."""


class GraderSpec(Struct, frozen=True):
    version: str
    score_range: tuple[Any, Any]
    """Lowest and highest score; "-inf" and "inf" as text, which JSON has no numbers for."""

    def bounds(self) -> tuple[float, float]:
        low, high = self.score_range
        return float(low), float(high)


class Entry(Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type", tag="rollout"):
    """One rollout, as graded."""

    spec: str
    time: float
    """Seconds since the epoch."""
    run: str
    """Names the `run` call."""
    index: int
    group: Any
    id: str = ""
    tags: Mapping[str, Any] = {}
    """What the host knows: training step, policy version, …"""
    reward: float | None
    status: Status
    raw_reward: float | None
    contributions: Mapping[str, float]
    grades: Mapping[str, Grade]
    missing: Sequence[str] = ()
    policies: Sequence[str] = ()
    usage: Usage = Usage()
    wall_s: float = 0.0
    data_source: str = ""
    finish_reason: str | None = None
    response_tokens: int | None = None
    response_chars: int = 0
    response_digest: str = ""
    prompt: Any = None
    """Text of prompt, response and truth only where the ledger keeps texts."""
    response: str | None = None
    ground_truth: Any = None
    extra: Mapping[str, Any] = {}


Line = Spec | Entry
