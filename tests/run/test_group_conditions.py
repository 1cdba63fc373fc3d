"""Conditions on groups in a run: decided once for all members, by what they name and by nothing else; and in a replay."""

from __future__ import annotations

import asyncio
import operator
import random
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from judgekit import (
    Abstained,
    Failed,
    Gate,
    Grade,
    Graded,
    GradingRunner,
    Ledger,
    RewardResult,
    Rollout,
    Score,
    Skipped,
    Weighted,
    flat,
    read_ledger,
    share,
    spread,
)
from judgekit.replay import FailedOnce, known_grades, replay
from judgekit.reward.spec import parse

RANGES = {"a": (0.0, 1.0), "b": (-1.0, 1.0), "c": (0.0, 1.0), "d": (0.0, 2.0)}
NAMES = list(RANGES)
OPERATORS = {">=": operator.ge, ">": operator.gt, "<=": operator.le, "<": operator.lt}
Values = dict[int, float | None]
"""By member, what a node is worth; None if that is missing. Members that do not get there are not in it."""


class Told:
    """A grader that gives the grade that the rollout brings with it, perhaps later, and notes whom it was asked about."""

    version = "1"
    breakable = True

    def __init__(self, name: str, late: random.Random | None = None) -> None:
        self.name = name
        self.score_range = RANGES.get(name, (0.0, 1.0))
        self.late = late
        self.asked: list[str] = []

    async def grade(self, rollout: Rollout, /) -> Grade:
        self.asked.append(rollout.id)
        for _ in range(self.late.randrange(4) if self.late else 0):
            await asyncio.sleep(0)
        grade: Grade = rollout.extra[self.name]
        return grade


class ToldRule(Told):
    """The same, as a rule that grades inline."""

    def grade(self, rollout: Rollout, /) -> Grade:  # type: ignore[override]
        self.asked.append(rollout.id)
        grade: Grade = rollout.extra[self.name]
        return grade


class ToldTogether(Told):
    """The same, for all members that need it at once."""

    grades_alone = True

    async def grade_group(self, rollouts: Sequence[Rollout], /) -> list[Grade]:
        return [await super(ToldTogether, self).grade(rollout) for rollout in rollouts]

    grade = None  # type: ignore[assignment]


# ---- random trees, and what they are worth, computed by themselves


def random_condition(rng: random.Random, depth: int = 0) -> Any:
    kind = rng.choice(
        ["leaf", "leaf", "flat", "spread", "share", "and", "or", "not"][: 8 if depth < 2 else 5]
    )
    name, other = rng.choice(NAMES), rng.choice(NAMES)
    op, threshold = rng.choice(list(OPERATORS)), rng.choice([0.0, 0.25, 0.5, 1.0])
    if kind in ("and", "or"):
        return (kind, random_condition(rng, depth + 1), random_condition(rng, depth + 1))
    if kind == "not":
        return (kind, random_condition(rng, depth + 1))
    if kind == "share":
        inner = ("leaf", other, rng.choice(list(OPERATORS)), rng.choice([0.25, 0.5]))
        if rng.random() < 0.3:
            inner = (rng.choice(["and", "or"]), inner, ("leaf", name, ">", 0.4))
        return (kind, inner, op, rng.choice([0.3, 0.5, 0.7]))
    return (kind, name, op, threshold)


def random_tree(rng: random.Random, depth: int = 0) -> Any:
    kind = rng.choice(
        ["gate", "gate", "sum", "min", "product", "fallback", "leaf"] if depth < 3 else ["leaf"]
    )
    if depth == 0:
        kind = rng.choice(["gate", "sum"])
    below = [random_tree(rng, depth + 1) for _ in range(2)] if kind != "leaf" else []
    if kind == "gate":
        return (kind, random_condition(rng), *below)
    if kind == "sum":
        return (kind, [(rng.choice([0.5, 1.0, -1.0]), one) for one in below])
    return (kind, rng.choice(NAMES)) if kind == "leaf" else (kind, *below)


