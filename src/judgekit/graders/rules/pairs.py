"""Pairs two lists so that the paired are as alike as they can be together."""

from __future__ import annotations

import math
from collections.abc import Sequence

_MOST_STEPS = 3_000_000
"""Comparisons that the best pairing may take, a tenth of a second's worth; larger lists are paired by the closest pairs first."""


def best_pairs(alike: Sequence[Sequence[float]]) -> list[int | None]:
    """Return for each row the column with which it is paired, each used once; None for a row that is like none.

    *alike*: for each row how like each column it is, from 0 (not at all). The sum over the pairs is the largest that
    there is: the assignment problem, by shortest augmenting paths (Kuhn 1955; Jonker and Volgenant 1987).
    """
    rows, columns = len(alike), len(alike[0]) if alike else 0
    if not columns:
        return [None] * rows
    if min(rows, columns) ** 2 * max(rows, columns) > _MOST_STEPS:
        return _closest_first(alike)
    if rows > columns:
        turned = best_pairs([[row[j] for row in alike] for j in range(columns)])
        owner = {i: j for j, i in enumerate(turned) if i is not None}
        return [owner.get(i) for i in range(rows)]
    of_row, of_column = [0.0] * (rows + 1), [0.0] * (columns + 1)
    owners = [0] * (columns + 1)  # the row of each column, from 1; 0: free
    for row in range(1, rows + 1):
        _place(row, alike, of_row, of_column, owners)
    found: list[int | None] = [None] * rows
    for column, row in enumerate(owners[1:]):
        if row and alike[row - 1][column] > 0:
            found[row - 1] = column
    return found


def _place(
    row: int,
    alike: Sequence[Sequence[float]],
    of_row: list[float],
    of_column: list[float],
    owners: list[int],
) -> None:
    """Give a row a column, and other rows other columns, along the path that costs least."""
    size = len(of_column)
    least, came = [math.inf] * size, [0] * size
    done = [False] * size
    owners[0] = row
    at = 0
    while owners[at]:
        done[at] = True
        here, step, following = owners[at], math.inf, 0
        for column in range(1, size):
            if done[column]:
                continue
            cost = -alike[here - 1][column - 1] - of_row[here] - of_column[column]
            if cost < least[column]:
                least[column], came[column] = cost, at
            if least[column] < step:
                step, following = least[column], column
        for column in range(size):
            if done[column]:
                of_row[owners[column]] += step
                of_column[column] -= step
            else:
                least[column] -= step
        at = following
    while at:
        owners[at] = owners[came[at]]
        at = came[at]


def _closest_first(alike: Sequence[Sequence[float]]) -> list[int | None]:
    pairs = sorted((-value, i, j) for i, row in enumerate(alike) for j, value in enumerate(row) if value > 0)
    found: list[int | None] = [None] * len(alike)
    used: set[int] = set()
    for _, i, j in pairs:
        if found[i] is None and j not in used:
            found[i] = j
            used.add(j)
    return found
