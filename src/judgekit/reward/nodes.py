"""The nodes of the reward tree, which turns the grades of one rollout into one number.

    Weighted({"correct": 0.8, "style": 0.2})
    Gate(Score("correct") >= 1, {"correct": 0.5, "judge": 0.5}, 0)
    Switch({"math*": "correct", "code": "tests"}, by="data_source", otherwise="judge")

Wherever a node is expected, a grader's name stands for `Score(name)`, a number for `Const(number)`, and a mapping of names
to weights for `Weighted(…)`. Nodes add up and multiply: `0.8 * Score("correct") + 0.2 * Score("brief")`.
A node over a missing grade (abstained or failed) is missing, unless that leaf's `if_missing` says otherwise. The
tree also decides what is graded: a grader used only behind a gate, or in one case of a switch, is skipped for
rollouts that do not get there.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Literal, NamedTuple

from judgekit.errors import ConfigError, closest, did_you_mean
from judgekit.reward.conditions import Compare, Condition, checked_number, finite, is_number
from judgekit.reward.schedules import Schedule, checked_step
from judgekit.types import (
    NO_NUMBERS,
    Abstained,
    Failed,
    Grade,
    Graded,
    Rollout,
    Skipped,
    field_text,
    first_match,
)

IfMissing = Literal["propagate", "renormalise"] | float
"""What a missing grade does: make its node missing; drop its term and give its weight to the others; or count as
this number."""

Range = tuple[float, float]
Given = float | Sequence[float | None] | None
"""What a grader gives: a score, one for each turn, or None if the grade is missing."""
NO_WEIGHT: Final = "weighted: give at least one term with a weight other than 0"
RESIDUAL: Final = "residual"
"""Key of the part of a reward that the contributions of the top-level terms do not explain."""
RESERVED: Final = f"weighted: {RESIDUAL!r} is a reserved name; call the term something else"


class Missing(NamedTuple):
    """A node has no value for this rollout."""

    names: tuple[str, ...] = ()
    """Graders whose missing grades are the reason; empty if there is another."""
    drops_out: bool = False
    """Whether a sum, product, minimum or maximum goes on without it."""

    @classmethod
    def all_of(cls, gaps: Sequence[Missing]) -> Missing:
        """Return why a node with these gaps is missing: first those that it cannot go on without."""
        ordered = sorted(gaps, key=lambda gap: gap.drops_out)
        return cls(tuple(name for gap in ordered for name in gap.names))


class Evaluation:
    """The evaluation of the tree for one rollout. `value` None: the reward is missing."""

    __slots__ = (
        "contributions",
        "grades",
        "lows",
        "missing",
        "numbers",
        "policies",
        "read",
        "rollout",
        "step",
        "terms",
        "turns",
        "value",
    )

    def __init__(
        self,
        grades: Mapping[str, Grade],
        lows: Mapping[str, float],
        rollout: Rollout | None = None,
        numbers: Mapping[str, float | None] = NO_NUMBERS,
        step: float | None = None,
    ) -> None:
        self.grades = grades
        self.lows = lows
        self.rollout = rollout
        self.step = step
        """The training step, for weights that depend on it."""
        self.numbers = numbers
        """What is decided of its group: numbers of the functions in conditions, None for one without a number."""
        self.read: Mapping[str, float | None] = NO_NUMBERS
        """Those of them on which the value depends."""
        self.value: float | None = None
        self.missing: tuple[str, ...] = ()
        """Graders whose missing grades make it missing."""
        self.policies: list[str] = []
        """What was done about missing grades, and what else made it missing, in words."""
        self.terms: dict[str, float] = {}
        """Value of each term of the top-level `Weighted`, before weighting."""
        self.contributions: dict[str, float] = {}
        """Value of each term after weighting."""
        self.turns: tuple[float, ...] = ()
        """The part of the value that each of the policy's turns earned, in a tree with `Turns`."""

    def of(self, node: Node) -> float | None:
        """Return a node's value, or None if it is missing."""
        value = node.compute(self)
        return None if isinstance(value, Missing) else value

    def of_group(self, node: Node) -> float | None:
        """Return the value of a function of the group, or None if it is missing or *node* is none."""
        return self.of(node) if node.of_group else None

    def checked(self, value: float) -> float | Missing:
        """Return what finite scores add up or multiply to; Missing, noted, if that is no finite number."""
        if math.isfinite(value):
            return value
        self.policies.append("the reward is too large for a float")
        return Missing()