def text(condition: Any) -> str:
    match condition:
        case ("leaf", name, op, threshold):
            return f"{name} {op} {threshold}"
        case ("flat", name, *_):
            return f"flat({name})"
        case ("spread", name, op, threshold):
            return f"spread({name}) {op} {threshold}"
        case ("share", inner, op, threshold):
            return f"share({text(inner)}) {op} {threshold}"
        case ("not", part):
            return f"not ({text(part)})"
        case (joint, first, second):
            return f"({text(first)}) {joint} ({text(second)})"
    raise AssertionError(condition)


def spec(tree: Any) -> Any:
    match tree:
        case ("leaf", name):
            return name
        case ("gate", condition, then, otherwise):
            return {"gate": {"if": text(condition), "then": spec(then), "otherwise": spec(otherwise)}}
        case ("sum", terms):
            return {
                "weighted": {f"t{at}": {"weight": w, "of": spec(one)} for at, (w, one) in enumerate(terms)}
            }
        case (kind, *parts):
            return {kind: [spec(part) for part in parts]}


def score(grade: Grade, name: str) -> float | None:
    if isinstance(grade, Failed) and grade.cause == "rollout":
        return RANGES[name][0]
    return grade.score if isinstance(grade, Graded) else None


def decided(condition: Any, group: Sequence[dict[str, Grade]], who: list[int]) -> dict[int, bool | None]:
    """Whether a condition holds for each of the members *who* get to its gate."""
    match condition:
        case ("leaf", name, op, threshold):
            found = {i: score(group[i][name], name) for i in who}
            return {i: None if v is None else OPERATORS[op](v, threshold) for i, v in found.items()}
        case ("not", part):
            return {i: None if v is None else not v for i, v in decided(part, group, who).items()}
        case ("and" | "or" as joint, *parts):
            each = [decided(part, group, who) for part in parts]
            ends = joint == "or"
            return {
                i: ends
                if any(e[i] is ends for e in each)
                else None
                if any(e[i] is None for e in each)
                else not ends
                for i in who
            }
        case ("share", inner, op, threshold):
            known = [held for held in decided(inner, group, who).values() if held is not None]
            number = known.count(True) / len(known) if known else None
        case (_, name, op, threshold):
            scores = [v for i in who if (v := score(group[i][name], name)) is not None]
            number = max(scores) - min(scores) if len(scores) >= 2 else None
            if condition[0] == "flat":
                op, threshold = "<=", 1e-9
    return dict.fromkeys(who, None if number is None else OPERATORS[op](number, threshold))


def worth(tree: Any, group: Sequence[dict[str, Grade]], who: list[int]) -> Values:
    """What a tree is worth for the members *who* get to it."""
    match tree:
        case ("leaf", name):
            return {i: score(group[i][name], name) for i in who}
        case ("gate", condition, then, otherwise):
            held = decided(condition, group, who)
            through = worth(then, group, [i for i in who if held[i] is True])
            others = worth(otherwise, group, [i for i in who if held[i] is False])
            return {i: {**through, **others}.get(i) for i in who}
        case ("fallback", first, other):
            values = worth(first, group, who)
            instead = worth(other, group, [i for i in who if values[i] is None])
            return {i: values[i] if values[i] is not None else instead[i] for i in who}
        case ("sum", terms):
            each = [(weight, worth(one, group, who)) for weight, one in terms]
            return {
                i: None if any(v[i] is None for _, v in each) else sum(w * v[i] for w, v in each) for i in who
            }  # type: ignore[operator]
        case (kind, *parts):
            found = [worth(part, group, who) for part in parts]
            combine = min if kind == "min" else lambda pair: pair[0] * pair[1]
            return {
                i: None if any(v[i] is None for v in found) else combine([v[i] for v in found]) for i in who
            }  # type: ignore[type-var]
    raise AssertionError(tree)


