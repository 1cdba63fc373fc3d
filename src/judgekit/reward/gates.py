"""Gates, and the functions of a group that their conditions may read.

    Gate(flat("correct"), {"correct": 1.0, "best": 0.2}, "correct")
    Gate((spread("judge") < 0.1) | (share(Score("correct") >= 1) > 0.9), "judge", 0)

A function of the group is one number for all members that get to its gate. Those without a grade are not among them; who
broke the grader counts as its low end. Without enough members the number is missing, and so is the gate.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from judgekit.errors import ConfigError
from judgekit.reward.conditions import FLAT_SPREAD, Compare, Condition, condition, is_word, outcomes
from judgekit.reward.nodes import Branch, Evaluation, Missing, Node, Range, Score, as_node, hull, set_fields

UNDECIDED: Final = "too few members of its group have a grade to decide it"


@dataclass(frozen=True, eq=False, repr=False, init=False)
class OfGroup(Node):
    """Base of the functions of a group. *key*: identifies it in its tree, see `RewardTree`."""

    of_group: ClassVar[bool] = True
    key: str

    def member(self, ev: Evaluation) -> float | None:
        """Return what one member adds to the number; None if nothing."""
        raise NotImplementedError

    def number(self, members: Sequence[float]) -> float | None:
        """Return the number of a group, of what its members add; None if they are too few."""
        raise NotImplementedError

    def group_key(self) -> str:
        return self.key

    def compute(self, ev: Evaluation, top: bool = False) -> float | Missing:
        number = ev.numbers.get(self.key)
        return Missing() if number is None else number

    def wanted(self, ev: Evaluation) -> list[str]:
        """Return the names of the member's own grades to get next; then the key, until the group's number is known."""
        if self.key in ev.numbers:
            return []
        return self.of_member(ev) or [self.key]

    def of_member(self, ev: Evaluation) -> list[str]:
        """Return the names of the grades to get next before it is known what the member adds."""
        return super().wanted(ev)

    def spec(self) -> Any:
        return self.label()


class Spread(OfGroup):
    """The largest minus the smallest score of the members; missing if fewer than two have one."""

    of: Score

    def __init__(self, of: Any) -> None:
        leaf = _leaf("spread", of)
        set_fields(self, of=leaf, key=f"spread({leaf.name})")

    def member(self, ev: Evaluation) -> float | None:
        return ev.of(self.of)

    def number(self, members: Sequence[float]) -> float | None:
        return min(max(members) - min(members), sys.float_info.max) if len(members) > 1 else None

    def branches(self) -> Sequence[Branch]:
        return [Branch(self.of)]

    def bounds(self, ranges: Mapping[str, Range]) -> Range:
        low, high = self.of.bounds(ranges)
        return 0.0, high - low

    def label(self) -> str:
        return f"spread({self.of.label()})"

    @property
    def flat_label(self) -> str:
        """What a comparison with `FLAT_SPREAD` is called."""
        return f"flat({self.of.label()})"


class Share(OfGroup):
    """The share, 0 to 1, of the members that meet a condition, among those of whom it is known; missing if there are none."""

    if_: Condition

    def __init__(self, if_: Any) -> None:
        if isinstance(if_, str):
            with suppress(ConfigError):
                if_ = condition(if_, Score)
        if not isinstance(if_, Condition) or any(
            not is_word(c.node.spec()) or c.node.of_group for c in if_.comparisons()
        ):
            raise ConfigError(
                f"share takes a condition on grades, as in 'share(correct >= 1)', not {if_!s:.80}"
            )
        set_fields(self, if_=if_, key=f"share({if_})")

    def member(self, ev: Evaluation) -> float | None:
        holds = self.if_.holds(ev.of)
        return None if holds is None else float(holds)

    def number(self, members: Sequence[float]) -> float | None:
        return sum(members) / len(members) if members else None

    def of_member(self, ev: Evaluation) -> list[str]:
        return self.if_.wanted(ev)

    def branches(self) -> Sequence[Branch]:
        first, *others = self.if_.nodes()
        return [Branch(first), *(Branch(node, f"({self.if_}) depends on it") for node in others)]

    def bounds(self, ranges: Mapping[str, Range]) -> Range:
        found = outcomes(self.if_, lambda node: node.bounds(ranges))
        return float(found == {True}), float(found != {False})

    def label(self) -> str:
        return f"share({self.if_})"


def flat(of: Score | str) -> Condition:
    """Make the condition that a grader's scores differ by at most 1e-9 over the group: `flat("correct")`.

    Undecided, as a missing grade, if fewer than two members have a score. Raises ConfigError for what is no grader's name.
    """
    if not isinstance(of, str | Score):
        raise ConfigError(_names("flat", of))
    return Compare(Spread(_leaf("flat", of)), "<=", FLAT_SPREAD)


def spread(of: Score | str) -> Node:
    """Make the difference of a grader's largest and smallest score over the group, to compare: `spread("judge") < 0.1`.

    Missing if fewer than two members have a score. Raises ConfigError for what is no grader's name.
    """
    return Spread(of)


def share(if_: Condition | str) -> Node:
    """Make the share, 0 to 1, of the group's members that meet a condition, to compare: `share("correct >= 1") > 0.5`.

    Members of whom it is not known do not count; missing if it is known of none. Raises ConfigError for what is no condition
    on grades.
    """
    return Share(if_)


def _leaf(function: str, of: Any) -> Score:
    made = Score(of) if isinstance(of, str) else of
    if type(made) is not Score or not is_word(made.spec()):
        raise ConfigError(_names(function, of))
    return made


def _names(function: str, of: Any) -> str:
    return f"{function} takes a grader's name, as in '{function}(correct)', not {of!s:.80}"


FUNCTIONS: Final[Mapping[str, Callable[[Any], Any]]] = {"flat": flat, "spread": spread, "share": share}
"""The functions of the group, by their names in a condition's text."""


