"""Conditions of gates: a node compared with a number."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from judgekit.errors import ConfigError


@dataclass(frozen=True)
class When:
    """A condition: a node compared with a number."""

    node: Any
    op: str
    threshold: float

    def holds(self, ev: Any) -> bool | None:
        """Whether it holds; None where the node is missing."""
        value = self.node.value(ev)
        return None if value is None else OPERATORS[self.op](value, self.threshold)

    def __str__(self) -> str:
        return f"{self.node.label()} {self.op} {self.threshold:g}"


OPERATORS: Final[dict[str, Callable[[float, float], bool]]] = {
    ">=": operator.ge,
    ">": operator.gt,
    "<=": operator.le,
    "<": operator.lt,
    "==": operator.eq,
    "!=": operator.ne,
}


_CONDITION = re.compile(r"\s*([\w.:/-]+?)\s*(>=|<=|==|!=|>|<)\s*(\S+)\s*")


def condition(given: Any, leaf: Callable[[str], Any]) -> When:
    """A condition from `Score("correct") >= 1` or `"correct >= 1"`."""
    if isinstance(given, When):
        return given
    match = _CONDITION.fullmatch(given) if isinstance(given, str) else None
    try:
        if match:
            return When(leaf(match[1]), match[2], float(match[3]))
    except ValueError:
        pass
    raise ConfigError(f"gate: {given!r} is not a condition such as 'correct >= 1'")
