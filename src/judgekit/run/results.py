"""Finalizes results: group transform, missing rewards, ledger and metrics."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Any, Literal

import msgspec

from judgekit.errors import FailureRateError, MissingRewardError
from judgekit.ledger.schema import Comparison, Entry, rollout_digest
from judgekit.metrics import Counts
from judgekit.reward.dropping import DropIf
from judgekit.reward.explain import DROPPED, FILLED_BY_RUN, why_missing
from judgekit.reward.nodes import Weighted
from judgekit.reward.transforms import NEUTRAL, TRANSFORMS, gdpo, mean
from judgekit.reward.tree import RewardTree
from judgekit.run.bound_grader import BoundGrader
from judgekit.run.groups import Group, RolloutState
from judgekit.run.progress import Progress
from judgekit.run.settings import Plan
from judgekit.types import Grade, RewardResult, Status, Usage, html_table, shown_grade, shown_number


class Results:
    """Emits each result of a run once it is final. *run* and *tags* go into the ledger."""

    def __init__(self, plan: Plan, tree: RewardTree, *, run: str, tags: Mapping[str, Any]) -> None:
        self.plan = plan
        self.tree = tree
        trains = tags.get("phase") != "eval"  # a validation trains on nobody
        self.transform = plan.settings.transform if trains else "none"
        self.missing_reward = plan.settings.missing_reward
        self.run = run
        self.tags = tags
        self.emit: Callable[[RewardResult], None]
        self.relative = self.transform != "none"
        """Whether rewards become relative to their group."""
        drop_if = plan.settings.drop_if if trains else None
        self.drop_if = None if drop_if is None else DropIf(drop_if)
        self.waits = self.relative or self.drop_if is not None
        """Whether a result with a reward waits for its group."""
        self.fills = self.waits or self.missing_reward == "neutral"
        """Whether a result without a reward waits for its group."""
        self.emitted = 0
        self.deferred: list[RolloutState] = []
        """Members of groups without a valid reward: their neutral fill is the run's mean, known at its end."""
        self.streams = False
        """Whether they are filled at once, with the mean of the run so far: the consumer of a stream waits for them."""
        self.valid = 0
        self.total = _ZERO
        """Number and sum of the raw rewards of the groups so far, for that mean. The order of the groups adds no rounding."""
        self.counts = None if plan.settings.max_failure_rate is None else Counts()
        self.unfinished: dict[RolloutState, None] = {}
        """Rollouts without a result yet, for the ledger."""
        self._first = 0
        """Rollouts that the runner had begun before this run."""
        self._counted = True
        """Whether those of this run are among what it has begun now; at its end, if their number was not known."""
        self._lines = self._calls = 0
        """Lines in the ledger, and calls of graders that compare, so far."""
        self.progress: Progress | None = None

    def open(self, rollouts: int | None) -> None:
        """Open the ledger and the progress bar. *rollouts*: how many there will be, None if unknown."""
        if self.plan.ledger is not None:
            self.plan.ledger.begin(self.plan.spec)
        self._first = self.plan.metrics.begin(rollouts or 0)
        self._counted = rollouts is not None
        if self.plan.progress:
            self.progress = Progress(rollouts)

    @property
    def settled(self) -> int:
        """Rollouts whose result is emitted, or waits only for the end of the run."""
        return self.emitted + len(self.deferred)

    def graded(self, state: RolloutState) -> None:
        """Take in a rollout whose reward tree has been evaluated."""
        group = state.group
        group.finished += 1
        value = state.ev.value
        if value is None:
            if not self.fills:
                self._emit_missing(state, None)
        elif not self.waits:
            self._emit(state, value, "scored")
        if group.finished == group.size:
            self.settle(group)

    def settle(self, group: Group) -> None:
        """Transform and fill a group whose members are all graded, and emit those that waited for it."""
        valid = [state for state in group.members if state.ev.value is not None]
        raw = [state.ev.value for state in valid if state.ev.value is not None]
        rollouts = [state.rollout for state in valid]
        self.plan.metrics.add_rewards(rollouts, raw, least=2 if self.relative else 1)
        if self.fills:
            self._settle(group, valid, raw)
        group.members = []  # breaks a reference cycle

    def _settle(self, group: Group, valid: list[RolloutState], raw: list[float]) -> None:
        if self.drop_if is not None and (numbers := self.drop_if.of(raw)):
            self._drop(group, raw, numbers)
            return
        values = self._transformed(valid, raw)
        fill = NEUTRAL.get(self.transform)
        if fill is None and self.missing_reward == "neutral":
            if raw:
                self.valid += len(raw)
                self.total += len(raw) * Fraction(mean(raw))
            if len(valid) < len(group.members):
                if not values:
                    self.deferred += group.members
                    if self.streams:
                        self.finish()
                    return
                fill = mean(values)
        if self.waits:
            for state, value in zip(valid, values, strict=True):
                if len(valid) > 1 or not self.relative:
                    self._emit(state, value, "scored")
                elif self.missing_reward in ("mask", "exclude"):  # one member has no rank and no deviation
                    self._emit_missing(state, None)
                else:
                    self._emit(state, fill, "neutral")
        for state in group.members:
            if state.ev.value is None:
                self._emit_missing(state, fill)

    def _drop(self, group: Group, raw: list[float], numbers: Mapping[str, float | None]) -> None:
        """Leave a group out. Hosts that need a number for each rollout get one that gives no advantage: the neutral fill."""
        neutral = self.missing_reward == "neutral"
        fill = NEUTRAL.get(self.transform, mean(raw)) if neutral else None
        for state in group.members:
            if state.ev.value is not None:
                state.ev.read = {**state.ev.read, **numbers}
                state.ev.policies.append(f"{DROPPED}{self.drop_if}")
                self._emit(state, fill, "dropped")
            elif self.missing_reward in ("raise", "mask", "neutral"):
                self._emit_missing(state, fill)
            else:  # a number would be the only reward of its group
                self._emit(state, None, "excluded")

    def _transformed(self, valid: list[RolloutState], raw: list[float]) -> list[float]:
        if not raw:
            return []
        if self.transform != "gdpo":
            return TRANSFORMS[self.transform](raw)
        root = self.tree.root
        assert isinstance(root, Weighted)
        terms = root.at(self.tree.step)
        scale = 1.0 / (sum(abs(t.weight) for t in terms) or 1.0) if root.normalize else 1.0
        weights = {t.label: t.weight * scale for t in terms if t.weight}
        return gdpo([state.ev.terms for state in valid], weights)

    def finish(self) -> None:
        """Emit the results that waited for the end of the run."""
        deferred, self.deferred = self.deferred, []
        if deferred:
            fill = self._typical_reward()
            for state in deferred:
                state.ev.policies.append(FILLED_BY_RUN)
                self._emit_missing(state, fill)

    def close(self) -> None:
        """Close the progress bar, and record the grades of rollouts that never got a reward."""
        if self.progress is not None:
            self.progress.close()
        if not self._counted:
            self.plan.metrics.begin(self.emitted)
        for state in self.unfinished:
            if state.grades:
                self._record(state, self._result(state, None, "unfinished"))
        self.unfinished.clear()

    def note(self, states: Iterable[RolloutState]) -> None:
        """Record the grades so far of rollouts that still wait, for other grades or for their group."""
        for state in states:
            if state in self.unfinished:
                self._record(state, self._result(state, None, "unfinished"), texts=False)

    def compare(self, grader: BoundGrader, members: Sequence[RolloutState]) -> list[Any] | None:
        """Return what an earlier comparison of just these members gave each; None if there was none."""
        of_each = [getattr(state.known, "compared", {}).get(grader.name, {}) for state in members]
        for call in reversed(of_each[0]):  # the latest first
            if call.members == len(members) and all(call in calls for calls in of_each):
                break
        else:
            if self.plan.ledger is None:
                return None
            self._calls += 1
            call = Comparison(f"{self.run}:{self._calls}", len(members))
        for state in members:
            state.compared = {**state.compared, grader.name: call}
        return [_value(grader, calls[call]) for calls in of_each] if call in of_each[0] else None

    def check_failures(self, results: Sequence[RewardResult] = ()) -> None:
        """Raise FailureRateError, with *results*, if more grades failed than max_failure_rate allows."""
        allowed = self.plan.settings.max_failure_rate
        if self.counts and allowed is not None and (excess := self.counts.excess_failures(allowed)):
            message = f"more grades failed than max_failure_rate={allowed:g} allows: {excess}"
            raise FailureRateError(message, results)

    def _typical_reward(self) -> float:
        """Return the neutral fill of groups without a valid reward: the mean reward so far.

        Equal for all members, it gives no group-relative advantage, and it leaves the batch's mean unchanged.
        """
        if self.valid:
            return float(self.total / self.valid)
        known = self.plan.metrics.counts.rewards
        if known.n:
            return known.mean_y
        low, high = self.plan.tree.bounds()
        return (low + high) / 2 if math.isfinite(low + high) else 0.0

    def _emit_missing(self, state: RolloutState, fill: float | None) -> None:
        setting = self.missing_reward
        if setting == "raise":
            raise MissingRewardError(
                f"rollout {state.index} of group {state.group.id!r} has no reward ({why_missing(state.ev)})"
            )
        if setting == "exclude":
            self._emit(state, None, "excluded")
        elif setting == "mask":
            self._emit(state, None, "masked")
        elif setting == "neutral":
            self._emit(state, fill, "neutral")
        else:
            self._emit(state, float(setting), "constant")

    def _result(
        self, state: RolloutState, reward: float | None, status: Status | Literal["unfinished"]
    ) -> RewardResult:
        ev = state.ev
        usage = _NO_USAGE
        for grade in state.grades.values():
            spent = getattr(grade, "usage", None)
            if spent is not None:
                usage = usage + spent
        made = RewardResult(
            index=state.index,
            group=state.group.id,
            reward=reward,
            status=status,  # type: ignore[arg-type]
            raw_reward=ev.value,
            contributions=ev.contributions,
            grades=state.grades,
            missing=ev.missing,
            policies=tuple(ev.policies) if ev.policies else (),
            usage=usage,
            wall_s=max(state.ended - state.started, 0.0),
        )
        if ev.turns or ev.read or ev.step is not None:
            return msgspec.structs.replace(made, turns=ev.turns, group_numbers=ev.read, step=ev.step)
        return made

    def _record(self, state: RolloutState, result: RewardResult, *, texts: bool = True) -> None:
        """Write the result as it is now: whoever gets it, or handed the rollout in, may change both."""
        ledger = self.plan.ledger
        assert ledger is not None
        self._lines += 1

        def entry() -> Entry:
            if not state.digest:  # of what was graded, also if it is another rollout by the next line
                state.digest = rollout_digest(state.rollout)
            return Entry.of(
                result,
                state.rollout,
                texts=texts and ledger.texts,
                digest=state.digest,
                spec=self.plan.spec.digest,
                run=self.run,
                order=self._lines,
                tags=self.tags,
                group_first=state.group.first,
                compared=state.compared,
            )

        ledger.add(entry)

    def _emit(self, state: RolloutState, reward: float | None, status: Status) -> None:
        result = self._result(state, reward, status)
        self.emitted += 1
        self.plan.metrics.add(result, state.rollout, self._first + state.index)
        if self.counts is not None:
            self.counts.add(result)
        if self.plan.ledger is not None:
            self.unfinished.pop(state, None)
            self._record(state, result)
        if self.progress is not None:
            self.progress.add(result)
        self.emit(result)