@dataclass(frozen=True, eq=False, repr=False, init=False)
class Gate(Node):
    """`then` for rollouts that meet the condition, else `otherwise`. The other branch is not graded.

    *if_*: `Score("correct") >= 1`, or the same as text, `"correct >= 1"`; see `judgekit.reward.conditions`.
    If the condition is missing, the gate is missing. Functions of the group in it are decided first, once for all members that
    get to the gate.
    """

    if_: Condition
    then: Node
    otherwise: Node
    functions: tuple[OfGroup, ...]
    """Those of the group in the condition, in its order."""

    def __init__(self, if_: Condition | str, then: Any, otherwise: Any) -> None:
        made = condition(if_, Score, FUNCTIONS)
        of_group = tuple(c.node for c in made.comparisons() if c.node.of_group)
        set_fields(self, if_=made, then=as_node(then), otherwise=as_node(otherwise), functions=of_group)

    def taken(self, ev: Evaluation) -> Node | Missing:
        """Return the branch that counts, or why the condition is missing."""
        names: list[str] = []
        # all that were asked for, whichever of the member's own grades decides, too: a replay may know others
        for function in self.functions:
            if function.key in ev.numbers:
                ev.read = {**ev.read, function.key: ev.numbers[function.key]}

        def of(node: Node) -> float | None:
            value = node.compute(ev)
            if isinstance(value, Missing):
                names.extend(value.names)
                return None
            return value

        holds = self.if_.holds(of)
        if holds is None:
            if not names and self.functions:
                ev.policies.append(f"{self.if_}: {UNDECIDED}")
            return Missing(tuple(names))
        return self.then if holds else self.otherwise

    def compute(self, ev: Evaluation, top: bool = False) -> float | Missing:
        node = self.taken(ev)
        return node if isinstance(node, Missing) else node.compute(ev, top)

    def place(self, ev: Evaluation, scale: float, turns: list[float]) -> None:
        node = self.taken(ev)
        if not isinstance(node, Missing) and node.places():
            node.place(ev, scale, turns)

    def places(self) -> bool:
        return self.then.places() or self.otherwise.places()

    def wanted(self, ev: Evaluation) -> list[str]:
        if self.functions and (wanted := self.if_.wanted(ev, group=True)):
            return wanted
        if wanted := self.if_.wanted(ev):
            return wanted
        node = self.taken(ev)
        return [] if isinstance(node, Missing) else node.wanted(ev)

    def branches(self) -> Sequence[Branch]:
        first, *others = self.if_.nodes()
        return [
            Branch(first),
            *(Branch(node, f"({self.if_}) depends on it") for node in others),
            Branch(self.then, str(self.if_)),
            Branch(self.otherwise, str(~self.if_)),
        ]

    def bounds(self, ranges: Mapping[str, Range]) -> Range:
        return hull([self.then, self.otherwise], ranges)

    def spec(self) -> Any:
        return {
            "gate": {
                "if": self.if_.spec(),
                "then": self.then.spec(),
                "otherwise": self.otherwise.spec(),
            }
        }

    def label(self) -> str:
        return f"gate {self.if_}"
