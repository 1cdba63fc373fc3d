"""Builds the JSON Schema of reward.yaml from the registries, signatures and node names that read the file.

    # yaml-language-server: $schema=reward.schema.json

With this line an editor completes names and marks mistakes. Graders of installed plug-ins are included; graders given
as `module:object` accept any parameters.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import entry_points
from pkgutil import resolve_name
from typing import Any

import pydantic
from pydantic import ConfigDict
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import PydanticOmit

from judgekit.config.checks import hints_of, struct_of
from judgekit.evidence.audit_settings import AuditSettings
from judgekit.graders.protocol import Grader
from judgekit.graders.registry import GRADERS
from judgekit.graders.trust import Trust
from judgekit.judges.base import Judge, RewardModel
from judgekit.judges.layers.routes import JudgeRoutes
from judgekit.judges.layers.stack import LayerOptions
from judgekit.judges.registry import ENGINES, VERDICTS
from judgekit.judges.verdicts.formats import VerdictFormat
from judgekit.ledger.writer import Ledger
from judgekit.reward.conditions import OPERATORS
from judgekit.reward.nodes import How
from judgekit.run.settings import Settings

Schema = dict[str, Any]

_TEXT: Schema = {"type": "string"}
_OWN: Schema = {"type": "string", "pattern": r"^[\w.]+:[\w.]+$"}


def reward_schema() -> Schema:
    """Build the schema of a whole reward.yaml (JSON Schema 2020-12)."""
    grader, names = _choice(
        "use", GRADERS, "judgekit.graders", {"fields": _map(_TEXT), "trust": _ref("trust")}
    )
    judge, _ = _choice("engine", ENGINES, "judgekit.engines", {"layers": _signature(LayerOptions)})
    sections = {
        "graders": {**_map({"anyOf": [names, grader]}), "minProperties": 1},
        "judges": _map(judge),
        "reward": _ref("node"),
        "runner": _signature(Settings),
        "ledger": _signature(Ledger),
        "audit": _signature(AuditSettings),
    }
    verdicts = [_signature(make, extra={"format": {"const": name}}) for name, make in VERDICTS.items()]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "reward.yaml",
        **_object(sections, required=["graders"]),
        "$defs": {
            **_nodes(),
            "trust": _signature(Trust),
            "verdict": {"anyOf": [{"enum": list(VERDICTS)}, *verdicts]},
            # a scalar with an environment variable: its type is only known where the file is read
            "variable": {"type": "string", "pattern": r"\$\{\w+(:-[^}]*)?\}"},
        },
    }


def _nodes() -> Mapping[str, Schema]:
    """The reward tree's nodes and conditions, as read by `judgekit.reward.spec`."""
    node, nodes = _ref("node"), {"type": "array", "items": _ref("node"), "minItems": 1}
    number = _or_variable({"type": "number"})
    point = {"type": "array", "items": number, "minItems": 2, "maxItems": 2}
    weight = {"anyOf": [number, {"type": "array", "items": point, "minItems": 1}]}
    term = _object({"weight": weight, "of": node}, required=["weight"])
    missing: Schema = {"anyOf": [{"enum": ["propagate", "renormalise"]}, number]}
    kinds = [
        _object(
            {"weighted": _map({"anyOf": [weight, term]}), "normalize": _or_variable({"type": "boolean"})},
            required=["weighted"],
        ),
        _only("gate", _object({"if": _ref("condition"), "then": node, "otherwise": node})),
        _only("switch", _object({"by": _TEXT, "cases": _map(node), "otherwise": node}, required=["cases"])),
        *(_only(name, nodes) for name in ("product", "min", "max")),
        _only("fallback", {**nodes, "minItems": 2, "maxItems": 2}),
        _only("clip", _object({"of": node, "low": number, "high": number})),
        _only("const", number),
        _object({"score": _TEXT, "if_missing": missing, "if_broken": number}, required=["score"]),
        _object(
            {
                "turns": _TEXT,
                "how": {"enum": list(typing.get_args(How))},
                "if_missing": missing,
                "if_broken": number,
            },
            required=["turns"],
        ),
    ]
    conditions = [
        _TEXT,
        _object({"of": node, "op": {"enum": list(OPERATORS)}, "than": number}),
        *(_only(op, {"type": "array", "items": _ref("condition"), "minItems": 1}) for op in ("and", "or")),
    ]
    return {"node": {"anyOf": [_TEXT, {"type": "number"}, *kinds]}, "condition": {"anyOf": conditions}}


