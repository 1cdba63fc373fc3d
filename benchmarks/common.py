"""What the benchmarks share: the machine's line, medians, the JSON line at the end."""

from __future__ import annotations

import json
import operator
import os
import platform
import statistics
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import Any

EXACT: dict[str, tuple[str, float]] = {
    "max_error": ("<=", 1e-6),
    "nonzero_for_missing": ("==", 0),
    "recorded_wrong": ("==", 0),
    "curve_error": ("<=", 1e-6),
}
"""Goals of bench-advantages, in each adapter and over all."""
WORDS = [
    "the",
    "sum",
    "of",
    "both",
    "sides",
    "is",
    "therefore",
    "even",
    "so",
    "we",
    "divide",
    "by",
    "two",
    "and",
    "find",
    "that",
    "it",
    "holds",
]
"""For texts that look like answers."""


def machine() -> str:
    """One line about where this runs."""
    model = platform.processor()
    try:
        with open("/proc/cpuinfo") as file:
            model = next(line.split(":", 1)[1].strip() for line in file if line.startswith("model name"))
    except (OSError, StopIteration):
        pass
    return f"{os.cpu_count()} × {model}, Python {platform.python_version()}, load {os.getloadavg()[0]:.1f}"


def trainer_heap() -> list[Any]:
    """A million objects for the garbage collector, as many as a trainer's process has with torch, a model's code and a batch."""
    return [{"step": i, "ids": (i, [i])} for i in range(350_000)]


def interleaved(rounds: int, measures: dict[str, Callable[[], float]]) -> dict[str, list[float]]:
    """Every measure once per round, in turn, so that a drift of the machine hits all alike."""
    found: dict[str, list[float]] = {name: [] for name in measures}
    for _ in range(rounds):
        for name, measure in measures.items():
            found[name].append(measure())
    return found


def median(values: Sequence[float]) -> float:
    return statistics.median(values)


def quarters(values: Sequence[float]) -> tuple[float, float, float]:
    """The median with the ends of the middle half."""
    if len(values) < 2:
        return (values[0],) * 3
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return low, middle, high


def spread(values: Sequence[float]) -> str:
    return f"{median(values):.3g} ({min(values):.3g} … {max(values):.3g})"


_HOLDS: dict[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq,
    "<=": operator.le,
    ">=": operator.ge,
    "<": operator.lt,
    ">": operator.gt,
}


def missed(figures: Mapping[str, Any], goals: Mapping[str, tuple[str, float]]) -> list[str]:
    """The goals that the figures miss, in words; a figure that is not there misses its goal.

    *goals*: `{"silent_numbers": ("==", 0), "cells": (">=", 2000)}`.
    """
    found = []
    for name, (relation, bound) in goals.items():
        figure = figures.get(name)
        if not isinstance(figure, int | float) or not _HOLDS[relation](figure, bound):
            found.append(f"{name} is {figure}, the goal is {relation} {bound}")
    return found


FIGURES: dict[str, Any] = {}
"""What a benchmark has found so far, if it fills it as it goes; `reported` prints it where the benchmark fails."""


class Finished(SystemExit):
    """The end of a benchmark whose JSON line is printed."""


def finish(figures: dict[str, Any], goals: Mapping[str, tuple[str, float]] | None = None) -> None:
    """Print the figures as one JSON object, the last line; exit with 1 where they miss a goal."""
    failures = missed(figures, goals or {})
    for line in failures:
        print(f"MISSED: {line}")
    _print(figures)
    raise Finished(1 if failures else 0)


def reported(main: Callable[[], None]) -> None:
    """Run a benchmark's *main*. Whatever ends it, its last line is a JSON object, and a failure exits with 1."""
    script = sys.modules["__main__"]
    if {"-h", "--help"} & set(sys.argv[1:]) and not hasattr(script, "argparse"):  # it has no options
        print(script.__doc__)
        return
    try:
        main()
    except Finished:
        raise
    except BaseException as error:
        if isinstance(error, SystemExit) and error.code in (0, 2):  # --help, or a wrong option
            raise
        if not isinstance(error, SystemExit):
            traceback.print_exc()
        _print({**FIGURES, "error": f"{type(error).__name__}: {error}"})
        sys.exit(1)
    _print({**FIGURES, "error": "it ended without its figures"})
    sys.exit(1)


def _print(figures: Mapping[str, Any]) -> None:
    sys.stdout.flush()
    rounded = {k: _rounded(v) if isinstance(v, float) else v for k, v in figures.items()}
    print(json.dumps(rounded), flush=True)


def _rounded(value: float) -> float:
    return round(value, 4) if abs(value) >= 1e-3 else float(f"{value:.2g}")  # errors of 1e-7 are no zeros