class Branch(NamedTuple):
    """A child node. *when*: in words, for which rollouts it counts; empty for all."""

    node: Node
    when: str = ""


@dataclass(frozen=True, eq=False, repr=False)
class Node:
    """Base of the tree's nodes."""

    of_group: ClassVar[bool] = False
    """Whether it is a number of the whole group, which only a condition may read; see `judgekit.reward.gates`."""

    def group_key(self) -> str:
        """Return what identifies a number of the group in its tree; "" for other nodes."""
        return ""

    def compute(self, ev: Evaluation, top: bool = False) -> float | Missing:
        """Return the node's value for a rollout. *top*: record terms and contributions."""
        raise NotImplementedError

    def value(self, scores: Mapping[str, Given] = {}, /, **named: Given) -> float | None:
        """Return the reward for *scores* by graders' names, without any grader; None if it is missing.

            tree.value(correct=1, judge=0.5, progress=(0.2, None, 0.9))

        None is a grade that is missing; a tuple is what `Turns` reads, turn by turn. Names that are no Python names
        (`judge.clear`) go into a mapping, and so do numbers of the group (`spread(correct)`, of which "flat(correct)" is made,
        and `share(correct >= 1)`). Grades behind a gate that is not passed may be left out. Raises ConfigError for a name that the tree does not have, and for a grade
        that it needs.
        """
        return self.value_at({**scores, **named}, None)

    def value_at(self, given: Mapping[str, Given], step: float | None) -> float | None:
        """Return what `value` does, at a training step."""
        names = score_names(self)
        of_group = group_keys(self)
        for name in given:
            if name not in names and name not in of_group:
                raise ConfigError(
                    f"the reward has no grade {name!r}{did_you_mean(name, (*names, *of_group))}"
                )
        grades = {name: _given(score, name) for name, score in given.items() if name in names}
        numbers = {
            key: None if (number := given[key]) is None else finite(number, key)
            for key in of_group
            if key in given
        }
        ev = Evaluation(grades, {}, None, numbers, step)
        if wanted := self.wanted(ev):
            raise ConfigError(
                f"the reward depends on {wanted[0]!r}, too: give its score, or None if it is missing"
            )
        return ev.of(self)

    def place(self, ev: Evaluation, scale: float, turns: list[float]) -> None:
        """Add to *turns* what they earned in this node, whose value is known. *scale*: the reward's derivative by it.

        Called only where a node below has places. What is not placed is the outcome's.
        """

    def places(self) -> bool:
        """Whether parts of its value may belong to turns."""
        return any(branch.node.places() for branch in self.branches())

    def wanted(self, ev: Evaluation) -> list[str]:
        """Return the names of the grades to get next; empty once the value is known."""
        return [name for branch in self.branches() for name in branch.node.wanted(ev)]

    def branches(self) -> Sequence[Branch]:
        """Return the child nodes."""
        return ()

    def bounds(self, ranges: Mapping[str, Range]) -> Range:
        """Return the lowest and highest possible value: by default, of any child."""
        return hull([branch.node for branch in self.branches()], ranges)

    def spec(self) -> Any:
        """Return the node as YAML-ready data, which `parse` reads back."""
        raise NotImplementedError

    def label(self) -> str:
        """Return the node's name in `explain`."""
        return type(self).__name__.lower()

    def drops_out(self) -> bool:
        """Whether the parent drops this node when it is missing."""
        return False

    __array_ufunc__: ClassVar[None] = None  # numpy's numbers leave the arithmetic to the node

    def __mul__(self, other: Any) -> Node:
        return times(self, other)

    def __rmul__(self, other: Any) -> Node:
        return times(other, self)

    def __add__(self, other: Any) -> Node:
        return plus(self, other)

    def __radd__(self, other: Any) -> Node:
        return plus(other, self)

    def __sub__(self, other: Any) -> Node:
        return plus(self, times(-1, other))

    def __neg__(self) -> Node:
        return times(-1, self)

    def __repr__(self) -> str:
        import yaml

        text: str = yaml.safe_dump(
            self.spec(), default_flow_style=True, sort_keys=False, width=math.inf, allow_unicode=True
        )
        return text.removesuffix("...\n").strip()

    def __ge__(self, threshold: float) -> Condition:
        return Compare(self, ">=", threshold)

    def __gt__(self, threshold: float) -> Condition:
        return Compare(self, ">", threshold)

    def __le__(self, threshold: float) -> Condition:
        return Compare(self, "<=", threshold)

    def __lt__(self, threshold: float) -> Condition:
        return Compare(self, "<", threshold)


