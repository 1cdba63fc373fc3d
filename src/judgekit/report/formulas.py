r"""Formulas in rollouts as MathML, which browsers draw: `\frac{1}{2}` between $ and $, and their like.

They are converted by latex2mathml, if it is installed (`pip install "judgekit-rl[view]"`); else the page shows their source.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from typing import Any
from xml.etree import ElementTree

_MOST = 200
"""Formulas of a rollout beyond which the source is shown; so it is for one of more than 500 characters."""
_FORMULA = re.compile(
    r"\$\$(.{1,500}?)\$\$|\\\[(.{1,500}?)\\\]|\\\((.{1,500}?)\\\)|\$(?!\s)((?:[^$\\\n]|\\.){1,500}?)(?<!\s)\$",
    re.DOTALL,
)


def with_formulas(rollout: dict[str, Any]) -> dict[str, Any]:
    """Add to a rollout the MathML of its formulas, by their source."""
    found: dict[str, str] = {}
    for text in _texts(rollout):
        for match in _FORMULA.finditer(text):
            source = next(filter(None, match.groups())).strip()
            if len(found) < _MOST and source not in found and (made := mathml(source)):
                found[source] = made
    return {**rollout, "formulas": found} if found else rollout


@functools.lru_cache(maxsize=10_000)
def mathml(source: str) -> str:
    """Return a formula as MathML; "" where it cannot be converted."""
    try:
        from latex2mathml.converter import convert
    except ImportError:
        return ""
    try:
        made = str(convert(source))
        ElementTree.fromstring(made)  # it lets the text in \text through as it is
    except Exception:  # a policy writes what it likes, and the converter has many ways to refuse it
        return ""
    return made


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        if "$" in value or "\\" in value:
            yield value
    elif isinstance(value, list | dict):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _texts(item)