def random_grade(rng: random.Random, name: str) -> Grade:
    low, high = RANGES[name]
    value = rng.choice([low, high, high, rng.uniform(low, high)])
    broken = Failed("RolloutError", cause="rollout")
    return rng.choice([Graded(value)] * 7 + [Abstained("no"), Failed("Down"), broken])


def random_group(rng: random.Random, number: int) -> list[Rollout]:
    alike = rng.random() < 0.3
    first = {name: random_grade(rng, name) for name in NAMES}
    return [
        Rollout(
            response="r",
            group=f"g{number}",
            id=f"{number}-{member}",
            extra={
                name: first[name] if alike and rng.random() < 0.8 else random_grade(rng, name)
                for name in NAMES
            },
        )
        for member in range(rng.choice([1, 2, 3, 5, 8]))
    ]


def runner_of(root: Any, rng: random.Random, **settings: Any) -> GradingRunner | None:
    """Make a runner with graders of random kinds; None if no grades can get through the tree."""
    node = parse(spec(root))
    names = [name for name in NAMES if name in str(node.spec())]
    kinds: list[Any] = [ToldRule, Told, Told, ToldTogether]
    graders = {name: rng.choice(kinds)(name, random.Random(rng.random())) for name in names}
    used = {name: grader for name, grader in graders.items() if name in _names(node)}
    try:
        return GradingRunner(used, node, **settings)
    except ValueError as error:
        if "never pass" not in str(error):
            raise
        return None


def _names(node: Any) -> tuple[str, ...]:
    from judgekit.reward.nodes import score_names

    return score_names(node)


async def off(root: Any, rng: random.Random, tmp: Path | None = None) -> tuple[int, int, bool]:
    """Return how many rewards of a random tree differ from what it is worth, and from their replay; and if it was tried."""
    ledger = None if tmp is None else Ledger(tmp / "ledger.jsonl")
    runner = runner_of(root, rng, ledger=ledger)
    if runner is None:
        return 0, 0, False
    groups = [random_group(rng, number) for number in range(2)]
    made = await runner.run_groups(groups)
    wrong = 0
    for rollouts, results in zip(groups, made, strict=True):
        grades: list[dict[str, Any]] = [dict(rollout.extra) for rollout in rollouts]
        values = worth(root, grades, list(range(len(rollouts))))
        for i, result in enumerate(results):
            expected = values[i]
            same = (result.raw_reward is None) == (expected is None)
            wrong += not (same and (expected is None or abs((result.raw_reward or 0.0) - expected) < 1e-9))
    again = 0
    if tmp is not None:
        await runner.close()
        found = await asyncio.to_thread(replay, tmp / "ledger.jsonl")
        before = {entry.id: entry for entry in found.entries}
        for entry, result in zip(found.entries, found.results, strict=True):
            old = before[entry.id]
            again += (old.raw_reward, dict(old.group_numbers)) != (
                result.raw_reward,
                dict(result.group_numbers),
            )
    return wrong, again, True


@pytest.mark.parametrize("first", range(0, 1000, 250))
def test_random_trees_are_worth_what_an_independent_evaluation_says(first: int) -> None:
    async def tried() -> int:
        done = 0
        for seed in range(first, first + 250):
            rng = random.Random(seed)
            root = random_tree(rng)
            wrong, _, made = await off(root, rng)
            assert not wrong, (seed, spec(root))
            done += made
        return done

    assert asyncio.run(tried()) > 150


def test_random_trees_are_replayed_to_the_last_bit(tmp_path: Path) -> None:
    async def tried() -> None:
        for seed in range(60):
            rng = random.Random(seed)
            root = random_tree(rng)
            folder = tmp_path / str(seed)
            folder.mkdir()
            wrong, again, _ = await off(root, rng, folder)
            assert (wrong, again) == (0, 0), (seed, spec(root))

    asyncio.run(tried())


# ---- who waits for whom


