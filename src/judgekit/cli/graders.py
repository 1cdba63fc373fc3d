"""`judgekit graders`: what graders there are, and what each one takes."""

from __future__ import annotations

import inspect
import json
import os
import sys
import types
import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import entry_points
from pkgutil import resolve_name
from typing import Annotated, Any, Literal

import typer

from judgekit.cli.console import say
from judgekit.errors import ConfigError, did_you_mean
from judgekit.graders.registry import GRADERS

EXAMPLES: Mapping[str, str] = {
    "action_loop": "{use: action_loop, near: true}",
    "bleu": "{use: bleu, smoothing: floor}",
    "boxed": "{use: boxed}",
    "chrf": "{use: chrf, word_order: 2}",
    "code": "{use: code, cases: extra.tests, score: all, time_s: 5}",
    "code_block": "{use: code_block, language: python}",
    "compression": "{use: compression}",
    "cosine_length": "{use: cosine_length, correct: {use: final_answer}, max_length: 1000}",
    "diversity": "{use: diversity}",
    "edit_similarity": "{use: edit_similarity, distance: token_sort}",
    "final_answer": "{use: final_answer, need_marker: '####'}",
    "gleu": "{use: gleu, lowercase: true}",
    "information_gain": "{use: information_gain}",
    "instructions": "{use: instructions, mode: loose, score: all}",
    "json": "{use: json, schema: {type: object, required: [answer]}}",
    "json_match": "{use: json_match, score: leaves}",
    "judge": "{use: judge, judge: local}",
    "judge_turns": "{use: judge_turns, judge: local}",
    "length": "{use: length, soft_max: 500, hard_max: 1000}",
    "listwise": "{use: listwise, judge: local}",
    "majority": "{use: majority}",
    "math": "{use: math, boxes: last}",
    "meteor": "{use: meteor}",
    "multiple_choice": "{use: multiple_choice, options: extra.choices}",
    "overlap": "{use: overlap, of: dice}",
    "pairwise": "{use: pairwise, judge: local}",
    "panel": "{use: panel, judges: [local, other]}",
    "patch": "{use: patch, repositories: repositories, repository: extra.instance_id}",
    "regex": "{use: regex, pattern: 'Answer: \\d+'}",
    "repetition": "{use: repetition}",
    "reward_model": "{use: reward_model, model: scalar}",
    "rouge": "{use: rouge, variant: rouge2}",
    "rubric": "{use: rubric, judge: local, rubric: helpfulness}",
    "script": "{use: script, language: en, min_share: 0.9}",
    "service": "{use: service, url: 'http://127.0.0.1:8080'}",
    "service_group": "{use: service_group, url: 'http://127.0.0.1:8080'}",
    "shortest_correct": "{use: shortest_correct, correct: {use: final_answer}}",
    "soft_overlong": "{use: soft_overlong, max_length: 4096, cache: 512}",
    "sql": "{use: sql, database: extra.schema, compare: bird}",
    "step_efficiency": "{use: step_efficiency}",
    "step_sequence": "{use: step_sequence, of: in_order}",
    "tags": "{use: tags}",
    "text_match": "{use: text_match, how: contains, whole_words: true}",
    "token_f1": "{use: token_f1, of: recall}",
    "tool_calls": "{use: tool_calls, checks: bfcl, of: exact}",
    "tool_efficiency": "{use: tool_efficiency}",
    "tool_format": "{use: tool_format, check: required}",
}
"""What follows `my_grader:` in reward.yaml, for each shipped grader."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of a grader, as reward.yaml has it."""

    name: str
    kind: str
    default: str
    """As YAML; empty if the parameter must be given."""


