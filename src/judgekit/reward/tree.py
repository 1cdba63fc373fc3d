"""A reward tree bound to its graders, and the checks before it runs."""

from __future__ import annotations

import copy
import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from itertools import chain, count
from typing import NamedTuple

from judgekit.errors import ConfigError, did_you_mean
from judgekit.reward.conditions import Condition, outcomes
from judgekit.reward.gates import Gate, OfGroup
from judgekit.reward.nodes import (
    NO_WEIGHT,
    RESIDUAL,
    Clip,
    Evaluation,
    Fallback,
    Given,
    Missing,
    Node,
    Product,
    Range,
    Score,
    Several,
    Switch,
    Turns,
    Weighted,
    group_keys,
    score_names,
    set_fields,
    walk,
)
from judgekit.reward.spec import parse
from judgekit.types import Grade, Graded, Rollout, policy_turns


class Problem(NamedTuple):
    """What is wrong with a tree: an *error*, or a warning about something unusual."""

    text: str
    error: bool


class RewardTree:
    """A reward tree bound to its graders.

    *ranges*: the score range of every grade, by name. *unbreakable*: grades whose failure is never the rollout's fault.
    *turnless*: grades that say nothing of turns. Construction raises ConfigError for the errors that `lint` finds. Its warnings are in `warnings`, and the runner logs them.
    """

    def __init__(
        self,
        root: Node,
        ranges: Mapping[str, Range],
        unbreakable: Collection[str] = frozenset(),
        turnless: Collection[str] = frozenset(),
    ) -> None:
        self.root = root = _with_own_functions(root)
        self._unbreakable = unbreakable
        self._turnless = turnless
        self.ranges = dict(ranges)
        self.names = score_names(root)
        self._lows = {name: low for name, (low, _) in ranges.items()}
        problems = self.lint()
        if errors := [problem.text for problem in problems if problem.error]:
            raise ConfigError("; ".join(errors))
        self.warnings = tuple(problem.text for problem in problems)
        self.fades = any(isinstance(node, Weighted) and node.fades for node in walk(root))
        """Whether a weight depends on the training step, see `at`."""
        self.step: float | None = None
        """The step for which it computes rewards."""
        self.lazy = any(branch.when for node in walk(root) for branch in node.branches())
        """Whether what is graded depends on grades or on the rollout."""
        self.has_turns = any(isinstance(node, Turns) for node in walk(root))
        """Whether it has leaves `Turns`, so that parts of a reward belong to turns."""
        self.functions = {node.key: node for node in walk(root) if isinstance(node, OfGroup)}
        """The functions of the group that its conditions read, by their keys."""
        self.deciders = _deciders(root)
        """For each grade, the grades and keys of functions on which it depends whether it is asked for."""
        self.function_deciders = _function_deciders(root)
        """For each function's key, the grades and keys on which it depends whom it counts, and with what."""
        self.gate_of = _gates(root)
        """For each grade that may be skipped, when it is asked for, in words."""

    def at(self, step: float) -> RewardTree:
        """Return the tree as it is at a training step."""
        made = copy.copy(self)
        made.step = step
        return made

    def evaluate(
        self,
        grades: Mapping[str, Grade],
        rollout: Rollout | None = None,
        numbers: Mapping[str, float | None] = {},
    ) -> Evaluation:
        """Compute the reward of one rollout from its *grades*.

        *rollout*: what a `Switch` looks at. Without it, the case is inferred from the grades. *numbers*: of its group, by the
        keys of `functions`; one that is not there is missing.
        """
        ev = self.probe(grades, rollout, numbers)
        value = self.root.compute(ev, True)
        if len(ev.policies) > 1:  # a grade may be read in several places
            ev.policies = list(dict.fromkeys(ev.policies))
        if isinstance(value, Missing):
            ev.terms, ev.contributions, ev.missing = {}, {}, tuple(dict.fromkeys(value.names))
        else:
            ev.value = value
            # `or`: one 0.0 for all results that are kept
            ev.contributions[RESIDUAL] = value - math.fsum(ev.contributions.values()) or 0.0
            if self.has_turns:
                self._place(ev)
        return ev

    def _place(self, ev: Evaluation) -> None:
        """Say what each turn earned. A turn's part that is no finite number makes the reward missing."""
        told = len(ev.policies)
        turns = [0.0] * _turn_count(ev)
        if self.root.places():
            self.root.place(ev, 1.0, turns)
        del ev.policies[told:]  # they were noted when the value was computed
        assert ev.value is not None
        if all(map(math.isfinite, turns)) and math.isfinite(ev.value - sum(turns)):
            ev.turns = tuple(turns)
        else:
            ev.value, ev.terms, ev.contributions = None, {}, {}
            ev.policies.append("what a turn earned is too large for a float")

    def wanted(
        self,
        grades: Mapping[str, Grade],
        rollout: Rollout | None = None,
        numbers: Mapping[str, float | None] = {},
    ) -> list[str]:
        """Return the names of the grades to get next, in the tree's order; empty once the reward is known.

        The key of a function is among them once only its group's number is to come.
        """
        if not self.lazy:
            return [name for name in self.names if name not in grades]
        return list(dict.fromkeys(self.root.wanted(self.probe(grades, rollout, numbers))))

    def probe(
        self,
        grades: Mapping[str, Grade],
        rollout: Rollout | None = None,
        numbers: Mapping[str, float | None] = {},
    ) -> Evaluation:
        """Return an evaluation of these grades in which nothing is computed yet."""
        return Evaluation(grades, self._lows, rollout, numbers, self.step)

    def number(self, key: str, members: Iterable[Evaluation]) -> float | None:
        """Return a group's number of a function, of the members that get to its gate; None if it is missing."""
        function = self.functions[key]
        found = [function.member(ev) for ev in members]
        return function.number([value for value in found if value is not None])

    def value(self, scores: Mapping[str, Given] = {}, /, **named: Given) -> float | None:
        """Return the reward for *scores* by graders' names; see `Node.value`."""
        return self.root.value_at({**scores, **named}, self.step)

    def __repr__(self) -> str:
        return repr(self.root)

    def bounds(self) -> Range:
        """Return the lowest and highest possible reward."""
        return self.root.bounds(self.ranges)

    def lint(self) -> list[Problem]:
        """Return what is wrong with the tree."""
        problems = [
            Problem(
                f"the reward names {name!r}, which no grader gives{did_you_mean(name, self.ranges)}", True
            )
            for name in self.names
            if name not in self.ranges
        ]
        problems += [
            Problem(
                f"grader {name!r} is in no part of the reward: give it a weight (0 only observes it) or take it out",
                True,
            )
            for name in self.ranges
            if name not in self.names
        ]
        for node in walk(self.root):
            match node:
                case Score(name=name, if_broken=None) if (
                    not math.isfinite(self.ranges.get(name, (0, 0))[0]) and name not in self._unbreakable
                ):
                    text = (
                        f"{name!r} has no lowest score, so the reward must say what a rollout that breaks it is "
                        f"paid: Score({name!r}, if_broken=…); or give the grader a score_range"
                    )
                    problems.append(Problem(text, True))
                case Weighted() if not any(term.weight for term in node.terms):
                    problems.append(Problem(NO_WEIGHT, True))
                case Gate():
                    problems += _lint_gate(node.if_, self.ranges)
                case Switch():
                    problems += _lint_switch(node)
                case Product() if sum(part.places() for part in node.nodes) > 1:
                    text = "a product has {turns: …} in one of its factors at most, so that every part has one turn"
                    problems.append(Problem(text, True))
            if isinstance(node, Turns) and node.name in self._turnless:
                text = (
                    f"{{turns: {node.name}}}: grader {node.name!r} says nothing of turns: take one that does (per: turn), or "
                    f"write {node.name} alone"
                )
                problems.append(Problem(text, True))
        return problems + _lint_renormalise(self.root, False)