def of_group(scores: Sequence[Any], **more: Sequence[Any]) -> list[Rollout]:
    """Make a group of rollouts with these grades of "a", and of others by name."""

    def grade(value: Any) -> Grade:
        return Graded(value) if isinstance(value, int | float) else value

    columns = {"a": scores, **more}
    return [
        Rollout(
            response="r",
            group="g",
            id=str(i),
            extra={name: grade(values[i]) for name, values in columns.items()},
        )
        for i in range(len(scores))
    ]


REWARD = Gate(flat("a"), {"a": 1.0, "b": 0.2}, "a")


def test_a_flat_group_takes_one_branch_and_another_the_other() -> None:
    b = Told("b")
    runner = GradingRunner({"a": ToldRule("a"), "b": b}, REWARD)
    same = runner.run_sync(of_group([1, 1, 1], b=[0.5, 0, 1]))
    assert [result.reward for result in same] == [1.1, 1.0, 1.2]
    assert all(result.group_numbers == {"spread(a)": 0.0} for result in same)
    b.asked.clear()
    other = runner.run_sync(of_group([1, 0, 1], b=[0.5, 0, 1]))
    assert [result.reward for result in other] == [1, 0, 1]
    assert b.asked == []
    assert isinstance(other[0].grades["b"], Skipped)
    assert other[0].grades["b"].gate == "flat(a)"


def test_members_without_a_grade_are_not_there_and_follow_the_group() -> None:
    reward = Gate(flat("a"), 1, 0)
    runner = GradingRunner({"a": ToldRule("a")}, reward)
    rewards = [r.reward for r in runner.run_sync(of_group([1, 1, Abstained("no"), Failed("Down")]))]
    assert rewards == [1, 1, 1, 1]
    broken = Failed("Bomb", cause="rollout")
    assert [r.reward for r in runner.run_sync(of_group([1, 1, broken]))] == [
        0,
        0,
        0,
    ]  # it counts as the low end
    assert [r.reward for r in runner.run_sync(of_group([0, 0, broken]))] == [1, 1, 1]


@pytest.mark.parametrize("scores", [[1], [1, Abstained("no")], [Failed("Down"), Failed("Down")]])
def test_with_fewer_than_two_known_members_it_is_undecided(scores: list[Any]) -> None:
    runner = GradingRunner({"a": ToldRule("a")}, Gate(flat("a"), 1, 0))
    results = runner.run_sync(of_group(scores))
    assert {(r.reward, r.status) for r in results} == {(None, "excluded")}
    assert "too few members" in results[0].policies[0]
    assert results[0].group_numbers == {"spread(a)": None}
    assert "spread(a) = missing (too few members" in runner.explain(results[0])


def test_a_share_is_over_members_with_a_number() -> None:
    runner = GradingRunner({"a": ToldRule("a")}, Gate("share(a >= 1) > 0.6", 1, 0))
    results = runner.run_sync(of_group([1, 1, 0, Abstained("no")]))
    assert [r.reward for r in results] == [1, 1, 1, 1]
    assert results[0].group_numbers == {"share(a >= 1)": 2 / 3}
    assert [r.reward for r in runner.run_sync(of_group([1]))] == [1]
    assert [r.reward for r in runner.run_sync(of_group([Abstained("no")]))] == [None]


def test_behind_a_gate_those_count_that_get_there() -> None:
    reward = Gate("b >= 1", then=Gate(flat("a"), 1, 0), otherwise=Gate(flat("a"), 0.5, 0.25))
    runner = GradingRunner({"a": ToldRule("a"), "b": Told("b")}, reward)
    results = runner.run_sync(of_group([1, 1, 0, 1], b=[1, 1, 0, 0]))
    assert [r.reward for r in results] == [1, 1, 0.25, 0.25]
    assert results[0].group_numbers == {"spread(a)": 0.0}
    assert results[3].group_numbers == {"spread(a) #2": 1.0}


