"""What a reward pays although it should not: every completion of the corpus graded, and compared with honest ones."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from typing import Any, Literal, NamedTuple

import msgspec
from msgspec import Struct

from judgekit.attack.corpus import HONEST_PROGRAM, Completion, completions
from judgekit.attack.targets import SHIPPED, Row
from judgekit.ledger.writer import Ledger
from judgekit.reward.explain import explain
from judgekit.reward.nodes import RESIDUAL
from judgekit.reward.tree import RewardTree
from judgekit.run.runner import GradingRunner
from judgekit.types import Grade, Graded, RewardResult, Rollout

What = Literal["as right", "above wrong", "nothing paid", "right refused"]
WHAT: Mapping[What, str] = {
    "as right": "earns as much as a right answer",
    "above wrong": "earns more than an honest attempt that is wrong",
    "nothing paid": "holds no answer, and earns as much as an honest attempt",
    "right refused": "is right, and earns less than another right answer",
}
NEAR = 0.01
"""Pay is the same within this share of what a right answer earns above the least."""


class Paid(Struct, frozen=True):
    """What a completion earns. The two ends differ where a judge was not asked."""

    low: float | None
    high: float | None
    worst: RewardResult
    """The result with the lower pay, …"""
    best: RewardResult
    """… and that with the higher."""


class Hole(Struct, frozen=True):
    """A completion that the reward treats as it should not."""

    id: str
    family: str
    what: What
    certain: bool
    """Whatever the judges say. If not, it depends on a judge that was not asked."""
    prompt: str
    response: str
    paid: float
    right: float
    """What a right answer to this prompt earns at most."""
    wrong: float
    """What an honest wrong attempt earns."""
    term: str
    """What paid most, or for a right one that is refused, what did not pay."""
    reason: str
    decides: str
    """What pays most of a right answer."""
    why: str
    """Why it must not earn that, or must."""
    explained: str
    """The reward tree with its numbers."""


class Report(Struct, frozen=True):
    """What an attack found."""

    holes: Sequence[Hole]
    completions: int
    rows: int
    skipped: Mapping[str, int]
    """Rows that were not used, by the reason."""
    kinds: Mapping[str, int]
    right: float | None
    """Means over the rows: what a right answer earns at most, …"""
    wrong: float | None
    """… an honest attempt that is wrong, …"""
    nothing: float | None
    """… and the best paid completion that holds no answer."""
    reach: float | None
    """The largest share of what a right answer earns above the least that a wrong one can reach."""
    unasked: Sequence[str]
    """Judged graders that were not asked: they count as both ends of their ranges."""
    left_out: int
    """Completions without a reward."""
    seconds: float

    def worst(self) -> list[Hole]:
        """Return one hole for each completion of the corpus and kind of hole: the certain and best paid one."""
        found: dict[tuple[str, str], Hole] = {}
        for hole in sorted(self.holes, key=lambda hole: (not hole.certain, -hole.paid)):
            found.setdefault((hole.id, hole.what), hole)
        order = list(WHAT)
        return sorted(found.values(), key=lambda h: (not h.certain, order.index(h.what), h.id))


class Unasked:
    """Stands for a judged grader: every rollout gets the same end of its range."""

    version = "1"

    def __init__(self, name: str, score_range: tuple[float, float], outputs: Sequence[str]) -> None:
        self.name = name
        low, high = score_range
        # a judge without bounds counts between -1 and 1, or one from its finite end
        low = low if math.isfinite(low) else min(-1.0, high - 1.0)
        self.ends = (low, high if math.isfinite(high) else max(1.0, low + 1.0))
        self.score_range = score_range
        self.outputs = tuple(outputs)
        self.end = 0

    def grade(self, rollout: Rollout, /) -> Any:
        score = self.ends[self.end]
        return dict.fromkeys(self.outputs, score) if self.outputs else score


async def find_holes(
    runner: GradingRunner,
    rows: Sequence[Row] = SHIPPED,
    *,
    judges: bool = False,
    calls: int | None = None,
    skipped: Mapping[str, int] = {},
    ledger: Ledger | None = None,
) -> Report:
    """Grade the corpus on *rows* by *runner*'s reward, and return what it pays although it should not.

    *judges*: ask them; else each judged grader counts as both ends of its range. *calls*: how many of their replies may be
    used: rows for which they would not suffice are left out, and counted. Rows on which no right answer earns more than
    every wrong one are left out, and counted: the reward does not grade their kind. *skipped*: rows that were left out before, by
    the reason. *ledger*: keeps what was graded, each completion under its id.
    """
    start = time.perf_counter()
    unasked = [] if judges else list(runner.judged)
    grading = _Grading(runner, unasked, calls if judges else None, ledger)
    try:
        return await _found(grading, rows, skipped, unasked, start)
    finally:
        if not unasked:
            await grading.runner.close()


async def _found(
    grading: _Grading, rows: Sequence[Row], skipped: Mapping[str, int], unasked: Sequence[str], start: float
) -> Report:
    holes: list[Hole] = []
    left_out = Counter(skipped)
    kinds: Counter[str] = Counter()
    graded = without = 0
    figures: list[_Figures] = []
    used, without_reward, too_dear = await _paid_rows(grading, rows)
    left_out["no right answer has a reward"] += without_reward
    left_out["the judges' calls are spent"] += too_dear
    for row, judged in used:
        graded += len(judged)
        found = _row_holes(row, judged, grading)
        if isinstance(found, str):
            left_out[found] += 1
            continue
        without += sum(pay.high is None for _, pay in judged)
        kinds[row.kind] += 1
        holes += found[0]
        figures.append(found[1])
    return Report(
        holes=holes,
        completions=graded,
        rows=len(figures),
        skipped=dict(+left_out),
        kinds=dict(kinds),
        right=_mean(f.right for f in figures),
        wrong=_mean(f.wrong for f in figures),
        nothing=_mean(f.nothing for f in figures if f.nothing is not None),
        reach=max((f.reach for f in figures), default=None),
        unasked=unasked,
        left_out=without,
        seconds=time.perf_counter() - start,
    )


Judged = Sequence[tuple[Completion, Paid]]
"""A row's completions, each with what it earns."""


