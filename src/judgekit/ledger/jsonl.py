"""Lines of JSON."""

from __future__ import annotations

import codecs
import os
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from judgekit.errors import DataError


def json_line(row: Any) -> str:
    """`encoded`, as text."""
    return encoded(row).decode()


def encoded(line: Any) -> bytes:
    """Encode *line* as one line of JSON; what JSON cannot hold becomes text."""
    try:
        return _encoder.encode(line) + b"\n"
    except Exception:  # lone surrogates, integers beyond 64 bits, keys that are not text
        return _encoder.encode(_clean(line)) + b"\n"


def stable(line: Any) -> bytes:
    """`encoded`, with the same bytes in every process: sets and mappings are sorted."""
    try:
        return _sorting.encode(line) + b"\n"
    except Exception:
        return _sorting.encode(_clean(line)) + b"\n"


def _clean(value: Any, above: frozenset[int] = frozenset()) -> Any:
    """Convert a value to what JSON can hold. *above*: ids of the values that contain it."""
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, bool | float) or value is None:
        return value
    if isinstance(value, int):
        return (
            value
            if -(1 << 63) <= value < 1 << 64
            else float(value)
            if abs(value) < 1 << 1000
            else str(type(value))
        )
    if id(value) in above or len(above) > _DEEPEST:
        return f"({type(value).__name__}, nested too deeply)"
    above = above | {id(value)}
    if isinstance(value, msgspec.Struct):
        kind = type(value).__struct_config__
        fields = {name: _clean(getattr(value, name), above) for name in value.__struct_fields__}
        return {kind.tag_field: kind.tag, **fields} if kind.tag_field and kind.tag else fields
    if isinstance(value, Mapping):
        return {_clean(k) if isinstance(k, str) else repr(k): _clean(v, above) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_clean(v, above) for v in value]
    try:
        return _clean(_plain(value), above)
    except Exception as error:
        return f"({type(value).__name__}: {type(error).__name__})"


_DEEPEST = 100
"""Levels that are kept of a value that is nested too deeply, or contains itself."""


def _plain(value: Any) -> Any:
    """Convert what msgspec cannot encode: subclasses, numpy values, mappings, sets; anything else by repr."""
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        return int.__int__(value)
    if isinstance(value, float):
        return float.__float__(value)
    if hasattr(value, "tolist"):
        return value.tolist()
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, set | frozenset):
        return sorted(value, key=repr)
    return repr(value)


def numbered_lines(path: str | os.PathLike[str]) -> Iterator[tuple[int, bytes]]:
    try:
        with open(path, "rb") as file:
            for number, line in enumerate(file, 1):
                line = line.removeprefix(codecs.BOM_UTF8) if number == 1 else line
                if line.strip():
                    yield number, line
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}") from None


def ends_torn(fd: int, before: int | None = None) -> bool:
    """Whether a file ends within a line, as after a full disk or a kill: the next one must not continue it.

    *before*: ask this of its first bytes only, so many.
    """
    size = os.fstat(fd).st_size if before is None else before
    return size > 0 and os.pread(fd, 1, size - 1) != b"\n"


_encoder = msgspec.json.Encoder(enc_hook=_plain)
_sorting = msgspec.json.Encoder(enc_hook=_plain, order="deterministic")
