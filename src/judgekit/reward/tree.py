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
    Missing,
    Node,
    Range,
    Score,
    Several,
    Switch,
    Weighted,
    score_names,
    walk,
)
from judgekit.types import Grade, Rollout


class Problem(NamedTuple):
    """What is wrong with a tree: an *error*, or a warning about something unusual."""

    text: str
    error: bool


class RewardTree:
    """A reward tree bound to its graders.

    *ranges*: the score range of every grade, by name. *unbreakable*: grades whose failure is never the rollout's fault. Construction raises ConfigError for the errors that `lint`
    finds. Its warnings are in `warnings`, and the runner logs them.
    """

    def __init__(
        self, root: Node, ranges: Mapping[str, Range], unbreakable: Collection[str] = frozenset()
    ) -> None:
        self.root = root
        self._unbreakable = unbreakable
        self.ranges = dict(ranges)
        self.names = score_names(root)
        self._lows = {name: low for name, (low, _) in ranges.items()}
        problems = self.lint()
        if errors := [problem.text for problem in problems if problem.error]:
            raise ConfigError("; ".join(errors))
        self.warnings = tuple(problem.text for problem in problems)
        self.lazy = any(branch.when for node in walk(root) for branch in node.branches())
        """Whether what is graded depends on grades or on the rollout."""
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
        return ev

    def wanted(self, grades: Mapping[str, Grade], rollout: Rollout | None = None) -> list[str]:
        """Return the names of the grades to get next, in the tree's order; empty once the reward is known."""
        if not self.lazy:
            return [name for name in self.names if name not in grades]
        return list(dict.fromkeys(self.root.wanted(self.probe(grades, rollout))))

    def probe(self, grades: Mapping[str, Grade], rollout: Rollout | None = None) -> Evaluation:
        """Return an evaluation of these grades in which nothing is computed yet."""
        return Evaluation(grades, self._lows, rollout)

    def value(self, scores: Mapping[str, float | None] = {}, /, **named: float | None) -> float | None:
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
        return problems + _lint_renormalise(self.root, False)


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
