"""A reward tree bound to its graders, and the checks before it runs."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from fnmatch import fnmatchcase
from typing import NamedTuple

from judgekit.errors import ConfigError, did_you_mean
from judgekit.reward.conditions import Condition, outcomes
from judgekit.reward.nodes import (
    NO_WEIGHT,
    RESIDUAL,
    Clip,
    Evaluation,
    Fallback,
    Gate,
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
    score_names,
    walk,
)
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
        self.root = root
        self._unbreakable = unbreakable
        self._turnless = turnless
        self.ranges = dict(ranges)
        self.names = score_names(root)
        self._lows = {name: low for name, (low, _) in ranges.items()}
        problems = self.lint()
        if errors := [problem.text for problem in problems if problem.error]:
            raise ConfigError("; ".join(errors))
        self.warnings = tuple(problem.text for problem in problems)
        self.lazy = any(branch.when for node in walk(root) for branch in node.branches())
        """Whether what is graded depends on grades or on the rollout."""
        self.has_turns = any(isinstance(node, Turns) for node in walk(root))
        """Whether it has leaves `Turns`, so that parts of a reward belong to turns."""
        self.deciders = _deciders(root)
        """For each grade, those on which it depends whether it is asked for."""
        self.gate_of = _gates(root)
        """For each grade that may be skipped, when it is asked for, in words."""

    def evaluate(self, grades: Mapping[str, Grade], rollout: Rollout | None = None) -> Evaluation:
        """Compute the reward of one rollout from its *grades*.

        *rollout*: what a `Switch` looks at. Without it, the case is inferred from the grades.
        """
        ev = self.probe(grades, rollout)
        value = self.root.compute(ev, True)
        if len(ev.policies) > 1:  # a grade may be read in several places
            ev.policies = list(dict.fromkeys(ev.policies))
        if isinstance(value, Missing):
            ev.terms, ev.contributions, ev.missing = {}, {}, tuple(dict.fromkeys(value.names))
        else:
            ev.value = value
            ev.contributions[RESIDUAL] = value - math.fsum(ev.contributions.values())
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

    def wanted(self, grades: Mapping[str, Grade], rollout: Rollout | None = None) -> list[str]:
        """Return the names of the grades to get next, in the tree's order; empty once the reward is known."""
        if not self.lazy:
            return [name for name in self.names if name not in grades]
        return list(dict.fromkeys(self.root.wanted(self.probe(grades, rollout))))

    def probe(self, grades: Mapping[str, Grade], rollout: Rollout | None = None) -> Evaluation:
        """Return an evaluation of these grades in which nothing is computed yet."""
        return Evaluation(grades, self._lows, rollout)

    def value(self, scores: Mapping[str, Given] = {}, /, **named: Given) -> float | None:
        """Return the reward for *scores* by graders' names; see `Node.value`."""
        return self.root.value(scores, **named)

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
            parts = [set(score_names(part)) for part in node.if_.nodes()]
            for at, part in enumerate(parts):
                for name in part:
                    found[name].update(*parts[:at], *parts[at + 1 :])
            for name in (*score_names(node.then), *score_names(node.otherwise)):
                found[name].update(*parts)
        elif isinstance(node, Fallback):
            for name in score_names(node.other):
                found[name].update(score_names(node.first))
    for through in found:  # what decides a decider decides, too
        for deciders in found.values():
            if through in deciders:
                deciders |= found[through]
    return {name: frozenset(deciders - {name}) for name, deciders in found.items()}


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