def _turn_count(ev: Evaluation) -> int:
    """Return how many turns the policy took. Without the rollout's messages, its grades tell."""
    known = [len(grade.turns) for grade in ev.grades.values() if type(grade) is Graded and grade.turns]
    return max(known, default=1) if ev.rollout is None else max([len(policy_turns(ev.rollout)), *known])


def _with_own_functions(root: Node) -> Node:
    """Return a tree in which every gate has functions of its own, each with a key: two gates may count other members.

    Raises ConfigError for a function elsewhere.
    """
    of_group = [node for node in walk(root) if node.of_group]
    if not of_group:
        return root
    of_gates = {function for node in walk(root) if isinstance(node, Gate) for function in node.functions}
    for function in of_group:
        if function not in of_gates:
            raise ConfigError(
                f"{function.label()} is a number of the whole group, which only the condition of a gate may read"
            )
    made = parse(root.spec())
    names, used = set(score_names(made)), set[str]()
    for node in walk(made):
        if isinstance(node, Gate):
            keys: dict[str, str] = {}
            for function in node.functions:
                label = function.label()
                if label not in keys:
                    numbered = chain([label], (f"{label} #{number}" for number in count(2)))
                    keys[label] = next(key for key in numbered if key not in used and key not in names)
                set_fields(function, key=keys[label])
            used.update(keys.values())
    return made


