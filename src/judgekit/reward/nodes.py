"""The reward tree: how the grades of one rollout become one number, lazily and with an account.

    Weighted({"correct": 0.8, "style": 0.2})
    Gate(if_=Score("correct") >= 1, then=Weighted({"correct": 0.5, "judge": 0.5}), otherwise=0.0)

Wherever a node is expected, a grader's name stands for `Score(name)` and a number for `Const(number)`.
A node over a missing grade (abstained or failed) is missing, unless that leaf's `if_missing` says
otherwise. The tree also decides what is graded: a grader that only stands behind a gate is not asked for a
rollout that does not pass it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from judgekit.errors import ConfigError
from judgekit.reward.conditions import When, condition
from judgekit.types import Failed, Grade, Graded

IfMissing = Literal["propagate", "renormalise"] | float
"""What a missing grade does: make its node missing; leave its term out and scale the other weights up to
take its share; or count as this number, which the user wrote."""


Range = tuple[float, float]


RESIDUAL: Final = "residual"


class Evaluation:
    """The tree's value for one rollout, with what led to it. `value` None: the reward is missing."""

    __slots__ = ("contributions", "grades", "lows", "missing", "policies", "terms", "value")

    def __init__(self, grades: Mapping[str, Grade], lows: Mapping[str, float]) -> None:
        self.grades = grades
        self.lows = lows
        self.value: float | None = None
        self.missing: list[str] = []
        """Names of the grades for whose sake it is missing."""
        self.policies: list[str] = []
        """What was done about missing grades along the way, in words."""
        self.terms: dict[str, float] = {}
        """Value of each term of the top-level `Weighted`, before its weight."""
        self.contributions: dict[str, float] = {}
        """The same after its weight."""

    def low(self, name: str) -> float:
        return self.lows[name]


@dataclass(frozen=True, eq=False)
class Node:
    """Base of the tree's nodes."""

    def value(self, ev: Evaluation, top: bool = False) -> float | None:
        """The node's value, or None where it is missing. *top*: the account is taken here."""
        raise NotImplementedError

    def wanted(self, ev: Evaluation) -> list[str]:
        """Names of the grades needed next and not there yet; empty when the value can be told."""
        return [name for child in self.children() for name in child.wanted(ev)]

    def children(self) -> Sequence[Node]:
        return ()

    def bounds(self, ranges: Mapping[str, Range]) -> Range:
        """The lowest and highest value that the node can have."""
        raise NotImplementedError

    def spec(self) -> Any:
        """The node as YAML-ready data; `parse` reads it back."""
        raise NotImplementedError

    def label(self) -> str:
        """One line for `explain`."""
        return type(self).__name__.lower()

    def drops_out(self) -> bool:
        """Whether a parent may leave this node out where it is missing."""
        return False

    def __ge__(self, threshold: float) -> When:
        return When(self, ">=", float(threshold))

    def __gt__(self, threshold: float) -> When:
        return When(self, ">", float(threshold))

    def __le__(self, threshold: float) -> When:
        return When(self, "<=", float(threshold))

    def __lt__(self, threshold: float) -> When:
        return When(self, "<", float(threshold))


