"""Cuts over-long texts in the middle, always with a mark."""

from __future__ import annotations

from collections.abc import Sequence

MARK = " [... the middle was cut ...] "
LEAST = 2 * len(MARK)
"""Characters of a text that was cut, at least: the mark and as much of itself."""


def shortened(text: str, most: int) -> str:
    """Cut *text* in the middle to at most *most* characters, mark included. If not even the mark fits, the mark is cut."""
    if len(text) <= most:
        return text
    keep = most - len(MARK)
    if keep < 2:
        return MARK[: max(0, most)]
    return text[: (keep + 1) // 2] + MARK + text[len(text) - keep // 2 :]


def level(budgets: list[int], which: Sequence[int], over: int, least: int) -> int:
    """Lower the longest of the budgets *which* to one level; returns the total reduction.

    The total is *over*, or less where *least* stops it.
    """
    low, high = least, max((budgets[i] for i in which), default=0)
    while low < high:  # the highest level that takes enough away
        middle = (low + high + 1) // 2
        if sum(max(0, budgets[i] - middle) for i in which) >= over:
            low = middle
        else:
            high = middle - 1
    taken = 0
    for i in which:
        if budgets[i] > low:
            less = min(budgets[i] - low, over - taken)
            budgets[i] -= less
            taken += less
    return taken