def _gates(root: Node) -> dict[str, str]:
    ways: dict[str, list[str]] = {}

    def visit(node: Node, path: tuple[str, ...]) -> None:
        if isinstance(node, Score):
            ways.setdefault(node.name, []).append(" and ".join(path))
        for branch in node.branches():
            when = f"({branch.when})" if " or " in branch.when else branch.when
            visit(branch.node, (*path, when) if when else path)

    visit(root, ())
    return {name: " or ".join(dict.fromkeys(paths)) for name, paths in ways.items() if "" not in paths}


def _deciders(root: Node) -> dict[str, frozenset[str]]:
    found: dict[str, set[str]] = {name: set() for name in score_names(root)}
    for node in walk(root):
        if isinstance(node, Gate):
            nodes = (
                node.if_.nodes()
            )  # functions of the group first: nothing else of the condition decides them
            parts = [_decisive(part) for part in nodes]
            for at, part in enumerate(nodes):
                for name in score_names(part):
                    found[name].update(*parts[:at], *(() if part.of_group else parts[at + 1 :]))
            for name in (*score_names(node.then), *score_names(node.otherwise)):
                found[name].update(*parts)
        elif isinstance(node, Fallback):
            for name in score_names(node.other):
                found[name].update(_decisive(node.first))
    for through in found:  # what decides a decider decides, too
        for deciders in found.values():
            if through in deciders:
                deciders |= found[through]
    return {name: frozenset(deciders - {name}) for name, deciders in found.items()}


def _decisive(node: Node) -> set[str]:
    """Return the grades and keys of functions on which a node's value depends."""
    return {*score_names(node), *group_keys(node)}


def _function_deciders(root: Node) -> dict[str, frozenset[str]]:
    found: dict[str, frozenset[str]] = {}

    def visit(node: Node, path: frozenset[str]) -> None:
        parts: Sequence[Node] = ()
        if isinstance(node, Gate):
            earlier: set[str] = set()
            for function in node.functions:
                # all its members come from the functions before it at once: only their numbers are waited for
                found.setdefault(function.key, path | earlier | {*score_names(function)})
                earlier.add(function.key)
            parts = node.if_.nodes()
        elif isinstance(node, Fallback):
            parts = (node.first,)
        below = path.union(*map(_decisive, parts))
        for branch in node.branches():
            first = isinstance(node, Fallback) and branch.node is node.first
            if not branch.node.of_group:
                visit(branch.node, path if first else below)

    visit(root, frozenset())
    return {key: names - {key} for key, names in found.items()}


def _lint_gate(gate: Condition, ranges: Mapping[str, Range]) -> Iterator[Problem]:
    def told(part: Condition) -> tuple[bool | None, str]:
        found = outcomes(part, lambda node: node.bounds(ranges))
        within = ", ".join(
            f"{n.label()} lies in {low:g}..{high:g}" for n in part.nodes() for low, high in [n.bounds(ranges)]
        )
        return (found.pop() if len(found) == 1 else None), within

    holds, within = told(gate)
    if holds is not None:
        passes = "always passes" if holds else "can never pass"
        yield Problem(f"the gate {gate} {passes}: {within}", not holds)
        return
    for part in gate.comparisons():
        holds, within = told(part)
        if holds is not None:
            yield Problem(f"in the gate {gate}, {part} is always {str(holds).lower()}: {within}", False)


def _lint_switch(switch: Switch) -> Iterator[Problem]:
    before: list[str] = []
    for pattern in switch.cases:
        # a pattern of literals and * that matches another pattern's text matches everything that the other does
        hides = (p for p in before if fnmatchcase(pattern, p) and not set("?[") & set(p))
        if (first := next(hides, None)) is not None:
            yield Problem(
                f"the case {pattern!r} of a switch is never taken: {first!r} stands before it", False
            )
        before.append(pattern)


def _lint_renormalise(node: Node, in_sum: bool) -> list[Problem]:
    if isinstance(node, Score) and node.drops_out() and not in_sum:
        text = (
            f"{node.name}: if_missing='renormalise' only has a meaning inside weighted, product, min or max"
        )
        return [Problem(text, True)]
    passes = isinstance(node, Weighted | Several) or (in_sum and isinstance(node, Clip))
    return [problem for branch in node.branches() for problem in _lint_renormalise(branch.node, passes)]