@dataclass(frozen=True, eq=False)
class Score(Node):
    """The score of one grader (or `grader.part`, where one call gives several scores).

    *if_missing*: see `IfMissing`. *if_broken*: the number for a rollout that broke its grader (a failure
    with cause "rollout"); None: the low end of the grader's range.
    """

    name: str
    if_missing: IfMissing = "propagate"
    if_broken: float | None = None

    def __post_init__(self) -> None:
        if isinstance(self.if_missing, str):
            if self.if_missing not in ("propagate", "renormalise"):
                raise ConfigError(
                    f"{self.name}: if_missing is 'propagate', 'renormalise' or a number, not {self.if_missing!r}"
                )
        else:
            finite(self.if_missing, f"{self.name}: if_missing")
        if self.if_broken is not None:
            finite(self.if_broken, f"{self.name}: if_broken")

    def value(self, ev: Evaluation, top: bool = False) -> float | None:
        grade = ev.grades.get(self.name)
        if type(grade) is Graded:
            if top:
                ev.terms, ev.contributions = {self.name: grade.score}, {self.name: grade.score}
            return grade.score
        if type(grade) is Failed and grade.cause == "rollout":
            low = ev.low(self.name) if self.if_broken is None else self.if_broken
            if math.isfinite(low):
                ev.policies.append(f"{self.name}: broken by the rollout, counts as {low:g}")
                return low
        if isinstance(self.if_missing, str):
            ev.missing.append(self.name)
            return None
        ev.policies.append(f"{self.name}: missing, counts as {self.if_missing:g}")
        return float(self.if_missing)

    def wanted(self, ev: Evaluation) -> list[str]:
        return [] if self.name in ev.grades else [self.name]

    def bounds(self, ranges: Mapping[str, Range]) -> Range:
        low, high = ranges.get(self.name, (-math.inf, math.inf))
        written = [x for x in (self.if_broken, self.if_missing) if isinstance(x, int | float)]
        return min([low, *written]), max([high, *written])

    def spec(self) -> Any:
        if self.if_missing == "propagate" and self.if_broken is None:
            return self.name
        spec: dict[str, Any] = {"score": self.name, "if_missing": self.if_missing}
        if self.if_broken is not None:
            spec["if_broken"] = self.if_broken
        return spec

    def label(self) -> str:
        return self.name

    def drops_out(self) -> bool:
        return self.if_missing == "renormalise"


@dataclass(frozen=True, eq=False)
class Const(Node):
    """A number."""

    number: float

    def __post_init__(self) -> None:
        finite(self.number, "const")

    def value(self, ev: Evaluation, top: bool = False) -> float | None:
        return float(self.number)

    def bounds(self, ranges: Mapping[str, Range]) -> Range:
        return self.number, self.number

    def spec(self) -> Any:
        return self.number

    def label(self) -> str:
        return f"{self.number:g}"


@dataclass(frozen=True)
class Term:
    label: str
    weight: float
    node: Node


@dataclass(frozen=True, eq=False, init=False)
class Weighted(Node):
    """The weighted sum of its terms; with *normalize*, divided by the sum of the weights' absolute values.

    Terms map a name to a weight (the name is a grader's), or to `(weight, node)`. A weight may be negative.
    A weight of 0 only observes: its grader runs and is reported, and cannot make the reward missing.
    """

    terms: tuple[Term, ...]
    normalize: bool = False

    def __init__(
        self, terms: Mapping[str, float | tuple[float, Any]] | Sequence[Term], normalize: bool = False
    ) -> None:
        if isinstance(terms, Mapping):
            made = []
            for label, given in terms.items():
                weight, node = given if isinstance(given, tuple) else (given, label)
                made.append(Term(str(label), finite(weight, f"the weight of {label!r}"), as_node(node)))
            terms = made
        if not any(term.weight for term in terms):
            raise ConfigError("weighted: give at least one term with a weight other than 0")
        if any(term.label == RESIDUAL for term in terms):
            raise ConfigError(f"weighted: {RESIDUAL!r} is a reserved name; call the term something else")
        _set(self, terms=tuple(terms), normalize=normalize)

    def value(self, ev: Evaluation, top: bool = False) -> float | None:
        terms: dict[str, float] = {}
        present = dropped = 0.0
        missing = False
        for term in self.terms:
            weight = term.weight
            if not weight:
                continue
            value = term.node.value(ev)
            if value is not None:
                terms[term.label] = value
                present += abs(weight)
            elif term.node.drops_out():
                dropped += abs(weight)
                ev.missing.pop()
                ev.policies.append(f"{term.label}: missing, its weight goes to the others")
            else:
                missing = True
        if missing:
            return None
        if not present:
            ev.missing.extend(term.label for term in self.terms if term.weight)
            return None
        total = present if self.normalize else present / (present + dropped) if dropped else 1.0
        contributions = {t.label: t.weight / total * terms[t.label] for t in self.terms if t.label in terms}
        if top:
            ev.terms, ev.contributions = terms, contributions
        return math.fsum(contributions.values())

    def children(self) -> Sequence[Node]:
        return [term.node for term in self.terms]

    def bounds(self, ranges: Mapping[str, Range]) -> Range:
        low = high = 0.0
        for term in self.terms:
            if term.weight:
                a, b = (term.weight * x for x in term.node.bounds(ranges))
                low, high = low + min(a, b), high + max(a, b)
        scale = 1.0 / sum(abs(t.weight) for t in self.terms) if self.normalize else 1.0
        if any(t.node.drops_out() for t in self.terms):
            # a term that drops out hands its share to the others, so any mix of the terms can occur
            total = 1.0 if self.normalize else sum(abs(t.weight) for t in self.terms)
            ends = [
                math.copysign(total, t.weight) * x
                for t in self.terms
                if t.weight
                for x in t.node.bounds(ranges)
            ]
            return min(low * scale, *ends), max(high * scale, *ends)
        return low * scale, high * scale

    def spec(self) -> Any:
        def term(t: Term) -> Any:
            plain = isinstance(t.node, Score) and t.node.spec() == t.label
            return t.weight if plain else {"weight": t.weight, "of": t.node.spec()}

        spec: dict[str, Any] = {"weighted": {t.label: term(t) for t in self.terms}}
        if self.normalize:
            spec["normalize"] = True
        return spec


