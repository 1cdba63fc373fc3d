"""Chooses the judge for each rollout."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from judgekit.errors import ConfigError
from judgekit.execution.together import start_together
from judgekit.judges.base import Judge
from judgekit.judges.home import at_home
from judgekit.types import Abstained, Rollout, field_text, first_match


class JudgeRoutes:
    """Chooses a judge by a field of the rollout.

        JudgeRoutes({"math*": maths_judge, "code": code_judge}, default=general_judge)

    *routes*: shell patterns for the field's value, tried in order. *by*: the field, a dotted path. If no pattern
    matches, *default* judges the rollout; without a default the grader abstains.
    """

    def __init__(
        self, routes: Mapping[str, Judge], *, by: str = "data_source", default: Judge | None = None
    ) -> None:
        if not routes:
            raise ConfigError("routes: give at least one pattern with its judge")
        self.routes = dict(routes)
        self.by = by
        self.default = default

    def choose(self, rollout: Rollout) -> Judge | Abstained:
        """Return the judge for *rollout*, or Abstained if there is none.

        Raises what reading the field raises: another judge than the right one would give a wrong score.
        """
        text = field_text(rollout, self.by)
        judge = first_match(self.routes, text) or self.default
        return judge or Abstained(f"no judge for {self.by} {text[:80]!r}")


async def start_judges(*judges: Any) -> None:
    """Start all judges side by side, including those behind routes. Starting one twice does nothing."""
    wanted: list[Any] = []
    for judge in judges:
        if isinstance(judge, JudgeRoutes):
            wanted += [*judge.routes.values(), judge.default]
        else:
            wanted.append(judge)
    await at_home(start_together, wanted)