@dataclass(frozen=True, eq=False, repr=False)
class Score(Node):
    """The score of a grader, or `grader.part` if one call gives several scores.

    *if_missing*: see `IfMissing`. *if_broken*: the number for a rollout that broke its grader (a failure
    with cause "rollout"); None: the low end of the grader's range.
    """

    name: str
    if_missing: IfMissing = "propagate"
    if_broken: float | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise ConfigError(f"score: give the name of a grader, not {self.name!r}")
        if isinstance(self.if_missing, str):
            if self.if_missing not in ("propagate", "renormalise"):
                raise ConfigError(
                    f"{self.name}: if_missing is 'propagate', 'renormalise' or a number, not {self.if_missing!r}"
                )
        else:
            set_fields(self, if_missing=checked_number(self.if_missing, f"{self.name}: if_missing"))
        if self.if_broken is not None:
            set_fields(self, if_broken=checked_number(self.if_broken, f"{self.name}: if_broken"))

    def compute(self, ev: Evaluation, top: bool = False) -> float | Missing:
        grade = ev.grades.get(self.name)
        kind = type(grade)
        if kind is Graded:
            score: float = grade.score  # type: ignore[union-attr]
            if top:
                ev.terms, ev.contributions = {self.name: score}, {self.name: score}
            return score
        return self._without(ev, grade)

    def _without(self, ev: Evaluation, grade: Grade | None) -> float | Missing:
        """Return what counts where the grade has no number, or why there is none."""
        kind = type(grade)
        if kind is Failed and grade.cause == "rollout":  # type: ignore[union-attr]
            low = ev.lows[self.name] if self.if_broken is None else self.if_broken
            if math.isfinite(low):
                ev.policies.append(f"{self.name}: broken by the rollout, counts as {low:g}")
                return low
        # a skipped grade has no stand-in: it is only read by a condition that is decided without it
        if isinstance(self.if_missing, str) or grade is None or kind is Skipped:
            return Missing((self.name,), self.drops_out())
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


How = Literal["sum", "mean", "change"]
"""What the turns make together: their sum; their mean, over those with an opinion; or the last state, of which each turn earns
the change since the one before it (before the first, the state is 0)."""
_HOWS: Final[tuple[How, ...]] = ("sum", "mean", "change")


@dataclass(frozen=True, eq=False, repr=False)
class Turns(Score):
    """What a grader says of each of the policy's turns, as one number that is made of what each turn earned.

    *how*: see `How`. A turn without an opinion earns nothing; with "change", the next one that has one earns the change since.
    If no turn has an opinion, the leaf is missing, with *if_missing* and *if_broken* as in `Score`: such a stand-in belongs to
    no turn.
    """

    how: How = "sum"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.how not in _HOWS:
            raise ConfigError(
                f"{self.name}: how is one of {', '.join(_HOWS)}, not {self.how!r}{closest(str(self.how), _HOWS)}"
            )

    def compute(self, ev: Evaluation, top: bool = False) -> float | Missing:
        grade = ev.grades.get(self.name)
        known = _opinions(grade)
        if not known:
            return self._without(ev, grade)
        if self.how == "change":
            value: float | Missing = known[-1]
        else:
            value = ev.checked(_sum(known, math.inf) / (len(known) if self.how == "mean" else 1))
        if top and not isinstance(value, Missing):
            ev.terms, ev.contributions = {self.name: value}, {self.name: value}
        return value

    def _without(self, ev: Evaluation, grade: Grade | None) -> float | Missing:
        # a grade without an opinion on any turn is as good as none
        return super()._without(ev, _NO_OPINION if type(grade) is Graded else grade)

    def place(self, ev: Evaluation, scale: float, turns: list[float]) -> None:
        grade = ev.grades.get(self.name)
        known = _opinions(grade)
        share = scale / len(known) if known and self.how == "mean" else scale
        before = 0.0
        for at, state in enumerate(grade.turns or () if type(grade) is Graded else ()):
            if state is not None:
                turns[at] += share * (state - before)
                before = state if self.how == "change" else 0.0

    def places(self) -> bool:
        return True

    def bounds(self, ranges: Mapping[str, Range]) -> Range:
        low, high = super().bounds(ranges)
        if self.how == "sum":  # of any number of turns
            return (low if low >= 0 else -math.inf), (high if high <= 0 else math.inf)
        return low, high

    def spec(self) -> Any:
        spec: dict[str, Any] = {"turns": self.name, "how": self.how}
        if self.if_missing != "propagate":
            spec["if_missing"] = self.if_missing
        if self.if_broken is not None:
            spec["if_broken"] = self.if_broken
        return spec

    def label(self) -> str:
        return f"{self.name} ({self.how} of turns)"