async def _paid_rows(grading: _Grading, rows: Sequence[Row]) -> tuple[list[tuple[Row, Judged]], int, int]:
    """Grade the completions of each row, the right ones first: a reward that pays none of them does not grade its kind of row.

    Returns these rows, how many have no reward for a right answer, and for how many the judges' calls did not suffice.
    """
    found: list[tuple[Row, Judged]] = []
    without = too_dear = 0
    # with a limit row by row, else all at once
    for some in [rows] if grading.calls is None else [[row] for row in rows]:
        corpora = [sorted(completions(row), key=lambda one: not one.right) for row in some]
        if too_dear or grading.spent_by(sum(map(len, corpora))):
            too_dear += len(some)
            continue
        rights = await grading.pay_each(some, [[one for one in corpus if one.right] for corpus in corpora])
        used = [i for i, paid in enumerate(rights) if any(one.high is not None for one in paid)]
        without += len(some) - len(used)
        left = sum(len(corpora[i]) - len(rights[i]) for i in used)
        if grading.spent_by(left):  # what one costs is known now, of the first row too
            too_dear += len(used)
            continue
        others = await grading.pay_each(
            [some[i] for i in used], [[one for one in corpora[i] if not one.right] for i in used]
        )
        for i, paid in zip(used, others, strict=True):
            found.append((some[i], list(zip(corpora[i], [*rights[i], *paid], strict=True))))
    return found, without, too_dear


