"""Shares with intervals that hold for rollouts of common prompts."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from msgspec import Struct
from scipy.special import stdtrit

from judgekit.errors import DataError

_ICC, _ERRORS = 0.3, 5.0
"""How alike rollouts of a prompt are taken to be, with the weight of so many errors, until the data say so."""


class Share(Struct, frozen=True):
    """A share (0..1) with its interval; None where too little is known."""

    value: float | None
    low: float | None
    high: float | None
    n: int
    """Rollouts."""
    prompts: int


def clusters_of(names: Any) -> Any:
    """Number the clusters: an array (n,) of integers from 0."""
    numbers: dict[Any, int] = {}
    return np.array([numbers.setdefault(name, len(numbers)) for name in names], dtype=np.intp)


def share(hits: Any, clusters: Any, *, level: float = 0.95) -> Share:
    """Return the share of *hits* with its two-sided interval.

    *hits*: (n,) of bool. *clusters*: (n,), the prompt of each. Wilson's interval at the effective number of rollouts, with
    Student's quantile at prompts - 1: rollouts of a prompt are alike, and treated as independent they would cover 53 to
    80 % where they say 95. The design effect is shrunken, so that an error more never makes the interval narrower. Without
    two prompts there is no interval.

    Source: Wilson (1927); effective sample sizes as in Korn and Graubard (1998).
    """
    hits = np.asarray(hits, dtype=float)
    n = len(hits)
    if not n:
        return Share(None, None, None, 0, 0)
    codes = clusters_of(clusters)
    prompts = int(codes.max()) + 1
    p = float(hits.mean())
    if prompts < 2:
        return Share(p, None, None, n, prompts)
    low, high = _wilson(p, n / design_effect(hits, codes), prompts, level)
    return Share(p, max(0.0, min(p, low)), min(1.0, max(p, high)), n, prompts)


def _wilson(p: float, n: float, prompts: int, level: float) -> tuple[float, float]:
    """Wilson's interval of a share *p* of *n* independent rollouts, with Student's quantile at prompts - 1."""
    z = float(stdtrit(prompts - 1, 0.5 + level / 2))
    middle = (p + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    return middle - half, middle + half


def interval(hits: Any, totals: Any, level: float = 0.95) -> Share:
    """Return a share with its interval, as `share` does, from counts by prompt.

        interval([8, 3, 8], [8, 8, 8]).low    # the judge agreed with 8, 3 and 8 of the 8 rollouts of three prompts

    *hits*, *totals*: (prompts,) of whole numbers, each total at least its hits; prompts with none are left out. *level*:
    between 0 and 1. Raises DataError.
    """
    found, of = np.asarray(hits), np.asarray(totals)
    if found.shape != of.shape or found.ndim != 1:
        raise DataError(
            f"hits and totals are two lists of one length, not of the shapes {found.shape} and {of.shape}"
        )
    if not 0 < level < 1:
        raise DataError(f"the level of an interval is between 0 and 1, not {level!r}")
    if not (_whole(found) and _whole(of) and (found <= of).all()):
        raise DataError("hits and totals are whole numbers from 0, with no more hits than there are in total")
    found, of = found.astype(int), of.astype(int)
    each = np.concatenate(
        [np.arange(total) < hit for hit, total in zip(found, of, strict=True)] or [np.zeros(0, dtype=bool)]
    )
    return share(each, np.repeat(np.arange(len(of)), of), level=level)


def _whole(numbers: Any) -> bool:
    return numbers.dtype.kind in "iufb" and bool(
        (np.isfinite(numbers) & (numbers >= 0) & (numbers == np.trunc(numbers))).all()
    )


def design_effect(hits: Any, codes: Any, icc: float = _ICC) -> float:
    """Return by how much the variance of a share exceeds that of as many independent rollouts, at least 1.

    *icc*: how alike rollouts of a prompt are taken to be (0..1), where few errors tell.
    """
    n, p = len(hits), float(hits.mean())
    sizes = np.bincount(codes).astype(float)
    prompts = len(sizes)
    expected = 1 + (float((sizes**2).sum()) / n - 1) * icc
    errors = n * min(p, 1 - p)
    if not errors or prompts < 2:
        return max(1.0, expected)
    rest = np.bincount(codes, weights=hits) - p * sizes
    seen = prompts / (prompts - 1) * float(rest @ rest) / (n * p * (1 - p))
    return max(1.0, (errors * seen + _ERRORS * expected) / (errors + _ERRORS))


def most(hits: Any, clusters: Any) -> float:
    """Return the upper limit (0..1) of a share, which holds with a probability of 95 %; 1 where nothing is known.

    A judge may be right or wrong about a prompt as a whole, which few errors do not show: until they do, the limit counts
    prompts and not rollouts.
    """
    hits, codes = np.asarray(hits, dtype=float), clusters_of(clusters)
    prompts = len(set(codes.tolist()))
    if prompts < 2:
        return 1.0
    n = len(hits)
    _, high = _wilson(float(hits.mean()), n / design_effect(hits, codes, 1.0), prompts, 0.9)
    _, least = _wilson(0.0, n / design_effect(np.zeros(n), codes, 1.0), prompts, 0.9)
    return min(1.0, max(high, least))
