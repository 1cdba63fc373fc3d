"""What a runner's settings tell before any rollout: rewards that can be dodged, paid for nothing, or never vary."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import msgspec

from judgekit.errors import RolloutError
from judgekit.graders.function import Mapped, Wrapper
from judgekit.reward.conditions import Compare
from judgekit.reward.gates import Gate, Share
from judgekit.reward.nodes import Clip, Const, Fallback, Min, Node, Product, Score, Weighted, score_names
from judgekit.reward.tree import RewardTree
from judgekit.run.bound_grader import BoundGrader
from judgekit.run.runner import GradingRunner
from judgekit.types import Abstained, Rollout, look_up


def findings(runner: GradingRunner, rollouts: Sequence[Rollout] = ()) -> list[str]:
    """Return what is doubtful about a runner's reward, a sentence each. Starts and asks nothing.

    *rollouts*: some of the data, if it is known: graders that would abstain on all of it are told.
    """
    bound = [BoundGrader(name, grader, 1.0) for name, grader in runner.graders.items()]
    graders = {key: one for one in bound for key in one.keys}
    look = _Look(runner.reward, graders, runner.settings.missing_reward)
    found = [*look.at(runner.reward.root), *look.blind(), *_unread(graders, rollouts)]
    return list(dict.fromkeys(found))


class _Look:
    """Looks at each node of a tree."""

    def __init__(
        self, tree: RewardTree, graders: dict[str, BoundGrader], missing_reward: str | float
    ) -> None:
        self._ranges = tree.ranges
        self._graders = graders
        self._missing_reward = missing_reward

    def at(self, node: Node, dodge: bool = True, alone: bool = True) -> Iterator[str]:
        """Yield what is doubtful at a node.

        *dodge*: whether rollouts get there whatever they say. *alone*: whether it is paid to such rollouts, too.
        """
        if not isinstance(node, Const | Score) and (value := self._constant(node)) is not None:
            yield f"{node.label()} is {value:g} for every rollout, so there is nothing to learn from it"
            return
        match node:
            case Score():
                if dodge:
                    yield from self._dodged(node)
            case Gate():
                yield from self._gated(node, dodge, alone)
            case Fallback():  # what stands in for a missing grade is written
                yield from self.at(node.first, False, alone)
                yield from self.at(node.other, dodge, alone)
            case Weighted():
                yield from self._weighted(node, dodge, alone)
            case Product() | Min():
                content = [self._reads_content(part) for part in node.nodes]
                for at, part in enumerate(node.nodes):
                    yield from self.at(part, dodge, alone and not any(content[:at] + content[at + 1 :]))
            case _:
                for branch in node.branches():
                    yield from self.at(branch.node, dodge, alone)

    def _gated(self, node: Gate, dodge: bool, alone: bool) -> Iterator[str]:
        for part in node.if_.nodes():
            yield from self.at(part, dodge, False)
        right = any(map(self._demands_content, node.if_.comparisons()))
        yield from self.at(node.then, dodge and not right, alone and not right)
        yield from self.at(node.otherwise, dodge, alone)

    def _weighted(self, node: Weighted, dodge: bool, alone: bool) -> Iterator[str]:
        if alone:
            yield from self._additive(node)
        for term in node.terms:
            if alone and term.weight and isinstance(term.node, Const):
                yield f"the term {term.label!r} is {term.node.number:g} for every rollout: there is nothing to learn from it"
            elif term.weight:
                yield from self.at(term.node, dodge, alone)

    def blind(self) -> Iterator[str]:
        """Yield the functions that never read what the policy wrote."""
        for key, bound in self._graders.items():
            reads = getattr(bound.grader, "reads", None)
            if reads and not reads & _OF_ROLLOUT and not bound.compares:
                yield (
                    f"{key}: it reads only {', '.join(sorted(reads))}, so all rollouts of a prompt get one score, and there is nothing "
                    "to learn from it: read the response, too"
                )

    def _constant(self, node: Node) -> float | None:
        low, high = node.bounds(self._ranges)
        return low if low == high else None

    def _reads_content(self, node: Node) -> bool:
        """Whether a node's value depends on what a response says, and not only on its form."""
        if isinstance(node, Clip):
            return self._reads_content(node.of)
        if isinstance(node, Score):
            bound = self._graders[node.name]
            return not _is_form(bound) and not _dodge(bound)
        return not isinstance(node, Const) and any(
            self._reads_content(branch.node) for branch in node.branches()
        )

    def _demands_content(self, part: Compare) -> bool:
        """Whether a comparison holds only for a rollout whose content was found good, to some part."""
        if isinstance(part.node, Share):  # below 1, a wrong rollout among right ones passes, too
            everyone = part.op in (">=", "==") and part.threshold >= 1
            return everyone and any(map(self._demands_content, part.node.if_.comparisons()))
        if part.node.of_group:
            return False
        low, _ = part.node.bounds(self._ranges)
        demands = part.threshold >= low if part.op == ">" else part.threshold > low
        return part.op in (">", ">=", "==") and demands and self._reads_content(part.node)

    def _dodged(self, score: Score) -> Iterator[str]:
        how = _dodge(self._graders[score.name])
        if not how or not isinstance(score.if_missing, str):
            return
        if score.if_missing == "renormalise":
            then = "its weight goes to the other terms"
        elif self._missing_reward in ("exclude", "neutral", "mask"):
            then = f"its reward is missing, not low (missing_reward: {self._missing_reward})"
        else:
            return
        yield (
            f"{score.name}: a rollout that {how} is not graded by it, and {then}, which a policy can choose: "
            f"write {{score: {score.name}, if_missing: 0}}, or put it behind a gate on what is right"
        )

    def _additive(self, node: Weighted) -> Iterator[str]:
        terms = [term for term in node.terms if term.weight > 0]
        right = [term.label for term in terms if self._reads_reference(term.node)]
        total = sum(abs(term.weight) for term in node.terms) if node.normalize else 1.0
        for term in terms if right else ():
            if self._is_formal(term.node):
                most = term.weight / total * term.node.bounds(self._ranges)[1]
                if most > 0:
                    yield (
                        f"{term.label}: pays up to {most:g} for form alone, also to an empty or wrong response: put it behind a gate, "
                        f'such as {{if: "{right[0]} > 0", then: …, otherwise: 0}}'
                    )

    def _is_formal(self, node: Node) -> bool:
        """Whether all graders on which a node depends look at form alone."""
        names = score_names(node)
        return bool(names) and all(_is_form(self._graders[name]) for name in names)

    def _reads_reference(self, node: Node) -> bool:
        if isinstance(node, Score):
            bound = self._graders[node.name]
            reads = {*getattr(bound.grader, "inputs", ()), *(getattr(bound.grader, "reads", None) or ())}
            judges = bool(bound.judges) or any(name.startswith(("ground_truth", "extra")) for name in reads)
            return judges and not _is_form(bound)
        return any(self._reads_reference(branch.node) for branch in node.branches())


