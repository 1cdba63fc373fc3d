"""The groups of a ledger's rollouts, and the grades of graders that compare a group's members."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Mapping, Sequence

import msgspec
from msgspec import Struct

from judgekit.graders.protocol import is_group_grader
from judgekit.ledger.jsonl import encoded
from judgekit.ledger.schema import Entry
from judgekit.reward.nodes import Fallback, Gate, Node, score_names, walk
from judgekit.reward.tree import RewardTree
from judgekit.run.grouping import group_id
from judgekit.run.runner import GradingRunner
from judgekit.types import Grade, Rollout, Skipped


def recorded_groups(entries: Sequence[Entry], run: Sequence[int]) -> list[list[int]]:
    """Split the indices of a run's entries into the groups in which they were graded."""
    found: dict[tuple[int, bytes], list[int]] = {}
    for i in run:
        found.setdefault((entries[i].group_first, encoded(entries[i].group)), []).append(i)
    return list(found.values())


def recorded_rollout(entry: Entry) -> Rollout:
    """Make an entry's rollout, without the group id that its run made of its prompt: a switch may read the host's."""
    rollout = entry.to_rollout()
    bare = msgspec.structs.replace(rollout, group=None)
    return bare if group_id(bare) == rollout.group else rollout


def comparing(runner: GradingRunner) -> dict[str, frozenset[str]]:
    """Return the names of the grades of each grader that compares a group's members."""
    return {
        name: frozenset(key for key in runner.spec.graders if key.partition(".")[0] == name)
        for name, grader in runner.graders.items()
        if is_group_grader(grader)
    }


class Member(Struct, frozen=True):
    """One rollout of a recorded group."""

    rollout: Hashable
    """What identifies it."""
    entry: Entry
    grades: Mapping[str, Grade]
    """Those of its grades that can be taken."""


def take_comparisons(
    runner: GradingRunner,
    group: Sequence[Rollout],
    identities: Sequence[Hashable],
    grades: Sequence[dict[str, Grade]],
    recorded: Sequence[Sequence[Member]],
) -> None:
    """Add the recorded grades of graders that compare to the *grades* of other graders that a group's members have.

    They are taken of one recorded group, in which the same members were compared as would be now: others that a gate
    stopped, or stops now, do not matter. Where a gate is still to be decided, nothing is taken.
    """
    left = comparing(runner)
    while found := [
        name for name, keys in left.items() if _take(runner, keys, group, identities, grades, recorded)
    ]:
        for name in found:  # may have been what the gate of another depends on
            del left[name]


def _take(
    runner: GradingRunner,
    keys: frozenset[str],
    group: Sequence[Rollout],
    identities: Sequence[Hashable],
    grades: Sequence[dict[str, Grade]],
    recorded: Sequence[Sequence[Member]],
) -> bool:
    asked = _asked(runner.reward, keys, group, grades)
    if asked is None:
        return False
    wanted = Counter(identities[i] for i in asked)
    for members in reversed(recorded):  # the latest first
        compared = _compared(members, keys)
        if len(compared) == len(asked) and Counter(member.rollout for member in compared) == wanted:
            waiting = defaultdict(list)
            for member in reversed(compared):
                waiting[member.rollout].append(member)
            for i in asked:
                member = waiting[identities[i]].pop()
                grades[i].update((key, member.grades[key]) for key in keys)
            return True
    return False


def _asked(
    tree: RewardTree, keys: frozenset[str], group: Sequence[Rollout], grades: Sequence[Mapping[str, Grade]]
) -> list[int] | None:
    """Return the members about which a grader with these keys will be asked; None if that is not known yet."""
    decisive = _decisive(tree.root, keys)
    asked = []
    for i, (rollout, known) in enumerate(zip(group, grades, strict=True)):
        wanted = set(tree.wanted(known, rollout))
        if wanted & decisive:
            return None
        if wanted & keys:
            asked.append(i)
    return asked


def _decisive(root: Node, keys: frozenset[str]) -> set[str]:
    """Return the names of the grades that decide whether one of *keys* is asked for."""
    found: set[str] = set()
    for node in walk(root):
        if not keys.isdisjoint(score_names(node)):
            if isinstance(node, Gate):
                found.update(name for part in node.if_.nodes() for name in score_names(part))
            elif isinstance(node, Fallback):
                found.update(score_names(node.first))
    return found - keys


def _compared(members: Sequence[Member], keys: frozenset[str]) -> list[Member]:
    """Return the members that were compared; none if one of their grades cannot be taken."""
    compared = [m for m in members if not all(isinstance(m.entry.grades.get(key), Skipped) for key in keys)]
    return compared if all(keys <= m.grades.keys() for m in compared) else []