def test_a_member_decided_by_its_own_grades_counts_all_the_same() -> None:
    runner = GradingRunner({"a": ToldRule("a"), "b": ToldRule("b")}, Gate("b >= 1 and flat(a)", 1, 0))
    assert [r.reward for r in runner.run_sync(of_group([1, 1, 0], b=[1, 1, 0]))] == [0, 0, 0]
    assert [r.reward for r in runner.run_sync(of_group([1, 1, 1], b=[1, 1, 0]))] == [1, 1, 0]


def test_a_function_decided_without_another_asks_nobody_for_it() -> None:
    b = Told("b")
    runner = GradingRunner({"a": ToldRule("a"), "b": b}, Gate("flat(a) and flat(b)", 1, 0))
    assert [r.reward for r in runner.run_sync(of_group([1, 0], b=[1, 1]))] == [0, 0]
    assert b.asked == []
    assert [r.reward for r in runner.run_sync(of_group([1, 1], b=[1, 1]))] == [1, 1]
    assert sorted(b.asked) == ["0", "1"]


def test_it_waits_for_what_it_names_and_for_nothing_else() -> None:
    """A judge elsewhere in the tree is still out when the gate is decided and its branch is graded."""
    out = asyncio.Event()

    class Slow(Told):
        async def grade(self, rollout: Rollout, /) -> Grade:
            await out.wait()
            return Graded(1.0)

    class Last(Told):
        async def grade(self, rollout: Rollout, /) -> Grade:
            self.asked.append(rollout.id)
            if len(self.asked) == 2:
                out.set()
            return Graded(1.0)

    reward = Weighted({"slow": 1, "gate": (1, Gate(flat("a"), "last", 0))})
    runner = GradingRunner(
        {"a": ToldRule("a"), "slow": Slow("slow"), "last": Last("last")}, reward, timeout_s=5
    )
    assert [r.reward for r in runner.run_sync(of_group([1, 1]))] == [2, 2]


def test_group_graders_behind_it_compare_all_who_get_there() -> None:
    seen: list[list[str]] = []

    class Best(ToldTogether):
        async def grade_group(self, rollouts: Sequence[Rollout], /) -> list[Grade]:
            seen.append([rollout.id for rollout in rollouts])
            return [Graded(0.5)] * len(rollouts)

    graders = {"a": Told("a", random.Random(1)), "best": Best("best")}
    runner = GradingRunner(graders, Gate("flat(a)", {"a": 1, "best": 0.2}, "a"))
    assert [r.reward for r in runner.run_sync(of_group([1, 1, 1]))] == [1.1] * 3
    assert seen == [["0", "1", "2"]]
    # and may be what a function names, also of a gate that itself has it behind it
    runner = GradingRunner(graders, Gate("flat(best)", {"best": 1, "a": 1}, 0))
    assert [r.reward for r in runner.run_sync(of_group([1, 1, 0]))] == [1.5, 1.5, 0.5]


def test_two_group_graders_that_decide_on_each_other_end() -> None:
    one, two = ToldTogether("one"), ToldTogether("two")
    reward = Weighted({"x": (1, Gate("flat(one)", "two", 0)), "y": (1, Gate("flat(two)", "one", 0))})
    rollouts = of_group([1, 1], one=[1, 1], two=[1, 0])
    runner = GradingRunner({"a": ToldRule("a"), "one": one, "two": two}, Weighted({"r": (1, reward), "a": 1}))
    assert [r.reward for r in runner.run_sync(rollouts)] == [2, 1]


def test_streams_and_late_members() -> None:
    rollouts = of_group([1, 1, 1], b=[0.5, 0, 1])
    runner = GradingRunner({"a": ToldRule("a"), "b": Told("b")}, REWARD)

    async def one_by_one() -> AsyncIterator[Rollout]:
        for rollout in rollouts:
            await asyncio.sleep(0.001)
            yield rollout

    async def streamed() -> list[RewardResult]:
        return [result async for result in runner.stream(one_by_one())]

    results = asyncio.run(streamed())
    assert sorted((r.index, r.reward) for r in results) == [(0, 1.1), (1, 1.0), (2, 1.2)]

    async def followed() -> list[RewardResult]:
        found: list[RewardResult] = []
        await runner.follow(one_by_one(), found.append)
        return found

    assert sorted((r.index, r.reward) for r in asyncio.run(followed())) == [(0, 1.1), (1, 1.0), (2, 1.2)]