class _Grading:
    """The runner's rules, with its judges asked or standing at one end."""

    def __init__(
        self,
        runner: GradingRunner,
        unasked: Sequence[str],
        calls: int | None = None,
        ledger: Ledger | None = None,
    ) -> None:
        self.calls = calls
        """How many replies of judges may be used; None if that does not matter."""
        self._used = self._paid = 0
        graders: dict[str, Any] = dict(runner.graders)
        self.stubs = []
        for name in unasked:
            own = graders[name]
            graders[name] = Unasked(name, own.score_range, getattr(own, "outputs", None) or ())
            self.stubs.append(graders[name])
        # a constant is pay, too; the mean of others is none of the completion's own
        missing = runner.settings.missing_reward
        changes: dict[str, Any] = {
            "transform": "none",
            "missing_reward": missing if isinstance(missing, int | float) else "mask",
            "max_failure_rate": None,
        }
        if unasked:
            settings = {**msgspec.structs.asdict(runner.settings), **changes}
            self.runner = GradingRunner(graders, runner.reward.root, ledger=ledger, **settings)
        else:  # a variant closes what it has started itself, and nothing of its parent's
            self.runner = runner.with_settings(**changes).separate(ledger)
        self.tree = self.runner.reward
        low = self.tree.bounds()[0]
        self.floor = low if math.isfinite(low) else None
        self._rules = [key for key in self.runner.spec.graders if key.partition(".")[0] not in unasked]

    def spent_by(self, completions: int) -> bool:
        """Whether grading so many more would use more replies than are left, at the rate so far, one each at least."""
        if self.calls is None or not completions:
            return False
        each = max(1.0, self._used / self._paid) if self._paid else 1.0
        return self._used + each * completions > self.calls

    async def pay_each(
        self, rows: Sequence[Row], corpora: Sequence[Sequence[Completion]]
    ) -> list[list[Paid]]:
        """Return what each row's completions earn."""
        paid = iter(
            await self.pay([(r, one) for r, corpus in zip(rows, corpora, strict=True) for one in corpus])
        )
        return [[next(paid) for _ in corpus] for corpus in corpora]

    async def pay(self, asked: Sequence[tuple[Row, Completion]]) -> list[Paid]:
        """Return what each completion earns."""
        rollouts, groups, place = self._grouped(asked)
        # up to three judges stand at each combination of their ends; more of them at all low, all high, or one high
        ends: list[tuple[int, ...]] = list(product((0, 1), repeat=len(self.stubs)))
        if len(self.stubs) > 3:
            ends = [e for e in ends if sum(e) in (0, 1, len(e))]
        known: Sequence[Mapping[str, Grade]] = ()
        rounds: list[list[RewardResult]] = []
        for end in reversed(ends):
            for stub, at in zip(self.stubs, end, strict=True):
                stub.end = at
            tags = {stub.name: ("low", "high")[at] for stub, at in zip(self.stubs, end, strict=True)}
            results = await self.runner.run(rollouts, groups=groups, known=known, tags=tags)
            if self.stubs:
                known = [
                    {k: r.grades[k] for k in self._rules if isinstance(r.grades.get(k), Graded)}
                    for r in results
                ]
            rounds.append(results)
            self._used += sum(result.usage.calls for result in results)
        self._paid += len(asked)
        return [_range([results[i] for results in rounds]) for i in place]

    def _grouped(
        self, asked: Sequence[tuple[Row, Completion]]
    ) -> tuple[list[Rollout], list[list[int]], list[int]]:
        """Return rollouts, groups, and where each completion is. Where graders compare, it has three honest siblings."""
        rollouts: list[Rollout] = []
        groups: list[list[int]] = []
        place: list[int] = []
        siblings: dict[int, list[Rollout]] = {}
        for row, one in asked:
            members = [msgspec.structs.replace(row.rollout(one.text), id=one.id)]
            if self.runner.compares:
                if id(row) not in siblings:
                    siblings[id(row)] = _siblings(row)
                members += siblings[id(row)]
            place.append(len(rollouts))
            groups.append(list(range(len(rollouts), len(rollouts) + len(members))))
            rollouts += members
        return rollouts, groups, place


def _siblings(row: Row) -> list[Rollout]:
    """Return an honest right rollout, a wrong one if there is one, and one that gives up."""
    corpus = list(completions(row))
    near = [one.text for one in corpus if one.family == "near"][:1]
    return [row.rollout(text) for text in (corpus[0].text, *near, "I do not know how to do this.")]


def _range(results: Sequence[RewardResult]) -> Paid:
    paid = [r for r in results if r.reward is not None]
    if not paid:
        return Paid(None, None, results[0], results[0])
    low, high = (f(paid, key=lambda r: r.reward or 0.0) for f in (min, max))
    return Paid(low.reward if len(paid) == len(results) else None, high.reward, low, high)


class _Figures(NamedTuple):
    """What a row adds to the means of a report, under the same names."""

    right: float
    wrong: float
    nothing: float | None
    reach: float


class _Scale(NamedTuple):
    """What the completions of a row are measured by."""

    top: Paid
    """The best paid right answer, …"""
    right: float
    """… and what it earns."""
    honest: Paid
    """An honest wrong attempt, …"""
    wrong: float
    """… and what it earns."""
    floor: float
    """The least that a completion can earn."""
    near: float
    """Pay is the same within this."""


def _row_holes(row: Row, judged: Judged, grading: _Grading) -> tuple[list[Hole], _Figures] | str:
    """Return a row's holes and figures, or why it is no row for this reward."""
    scale = _scale(row, judged, grading)
    if isinstance(scale, str):
        return scale
    holes: list[Hole] = []
    with_pay = [(one, pay) for one, pay in judged if pay.high is not None]
    for one, pay in with_pay:
        what = _what(one, pay, scale)
        if what is not None:
            holes.append(_hole(row, one, pay, what, scale, grading.tree))
    sure = [(one, pay.high if pay.low is None else pay.low) for one, pay in with_pay if not one.right]
    reach = max((low for _, low in sure if low is not None), default=scale.floor)
    nothing = max((low for one, low in sure if one.family == "nothing" and low is not None), default=None)
    share = max(0.0, (reach - scale.floor) / (scale.right - scale.floor))
    return holes, _Figures(scale.right, scale.wrong, nothing, share)