_OF_ROLLOUT = frozenset(("response", "messages", "extra", "response_tokens", "finish_reason", "id"))
"""Fields that differ between the rollouts of a prompt."""


def _is_form(bound: BoundGrader) -> bool:
    return bool(getattr(bound.grader, "only_form", False))


def _dodge(bound: BoundGrader) -> str:
    return str(getattr(bound.grader, "dodge", ""))


def _unread(graders: dict[str, BoundGrader], rollouts: Sequence[Rollout]) -> Iterator[str]:
    """Yield the graders that would abstain on all *rollouts*, for want of what their data has not."""
    for key, bound in graders.items() if rollouts else ():
        lacks = [_lacks(bound.grader, rollout) for rollout in rollouts]
        if all(lacks):
            yield f"{key}: it would abstain on each of the {len(rollouts)} rows that were looked at: {lacks[0]}"


def _lacks(grader: Any, rollout: Rollout) -> str:
    """Return what a rollout lacks that a grader needs, in words; "" if nothing is known to be missing."""
    if isinstance(grader, Mapped):
        mapped = grader.map(rollout)
        return mapped.reason if isinstance(mapped, Abstained) else _lacks(grader.inner, mapped)
    if isinstance(grader, Wrapper):
        return _lacks(grader.inner, rollout)
    if (correct := getattr(grader, "correct", None)) is not None:
        return _lacks(correct, rollout)
    if isinstance(members := getattr(grader, "members", None), Mapping):
        return max((_lacks(member, rollout) for member in members.values()), key=len, default="")
    if (asking := getattr(grader, "asking", None)) is not None and hasattr(grader, "grade"):
        prepared = asking.prepare(rollout)
        if not isinstance(prepared, Abstained) or not prepared.reason.startswith("there is no "):
            return ""
        hint = "; template: open asks without a reference" if rollout.ground_truth is None else ""
        return f"{prepared.reason}{hint}"
    path = getattr(grader, "reference", None) or getattr(grader, "cases", None) or "ground_truth"
    if "ground_truth" in getattr(grader, "inputs", ()) and look_up(rollout, str(path), None) is None:
        return f"there is no {path}"
    if getattr(grader, "abstains_by_row", False):
        with suppress(RolloutError, RecursionError):
            grade = grader.grade(msgspec.structs.replace(rollout, response=""))
            return grade.reason if isinstance(grade, Abstained) else ""
    return ""