def test_at_the_deadline_what_is_missing_is_not_there() -> None:
    class Never(Told):
        async def grade(self, rollout: Rollout, /) -> Grade:
            if rollout.id == "2":
                await asyncio.sleep(60)
            return Graded(1.0)

    runner = GradingRunner({"a": Never("a")}, Gate(flat("a"), 1, 0), deadline_s=0.2)
    assert [r.reward for r in runner.run_sync(of_group([1, 1, 1]))] == [1, 1, 1]


def test_cancelling_leaves_nothing_behind() -> None:
    class Never(Told):
        async def grade(self, rollout: Rollout, /) -> Grade:
            if rollout.id == "1":
                await asyncio.sleep(60)
            return Graded(1.0)

    runner = GradingRunner({"a": Never("a")}, Gate(flat("a"), 1, 0))

    async def cancelled() -> int:
        running = asyncio.create_task(runner.run(of_group([1, 1])))
        await asyncio.sleep(0.05)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        return len(asyncio.all_tasks()) - 1

    assert asyncio.run(cancelled()) == 0


def test_the_numbers_of_a_result_do_not_depend_on_what_else_was_graded(tmp_path: Path) -> None:
    """The condition is decided by b alone; where c is asked first, as in the run, it is decided before the group's number is looked at."""
    reward = Gate("c >= 0.5 or flat(a) or b <= 1", "a", 0)
    path = tmp_path / "ledger.jsonl"
    graders: dict[str, Any] = {"a": Told("a"), "c": Told("c"), "b": ToldTogether("b")}
    runner = GradingRunner(graders, reward, ledger=Ledger(path))
    before = runner.run_sync(of_group([0, 1], b=[0, 0], c=[1, 0]))
    asyncio.run(runner.close())
    assert {str(r.group_numbers) for r in before} == {"{'spread(a)': 1.0}"}
    assert {str(r.group_numbers) for r in replay(path).results} == {"{'spread(a)': 1.0}"}


def test_explain_prints_the_groups_number() -> None:
    runner = GradingRunner({"a": ToldRule("a"), "b": ToldRule("b")}, Gate(spread("a") < 0.5, "b", 0))
    results = runner.run_sync(of_group([0.5, 0.75], b=[1, 0.5]))
    assert runner.explain(results[1]) == (
        "gate spread(a) < 0.5 = 0.5\n  if spread(a) = 0.25 over the group\n    a = 0.75\n  then b = 0.5"
    )