@dataclass(frozen=True, eq=False, init=False)
class Gate(Node):
    """`then` for rollouts that meet the condition, else `otherwise`; the other branch is not graded.

    *if_*: `Score("correct") >= 1`, or the same as text, `"correct >= 1"`. A condition over a missing grade
    makes the gate missing.
    """

    if_: When
    then: Node
    otherwise: Node

    def __init__(self, *, if_: When | str, then: Any, otherwise: Any) -> None:
        _set(self, if_=condition(if_, Score), then=as_node(then), otherwise=as_node(otherwise))

    def value(self, ev: Evaluation, top: bool = False) -> float | None:
        holds = self.if_.holds(ev)
        if holds is None:
            return None
        return (self.then if holds else self.otherwise).value(ev, top)

    def wanted(self, ev: Evaluation) -> list[str]:
        wanted: list[str] = self.if_.node.wanted(ev)
        if wanted:
            return wanted
        holds = self.if_.holds(ev)
        if holds is None:
            return []
        return (self.then if holds else self.otherwise).wanted(ev)

    def children(self) -> Sequence[Node]:
        return self.if_.node, self.then, self.otherwise

    def bounds(self, ranges: Mapping[str, Range]) -> Range:
        (a, b), (c, d) = self.then.bounds(ranges), self.otherwise.bounds(ranges)
        return min(a, c), max(b, d)

    def spec(self) -> Any:
        when: Any = str(self.if_)
        if not (isinstance(self.if_.node, Score) and self.if_.node.spec() == self.if_.node.name):
            when = {"of": self.if_.node.spec(), "op": self.if_.op, "than": self.if_.threshold}
        return {"gate": {"if": when, "then": self.then.spec(), "otherwise": self.otherwise.spec()}}

    def label(self) -> str:
        return f"gate {self.if_}"


@dataclass(frozen=True, eq=False, init=False)
class Several(Node):
    nodes: tuple[Node, ...]

    def __init__(self, *nodes: Any) -> None:
        if not nodes:
            raise ConfigError(f"{type(self).__name__.lower()}: give at least one node")
        _set(self, nodes=tuple(map(as_node, nodes)))

    def combine(self, values: Sequence[float]) -> float:
        raise NotImplementedError

    def value(self, ev: Evaluation, top: bool = False) -> float | None:
        values: list[float] = []
        missing = False
        for node in self.nodes:
            value = node.value(ev)
            if value is not None:
                values.append(value)
            elif node.drops_out():
                name = ev.missing.pop()
                ev.policies.append(f"{name}: missing, left out of the {type(self).__name__.lower()}")
            else:
                missing = True
        if missing:
            return None
        if not values:
            ev.missing.extend(node.label() for node in self.nodes)
            return None
        return self.combine(values)

    def children(self) -> Sequence[Node]:
        return self.nodes

    def spec(self) -> Any:
        return {type(self).__name__.lower(): [node.spec() for node in self.nodes]}


class Product(Several):
    """The product of its nodes: `Product("correct", "format")` pays only what is both."""

    def combine(self, values: Sequence[float]) -> float:
        return math.prod(values)

    def bounds(self, ranges: Mapping[str, Range]) -> Range:
        low, high = 1.0, 1.0
        for node in self.nodes:
            ends = [0.0 if 0.0 in (x, y) else x * y for x in (low, high) for y in node.bounds(ranges)]
            low, high = min(ends), max(ends)
        return low, high