_NO_OPINION: Final = Abstained("no opinion on any turn")


def _opinions(grade: Grade | None) -> list[float]:
    """Return what a grade says of the turns on which it has an opinion."""
    if type(grade) is not Graded or grade.turns is None:
        return []
    return [score for score in grade.turns if score is not None]


@dataclass(frozen=True, eq=False, repr=False)
class Const(Node):
    """A number."""

    number: float

    def __post_init__(self) -> None:
        set_fields(self, number=checked_number(self.number, "const"))

    def compute(self, ev: Evaluation, top: bool = False) -> float | Missing:
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
    """Of a schedule without its step: that which is farthest from 0."""
    node: Node
    schedule: Schedule | None = None

    @property
    def counts(self) -> bool:
        """Whether a missing grade matters: not of what is only observed, but also of a weight that has faded to 0."""
        return bool(self.weight) or self.schedule is not None


@dataclass(frozen=True, eq=False, repr=False, init=False)
class Weighted(Node):
    """The weighted sum of its terms; with *normalize*, divided by the sum of the weights' absolute values.

    Terms map a name to a weight (the name is a grader's), or to `(weight, node)`. A weight may be negative. A list of
    [step, weight] is a weight that moves with the training step, see `judgekit.reward.schedules`.
    A weight of 0 only observes: its grader runs and is reported, and cannot make the reward missing.
    """

    terms: tuple[Term, ...]
    normalize: bool
    fades: bool
    """Whether a weight depends on the training step."""

    def __init__(self, terms: Mapping[str, Any], normalize: bool = False) -> None:
        if not isinstance(terms, Mapping):
            raise ConfigError(
                f"weighted: give a mapping of names to weights, such as {{'correct': 0.9}}, not {terms!r:.80}"
            )
        made = []
        for label, given in terms.items():
            weight, node = given if isinstance(given, tuple) else (given, label)
            what = f"the weight of {label!r}"
            schedule = Schedule(weight, what) if isinstance(weight, list) else None
            number = finite(weight, what) if schedule is None else schedule.largest
            made.append(Term(str(label), number, as_node(node), schedule))
        if not any(term.weight for term in made):
            raise ConfigError(NO_WEIGHT)
        labels = [term.label for term in made]
        if twice := [label for label in labels if labels.count(label) > 1]:
            raise ConfigError(f"weighted: two terms are called {twice[0]!r}, of which one is not text")
        if RESIDUAL in labels:
            raise ConfigError(RESERVED)
        fades = any(term.schedule is not None for term in made)
        set_fields(self, terms=tuple(made), normalize=normalize, fades=fades)
        for step in self._steps():
            if not any(term.weight for term in self.at(step)):
                raise ConfigError(
                    f"weighted: at step {step:g} all weights are 0, so that there is nothing to learn from"
                )

    def at(self, step: float | None) -> tuple[Term, ...]:
        """Return the terms with their weights at a training step. Raises ConfigError if they need one and it is None."""
        if not self.fades:
            return self.terms
        number = checked_step(step)
        return tuple(
            t if t.schedule is None else Term(t.label, t.schedule.at(number), t.node, t.schedule)
            for t in self.terms
        )

    def _steps(self) -> list[float]:
        """Return the steps at which a weight changes its direction."""
        return sorted({step for t in self.terms if t.schedule is not None for step in t.schedule.steps})

    def compute(self, ev: Evaluation, top: bool = False) -> float | Missing:
        terms: dict[str, float] = {}
        present = 0.0
        dropped: list[Term] = []
        gaps: list[Missing] = []
        weighted = self.terms if not self.fades else self.at(ev.step)
        for term in weighted:
            weight = term.weight
            if not weight and term.schedule is None:
                continue
            value = term.node.compute(ev)
            if not isinstance(value, Missing):
                terms[term.label] = value
                present += abs(weight)
            else:
                dropped.append(term)
                gaps.append(value)
        if not terms or (gaps and not (present and all(gap.drops_out for gap in gaps))):
            return Missing.all_of(gaps)
        total = (present or 1.0) if self.normalize else 1.0  # at one step, weights that cross 0 may all be 0
        if dropped:
            ev.policies += [f"{term.label}: missing, its weight goes to the others" for term in dropped]
            total = self._total(present, dropped)
        contributions = {t.label: t.weight / total * terms[t.label] for t in weighted if t.label in terms}
        value = _sum(contributions.values(), math.inf)
        if top and math.isfinite(value):
            ev.terms, ev.contributions = terms, contributions
        return ev.checked(value)

    def values(self, contributions: Mapping[str, float], step: float | None = None) -> dict[str, float]:
        """Return the value of each term that is known, of the *contributions* of a result at a training step."""
        weighted = [term for term in self.at(step) if term.weight]
        there = [term for term in weighted if term.label in contributions]
        dropped = [term for term in weighted if term.label not in contributions]
        total = self._total(sum(abs(term.weight) for term in there), dropped)
        return {term.label: contributions[term.label] / (term.weight / total) for term in there}

    def _total(self, present: float, dropped: Sequence[Term]) -> float:
        """Return what the weights are divided by. *present*: the sum of those that count."""
        if self.normalize:
            return present or 1.0
        return present / (present + sum(abs(term.weight) for term in dropped)) if dropped else 1.0

    def place(self, ev: Evaluation, scale: float, turns: list[float]) -> None:
        there: list[Term] = []
        dropped: list[Term] = []
        for term in self.at(ev.step):
            if term.counts:
                (dropped if ev.of(term.node) is None else there).append(term)
        total = self._total(sum(abs(term.weight) for term in there), dropped)
        for term in there:
            if term.node.places():
                term.node.place(ev, scale * (term.weight / total), turns)

    def branches(self) -> Sequence[Branch]:
        return [Branch(term.node) for term in self.terms]

    def bounds(self, ranges: Mapping[str, Range]) -> Range:
        # between two steps that are written, every end lies between those there
        steps: Sequence[float | None] = self._steps() or [None]
        ends = [self._bounds(self.at(step), ranges) for step in steps]
        return min(low for low, _ in ends), max(high for _, high in ends)

    def _bounds(self, weighted: Sequence[Term], ranges: Mapping[str, Range]) -> Range:
        # computed as `value` does, so that the best grades give the highest value to the last bit
        terms = [term for term in weighted if term.weight]
        present = 0.0
        for term in terms:
            present += abs(term.weight)
        total = present if self.normalize else 1.0
        ends = [[t.weight / total * x for x in t.node.bounds(ranges)] for t in terms]
        low, high = _sum(map(min, ends), -math.inf), _sum(map(max, ends), math.inf)
        if any(t.node.drops_out() for t in terms):
            # a term that drops out gives its weight to the others, so that any mix of the terms is possible
            alone = [
                math.copysign(present / total, t.weight) * x for t in terms for x in t.node.bounds(ranges)
            ]
            return min(low, *alone), max(high, *alone)
        return low, high

    def spec(self) -> Any:
        def term(t: Term) -> Any:
            plain = isinstance(t.node, Score) and t.node.spec() == t.label
            weight: Any = t.weight if t.schedule is None else t.schedule.spec()
            return weight if plain else {"weight": weight, "of": t.node.spec()}

        spec: dict[str, Any] = {"weighted": {t.label: term(t) for t in self.terms}}
        if self.normalize:
            spec["normalize"] = True
        return spec


