"""Drops groups that teach nothing: a condition on the final rewards of a group."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from judgekit.errors import ConfigError
from judgekit.reward.conditions import Condition, condition
from judgekit.reward.gates import FUNCTIONS
from judgekit.reward.nodes import Evaluation, Node, Score, score_names
from judgekit.types import Graded

REWARD: Final = "reward"
"""What the condition calls the rewards of a group."""


class DropIf:
    """Decides which groups are dropped: `DropIf("spread(reward) < 0.02")`.

    The condition looks at the raw rewards of a group's valid members, before any transform or fill. Where it is undecided, as a
    spread of fewer than two rewards is, the group stays. Raises ConfigError for any other condition.
    """

    def __init__(self, given: str | Condition) -> None:
        try:
            self.condition = condition(given, Score, FUNCTIONS)
        except ConfigError as error:
            raise ConfigError(f"drop_if: {str(error).removeprefix('gate: ')}") from None
        for part in self.condition.comparisons():
            if not part.node.of_group or score_names(part.node) != (REWARD,):
                raise ConfigError(
                    f"drop_if looks at the rewards of a group, as in 'spread({REWARD}) < 0.02' or 'share({REWARD} >= 1) > 0.9', not "
                    f"at {part}"
                )

    def __str__(self) -> str:
        return str(self.condition)

    def of(self, rewards: Sequence[float]) -> Mapping[str, float | None]:
        """Return the numbers by which a group of these rewards is dropped; empty if it stays."""
        members = [Evaluation({REWARD: Graded(reward)}, {}) for reward in rewards]
        numbers: dict[str, float | None] = {}

        def number(node: Node) -> float | None:
            found = [node.member(ev) for ev in members]  # type: ignore[attr-defined]
            value: float | None = node.number([x for x in found if x is not None])  # type: ignore[attr-defined]
            numbers[node.label()] = value
            return value

        return numbers if self.condition.holds(number) else {}
