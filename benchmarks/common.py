"""What the benchmarks share: the machine's line, medians, the JSON line at the end."""

from __future__ import annotations

import json
import os
import platform
import statistics
import sys
from collections.abc import Callable, Sequence
from typing import Any


def machine() -> str:
    """One line about where this runs."""
    model = platform.processor()
    try:
        with open("/proc/cpuinfo") as file:
            model = next(line.split(":", 1)[1].strip() for line in file if line.startswith("model name"))
    except (OSError, StopIteration):
        pass
    return f"{os.cpu_count()} × {model}, Python {platform.python_version()}, load {os.getloadavg()[0]:.1f}"


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


def finish(figures: dict[str, Any]) -> None:
    """The last line: one JSON object."""
    sys.stdout.flush()
    rounded = {k: round(v, 4) if isinstance(v, float) else v for k, v in figures.items()}
    print(json.dumps(rounded), flush=True)