@dataclass(frozen=True, eq=False, repr=False, init=False)
class Switch(Node):
    """The node of the first case whose pattern matches a field of the rollout.

        Switch({"math*": "correct", "code": Weighted({"tests": 0.9, "style": 0.1})}, otherwise="judge")

    *cases*: nodes by shell patterns, tried in order. *by*: the field, a dotted path (`data_source`,
    `extra.kind`). The other cases are not graded. A rollout that matches no case gets *otherwise*; without it,
    its reward is missing.
    """

    cases: Mapping[str, Node]
    by: str
    otherwise: Node | None

    def __init__(self, cases: Mapping[str, Any], *, by: str = "data_source", otherwise: Any = None) -> None:
        if not isinstance(cases, Mapping) or not cases or not all(isinstance(p, str) for p in cases):
            raise ConfigError("switch: give at least one case, such as {'math*': 'correct'}")
        field = by.partition(".")[0] if isinstance(by, str) else by
        if field not in Rollout.__struct_fields__:
            known = did_you_mean(str(field), Rollout.__struct_fields__)
            raise ConfigError(f"switch: by is a field of the rollout, not {by!r}{known}")
        made = {pattern: as_node(node) for pattern, node in cases.items()}
        set_fields(self, cases=made, by=by, otherwise=None if otherwise is None else as_node(otherwise))

    def taken(self, ev: Evaluation) -> list[Node]:
        """Return the branch that counts, if any. Without the rollout: the branches that fit its grades."""
        if ev.rollout is not None:
            field = self._field(ev.rollout)
            node = None if field is None else first_match(self.cases, field) or self.otherwise
            return [] if node is None else [node]
        seen = {name: grade for name, grade in ev.grades.items() if type(grade) is not Skipped}
        probe = Evaluation(seen, ev.lows, None, ev.numbers, ev.step)
        able = [b.node for b in self.branches() if not b.node.wanted(probe)]
        used = [len(seen.keys() & score_names(node)) for node in able]
        return [node for node, n in zip(able, used, strict=True) if n == max(used)]

    def compute(self, ev: Evaluation, top: bool = False) -> float | Missing:
        taken = self.taken(ev)
        if len(taken) == 1:
            return taken[0].compute(ev, top)
        if ev.rollout is not None:
            field = self._field(ev.rollout)
            what = "which cannot be read" if field is None else repr(field[:80])
            ev.policies.append(f"no case of the switch fits {self.by} {what}")
        return Missing()

    def place(self, ev: Evaluation, scale: float, turns: list[float]) -> None:
        for node in self.taken(ev):
            if node.places():
                node.place(ev, scale, turns)

    def _field(self, rollout: Rollout) -> str | None:
        """Return the field as text; None if reading it raises, as a lazy column of a data set may."""
        try:
            return field_text(rollout, self.by)
        except Exception:
            return None

    def wanted(self, ev: Evaluation) -> list[str]:
        return [name for node in self.taken(ev) for name in node.wanted(ev)]

    def branches(self) -> Sequence[Branch]:
        found = [Branch(node, f"{self.by} is {pattern}") for pattern, node in self.cases.items()]
        if self.otherwise is not None:
            found.append(Branch(self.otherwise, f"{self.by} is none of {', '.join(self.cases)}"))
        return found

    def spec(self) -> Any:
        spec = {"by": self.by, "cases": {pattern: node.spec() for pattern, node in self.cases.items()}}
        if self.otherwise is not None:
            spec["otherwise"] = self.otherwise.spec()
        return {"switch": spec}

    def label(self) -> str:
        return f"switch by {self.by}"


