"""A tool call and its result: arguments, how they are parsed and when two are equal; and which results are errors."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

import msgspec

from judgekit.errors import reads_rollout


@dataclass(slots=True, eq=False)
class Call:
    """One tool call."""

    name: str
    arguments: Any
    """A mapping, if they were one or JSON of one; else unchanged."""
    id: str = ""
    turn: int = 0
    """Index of the assistant's message."""
    answer: Observation | None = None
    complete: bool = True
    """Whether arguments were given at all, if only empty ones."""
    at: int = -1
    """Place of its message; -1: it stands in the response."""

    def key(self) -> str:
        """A key that equal calls share, regardless of argument order."""
        return f"{self.name}\0{canonical(self.arguments)}"


@dataclass(slots=True, eq=False)
class Observation:
    """One tool result."""

    text: str
    flag: bool | None = None
    """Whether it is marked as an error; None if it is not marked."""
    call: Call | None = None

    @property
    def failed(self) -> bool:
        """Whether it is an error, by its mark or else by its text."""
        return looks_like_an_error(self.text) if self.flag is None else self.flag


class Untyped(str):
    """An argument as a format writes it that has no quotes: `3` may be the number, or the text."""

    __slots__ = ()

    def read(self) -> Any:
        """Return the value that it is, if it is not meant as a text; the text itself if it is only that."""
        text = self.strip()
        if text in _WORDS:
            return _WORDS[text]
        try:
            return json.loads(text, parse_constant=_no_number)
        except ValueError:
            pass
        if text[:1] in ("[", "{", "(") and len(text) <= _MOST_CHARS:  # as Python writes lists and mappings
            try:
                return ast.literal_eval(text)
            except (ValueError, SyntaxError, TypeError):
                pass
        return str(self)


_WORDS: Mapping[str, Any] = {"True": True, "False": False, "None": None}
_MOST_CHARS = 20_000
"""Longer texts are not given to Python's parser."""


def _no_number(word: str) -> NoReturn:
    raise ValueError(word)  # "NaN" and "Infinity" are texts


@reads_rollout
def typed(arguments: Mapping[str, Any], schema: Any) -> Mapping[str, Any]:
    """Return *arguments* with those that are untyped read as the tool's *schema* declares them.

    What may be a text stays one, and so does what is no other value.
    """
    if not any(isinstance(value, Untyped) for value in arguments.values()):
        return arguments
    declared = schema.get("properties") if isinstance(schema, Mapping) else None
    declared = declared if isinstance(declared, Mapping) else {}
    return {
        name: (str(value) if _is_text(declared.get(name)) else value.read())
        if isinstance(value, Untyped)
        else value
        for name, value in arguments.items()
    }


def _is_text(details: Any) -> bool:
    """Whether an argument may be a text, by its schema: also if it may be null, or another type."""
    if not isinstance(details, Mapping):
        return False
    kinds, options = details.get("type"), details.get("anyOf")
    if isinstance(options, list | tuple):
        return any(map(_is_text, options))
    kinds = kinds if isinstance(kinds, list | tuple) else [kinds]
    return any(isinstance(kind, str) and kind.lower() in ("string", "str", "char") for kind in kinds)


@reads_rollout
def canonical(value: Any) -> str:
    """Return one text for equal values: keys sorted, whole floats as integers, texts stripped."""
    plain = _plain(value)
    try:
        return _encode(plain).decode()
    except (TypeError, ValueError, OverflowError):  # values that JSON cannot represent
        return json.dumps(plain, sort_keys=True, default=str)


_encode = msgspec.json.Encoder(order="deterministic").encode
_decode = msgspec.json.Decoder().decode