def _choice(key: str, shipped: Mapping[str, str], group: str, more: Schema) -> tuple[Schema, Schema]:
    """An object whose *key* selects its parameters (*more*: extra properties), and the schema of that key."""
    names: Schema = {
        "anyOf": [{"enum": [*shipped, *sorted(entry.name for entry in entry_points(group=group))]}, _OWN]
    }
    cases = [
        {
            "if": {"properties": {key: {"const": name}}},
            "then": _signature(resolve_name(target), extra={key: {}, **more}),
        }
        for name, target in shipped.items()
    ]
    return {"type": "object", "properties": {key: names, **more}, "required": [key], "allOf": cases}, names


def _signature(make: Callable[..., Any], *, extra: Schema | None = None) -> Schema:
    """An object with the parameters of a class or function."""
    hints = hints_of(make)
    parameters = {
        p.name: p
        for p in inspect.signature(make).parameters.values()
        if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)
    }
    properties = {**(extra or {}), **{name: _of(hints.get(name, Any)) for name in parameters}}
    required = [name for name, p in parameters.items() if p.default is p.empty]
    keys = [key for key in extra or {} if "const" in (extra or {})[key]]
    return _object(properties, required=[*keys, *required])


def _of(hint: Any) -> Schema:
    """The schema of a parameter of this type; `judgekit.config` follows the same rules."""
    wanted = {hint, *typing.get_args(hint)}
    if Judge in wanted or RewardModel in wanted or Sequence[Judge] in wanted:
        found: list[Schema] = [{"type": "array", "items": _TEXT}] if Sequence[Judge] in wanted else [_TEXT]
        if JudgeRoutes in wanted:
            routes = {"by": _TEXT, "routes": _map(_TEXT), "default": _TEXT}
            found.append(_object(routes, required=["routes"]))
        return {"anyOf": found}
    if Grader in wanted:
        return {"type": ["string", "object"]}
    if VerdictFormat in wanted:
        return _ref("verdict")
    if (settings := struct_of(hint)) is not None:
        made = _signature(settings)
        return {"anyOf": [made, {"type": "null"}]} if type(None) in wanted else made
    try:
        adapter: pydantic.TypeAdapter[Any] = pydantic.TypeAdapter(
            hint, config=ConfigDict(arbitrary_types_allowed=True)
        )
        return _or_variable(adapter.json_schema(schema_generator=_Generator))
    except (pydantic.PydanticUserError, PydanticOmit):  # YAML cannot hold it, or the schema cannot check it
        return {}


class _Generator(GenerateJsonSchema):
    """Omits union members that YAML cannot express."""

    def handle_invalid_for_json_schema(self, schema: Any, error_info: str) -> Any:
        raise PydanticOmit


def _or_variable(schema: Schema) -> Schema:
    return (
        schema
        if not schema or schema == _TEXT
        else {"anyOf": [*schema.get("anyOf", [schema]), _ref("variable")]}
    )


def _object(properties: Schema, *, required: Sequence[str] | None = None) -> Schema:
    """An object with these keys and no others, all required unless *required* names some."""
    names = list(properties) if required is None else list(required)
    return {"type": "object", "properties": properties, "required": names, "additionalProperties": False}


def _only(key: str, schema: Schema) -> Schema:
    return _object({key: schema})


def _map(values: Schema) -> Schema:
    return {"type": "object", "additionalProperties": values}


def _ref(name: str) -> Schema:
    return {"$ref": f"#/$defs/{name}"}
