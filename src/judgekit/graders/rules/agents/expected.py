"""Reads the tool calls of a reference, with the values that it accepts."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from judgekit.errors import RolloutError
from judgekit.graders.rules.agents.trajectory import calls_in
from judgekit.graders.rules.calls import Call, parsed_arguments
from judgekit.graders.rules.stored import as_python, without_nulls
from judgekit.graders.rules.written_calls import MARKS, in_python, nothing_else, written

MAX_DEPTH = 100
"""A reference whose arguments are nested deeper is not read."""


class Expected:
    """One call of the reference, with its accepted alternatives."""

    __slots__ = ("filled", "forms")

    def __init__(
        self, forms: Sequence[tuple[str, Mapping[str, Any] | Any, frozenset[str]]], *, filled: bool = False
    ) -> None:
        self.filled = filled
        """Whether it was stored with nulls for the keys that it lacks: then a call's nulls mean nothing, either."""
        self.forms = tuple(forms)
        """(name, arguments, optional arguments); an `AnyOf` argument accepts each of its values."""

    @property
    def name(self) -> str:
        return self.forms[0][0]


class AnyOf(tuple[Any, ...]):
    """The accepted values of one argument."""


class Fields(dict[str, Any]):
    """An object each of whose values has accepted alternatives, as in BFCL's `possible_answer`.

    Alternatives that are objects, or lists of them, have lists of accepted values inside. "" among them makes a field
    optional; it may also be given as "".
    """

    def __init__(self, fields: Mapping[str, Any]) -> None:
        super().__init__((str(k), AnyOf(map(_accepted, v))) for k, v in fields.items())
        self.optional = frozenset(k for k, v in self.items() if "" in v)


class Positional(dict[str, Any]):
    """Arguments of which the first have no names; they belong to the first names of the call that are not here."""

    def __init__(self, values: Sequence[Any], named: Mapping[str, Any]) -> None:
        super().__init__(named)
        self.values_without_name = tuple(values)

    def named(self, given: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return all arguments with names, for a call that was given these."""
        free = [name for name in given if name not in self]
        free += [f"argument {i}" for i in range(len(free), len(self.values_without_name))]
        return {**dict(zip(free, self.values_without_name, strict=False)), **self}


def expected_calls(value: Any) -> list[Expected] | None:
    """Parse a reference's calls; None if it is not a valid one.

    A reference is a list of calls in any format that `trajectory.calls_in` reads, or JSON of one. A call may be
    `{"any_of": [call, …]}`, BFCL's `{"function": {"argument": [accepted, …]}}`, where "" among the accepted values
    makes the argument optional, and code with literals: `"cd(folder='documents')"`, as in BFCL's multi-turn answers.
    Lists of lists are turns; the calls of all turns count. A null in a struct is an absent key, as Arrow fills it; in
    JSON text it is a value.
    """
    value = as_python(value)
    kept = value if isinstance(value, str) else without_nulls(value)
    try:
        found = _read(kept)
    except (RolloutError, RecursionError):  # the reference is nested too deep, and no rollout is to blame
        return None
    fine = found is not None and all(shallow(form[1]) for call in found for form in call.forms)
    if fine and found is not None and kept is not value:
        found = [Expected(call.forms, filled=True) for call in found]
    return found if fine else None


def shallow(value: Any, most: int = MAX_DEPTH) -> bool:
    """Return whether lists and objects are nested at most so deep."""
    layer = [value]
    for _ in range(most):
        layer = [
            inner
            for part in layer
            if isinstance(part, Mapping | list | tuple)
            for inner in (part.values() if isinstance(part, Mapping) else part)
        ]
        if not layer:
            return True
    return False


def _read(value: Any) -> list[Expected] | None:
    if isinstance(value, str) and (code := call_in_code(value)) is not None:
        return [Expected([code])]
    if isinstance(value, str):
        text, value = value, parsed_arguments(value)
        if isinstance(value, str):
            value = _as_a_response(text) or value
        if (value in ({}, []) and not text.strip().startswith("[")) or isinstance(value, str):
            return None
    if isinstance(value, Mapping):
        value = value["tool_calls"] if isinstance(value.get("tool_calls"), list | tuple) else [value]
    if not isinstance(value, list | tuple):
        return None
    found: list[Expected] = []
    for part in value:
        is_message = isinstance(part, Mapping) and isinstance(part.get("tool_calls"), list | tuple)
        if isinstance(part, list | tuple) or is_message:
            inner = _read(part)
            if inner is None:
                return None
            found += inner
            continue
        forms = _forms(part)
        if not forms:
            return None
        found.append(Expected(forms))
    return found


def _as_a_response(text: str) -> list[Any]:
    """Return the calls of a reference that is written as a response is; none if one of them cannot be read."""
    parts = written(text) if any(mark in text for mark in MARKS) else nothing_else(text)
    calls = [part for part in parts if isinstance(part, Call)]
    if not all(call.name for call in calls):
        return []
    return [{"name": call.name, "arguments": call.arguments} for call in calls]


def call_in_code(text: str) -> tuple[str, Any, frozenset[str]] | None:
    """Parse a call of literals, such as `sort('a.txt', reverse=True)`; None if it is not one."""
    text = text.strip()
    if not re.match(r"[A-Za-z_][\w.]*\s*\(", text) or text[-1] != ")":
        return None
    calls = in_python(text)
    if calls is None or len(calls) != 1:
        return None
    ((name, values, arguments),) = calls
    return name, Positional(values, arguments) if values else arguments, frozenset()


def _accepted(value: Any) -> Any:
    if isinstance(value, Mapping) and all(isinstance(v, list | tuple) for v in value.values()):
        return Fields(value)
    if isinstance(value, list | tuple) and value and all(isinstance(v, Mapping) for v in value):
        return [_accepted(v) for v in value]
    return value


def _forms(part: Any) -> list[tuple[str, Any, frozenset[str]]]:
    if isinstance(part, str):
        if (code := call_in_code(part)) is not None:
            return [code]
        read = parsed_arguments(part)
        if isinstance(read, Mapping):
            return _forms(read)
        return [(part.strip(), {}, frozenset())] if re.fullmatch(r"\s*[\w.\-/:]+\s*", part) else []
    if not isinstance(part, Mapping):
        return []
    if isinstance(part.get("any_of"), list | tuple):
        return [form for option in part["any_of"] for form in _forms(option)]
    calls = calls_in(part)
    if calls:
        return [(call.name, call.arguments, frozenset()) for call in calls]
    if len(part) == 1:
        ((name, arguments),) = part.items()
        if isinstance(arguments, Mapping) and all(isinstance(v, list | tuple) for v in arguments.values()):
            accepted = Fields(arguments)
            return [(str(name), accepted, accepted.optional)]
    return []