def _plain(value: Any) -> Any:
    kind = type(value)
    if kind is str:
        return value.strip()
    if kind is int or value is None:
        return value
    if kind is dict:
        return {k if type(k) is str else str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return int(value)
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    return str(value).strip() if isinstance(value, Untyped) else value


@reads_rollout
def parsed_arguments(value: Any) -> Any:
    """Parse a call's arguments: JSON text to its value, nothing to no arguments."""
    if isinstance(value, str):
        if not value or value.isspace():
            return {}
        try:
            return _decode(value)
        except (msgspec.DecodeError, UnicodeError):
            pass
        try:
            return json.loads(value)
        except ValueError:
            return value.strip()
    return {} if value is None else value


def is_mapping(value: Any) -> bool:
    return type(value) is dict or isinstance(value, Mapping)  # the first is fast, and nearly always enough


def is_call(value: Mapping[str, Any]) -> bool:
    """Return whether a mapping has the name of a function to call."""
    inner = _first(value, "tool_call") or value
    function = (_first(inner, "function", "custom") or inner) if isinstance(inner, Mapping) else None
    return isinstance(function, str) or (
        isinstance(function, Mapping) and isinstance(_first(function, "name", "tool"), str)
    )


def call_of(value: Mapping[str, Any], turn: int) -> Call:
    """Return the call that a mapping stands for, by the keys of OpenAI's, Anthropic's and data sets' formats."""
    inner = _first(value, "tool_call")
    inner = inner if is_mapping(inner) else value
    function = _first(inner, "function", "custom")
    function = inner if function is None else function
    if not is_mapping(function):
        function = {**inner, "name": function}
    name = _first(function, "name", "tool")
    present = [key for key in _ARGUMENTS if key in function]
    key = next((key for key in present if function[key] is not None), present[0] if present else None)
    arguments = None if key is None else function[key]
    # an item of Responses has an id of its own, too; answers name its call_id
    id_ = inner.get("call_id") or inner.get("id") or inner.get("tool_use_id") or ""
    return Call(str(name or ""), parsed_arguments(arguments), str(id_), turn, complete=key is not None)


_ARGUMENTS = ("arguments", "input", "args", "parameters", "tool_input", "kwargs")


def _first(value: Mapping[str, Any], *keys: str) -> Any:
    """Return the first of these keys' values that is not null."""
    return next((found for key in keys if (found := value.get(key)) is not None), None)


ERROR_START = re.compile(
    r"""\s*[\["'(<*_]*\s*(?:
        (?:(?:fatal|runtime|internal|server|execution|tool|http|api|syntax|unknown|unexpected|an?|the)[ ]+)*
            (?:error|exception|failure)s?\b(?:
                \s*$ | \s*[\])}>*_"']*\s*(?:[:;,!]|[.-](?=\s|$))(?!\s*(?:0|none|no)\b) | [\])}>*]
              | [ ]+(?:occurred|while|when|during|at|from|calling|executing|invoking|parsing|reading|loading|running|code|\#?\d)\b)
      | traceback\ \(most\ recent\ call\ last\)
      | [A-Za-z_.]*(?:Error|Exception|Timeout)\b\s*(?:[:(]|$)
      | (?:failed|failure|unable|could\ not|cannot|can't)\ (?!\w+\s*:\s*(?:0|none|no)\b)(?:to\b|:|\w+\b)
      | (?:http\s*(?:/[\d.]+\s*)?)?(?:status\s*(?:code)?\s*:?\s*)?[45]\d\d\s+(?:bad|unauthorized|forbidden|not|method|request|internal|service|gateway|too|error|client|server)\b
      | (?:permission|access)\ denied\b | command\ not\ found\b | no\ such\ (?:file|tool|function|command)\b
      | (?:the\ |your\ )?(?:tool\ |function\ |api\ )?(?:request|operation|connection|execution|command|call)?\s*(?:has\ |was\ )?(?:timed\ out|refused|reset\ by\ peer)\b
      | (?:the\ )?(?:tool|function|api)\ (?:call|request|execution)\ (?:has\ )?failed\b
      | (?:unknown|invalid|unrecognized|missing)\ (?:tool|function|command|arguments?|parameters?|required|api|json|syntax)\b
    )""",
    re.VERBOSE | re.IGNORECASE,
)
_ERROR_LINE = re.compile(
    r"^(?:[\w./-]+: ){1,4}(?:(?:command )?not found|no such file or directory|permission denied)\s*$"
    r"|^[\w./-]+: cannot (?:access|open|stat|create|remove|read|find|execute)\b",
    re.IGNORECASE | re.MULTILINE,
)
_TRACEBACK = "Traceback (most recent call last):"
_RAISED = re.compile(
    r"Traceback|[ \t]+File \"|[A-Za-z_][\w.]*(?:Error|Exception|Interrupt|Exit|Warning|Failure|Timeout)\b[^\n]*\s*\Z"
)
"""The last line of a traceback, or of a part of one."""


def looks_like_an_error(text: str) -> bool:
    """Return whether a tool's answer is just an error, by its beginning or its JSON."""
    start = text.lstrip()[:400]
    if ERROR_START.match(start) or _ERROR_LINE.search(text[:2000]):
        return True
    if _TRACEBACK in text and _RAISED.match(text, text.rstrip().rfind("\n") + 1):
        return True
    if start[:1] == "{" and len(text) <= 100_000:
        try:
            data = json.loads(text)
        except (ValueError, RecursionError):
            return False
        return isinstance(data, Mapping) and _says_error(data)
    return False


def _says_error(data: Mapping[str, Any]) -> bool:
    for key in ("error", "errors", "exception", "traceback"):
        if data.get(key) and data[key] not in ("none", "None", "null", "false"):
            return True
    if (
        data.get("success") is False
        or data.get("ok") is False
        or True in (data.get("is_error"), data.get("isError"))
    ):
        return True
    return str(data.get("status", "")).lower() in ("error", "failed", "failure")