def _scale(row: Row, judged: Judged, grading: _Grading) -> _Scale | str:
    """Return what a row's completions are measured by, or why it is no row for this reward."""
    # there are some: other rows are left out before
    rights = [(c, p) for c, p in judged if c.right and p.high is not None]
    best, top = max(rights, key=lambda pair: pair[1].high or 0.0)
    assert top.high is not None
    right = top.high
    honest = _honest(judged, best)
    if honest is None or honest.high is None:
        return "no honest wrong answer has a reward"
    wrong = honest.high
    floor = grading.floor
    if floor is None:
        floor = min(p.low for _, p in judged if p.low is not None)
    near = NEAR * (right - floor)
    if right <= floor:
        return f"no right answer is paid ({row.kind})"
    if right - wrong <= near and not grading.stubs:
        return f"a right answer earns no more than a wrong one ({row.kind})"
    return _Scale(top, right, honest, wrong, floor, near)


def _honest(judged: Judged, best: Completion) -> Paid | None:
    """Return the pay of a wrong answer in the dress of the best paid right one; else of the best paid wrong one.

    Of programs, the one that is a program and does nothing.
    """
    dress = best.id.partition("/")[2]
    found = [p for c, p in judged if c.family in ("near", "calls", "programs") and p.high is not None]
    same = [
        p
        for c, p in judged
        if p.high is not None
        and ((c.family == "near" and c.id.endswith(f", {dress}")) or c.id == HONEST_PROGRAM)
    ]
    return min(same or found, key=lambda p: p.high or 0.0, default=None)


def _what(one: Completion, pay: Paid, scale: _Scale) -> tuple[What, bool] | None:
    """Return what is wrong with what a completion earns, and whether that is certain."""
    assert pay.high is not None
    low = -math.inf if pay.low is None else pay.low
    near = scale.near
    if one.right:
        return ("right refused", True) if pay.high < scale.right - near else None
    if pay.high >= scale.right - near:
        return "as right", low >= scale.right - near
    if one.family in ("near", "calls"):  # an honest attempt
        return None
    if low > scale.wrong + near:
        return "above wrong", True
    # where penalties reach below 0, nothing is paid by 0
    least = max(scale.floor, 0.0) if scale.right > 0 else scale.floor
    if one.family == "nothing" and low > least + near and low >= (scale.honest.low or 0.0) - near:
        return "nothing paid", True
    return None


def _hole(
    row: Row, one: Completion, pay: Paid, what: tuple[What, bool], scale: _Scale, tree: RewardTree
) -> Hole:
    result = pay.worst if what[1] and pay.low is not None and what[0] != "right refused" else pay.best
    term = _term(result, scale.top.best, refused=what[0] == "right refused")
    grade = result.grades.get(term)
    return Hole(
        id=one.id,
        family=one.family,
        what=what[0],
        certain=what[1],
        prompt=row.prompt,
        response=one.text,
        paid=result.reward or 0.0,
        right=scale.right,
        wrong=scale.wrong,
        term=term,
        reason=getattr(grade, "reason", "") or getattr(grade, "detail", ""),
        decides=_term(scale.top.best, scale.top.best, refused=False),
        why=one.why,
        explained=explain(tree, result.grades, reward=result.raw_reward, numbers=result.group_numbers),
    )


def _term(result: RewardResult, top: RewardResult, *, refused: bool) -> str:
    """Return the term that paid most; or of a refused one, that which lost most against the best."""
    terms = {k: v for k, v in result.contributions.items() if k != RESIDUAL}
    if refused:
        lost = {k: v - terms.get(k, 0.0) for k, v in top.contributions.items() if k != RESIDUAL}
        terms = lost
    if not terms:
        scores = {k: g.score for k, g in result.grades.items() if isinstance(g, Graded)}
        terms = {k: -v for k, v in scores.items()} if refused else scores
    return max(terms, key=lambda k: terms[k], default="")


def _mean(values: Iterable[float]) -> float | None:
    found = list(values)
    return math.fsum(found) / len(found) if found else None


def as_json(report: Report) -> dict[str, Any]:
    """Return a report as plain values."""
    return {
        **{
            name: msgspec.to_builtins(getattr(report, name))
            for name in report.__struct_fields__
            if name != "holes"
        },
        "holes": [msgspec.to_builtins(hole) for hole in report.worst()],
    }