@dataclass(frozen=True, eq=False, repr=False, init=False)
class Several(Node):
    nodes: tuple[Node, ...]

    def __init__(self, *nodes: Any) -> None:
        if not nodes:
            raise ConfigError(f"{type(self).__name__.lower()}: give at least one node")
        set_fields(self, nodes=tuple(map(as_node, nodes)))

    def combine(self, values: Sequence[float]) -> float:
        raise NotImplementedError

    def compute(self, ev: Evaluation, top: bool = False) -> float | Missing:
        values: list[float] = []
        gaps: list[Missing] = []
        for node in self.nodes:
            value = node.compute(ev)
            if not isinstance(value, Missing):
                values.append(value)
            else:
                gaps.append(value)
        if not (values and all(gap.drops_out for gap in gaps)):
            return Missing.all_of(gaps)
        ev.policies += [
            f"{name}: missing, left out of the {type(self).__name__.lower()}"
            for gap in gaps
            for name in gap.names
        ]
        return ev.checked(self.combine(values))

    def branches(self) -> Sequence[Branch]:
        return [Branch(node) for node in self.nodes]

    def bounds(self, ranges: Mapping[str, Range]) -> Range:
        found = [(node.bounds(ranges), node.drops_out()) for node in self.nodes]
        kept = [ends for ends, drops_out in found if not drops_out]
        # all of them, or only those that never drop out; where all may, at least one is left
        sets = [[ends for ends, _ in found], *([kept] if kept else [[ends] for ends, _ in found])]
        ends = [self.combine(values) for part in sets for values in zip(*part, strict=True)]
        return min(ends), max(ends)

    def spec(self) -> Any:
        return {type(self).__name__.lower(): [node.spec() for node in self.nodes]}


