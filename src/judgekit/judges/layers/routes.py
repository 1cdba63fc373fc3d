"""Which judge answers for which rollout."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from judgekit.errors import ConfigError
from judgekit.judges.base import Judge
from judgekit.types import Abstained, Rollout, first_match, look_up


class JudgeRoutes:
    """Chooses a judge by a field of the rollout.

        JudgeRoutes({"math*": maths_judge, "code": code_judge}, default=general_judge)

    *routes*: shell patterns of the field's value, tried in order. *by*: the field, a dotted path. A rollout
    that no pattern fits goes to *default*, or the grader abstains.
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
        """The judge for *rollout*."""
        value = look_up(rollout, self.by, "")
        judge = first_match(self.routes, value) or self.default
        return judge or Abstained(f"no judge is routed to {self.by} {value!r}")


async def start_judges(*judges: Any) -> None:
    """Start each judge that can be started, those behind routes included. Starting one twice does nothing."""
    for judge in judges:
        if isinstance(judge, JudgeRoutes):
            await start_judges(*judge.routes.values(), judge.default)
        elif start := getattr(judge, "start", None):
            await start()
