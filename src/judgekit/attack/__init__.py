"""Attacks a reward: what earns although it should not, what is refused although it is right."""

from judgekit.attack.holes import Hole, Report, find_holes
from judgekit.attack.targets import SHIPPED, Row, rows_of

__all__ = ["SHIPPED", "Hole", "Report", "Row", "find_holes", "rows_of"]