class Product(Several):
    """The product of its nodes: `Product("correct", "format")` pays only what is both."""

    def combine(self, values: Sequence[float]) -> float:
        return math.prod(values)

    def place(self, ev: Evaluation, scale: float, turns: list[float]) -> None:
        placed = next(node for node in self.nodes if node.places())  # one at most, see `RewardTree.lint`
        if ev.of(placed) is not None:
            others = [
                value for node in self.nodes if node is not placed and (value := ev.of(node)) is not None
            ]
            placed.place(ev, scale * math.prod(others), turns)

    def bounds(self, ranges: Mapping[str, Range]) -> Range:
        low, high = 1.0, 1.0
        for node in self.nodes:
            factors = (*node.bounds(ranges), 1.0) if node.drops_out() else node.bounds(ranges)
            ends = [0.0 if 0.0 in (x, y) else x * y for x in (low, high) for y in factors]
            low, high = min(ends), max(ends)
        return low, high


class _Chosen(Several):
    """A node that has the value of one of its nodes: of those with that value, the first has its turns."""

    def place(self, ev: Evaluation, scale: float, turns: list[float]) -> None:
        values = [(value, node) for node in self.nodes if (value := ev.of(node)) is not None]
        best = self.combine([value for value, _ in values])
        chosen = next(node for value, node in values if value == best)
        if chosen.places():
            chosen.place(ev, scale, turns)


class Min(_Chosen):
    """The smallest of its nodes."""

    def combine(self, values: Sequence[float]) -> float:
        return min(values)


class Max(_Chosen):
    """The largest of its nodes."""

    def combine(self, values: Sequence[float]) -> float:
        return max(values)


@dataclass(frozen=True, eq=False, repr=False, init=False)
class Clip(Node):
    """The node's value, limited to low..high."""

    of: Node
    low: float
    high: float

    def __init__(self, of: Any, low: float, high: float) -> None:
        if not finite(low, "clip: low") < finite(high, "clip: high"):
            raise ConfigError(f"clip: low {low:g} must be below high {high:g}")
        set_fields(self, of=as_node(of), low=float(low), high=float(high))

    def compute(self, ev: Evaluation, top: bool = False) -> float | Missing:
        value = self.of.compute(ev, top)
        return value if isinstance(value, Missing) else min(max(value, self.low), self.high)

    def place(self, ev: Evaluation, scale: float, turns: list[float]) -> None:
        value = ev.of(self.of)
        if value is not None and self.low <= value <= self.high:
            self.of.place(ev, scale, turns)

    def branches(self) -> Sequence[Branch]:
        return [Branch(self.of)]

    def bounds(self, ranges: Mapping[str, Range]) -> Range:
        low, high = self.of.bounds(ranges)
        return min(max(low, self.low), self.high), min(max(high, self.low), self.high)

    def spec(self) -> Any:
        return {"clip": {"of": self.of.spec(), "low": self.low, "high": self.high}}

    def label(self) -> str:
        return f"clip {self.low:g}..{self.high:g}"

    def drops_out(self) -> bool:
        return self.of.drops_out()


@dataclass(frozen=True, eq=False, repr=False, init=False)
class Fallback(Node):
    """`first`, or `other` if the first is missing. `other` is graded only then, and its use is counted."""

    first: Node
    other: Node

    def __init__(self, first: Any, other: Any) -> None:
        set_fields(self, first=as_node(first), other=as_node(other))

    def compute(self, ev: Evaluation, top: bool = False) -> float | Missing:
        policies = len(ev.policies)
        first = self.first.compute(ev, top)
        if not isinstance(first, Missing):
            return first
        unused = len(ev.policies)
        other = self.other.compute(ev, top)
        if isinstance(other, Missing):
            return Missing((*first.names, *other.names))
        del ev.policies[policies:unused]
        ev.policies.append(
            f"{', '.join(first.names) or self.first.label()}: missing, fallback to {self.other.label()}"
        )
        return other

    def place(self, ev: Evaluation, scale: float, turns: list[float]) -> None:
        node = self.other if ev.of(self.first) is None else self.first
        if node.places():
            node.place(ev, scale, turns)

    def wanted(self, ev: Evaluation) -> list[str]:
        if wanted := self.first.wanted(ev):
            return wanted
        return self.other.wanted(ev) if isinstance(self.first.compute(ev), Missing) else []

    def branches(self) -> Sequence[Branch]:
        return [Branch(self.first), Branch(self.other, f"{self.first.label()} is missing")]

    def spec(self) -> Any:
        return {"fallback": [self.first.spec(), self.other.spec()]}


