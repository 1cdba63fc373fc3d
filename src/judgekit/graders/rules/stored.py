"""Values as storage leaves them: Arrow fills the keys that a struct lacks with null."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from judgekit.types import plain

_MOST_DEEP = 200


def without_nulls(value: Any, depth: int = 0) -> Any:
    """Return *value* without the keys whose value is null, at any depth; the same object if there are none.

    For values that were stored as structs. JSON text keeps its nulls: there they are meant.
    """
    if depth > _MOST_DEEP:
        return value
    if isinstance(value, Mapping):
        kept = {key: without_nulls(item, depth + 1) for key, item in value.items() if item is not None}
        same = len(kept) == len(value) and all(kept[key] is value[key] for key in kept)
        return value if same else kept
    if isinstance(value, list | tuple):
        parts = [without_nulls(item, depth + 1) for item in value]
        return value if all(a is b for a, b in zip(parts, value, strict=True)) else parts
    return value


def as_python(value: Any) -> Any:
    """Return *value* with numpy's arrays and scalars as Python's; what is nested too deep as it is."""
    try:
        return plain(value)
    except RecursionError:
        return value
