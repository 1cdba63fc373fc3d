"""Conditions of gates: nodes compared with numbers, joined by `&`, `|` and `~`.

    Score("correct") >= 1
    (0.2 <= Score("a")) & (Score("a") <= 0.8)                        as text: "0.2 <= a <= 0.8"
    (Score("a") >= 1) & ((Score("b") > 0.5) | ~(Score("c") < 0.2))   "a >= 1 and (b > 0.5 or not c < 0.2)"

A comparison with a missing grade is neither true nor false. `and` is false if any part is false, and `or` is true
if any part is true; otherwise a missing part makes the condition missing.

Functions of a group are numbers that its members share, see `judgekit.reward.gates`:

    flat("correct")                                                  as text: "flat(correct)"
    (spread("judge") < 0.1) | (share(Score("correct") >= 1) > 0.9)   "spread(judge) < 0.1 or share(correct >= 1) > 0.9"
"""

from __future__ import annotations

import ast
import itertools
import math
import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any, Final

from judgekit.errors import ConfigError

OPERATORS: Final[dict[str, Callable[[float, float], bool]]] = {
    ">=": operator.ge,
    ">": operator.gt,
    "<=": operator.le,
    "<": operator.lt,
    "==": operator.eq,
    "!=": operator.ne,
}
_OPPOSITE: Final = {
    ">=": "<",
    ">": "<=",
    "<=": ">",
    "<": ">=",
    "==": "!=",
    "!=": "==",
    "and": "or",
    "or": "and",
}
_MIRRORED: Final = {">=": "<=", ">": "<", "<=": ">=", "<": ">", "==": "==", "!=": "!="}
FLAT_SPREAD: Final = 1e-9
"""A group is flat in what differs by at most this much."""

Values = Callable[[Any], float | None]
"""Gives a node's value, or None if it is missing."""


class Condition:
    """Base of all conditions."""

    def holds(self, value: Values) -> bool | None:
        """Whether the condition holds; None if that depends on a missing value."""
        raise NotImplementedError

    def wanted(self, ev: Any, *, group: bool = False) -> list[str]:
        """Return the names of the grades to get next; empty once it is decided, or cannot be.

        *group*: look at functions of the group alone, as if nothing else were known.
        """
        raise NotImplementedError

    def comparisons(self) -> Iterator[Compare]:
        raise NotImplementedError

    def spec(self) -> Any:
        """Return the condition as YAML-ready data: as text, if its names allow it."""
        raise NotImplementedError

    def nodes(self) -> list[Any]:
        """Return the nodes that it compares, each once: functions of the group first, as they are asked for."""
        found = list({_key(c.node): c.node for c in self.comparisons()}.values())
        return sorted(found, key=lambda node: not node.of_group)

    def __repr__(self) -> str:
        return str(self)

    def __and__(self, other: Condition) -> Condition:
        return joined("and", [self, other])

    def __or__(self, other: Condition) -> Condition:
        return joined("or", [self, other])

    def __invert__(self) -> Condition:
        raise NotImplementedError

    def __bool__(self) -> bool:
        # Python would silently keep only the last part of `x and y` and of `0.2 <= x <= 0.8`
        raise ConfigError(
            f"a condition ({self}) is true or false only for a rollout. Instead of a chain, `and`, `or` or `not` "
            'write & | ~ with parentheses: (0.2 <= Score("a")) & (Score("a") <= 0.8), or text: "0.2 <= a <= 0.8"'
        )


@dataclass(frozen=True, eq=False, repr=False)
class Compare(Condition):
    """A node compared with a number."""

    node: Any
    op: str
    threshold: float

    def __post_init__(self) -> None:
        if self.op not in OPERATORS:
            raise ConfigError(f"a condition compares with one of {' '.join(OPERATORS)}, not {self.op!r}")
        object.__setattr__(self, "threshold", checked_number(self.threshold, "the threshold of a condition"))

    def holds(self, value: Values) -> bool | None:
        found = value(self.node)
        return None if found is None else OPERATORS[self.op](found, self.threshold)

    def wanted(self, ev: Any, *, group: bool = False) -> list[str]:
        found: list[str] = [] if group and not self.node.of_group else self.node.wanted(ev)
        return found

    def comparisons(self) -> Iterator[Compare]:
        yield self

    def spec(self) -> Any:
        of = self.node.spec()
        if self.node.of_group or is_word(of):
            return str(self)
        return {"of": of, "op": self.op, "than": self.threshold}

    def __invert__(self) -> Condition:
        return Compare(self.node, _OPPOSITE[self.op], self.threshold)

    def __str__(self) -> str:
        flat: str | None = getattr(self.node, "flat_label", None)
        if flat is not None and self.threshold == FLAT_SPREAD and self.op in ("<=", ">"):
            return flat if self.op == "<=" else f"not {flat}"
        short = f"{self.threshold:g}"
        return f"{self.node.label()} {self.op} {short if float(short) == self.threshold else self.threshold}"