class Min(Several):
    """The smallest of its nodes."""

    def combine(self, values: Sequence[float]) -> float:
        return min(values)

    def bounds(self, ranges: Mapping[str, Range]) -> Range:
        bounds = [node.bounds(ranges) for node in self.nodes]
        return min(a for a, _ in bounds), min(b for _, b in bounds)


class Max(Several):
    """The largest of its nodes."""

    def combine(self, values: Sequence[float]) -> float:
        return max(values)

    def bounds(self, ranges: Mapping[str, Range]) -> Range:
        bounds = [node.bounds(ranges) for node in self.nodes]
        return max(a for a, _ in bounds), max(b for _, b in bounds)


@dataclass(frozen=True, eq=False, init=False)
class Clip(Node):
    """The node's value, held inside low..high."""

    of: Node
    low: float
    high: float

    def __init__(self, of: Any, low: float, high: float) -> None:
        if not finite(low, "clip: low") < finite(high, "clip: high"):
            raise ConfigError(f"clip: low {low:g} must be below high {high:g}")
        _set(self, of=as_node(of), low=float(low), high=float(high))

    def value(self, ev: Evaluation, top: bool = False) -> float | None:
        value = self.of.value(ev, top)
        return None if value is None else min(max(value, self.low), self.high)

    def children(self) -> Sequence[Node]:
        return (self.of,)

    def bounds(self, ranges: Mapping[str, Range]) -> Range:
        low, high = self.of.bounds(ranges)
        return min(max(low, self.low), self.high), min(max(high, self.low), self.high)

    def spec(self) -> Any:
        return {"clip": {"of": self.of.spec(), "low": self.low, "high": self.high}}

    def label(self) -> str:
        return f"clip {self.low:g}..{self.high:g}"

    def drops_out(self) -> bool:
        return self.of.drops_out()


@dataclass(frozen=True, eq=False, init=False)
class Fallback(Node):
    """`first`, or `other` where the first is missing. `other` is graded only then, and it is counted."""

    first: Node
    other: Node

    def __init__(self, first: Any, other: Any) -> None:
        _set(self, first=as_node(first), other=as_node(other))

    def value(self, ev: Evaluation, top: bool = False) -> float | None:
        before = len(ev.missing)
        value = self.first.value(ev, top)
        if value is not None:
            return value
        names = ev.missing[before:]
        value = self.other.value(ev, top)
        if value is not None:
            del ev.missing[before:]
            ev.policies.append(f"{', '.join(names)}: missing, fallback to {self.other.label()}")
        return value

    def wanted(self, ev: Evaluation) -> list[str]:
        if wanted := self.first.wanted(ev):
            return wanted
        probe = Evaluation(ev.grades, ev.lows)
        return [] if self.first.value(probe) is not None else self.other.wanted(ev)

    def children(self) -> Sequence[Node]:
        return self.first, self.other

    def bounds(self, ranges: Mapping[str, Range]) -> Range:
        (a, b), (c, d) = self.first.bounds(ranges), self.other.bounds(ranges)
        return min(a, c), max(b, d)

    def spec(self) -> Any:
        return {"fallback": [self.first.spec(), self.other.spec()]}


def as_node(given: Any) -> Node:
    """A node as it is, a name as its `Score`, a number as a `Const`."""
    if isinstance(given, Node):
        return given
    if isinstance(given, str):
        return Score(given)
    if isinstance(given, int | float) and not isinstance(given, bool):
        return Const(float(given))
    raise ConfigError(f"a reward is made of nodes, grader names and numbers, not {given!r}")


def equal_weights(names: Sequence[str]) -> Node:
    """The mean of all *names*."""
    return Weighted(dict.fromkeys(names, 1.0), normalize=True)


def _set(node: Node, **fields: Any) -> None:
    """Give a frozen node its fields."""
    for name, value in fields.items():
        object.__setattr__(node, name, value)


def finite(value: Any, what: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ConfigError(f"{what} is a finite number, not {value!r}")
    return float(value)