def as_node(given: Any) -> Node:
    """Return a node unchanged, a name as a `Score`, a number as a `Const`, weights by name as a `Weighted`."""
    if isinstance(given, Node):
        return given
    if isinstance(given, str):
        return Score(given)
    if isinstance(given, Mapping):
        return Weighted(given)
    if is_number(given):
        return Const(given)
    raise ConfigError(f"a reward is made of nodes, grader names and numbers, not {given!r:.80}")


def times(a: Any, b: Any) -> Node:
    """Return the product of two nodes, or what stands for nodes; a number times a node is a weight."""
    for number, other in ((a, b), (b, a)):
        if is_number(number):
            return _sum_of(
                [(label, finite(number, "a weight") * w, node) for label, w, node in _terms(as_node(other))]
            )
    parts = [
        part
        for node in (as_node(a), as_node(b))
        for part in (node.nodes if isinstance(node, Product) else (node,))
    ]
    return Product(*parts)


def plus(a: Any, b: Any) -> Node:
    """Return the sum of two nodes, or what stands for nodes: a `Weighted`."""
    return _sum_of([*_terms(as_node(a)), *_terms(as_node(b))])


def _terms(node: Node) -> list[tuple[str, float, Node]]:
    if isinstance(node, Weighted) and not (node.normalize or node.fades):
        return [(term.label, term.weight, term.node) for term in node.terms]
    return [("constant" if isinstance(node, Const) else node.label(), 1.0, node)]


def _sum_of(terms: Iterable[tuple[str, float, Node]]) -> Weighted:
    """Return the weighted sum of *terms*: equal ones are added up, others of one name are numbered."""
    made: dict[str, Term] = {}
    for label, weight, node in terms:
        if label == RESIDUAL:
            raise ConfigError(RESERVED)
        name, count = label, 1
        while name in made and made[name].node.spec() != node.spec():
            count += 1
            name = f"{label} {count}"
        weight += made[name].weight if name in made else 0.0
        made[name] = Term(name, finite(weight, f"the weight of {name!r}"), node)
    found: Weighted = object.__new__(Weighted)  # all weights may be 0 until more is added
    set_fields(found, terms=tuple(made.values()), normalize=False, fades=False)
    return found


def equal_weights(names: Sequence[str]) -> Node:
    """Return the mean of the scores *names*."""
    return Weighted(dict.fromkeys(names, 1.0), normalize=True)


def walk(node: Node) -> Iterator[Node]:
    """Yield *node* and all its descendants."""
    yield node
    for branch in node.branches():
        yield from walk(branch.node)


def _given(score: Given, name: str) -> Grade:
    if score is None:
        return Abstained("none is given")
    if not isinstance(score, tuple | list):
        return Graded(finite(score, name))
    turns = tuple(None if turn is None else finite(turn, name) for turn in score)
    known = [turn for turn in turns if turn is not None]
    return Graded(math.fsum(known) / len(known) if known else 0.0, turns=turns)


def score_names(root: Node) -> tuple[str, ...]:
    """Return the names of the grades that a tree uses, each once, in its order."""
    return tuple(dict.fromkeys(node.name for node in walk(root) if isinstance(node, Score)))


def group_keys(root: Node) -> tuple[str, ...]:
    """Return the keys of a tree's functions of the group, each once, in its order."""
    return tuple(dict.fromkeys(node.group_key() for node in walk(root) if node.of_group))


def _sum(values: Iterable[float], beyond: float) -> float:
    """Add values up, without rounding in between; *beyond* if they leave the floats."""
    try:
        return math.fsum(values)
    except (OverflowError, ValueError):
        return beyond


def hull(nodes: Sequence[Node], ranges: Mapping[str, Range]) -> Range:
    lows, highs = zip(*(node.bounds(ranges) for node in nodes), strict=True)
    return min(lows), max(highs)


def set_fields(node: Node, **fields: Any) -> None:
    """Set the fields of a frozen node."""
    for name, value in fields.items():
        object.__setattr__(node, name, value)