@dataclass(frozen=True, eq=False, repr=False)
class Joined(Condition):
    """Several conditions joined by "and" or by "or"."""

    op: str
    parts: tuple[Condition, ...]

    def holds(self, value: Values) -> bool | None:
        decides = self.op == "or"
        missing = False
        for part in self.parts:
            held = part.holds(value)
            if held is decides:
                return decides
            missing |= held is None
        return None if missing else not decides

    def wanted(self, ev: Any, *, group: bool = False) -> list[str]:
        """Return those of the first undecided part, unless another part decides without them."""
        first: list[str] = []
        value = ev.of_group if group else ev.of
        for part in self.parts:
            if asked := part.wanted(ev, group=group):
                first = first or asked
            elif part.holds(value) is (self.op == "or"):
                return []
        return first

    def comparisons(self) -> Iterator[Compare]:
        for part in self.parts:
            yield from part.comparisons()

    def spec(self) -> Any:
        specs = [part.spec() for part in self.parts]
        return str(self) if all(isinstance(s, str) for s in specs) else {self.op: specs}

    def __invert__(self) -> Condition:
        return joined(_OPPOSITE[self.op], [~part for part in self.parts])

    def __str__(self) -> str:
        # "and" binds tighter than "or"
        return f" {self.op} ".join(
            f"({p})" if isinstance(p, Joined) and self.op == "and" else str(p) for p in self.parts
        )


def joined(op: str, parts: Sequence[Condition]) -> Condition:
    """Join conditions by *op*, "and" or "or"."""
    flat: list[Condition] = []
    for part in parts:
        if not isinstance(part, Condition):
            raise ConfigError(f"{part!r} is not a condition; put parentheses around each comparison")
        flat += part.parts if isinstance(part, Joined) and part.op == op else [part]
    return flat[0] if len(flat) == 1 else Joined(op, tuple(flat))


def condition(
    given: Any, leaf: Callable[[str], Any], functions: Mapping[str, Callable[[Any], Any]] = {}
) -> Condition:
    """Return a condition unchanged, or parse one from text.

    *leaf* makes nodes of its names; *functions* make nodes, or conditions, of a name or a condition in brackets.
    """
    if isinstance(given, Condition):
        return given
    if isinstance(given, str):
        try:
            return _read(given, leaf, functions)
        except ConfigError:
            raise
        except (SyntaxError, ValueError, RecursionError, MemoryError):  # the last two: nested too deeply
            pass
    hint = "; write == and != as text" if isinstance(given, bool) else ""
    raise ConfigError(
        f"gate: {given!r:.80} is not a condition such as 'correct >= 1' or 'correct >= 1 and 0.2 < judge <= 0.8'{hint}"
    )


def outcomes(given: Condition, bounds: Callable[[Any], tuple[float, float]]) -> set[bool | None]:
    """Return the values that a condition can take when its nodes vary within their *bounds*."""
    points: dict[str, set[float]] = {}
    for c in given.comparisons():
        low, high = bounds(c.node)
        near = (c.threshold, math.nextafter(c.threshold, -math.inf), math.nextafter(c.threshold, math.inf))
        # comparisons change only at their thresholds: a point on each side represents all values between two of them
        points.setdefault(_key(c.node), {low, high}).update(x for x in near if low <= x <= high)
    found: set[bool | None] = set()
    for count, values in enumerate(itertools.product(*points.values())):
        at = dict(zip(points, values, strict=True))
        found.add(given.holds(lambda node, at=at: at[_key(node)]))  # type: ignore[misc]
        if len(found) == 2 or count == 2_000:  # too many graders to try all values: undecided
            return {True, False}
    return found


