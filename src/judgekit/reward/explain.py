"""Explains rewards: the tree with its numbers, and why a reward is missing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice, product
from typing import Any, Final

from judgekit.reward.gates import UNDECIDED, Gate
from judgekit.reward.nodes import (
    Evaluation,
    Fallback,
    Missing,
    Node,
    Score,
    Switch,
    Turns,
    Weighted,
    walk,
)
from judgekit.reward.transforms import NEUTRAL
from judgekit.reward.tree import RewardTree
from judgekit.types import Abstained, Failed, Grade, Graded, RewardResult, Rollout, Skipped, first_match


def explain(
    tree: RewardTree,
    grades: Mapping[str, Grade],
    rollout: Rollout | None = None,
    *,
    reward: float | None = None,
    numbers: Mapping[str, float | None] = {},
) -> str:
    """Show the tree with its numbers, one line per node; gates and switches show the branch that was taken.

    *numbers*: of the group, see `RewardResult.group_numbers`. Without the rollout, a switch shows the cases that fit these grades and *reward*, the tree's value, if it is known.
    """
    lines: list[str] = []
    if rollout is None and reward is not None:
        rollout = _stand_in(tree, grades, reward, numbers)

    def show(node: Node, prefix: str, depth: int) -> None:
        ev = tree.probe(grades, rollout, numbers)
        value = ev.of(node) if depth or reward is None else reward
        shown = f"{value:.6g}" if value is not None else "missing"
        if isinstance(node, Score) and value is None:
            shown = _missing(grades.get(node.name))
        elif node.of_group:
            shown += " over the group" if value is not None else f" ({UNDECIDED})"
        elif isinstance(node, Turns):
            shown += _turns(grades.get(node.name))
        lines.append(f"{'  ' * depth}{prefix}{node.label()} = {shown}")
        for child, how in _below(node, ev):
            show(child, how, depth + 1)

    show(tree.root, "", 0)
    return "\n".join(lines)


def explain_result(tree: RewardTree, result: RewardResult, transform: str) -> str:
    """Explain a result, including its group transform and the setting for missing rewards."""
    if result.step is not None:
        tree = tree.at(result.step)
    lines = [explain(tree, result.grades, reward=result.raw_reward, numbers=result.group_numbers)]
    if result.turns:
        lines.append(f"turns earned {_listed(result.turns)}; the outcome {result.outcome:.6g}")
    raw, reward = result.raw_reward, result.reward
    why = "filled" if FILLED_BY_RUN in result.policies else _STATUS.get(result.status, result.status)
    if result.status == "scored":
        if transform != "none" and raw is not None and reward is not None and reward != raw:
            lines.append(f"{transform} over its group: {raw:.6g} → {reward:.6g}")
    elif result.status == "dropped":
        numbers = (f"{key} = {n:.6g}" for key, n in result.group_numbers.items() if n is not None)
        lines.append(f"dropped with its group: {', '.join(key for key in numbers if '(reward' in key)}")
    elif reward is None:
        lines.append(f"{'missing' if raw is None else 'no other valid reward in its group'}: {why}")
    else:
        if result.status == "neutral" and transform in NEUTRAL:
            why = f"the neutral value of {transform}"
        lines.append(f"{'missing' if raw is None else 'alone in its group'}: {why}, {reward:.6g}")
    return "\n".join([*lines, *(f"note: {policy}" for policy in result.policies)])


def why_missing(ev: Evaluation) -> str:
    """Say why the reward is missing: the graders at fault, or another reason."""
    return "; ".join([f"{name}: {_why(ev.grades.get(name))}" for name in ev.missing] or ev.policies)


NO_TURNS: Final = "its grade has an opinion on no turn"
"""Why a leaf `Turns` is missing although its grader has given a grade."""
DROPPED: Final = "dropped by drop_if: "
"""Begins the note of results whose group is dropped; the condition follows."""
FILLED_BY_RUN: Final = "no member of its group has a reward, so it gets the mean of the run"
"""The note of results whose neutral fill is not the mean of their group."""

_STATUS: Final = {
    "neutral": "filled with the mean of its group",
    "masked": "masked, without a number",
    "excluded": "excluded from its group's statistics",
    "constant": "paid what missing_reward says",
}


def _below(node: Node, ev: Evaluation) -> list[tuple[Node, str]]:
    """Return the nodes to show below a node, each with its prefix."""
    match node:
        case Weighted():
            return [(term.node, f"{term.weight:g} × ") for term in node.at(ev.step)]
        case Gate():
            taken = node.taken(ev)
            how = "then " if taken is node.then else "otherwise "
            branch = [] if isinstance(taken, Missing) else [(taken, how)]
            return [(n, "if ") for n in node.if_.nodes()] + branch
        case Switch():
            taken_nodes = node.taken(ev)
            return [(b.node, f"{b.when}: ") for b in node.branches() if b.node in taken_nodes]
        case Fallback():
            return [(node.first, "first "), (node.other, "else ")]
    return [(branch.node, "") for branch in node.branches()]


def _stand_in(
    tree: RewardTree, grades: Mapping[str, Grade], reward: float, numbers: Mapping[str, float | None]
) -> Any:
    """Return fields for which the tree's switches take the cases that give *reward*; None unless there is one such way."""
    switches = [node for node in walk(tree.root) if isinstance(node, Switch)]
    texts: dict[str, dict[str, None]] = {}
    for switch in switches:
        likely = {pattern.replace("*", "").replace("?", "x"): None for pattern in switch.cases}
        texts.setdefault(switch.by, {"\0": None}).update(likely)
        if {first_match(switch.cases, text) for text in likely} != set(switch.cases.values()):
            return None  # a pattern for which we know no text
    asked = {name: grade for name, grade in grades.items() if not isinstance(grade, Skipped)}
    found: dict[tuple[int, ...], Any] = {}
    for values in islice(product(*texts.values()), _MOST if switches else 0):
        fields: Any = {}
        for by, value in zip(texts, values, strict=True):
            *path, last = by.split(".")
            within = fields
            for part in path:
                within = within.setdefault(part, {})
            within[last] = value
        ev = tree.probe(asked, fields, numbers)
        if not tree.root.wanted(ev) and tree.root.compute(ev) == reward:
            found[tuple(id(node) for switch in switches for node in switch.taken(ev))] = fields
    return found.popitem()[1] if len(found) == 1 else None


_MOST = 200
"""Combinations of cases that are tried."""


def _listed(turns: Sequence[float | None]) -> str:
    return ", ".join("–" if turn is None else f"{turn:.6g}" for turn in turns)


def _turns(grade: Grade | None) -> str:
    return f" of {_listed(grade.turns)}" if isinstance(grade, Graded) and grade.turns else ""


def _missing(grade: Grade | None) -> str:
    if grade is None:
        return "not graded"
    if isinstance(grade, Graded):
        return f"missing ({NO_TURNS})"
    what = {Failed: "error", Abstained: "reason", Skipped: "gate"}[type(grade)]
    return f"missing ({type(grade).__name__.lower()}: {getattr(grade, what)})"


def _why(grade: Grade | None) -> str:
    match grade:
        case Failed(error=error, detail=detail):
            return f"{error}: {detail}" if detail else error
        case Abstained(reason=reason):
            return f"abstained, {reason}"
        case Graded():
            return NO_TURNS
    return "not graded"
