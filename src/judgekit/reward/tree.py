"""A reward tree bound to its graders: what is checked before it runs, and how it is shown."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Final

from judgekit.errors import ConfigError, did_you_mean
from judgekit.reward.nodes import Clip, Evaluation, Fallback, Gate, Node, Range, Score, Several, Weighted
from judgekit.types import Grade

RESIDUAL: Final = "residual"
"""Key of what is left of the reward after the contributions of the top-level terms."""


class RewardTree:
    """A reward tree bound to the graders it speaks of.

    *ranges*: the score range of every grade by its name. Construction raises ConfigError for what `lint`
    calls an error.
    """

    def __init__(self, root: Node, ranges: Mapping[str, Range]) -> None:
        self.root = root
        self.ranges = dict(ranges)
        self.names = score_names(root)
        self._lows = {name: low for name, (low, _) in ranges.items()}
        problems = self.lint()
        if errors := [text for text in problems if not text.startswith("warning: ")]:
            raise ConfigError("; ".join(errors))
        self.warnings = [text for text in problems if text.startswith("warning")]
        self.lazy = any(isinstance(node, Gate | Fallback) for node in _walk(root))
        """Whether what is graded depends on grades."""
        self.gate_of = dict(_gates(root, ""))
        """For each grade that may be skipped, the gate that decides."""

    def evaluate(self, grades: Mapping[str, Grade], rollout: object = None) -> Evaluation:
        """The reward of one rollout from its *grades*."""
        ev = Evaluation(grades, self._lows)
        try:
            value = self.root.value(ev, True)
        except (OverflowError, ValueError):  # fsum of finite scores whose weighted sum left the floats
            value = math.inf
        if value is not None and not math.isfinite(value):
            ev.missing.append("overflow")
            value = None
        if value is None:
            ev.terms, ev.contributions = {}, {}
        else:
            ev.contributions[RESIDUAL] = value - math.fsum(ev.contributions.values())
        ev.value = value
        return ev

    def wanted(self, grades: Mapping[str, Grade], rollout: object = None) -> list[str]:
        """Names of the grades to get next, in the tree's order; empty when the reward can be told."""
        if not self.lazy:
            return [name for name in self.names if name not in grades]
        return list(dict.fromkeys(self.root.wanted(Evaluation(grades, self._lows))))

    def bounds(self) -> Range:
        """The lowest and highest reward that the tree can give."""
        return self.root.bounds(self.ranges)

    def lint(self) -> list[str]:
        """What is wrong with the tree, in sentences; those that begin with "warning: " do not stop it."""
        problems = [
            f"the reward names {name!r}, which no grader gives{did_you_mean(name, self.ranges)}"
            for name in self.names
            if name not in self.ranges
        ]
        problems += [
            f"grader {name!r} is in no part of the reward: give it a weight (0 only observes it) or take it out"
            for name in self.ranges
            if name not in self.names
        ]
        for node in _walk(self.root):
            if (
                isinstance(node, Score)
                and node.if_broken is None
                and not math.isfinite(self.ranges.get(node.name, (0, 0))[0])
            ):
                problems.append(
                    f"{node.name!r} has no lowest score, so the reward must say what a rollout that breaks it is "
                    f"paid: Score({node.name!r}, if_broken=…)"
                )
            if isinstance(node, Gate):
                problems += _lint_gate(node, self.ranges)
        problems += _lint_renormalise(self.root, False)
        return problems

    def explain(self, grades: Mapping[str, Grade]) -> str:
        """The tree with its numbers, a line a node."""
        lines: list[str] = []

        def show(node: Node, prefix: str, depth: int) -> None:
            ev = Evaluation(grades, self._lows)
            name = next((n for n in node.wanted(ev)), None) if isinstance(node, Score) else None
            value = None if name else node.value(ev)
            shown = "not graded" if name else "missing" if value is None else f"{value:.6g}"
            if isinstance(node, Score) and value is None and not name:
                grade = grades[node.name]
                shown = f"missing ({type(grade).__name__.lower()}: {getattr(grade, 'error', '') or getattr(grade, 'reason', '') or getattr(grade, 'gate', '')})"
            lines.append(f"{'  ' * depth}{prefix}{node.label()} = {shown}")
            if isinstance(node, Weighted):
                for term in node.terms:
                    show(term.node, f"{term.weight:g} × ", depth + 1)
            elif isinstance(node, Gate):
                holds = node.if_.holds(ev)
                show(node.if_.node, "if ", depth + 1)
                if holds is not None:
                    show(
                        node.then if holds else node.otherwise, "then " if holds else "otherwise ", depth + 1
                    )
            elif isinstance(node, Fallback):
                show(node.first, "first ", depth + 1)
                show(node.other, "else ", depth + 1)
            else:
                for child in node.children():
                    show(child, "", depth + 1)

        show(self.root, "", 0)
        return "\n".join(lines)


def score_names(root: Node) -> tuple[str, ...]:
    """Names of the grades that a tree speaks of, each once, in its order."""
    return tuple(dict.fromkeys(node.name for node in _walk(root) if isinstance(node, Score)))


def _walk(node: Node) -> Iterator[Node]:
    yield node
    for child in node.children():
        yield from _walk(child)


def _gates(node: Node, gate: str) -> Iterator[tuple[str, str]]:
    if isinstance(node, Score) and gate:
        yield node.name, gate
    elif isinstance(node, Gate):
        yield from _gates(node.if_.node, gate)
        yield from _gates(node.then, f"{node.if_}")
        yield from _gates(node.otherwise, f"not {node.if_}")
    elif isinstance(node, Fallback):
        yield from _gates(node.first, gate)
        yield from _gates(node.other, f"{node.first.label()} is missing")
    else:
        for child in node.children():
            yield from _gates(child, gate)


def _lint_gate(gate: Gate, ranges: Mapping[str, Range]) -> list[str]:
    low, high = gate.if_.node.bounds(ranges)
    op, than = gate.if_.op, gate.if_.threshold
    never = {
        ">=": high < than,
        ">": high <= than,
        "<=": low > than,
        "<": low >= than,
        "==": not low <= than <= high,
        "!=": low == high == than,
    }[op]
    always = {
        ">=": low >= than,
        ">": low > than,
        "<=": high <= than,
        "<": high < than,
        "==": low == high == than,
        "!=": not low <= than <= high,
    }[op]
    if never:
        return [f"the gate {gate.if_} can never pass: its value lies in {low:g}..{high:g}"]
    if always:
        return [f"warning: the gate {gate.if_} always passes: its value lies in {low:g}..{high:g}"]
    return []


def _lint_renormalise(node: Node, in_sum: bool) -> list[str]:
    if isinstance(node, Score):
        if node.drops_out() and not in_sum:
            return [
                f"{node.name}: if_missing='renormalise' only has a meaning inside weighted, product, min or max"
            ]
        return []
    passes = isinstance(node, Weighted | Several) or (in_sum and isinstance(node, Clip))
    return [problem for child in node.children() for problem in _lint_renormalise(child, passes)]