class ResultList(list[RewardResult]):
    """Results, which a notebook shows as a table."""

    def __repr__(self) -> str:
        """Show the first ones: `asyncio.run` writes the result of its task into a text twice, of a subclass the whole."""
        if len(self) <= _SHOWN:
            return super().__repr__()
        return f"[{', '.join(map(repr, self[:_SHOWN]))}, … and {len(self) - _SHOWN} more]"

    def _repr_html_(self) -> str:
        names = list(dict.fromkeys(name for result in self for name in result.grades))
        rows = [
            (
                str(r.index),
                str(r.group),
                shown_number(r.reward),
                r.status,
                *(shown_grade(r.grades.get(n)) for n in names),
            )
            for r in self[:_SHOWN]
        ]
        left = f"… and {len(self) - _SHOWN} more" if len(self) > _SHOWN else ""
        return html_table(("", "group", "reward", "status", *names), rows, left)


_SHOWN = 20


class KnownGrades(dict[str, Grade]):
    """Grades that a rollout already has, for `GradingRunner.run(known=…)`.

    *compared*: by group grader and call, the grades that it gave this rollout. They hold only where the same members
    are compared again.
    """

    def __init__(
        self,
        grades: Mapping[str, Grade] = {},
        compared: Mapping[str, Mapping[Comparison, Mapping[str, Grade]]] = {},
    ) -> None:
        super().__init__(grades)
        self.compared = {name: dict(calls) for name, calls in compared.items()}

    def names(self) -> set[str]:
        """Return the names of all its grades."""
        compared = (grades for calls in self.compared.values() for grades in calls.values())
        return set(self).union(*compared)


def _value(grader: BoundGrader, grades: Mapping[str, Grade]) -> Any:
    """Return grades as the grader gave them."""
    if not grader.outputs:
        return grades[grader.name]
    return {part: grades[key] for part, key in zip(grader.outputs, grader.keys, strict=True)}


_NO_USAGE = Usage()
_ZERO = Fraction()
