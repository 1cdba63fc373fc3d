"""Reads literals of Java and JavaScript as the JSON values that they stand for."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

MAX_DEPTH = 50
_INTEGER = re.compile(r"[+-]?\d{1,400}")
_NUMBER = re.compile(r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?")
_ARRAY = re.compile(r"new\s[\w<>,\s]*+\[\s*+\]\s*+\{")
_AS_LIST = re.compile(r"(?:new\s+\w+\s*<[^>()]*>\s*\(\s*)?(?:Arrays\s*\.\s*asList|List\s*\.\s*of)\s*\(")
_COLLECTION = re.compile(r"new\s+(\w+)\s*(?:<[^()]*>)?\s*\(\s*\)\s*")
_CALL = re.compile(r"(add|put)\s*\(")
_PAIRS: Mapping[str, str] = {"(": ")", "[": "]", "{": "}"}


def literal(text: str, kind: str, inner: str, language: str) -> Any:
    """Return the value of a literal of type *kind* (of *inner*); the text itself if it is not a literal of that type."""
    read: Callable[[str], Any] = _java if language == "java" else _javascript
    name = kind.lower()
    text = text.strip()
    if name in _INTEGERS or name in _REALS:
        return _number(text, name, language)
    if name in ("bool", "boolean"):
        return {"true": True, "false": False}.get(text, text)
    if name in ("array", "arraylist", "dict", "object", "hashmap", "hashtable", "list"):
        value = read(text)
        if isinstance(value, list) and inner:
            return [literal(part, inner, "", language) if isinstance(part, Word) else part for part in value]
        return value if isinstance(value, list | dict) else text
    return text


_INTEGERS = ("byte", "short", "int", "integer", "long", "bigint")
_REALS = ("float", "double")


def _number(text: str, name: str, language: str) -> Any:
    """Return a number of the type *name*; the text itself if it is not written as that type asks."""
    endings = {"long": "lL", "bigint": "n", "float": "fF" if language == "java" else ""}.get(name, "")
    digits = text
    if endings:
        if text[-1:] not in tuple(endings):
            return text
        digits = text[:-1]
    if name in _INTEGERS:
        return int(digits) if _INTEGER.fullmatch(digits) else text
    return float(digits) if _NUMBER.fullmatch(digits) else text


class Word(str):
    """A value without quotes, such as a number or a name."""

    __slots__ = ()


def _plain(text: str) -> Any:
    """Return a string, boolean, number or name."""
    text = text.strip()
    if len(text) > 1 and text[0] == text[-1] and text[0] in "\"'`":
        return text[1:-1]
    if text in ("true", "false", "null"):
        return {"true": True, "false": False, "null": None}[text]
    number = text[:-1] if text[-1:] in tuple("lLnfF") else text
    if _INTEGER.fullmatch(number):
        return float(number) if text[-1:] in tuple("fF") else int(number)
    return float(number) if _NUMBER.fullmatch(number) else Word(text)


def _java(text: str, depth: int = 0) -> Any:
    text = text.strip()
    if depth < MAX_DEPTH:
        if (opening := _ARRAY.match(text) or _AS_LIST.match(text)) is not None:
            inside = _inside(text, opening.end() - 1)
            return text if inside is None else [_java(part, depth + 1) for part in _split(inside)]
        if (made := _COLLECTION.match(text)) is not None:
            calls = list(_calls(text, made.end()))
            if "Map" in made[1] or made[1] == "Hashtable":
                pairs = [parts for name, parts in calls if name == "put" and len(parts) == 2]
                return {str(_plain(key)): _java(value, depth + 1) for key, value in pairs}
            return [_java(parts[0], depth + 1) for name, parts in calls if name == "add" and parts]
    return _plain(text)


def _javascript(text: str, depth: int = 0) -> Any:
    text = text.strip()
    if depth < MAX_DEPTH and text[:1] in ("[", "{"):
        inside = _inside(text, 0)
        if inside is None:
            return text
        if text[0] == "[":
            return [_javascript(part, depth + 1) for part in _split(inside)]
        made: dict[str, Any] = {}
        for part in _split(inside):
            key, colon, value = _cut(part)
            if not colon:
                return text
            made[str(_plain(key))] = _javascript(value, depth + 1)
        return made
    return _plain(text)


def _calls(text: str, start: int) -> Iterator[tuple[str, list[str]]]:
    """Yield the calls of `add` and `put` in an initialiser, with their arguments."""
    at = start
    while (call := _CALL.search(text, at)) is not None:
        inside = _inside(text, call.end() - 1)
        if inside is None:
            return
        yield call[1], _split(inside)
        at = call.end() + len(inside)


def _inside(text: str, opening: int) -> str | None:
    """Return what stands between a bracket and the one that closes it; None if none does."""
    for at, _, depth in _scan(text, opening):
        if depth == 0:
            return text[opening + 1 : at]
    return None


def _split(text: str) -> list[str]:
    """Split at the commas outside quotes and brackets."""
    cuts = [at for at, char, depth in _scan(text) if char == "," and depth == 0]
    starts = [0, *(at + 1 for at in cuts)]
    parts = [text[start:end] for start, end in zip(starts, [*cuts, len(text)], strict=True)]
    return [part for part in parts if part.strip()]


def _cut(text: str) -> tuple[str, str, str]:
    """Cut at the first colon outside quotes and brackets."""
    for at, char, depth in _scan(text):
        if char == ":" and depth == 0:
            return text[:at], ":", text[at + 1 :]
    return text, "", ""


def _scan(text: str, start: int = 0) -> Iterator[tuple[int, str, int]]:
    """Yield commas, colons and brackets outside quotes, with the depth after them."""
    depth = 0
    quote = ""
    for match in re.compile(r"\\.|[\"'`,:()\[\]{}]", re.DOTALL).finditer(text, start):
        char = match[0]
        if quote:
            quote = "" if char == quote else quote
        elif char in "\"'`":
            quote = char
        elif len(char) == 1:
            depth += (char in _PAIRS) - (char in ")]}")
            yield match.start(), char, depth