def finite(value: Any, what: str) -> float:
    """Return *value* as a float, numpy's numbers too. Raises ConfigError if it is not a finite number."""
    if is_number(value) and is_finite(found := _as_float(value)):
        return found
    raise ConfigError(f"{what} is a finite number, not {value!r}")


def checked_number(value: Any, what: str) -> float:
    """Return *value* as it is, or as a float if it is numpy's. Raises ConfigError if it is not a finite number."""
    number = finite(value, what)
    return value if type(value) is int else number


def is_number(value: Any) -> bool:
    """Whether *value* is a real number, of Python or of numpy, and no truth value."""
    return isinstance(value, Real) and not isinstance(value, bool)


def _as_float(value: Any) -> float:
    try:
        return float(value)
    except OverflowError:  # an int beyond the floats
        return math.inf


def is_finite(value: Any) -> bool:
    """Whether *value* is a finite number."""
    try:
        return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    except OverflowError:  # an int beyond the floats
        return False


_WORD = re.compile(r"[^\s<>=!()]+")
_NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?", re.IGNORECASE)
_OPERATORS: Final[Mapping[type[ast.cmpop], str]] = {
    ast.GtE: ">=", ast.Gt: ">", ast.LtE: "<=", ast.Lt: "<", ast.Eq: "==", ast.NotEq: "!="
}  # fmt: skip


def _operand(word: str) -> str | float | None:
    """Return a name, a number, or None for `and`, `or` and `not`."""
    if word in ("and", "or", "not"):
        return None
    return float(word) if _NUMBER.fullmatch(word) else word


def is_word(of: Any) -> bool:
    """Whether a text is a name that stands for itself in the text of a condition."""
    return isinstance(of, str) and bool(_WORD.fullmatch(of)) and isinstance(_operand(of), str)


def _read(text: str, leaf: Callable[[str], Any], functions: Mapping[str, Callable[[Any], Any]]) -> Condition:
    """Parse a condition by Python's grammar, except that names may contain anything but brackets and operators.

    Raises SyntaxError or ValueError.
    """
    operands: dict[str, str | float] = {}

    def hide(match: re.Match[str]) -> str:
        found = _operand(match[0])
        if found is None:
            return match[0]
        operands[variable := f"_{len(operands)}"] = found
        return variable

    def build(node: ast.AST) -> Condition:
        match node:
            case ast.BoolOp(op=op, values=values):
                return joined("and" if isinstance(op, ast.And) else "or", [build(value) for value in values])
            case ast.UnaryOp(op=ast.Not(), operand=part):
                return ~build(part)
            case ast.Compare(left=left, ops=ops, comparators=others):
                sides = [side(part) for part in (left, *others)]
                return joined("and", list(map(compare, sides, ops, sides[1:])))
            case ast.Call():
                made = call(node)
                if isinstance(made, Condition):
                    return made
                raise ConfigError(
                    f"gate: {made.label()} is a number: compare it, as in '{made.label()} > 0.5'"
                )
        raise ValueError

    def side(node: ast.AST) -> Any:
        """Return a number, a name or what a function makes."""
        return (
            call(node)
            if isinstance(node, ast.Call)
            else operands[node.id]
            if isinstance(node, ast.Name)
            else None
        )

    def call(node: ast.Call) -> Any:
        name = side(node.func)
        if name not in functions or len(node.args) != 1 or node.keywords:
            raise ValueError
        given = side(node.args[0]) if isinstance(node.args[0], ast.Name | ast.Call) else build(node.args[0])
        return functions[name](given)

    def compare(left: Any, op: ast.cmpop, right: Any) -> Condition:
        sign = _OPERATORS[type(op)]
        if isinstance(left, float) and right is not None and not isinstance(right, float):
            left, right, sign = right, left, _MIRRORED[sign]
        if not isinstance(right, float) or left is None or isinstance(left, float) or math.isinf(right):
            raise ValueError  # two numbers, two names, or neither
        if isinstance(left, Condition):
            raise ConfigError(f"gate: {left} is true or false, and not compared with {right:g}")
        return Compare(leaf(left) if isinstance(left, str) else left, sign, right)

    return build(ast.parse(_WORD.sub(hide, text.strip()), mode="eval").body)


def _key(node: Any) -> str:
    """Return a key that is equal for nodes with always equal values."""
    return str(node.spec())