def test_a_ledger_keeps_them_and_other_rewards_are_computed_from_it(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    runner = GradingRunner(
        {"a": ToldRule("a"), "b": Told("b")}, Weighted({"a": 1, "b": 0}), ledger=Ledger(path)
    )
    runner.run_sync(of_group([1, 1, 0], b=[1, 0.5, 0]))
    asyncio.run(runner.close())
    found = replay(path, Gate(share(Score("a") >= 1) > 0.5, "b", "a"))
    assert [r.reward for r in found.results] == [1, 0.5, 0]
    assert found.results[0].group_numbers == {"share(a >= 1)": 2 / 3}
    found.write(other := Ledger(tmp_path / "other.jsonl"))
    other.close()
    assert [dict(e.group_numbers) for e in replay(tmp_path / "other.jsonl").entries] == [
        {"share(a >= 1)": 2 / 3}
    ] * 3


def test_one_condition_in_two_places_counts_at_each_those_who_get_there(tmp_path: Path) -> None:
    flat_a = flat("a")
    reward = Gate("b >= 1", Gate(flat_a, 1, 0), Gate(flat_a, 0.5, 0.25))
    path = tmp_path / "ledger.jsonl"
    runner = GradingRunner({"a": ToldRule("a"), "b": Told("b")}, reward, ledger=Ledger(path))
    rewards = [r.reward for r in runner.run_sync(of_group([1, 1, 0, 1], b=[1, 1, 0, 0]))]
    asyncio.run(runner.close())
    again = replay(path)
    replayed = {entry.id: result.reward for entry, result in zip(again.entries, again.results, strict=True)}
    assert rewards == [1, 1, 0.25, 0.25] == [replayed[str(i)] for i in range(4)]


def test_grades_of_several_parts_are_named_by_their_part() -> None:
    class Parts(Told):
        outputs = ("clear", "short")

        async def grade(self, rollout: Rollout, /) -> Any:
            await asyncio.sleep(0)
            return {"clear": rollout.extra["a"], "short": Graded(0.5)}

    reward = Gate(flat("judge.clear"), {"judge.short": 1, "best": 1}, "judge.short")
    runner = GradingRunner({"judge": Parts("judge"), "best": ToldTogether("best")}, reward)
    assert [r.reward for r in runner.run_sync(of_group([1, 1], best=[0.25, 0.5]))] == [0.75, 1]
    assert [r.reward for r in runner.run_sync(of_group([1, 0], best=[0.25, 0.5]))] == [0.5, 0.5]


def test_failed_grades_that_are_asked_again_decide_the_group_again(tmp_path: Path) -> None:
    """A member had no grade; now that it has one, the group is not flat, or still is and what stands behind the gate is there."""
    for late in (1.0, 0.0):
        down = True

        class Flaky(Told):
            async def grade(self, rollout: Rollout, /) -> Grade:
                if rollout.id == "2":
                    return Failed("Down") if down else Graded(late)  # noqa: B023
                return Graded(1.0)

        path = tmp_path / f"{late}.jsonl"
        graders: dict[str, Any] = {"a": Flaky("a"), "best": ToldTogether("best")}
        reward = Gate(flat("a"), {"a": 1, "best": 0.2}, "a")
        rollouts = of_group([0, 0, 0], best=[0.5, 0.5, 0.5])
        runner = GradingRunner(graders, reward, ledger=Ledger(path, texts=True))
        assert [r.reward for r in runner.run_sync(rollouts)] == [1.1, 1.1, None]
        asyncio.run(runner.close())
        down = False
        again = asyncio.run(FailedOnce(read_ledger(path), GradingRunner(graders, reward)).ask())
        found = {entry.id: result.reward for entry, result in zip(again.entries, again.results, strict=True)}
        assert found == ({"0": 1.1, "1": 1.1, "2": 1.1} if late else {"0": 1, "1": 1, "2": 0})


def test_a_resumed_run_decides_as_the_first(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    graders: dict[str, Any] = {"a": Told("a", random.Random(0)), "b": Told("b"), "best": ToldTogether("best")}
    reward = Weighted({"b": 0.5, "g": (1, Gate(flat("a"), {"a": 1, "best": 0.2}, "a"))})
    rollouts = of_group([1, 1, 1], b=[1, 0, 1], best=[0.5, 0.25, 0.5])
    runner = GradingRunner(graders, reward, ledger=Ledger(path, texts=True))
    before = [r.reward for r in runner.run_sync(rollouts)]
    asyncio.run(runner.close())
    lines = path.read_text().splitlines()
    rng = random.Random(1)
    for keep in range(1, len(lines) + 1):
        cut = tmp_path / f"{keep}.jsonl"
        cut.write_text("\n".join([lines[0], *rng.sample(lines[1:], keep - 1)]) + "\n")
        resumed = GradingRunner(graders, reward)
        known = known_grades(read_ledger(cut), resumed, rollouts)
        assert [r.reward for r in asyncio.run(resumed.run(rollouts, known=known.grades))] == before


def test_a_runner_says_that_it_needs_groups() -> None:
    runner = GradingRunner({"a": ToldRule("a")}, Gate(flat("a"), 1, 0))
    assert runner.needs_group
    assert runner.compares
