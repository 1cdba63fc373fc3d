"""Compares tool calls with BFCL's `possible_answer` as BFCL's AST checker does.

A call is right if it has every required argument, no argument that the tool or the answer does not have, a value of the
declared type for each, among the accepted ones, and no argument missing that has no "" among its accepted values.
Texts are compared without case, spaces and `,./-_*^`; an integer may stand for a float, but not a float for an integer.
Accepted objects have lists of accepted values inside; so have lists of objects, in order. A value of another type than
the declared one is a variable if the accepted values are of its type, and must then be equal to one of them.

With Java and JavaScript, arguments are the texts of literals, and read by the declared type; values that are not texts
are taken as they are.

Source: the Berkeley Function-Calling Leaderboard's `ast_checker` (Patil et al. 2025).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from judgekit.errors import RolloutError
from judgekit.graders.rules.agents.expected import shallow
from judgekit.graders.rules.agents.literals import literal
from judgekit.graders.rules.calls import Call, parsed_arguments, typed
from judgekit.graders.rules.stored import as_python, without_nulls

Language = Literal["python", "java", "javascript"]
LANGUAGES = ("python", "java", "javascript")

Answer = tuple[str, Mapping[str, Sequence[Any]]]
"""A function's name, and the accepted values of its arguments."""

KINDS: Mapping[str, type] = {
    "any": str, "array": list, "arraylist": list, "bigint": int, "bool": bool, "boolean": bool, "byte": int,
    "char": str, "dict": dict, "double": float, "float": float, "hashmap": dict, "hashtable": dict, "int": int,
    "integer": int, "list": list, "long": int, "number": float, "object": dict, "short": int, "str": str,
    "string": str, "tuple": list,
}  # fmt: skip
"""The types of JSON values, by the names that BFCL's function documents use."""


def answers(value: Any) -> list[Answer] | None:
    """Parse a `possible_answer`: one `{function: {argument: [accepted, …]}}` or a list; None if it is none."""
    try:
        value = parsed_arguments(value) if isinstance(value, str) else value
    except RolloutError:  # the reference is nested too deep, and no rollout is to blame
        return None
    value = without_nulls(as_python(value))
    if not shallow(value):
        return None
    if isinstance(value, Mapping):
        value = value.get("ground_truth", [value] if value else None)
    if not isinstance(value, list | tuple):
        return None
    found: list[Answer] = []
    for part in value:
        if not isinstance(part, Mapping) or len(part) != 1:
            return None
        ((name, arguments),) = part.items()
        if not isinstance(arguments, Mapping) or not all(
            isinstance(accepted, list | tuple) for accepted in arguments.values()
        ):
            return None
        found.append((str(name), arguments))
    return found


def fits(call: Call, answer: Answer, tools: Mapping[str, Any], language: Language = "python") -> bool:
    """Return whether the call is right; *tools*: the tools' parameters as documented, by name."""
    name, accepted = answer
    # some APIs allow no dots in names
    if call.name.strip() not in (name, name.replace(".", "_")) or not isinstance(call.arguments, Mapping):
        return False
    schema = tools.get(name, tools.get(name.replace(".", "_")))
    schema = schema if isinstance(schema, Mapping) else {}
    declared = schema.get("properties")
    required = schema.get("required")
    given = typed(call.arguments, schema) if language == "python" else call.arguments
    if isinstance(required, list | tuple) and any(argument not in given for argument in required):
        return False
    if not shallow(given):
        raise RolloutError(f"{call.name}: arguments nested too deep")
    for argument, value in given.items():
        if argument not in accepted or (isinstance(declared, Mapping) and argument not in declared):
            return False
        details = declared.get(argument) if isinstance(declared, Mapping) else None
        if not _right(value, accepted[argument], details if isinstance(details, Mapping) else {}, language):
            return False
    return all(argument in given or "" in values for argument, values in accepted.items())


def _right(value: Any, accepted: Sequence[Any], details: Mapping[str, Any], language: Language) -> bool:
    items = details.get("items")
    inner = str(items.get("type", "")) if isinstance(items, Mapping) else ""
    declared = str(details.get("type", ""))
    if language != "python" and isinstance(value, str):
        value = literal(value, declared, inner, language)
    if isinstance(value, tuple):
        value = list(value)
    shown = next((type(option) for option in accepted if option != ""), None)
    kind: Any = KINDS.get(declared.lower()) or _like(value, shown)
    if kind is float and type(value) is int:
        try:
            value = float(value)
        except OverflowError:
            return False
    if type(value) is not kind:  # a variable, or wrong
        return shown is not None and type(value) is shown and _listed(value, accepted)
    if shown not in (None, kind) and (kind, shown) != (float, int):
        return _listed(value, accepted)
    return _accepted(value, accepted, KINDS.get(inner.lower()))


def _accepted(value: Any, accepted: Sequence[Any], inner: type | None) -> bool:
    """Whether a value of the right type is one of those accepted; *inner*: the type of a list's items."""
    if isinstance(value, str):
        return _text(value) in {_text(option) for option in accepted if isinstance(option, str)}
    if isinstance(value, dict):
        return any(_object(value, option) for option in accepted)
    if isinstance(value, list):
        return any(_list(value, option, inner) for option in accepted)
    return _listed(value, accepted)


def _like(value: Any, shown: type | None) -> type:
    """The type that an undocumented argument has."""
    if shown is float and type(value) is int:
        return float
    return type(value) if shown is None else shown


def _listed(value: Any, accepted: Sequence[Any]) -> bool:
    return any(value == option and isinstance(value, bool) == isinstance(option, bool) for option in accepted)


def _object(given: Mapping[str, Any], wanted: Any) -> bool:
    if not isinstance(wanted, Mapping):
        return False
    for key, value in given.items():
        options = wanted.get(key)
        if not isinstance(options, list | tuple):
            return False
        if not any(_equal(value, option) for option in options):
            return False
    return all(key in given or (isinstance(v, list | tuple) and "" in v) for key, v in wanted.items())


def _list(given: Sequence[Any], wanted: Any, inner: type | None) -> bool:
    if not isinstance(wanted, list | tuple) or len(given) != len(wanted):
        return False
    if inner is dict or (inner is None and any(isinstance(part, Mapping) for part in given)):
        return all(
            isinstance(part, Mapping) and _object(part, w) for part, w in zip(given, wanted, strict=True)
        )
    return all(map(_equal, given, wanted))


def _equal(given: Any, option: Any) -> bool:
    if isinstance(option, Mapping) and isinstance(given, Mapping):
        return _object(given, option) or given == option
    if isinstance(given, list | tuple) and isinstance(option, list | tuple):
        return len(given) == len(option) and all(map(_equal, given, option))
    if isinstance(given, str) and isinstance(option, str):
        return _text(given) == _text(option)
    return _listed(given, (option,))


def _text(text: str) -> str:
    return re.sub(r"[ ,./\-_*^]", "", text).lower().replace("'", '"')


def documents(value: Any) -> dict[str, Any]:
    """Return the tools' parameters by name, as documented; empty if there are no tools."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            return {}
    found: dict[str, Any] = {}
    value = without_nulls(as_python(value))
    for tool in [value] if isinstance(value, Mapping) else value if isinstance(value, list | tuple) else []:
        if isinstance(tool, list | tuple):  # BFCL's column `function` of one turn
            found |= documents(tool)
            continue
        function = tool.get("function", tool) if isinstance(tool, Mapping) else None
        if isinstance(function, Mapping) and isinstance(function.get("name"), str):
            found[function["name"]] = function.get("parameters", function.get("input_schema"))
    return found
