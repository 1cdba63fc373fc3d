"""The reward tree's YAML form: what `Node.spec` gives, read back by `parse`.

reward: {weighted: {correct: 0.8, style: {weight: 0.2, of: {clip: {of: length, low: 0, high: 1}}}}}
reward: {gate: {if: "correct >= 1", then: {weighted: {correct: 0.5, judge: 0.5}}, otherwise: 0}}
reward: {gate: {if: "flat(correct)", then: {weighted: {correct: 1, best: 0.2}}, otherwise: correct}}
reward: {switch: {by: data_source, cases: {"math*": correct, code: tests}, otherwise: judge}}
reward: {weighted: {correct: 1, progress: {weight: 0.3, of: {turns: progress, how: change}}}}
reward: {fallback: [{score: judge, if_missing: propagate}, lexical]}
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from judgekit.errors import ConfigError, did_you_mean
from judgekit.reward.conditions import Compare, Condition, condition, finite, joined
from judgekit.reward.gates import FUNCTIONS, Gate
from judgekit.reward.nodes import (
    Clip,
    Const,
    Fallback,
    Max,
    Min,
    Node,
    Product,
    Score,
    Switch,
    Turns,
    Weighted,
    as_node,
)


def parse(spec: Any) -> Node:
    """Make a tree from its YAML form, which `Node.spec` returns. Raises ConfigError for anything else."""
    if isinstance(spec, Node | str | int | float) and not isinstance(spec, bool):
        return as_node(spec)
    if not isinstance(spec, Mapping):
        raise ConfigError(f"reward: expected a mapping, a grader's name or a number, not {spec!r}")
    kind = next((key for key in spec if key in _PARSERS), None)
    if kind is None:
        raise ConfigError(
            f"reward: no node is called {next(iter(spec), '')!r}{did_you_mean(str(next(iter(spec), '')), _PARSERS)}"
        )
    allowed, make = _PARSERS[kind]
    if extra := set(spec) - {kind, *allowed}:
        raise ConfigError(
            f"reward: {kind} takes no {sorted(extra)[0]!r}{did_you_mean(sorted(extra)[0], allowed)}"
        )
    return make(spec)


def _parse_weighted(spec: Mapping[str, Any]) -> Node:
    terms = spec["weighted"]
    if not isinstance(terms, Mapping):
        raise ConfigError("reward: weighted takes a mapping of names to weights")
    made: dict[str, float | tuple[float, Any]] = {}
    for label, given in terms.items():
        if isinstance(given, Mapping):
            if set(given) - {"weight", "of"} or "weight" not in given:
                raise ConfigError(f"reward: the term {label!r} is a weight, or {{weight: …, of: …}}")
            made[str(label)] = (given["weight"], parse(given.get("of", label)))
        else:
            made[str(label)] = given
    normalize = spec.get("normalize", False)
    if not isinstance(normalize, bool):
        raise ConfigError(f"reward: normalize is true or false, not {normalize!r}")
    return Weighted(made, normalize=normalize)


def _parse_gate(spec: Mapping[str, Any]) -> Node:
    gate = spec["gate"]
    if not isinstance(gate, Mapping) or set(gate) != {"if", "then", "otherwise"}:
        raise ConfigError("reward: a gate is {if: 'correct >= 1', then: …, otherwise: …}, all three written")
    return Gate(if_=_condition(gate["if"]), then=parse(gate["then"]), otherwise=parse(gate["otherwise"]))


def _condition(given: Any) -> Condition:
    """Make a condition from text, or from mappings, for names that text cannot contain."""
    match given:
        case {"of": of, "op": op, "than": than} if len(given) == 3:
            return Compare(parse(of), op, than)
        case {"and": [_, *_] as parts} | {"or": [_, *_] as parts} if len(given) == 1:
            return joined(next(iter(given)), [_condition(part) for part in parts])
        case Mapping():
            raise ConfigError(
                "reward: a gate's condition is a text such as 'correct >= 1', {of: …, op: '>=', than: 1}, "
                "{and: [conditions]} or {or: [conditions]}"
            )
    return condition(given, Score, FUNCTIONS)


def _parse_switch(spec: Mapping[str, Any]) -> Node:
    switch = spec["switch"]
    if not isinstance(switch, Mapping) or not isinstance(switch.get("cases"), Mapping):
        raise ConfigError("reward: a switch is {by: data_source, cases: {'math*': …}, otherwise: …}")
    if extra := set(switch) - {"by", "cases", "otherwise"}:
        known = did_you_mean(min(extra), ("by", "cases", "otherwise"))
        raise ConfigError(f"reward: switch takes no {min(extra)!r}{known}")
    cases = {pattern: parse(node) for pattern, node in switch["cases"].items()}
    otherwise = parse(switch["otherwise"]) if "otherwise" in switch else None
    return Switch(cases, by=switch.get("by", "data_source"), otherwise=otherwise)


def _parse_clip(spec: Mapping[str, Any]) -> Node:
    clip = spec["clip"]
    if not isinstance(clip, Mapping) or set(clip) != {"of", "low", "high"}:
        raise ConfigError("reward: a clip is {of: …, low: 0, high: 1}")
    return Clip(parse(clip["of"]), clip["low"], clip["high"])


def _parse_several(
    kind: str, make: Callable[..., Node], count: int | None = None
) -> Callable[[Mapping[str, Any]], Node]:
    def parse_it(spec: Mapping[str, Any]) -> Node:
        nodes = spec[kind]
        if not isinstance(nodes, list) or (count and len(nodes) != count):
            raise ConfigError(f"reward: {kind} takes a list of {count or 'one or more'} nodes")
        return make(*map(parse, nodes))

    return parse_it


_PARSERS: Final[dict[str, tuple[tuple[str, ...], Callable[[Mapping[str, Any]], Node]]]] = {
    "weighted": (("normalize",), _parse_weighted),
    "gate": ((), _parse_gate),
    "switch": ((), _parse_switch),
    "product": ((), _parse_several("product", Product)),
    "min": ((), _parse_several("min", Min)),
    "max": ((), _parse_several("max", Max)),
    "clip": ((), _parse_clip),
    "const": ((), lambda spec: Const(finite(spec["const"], "const"))),
    "score": (
        ("if_missing", "if_broken"),
        lambda spec: Score(spec["score"], spec.get("if_missing", "propagate"), spec.get("if_broken")),
    ),
    "turns": (
        ("how", "if_missing", "if_broken"),
        lambda spec: Turns(
            spec["turns"],
            spec.get("if_missing", "propagate"),
            spec.get("if_broken"),
            how=spec.get("how", "sum"),
        ),
    ),
    "fallback": ((), _parse_several("fallback", Fallback, 2)),
}