def graders(
    name: Annotated[str | None, typer.Argument(help="The name of a grader, or module:object.")] = None,
) -> None:
    """List the graders, or show the parameters of one of them."""
    if name is None:
        for known, line in sorted(summaries().items()):
            say(f"{known:18} {line}")
        say("\njudgekit graders NAME shows the parameters of one of them.")
        return
    make = found(name)
    rows = parameters(make)
    widths = [max(map(len, column)) for column in zip(*map(cells, rows), strict=True)]
    for row in rows:
        say("  ".join(cell.ljust(width) for cell, width in zip(cells(row), widths, strict=True)).rstrip())
    if name in EXAMPLES:
        say(f"\ngraders:\n  my_grader: {EXAMPLES[name]}")
    if about := inspect.getdoc(make):
        say(f"\n{about}")


def found(name: str) -> Any:
    """Return a grader's class or function. Raises ConfigError if there is none of that name."""
    plugins = {entry.name: entry.value for entry in entry_points(group="judgekit.graders")}
    known = {**plugins, **GRADERS}
    if name not in known and ":" not in name:
        raise ConfigError(f"there is no grader {name!r}{did_you_mean(name, known)}")
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())  # for a module of the user's own
    try:
        return resolve_name(known.get(name, name))
    except Exception as error:  # whatever the module does while it is imported
        raise ConfigError(f"cannot import the grader {name!r}: {type(error).__name__}: {error}") from None


def summaries() -> dict[str, str]:
    """Return the first line of each shipped grader's docstring."""
    lines = {name: inspect.getdoc(resolve_name(target)) or "" for name, target in GRADERS.items()}
    return {name: text.split("\n", 1)[0] for name, text in lines.items()}


def parameters(make: Any) -> list[Parameter]:
    """Return the parameters of a grader's class or function, in order."""
    from judgekit.config.checks import hints_of

    if not callable(make):
        return []
    hints = hints_of(make)
    return [
        Parameter(p.name, kind_of(hints.get(p.name, Any)), "" if p.default is p.empty else shown(p.default))
        for p in inspect.signature(make).parameters.values()
        if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)
    ]


def cells(row: Parameter) -> tuple[str, str, str]:
    return row.name, row.kind, f"default {row.default}" if row.default else "required"


def shown(value: Any) -> str:
    """Write a default as YAML."""
    if value == sys.executable:
        return "this Python"  # a path means nothing on other machines
    if isinstance(value, tuple | list):
        return json.dumps(list(value), ensure_ascii=False, default=repr)
    try:
        return json.dumps(value, ensure_ascii=False)
    except TypeError:
        return type(value).__name__


_NAMES = {
    str: "text",
    int: "whole number",
    float: "number",
    bool: "true or false",
    type(None): "null",
    Any: "any",
}


def kind_of(hint: Any) -> str:
    """Describe a type in words."""
    if hint in _NAMES:
        return _NAMES[hint]
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin is Annotated:
        return kind_of(inner[0])
    if origin is Literal:
        return ", ".join(json.dumps(value) for value in inner)
    if origin in (typing.Union, types.UnionType):
        return " or ".join(dict.fromkeys(map(kind_of, inner)))
    if inspect.isclass(origin) and issubclass(origin, Mapping):
        return f"mapping of {_plural(kind_of(inner[-1]))}" if inner else "mapping"
    if inspect.isclass(origin) and issubclass(origin, Sequence):
        return f"list of {_plural(kind_of(inner[0]))}" if inner else "list"
    name = getattr(hint, "__name__", str(hint))
    return _ROLES.get(name, name)


def _plural(kind: str) -> str:
    if kind == "any":
        return "any values"
    return f"{kind}s" if kind in ("text", "number", "whole number") else kind


_ROLES = {
    "AnyGrader": "a grader",
    "Grader": "a grader",
    "Callable": "a function (in Python)",
    "Judge": "a judge's name",
    "JudgeRoutes": "routes to judges",
    "RewardModel": "a judge's name",
    "Rubric": "a rubric",
    "Sandbox": "an object (in Python)",
    "Sampling": "sampling settings",
    "Template": "a template",
    "VerdictFormat": "a verdict format",
}
