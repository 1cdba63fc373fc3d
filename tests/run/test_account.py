"""The account of a run: what results, metrics and messages say of how rewards came about."""

from __future__ import annotations

import asyncio
import copy
import math
import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import cloudpickle
import msgspec
import pytest

from judgekit import (
    Abstained,
    Failed,
    Gate,
    Graded,
    GradingRunner,
    JudgeUnavailable,
    Ledger,
    MissingRewardError,
    Retry,
    Rollout,
    Score,
    Usage,
    Weighted,
    grader,
    group_grader,
    read_ledger,
)
from judgekit.execution.pool import ProcessPool
from judgekit.ledger.schema import Comparison
from judgekit.run.bound_grader import BoundGrader
from judgekit.run.results import KnownGrades

pytestmark = pytest.mark.timeout(60)


def rollouts(n: int, per_group: int = 4) -> list[Rollout]:
    return [Rollout(response=str(i % 10), group=i // per_group, id=str(i)) for i in range(n)]


@grader
def digit(response: str) -> float:
    return int(response) / 10


async def test_usage_is_the_sum_of_what_all_graders_spent() -> None:
    spent = [Usage(1, 10, 5, 2), Usage(2, 100, 50, 20), Usage(3, 1000, 500, 200)]
    answers: list[Any] = [
        Graded(0.5, usage=spent[0]),
        Abstained("no", usage=spent[1]),
        Failed("X", usage=spent[2]),
    ]
    graders = {f"g{i}": grader(name=f"g{i}")(lambda rollout, i=i: answers[i]) for i in range(3)}
    runner = GradingRunner(graders, missing_reward="mask")
    (result,) = await runner.run(rollouts(1))
    assert result.usage == Usage(6, 1110, 555, 222)
    assert runner.metrics.summary()["judgekit/judge_prompt_tokens"] == 1110


async def test_times_are_durations() -> None:
    """Of evaluations, of waits in a queue, and of a rollout from its first grader to its last."""

    @grader
    async def judge(response: str) -> float:
        await asyncio.sleep(0.01)
        return 0.5

    runner = GradingRunner({"digit": digit, "judge": judge}, max_concurrency=2)
    results = await runner.run(rollouts(8))
    assert all(0.005 <= r.wall_s < 60 for r in results)
    figures = runner.metrics.summary()
    assert 0.005 <= figures["judgekit/judge/p50_s"] <= figures["judgekit/judge/p95_s"] < 60
    assert 0 <= figures["judgekit/digit/p50_s"] < 60
    assert 0.005 <= figures["judgekit/judge/queue_wait_p95_s"] < 60


async def test_gdpo_divides_by_the_weights_where_the_tree_does() -> None:
    @grader
    def even(response: str) -> float:
        return float(int(response) % 2)

    async def rewards(normalize: bool) -> list[Any]:
        tree = Weighted({"digit": 3, "even": -1}, normalize=normalize)
        results = await GradingRunner({"digit": digit, "even": even}, tree, transform="gdpo").run(rollouts(4))
        return [r.reward for r in results]

    plain = await rewards(normalize=False)
    assert await rewards(normalize=True) == pytest.approx([r / 4 for r in plain])
    assert max(plain) > 1


async def test_a_neutral_group_is_like_the_other_groups_of_its_run_then_of_earlier_runs() -> None:
    @grader
    def judge(rollout: Rollout) -> float | None:
        return None if rollout.data_source else int(rollout.response) / 10

    missing = [Rollout(response="", data_source="x", group="m") for _ in range(2)]
    runner = GradingRunner({"judge": judge}, missing_reward="neutral")
    assert [r.reward for r in await runner.run(missing)] == [0.5, 0.5]  # nothing is known: the middle
    results = await runner.run([*rollouts(4), *missing])
    assert [r.reward for r in results[4:]] == pytest.approx([0.15, 0.15])
    assert [r.status for r in results[4:]] == ["neutral", "neutral"]
    await runner.run([Rollout(response="9", group="n")])
    assert [r.reward for r in await runner.run(missing)] == pytest.approx([1.5 / 5] * 2)


async def test_what_raises_says_which_graders_are_missing_and_why() -> None:
    @grader
    async def judge(response: str) -> float:
        raise JudgeUnavailable("down")

    silent = grader(name="silent")(lambda response: None)
    runner = GradingRunner({"judge": judge, "silent": silent}, missing_reward="raise")
    with pytest.raises(
        MissingRewardError,
        match=r"rollout 0 of group 0 has no reward \(judge: JudgeUnavailable: down; silent: abstained, returned None\)",
    ):
        await runner.run(rollouts(1))


async def test_a_group_grader_behind_a_gate_waits_for_the_last_that_may_pass() -> None:
    """One member's judge answers only when the others have theirs: it is still one group."""
    seen: list[list[str]] = []
    late = asyncio.Event()

    @grader
    async def judge(rollout: Rollout) -> float:
        if rollout.id == "3":
            await late.wait()
        return 0.0 if rollout.id == "1" else 1.0

    @group_grader
    def rank(members: Sequence[Rollout]) -> list[float]:
        seen.append([r.id for r in members])
        return [0.5] * len(members)

    async def release() -> None:
        for _ in range(50):
            await asyncio.sleep(0)
        late.set()

    reward = Gate(if_=Score("judge") >= 0.5, then=Score("rank"), otherwise=0.0)
    releasing = asyncio.create_task(release())
    results = await GradingRunner({"judge": judge, "rank": rank}, reward).run(rollouts(4))
    await releasing
    assert [sorted(ids) for ids in seen] == [["0", "2", "3"]]
    assert [r.reward for r in results] == [0.5, 0.0, 0.5, 0.5]


async def test_a_retry_waits_and_others_are_graded_meanwhile() -> None:
    turns = 0
    between: list[int] = []

    @grader
    async def judge(rollout: Rollout) -> float:
        between.append(turns)
        await asyncio.sleep(0)
        if len(between) == 1:
            raise JudgeUnavailable("busy")
        return 0.5

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count())
    retry = Retry(attempts=2, wait_initial_s=0.1, wait_max_s=0.1)
    results = await GradingRunner({"judge": judge}, retry=retry).run(rollouts(1))
    counting.cancel()
    assert [r.reward for r in results] == [0.5]
    assert between[1] - between[0] > 50


async def test_a_retry_that_comes_too_late_for_the_timeout_is_not_made() -> None:
    calls = 0

    @grader
    async def judge(response: str) -> float:
        nonlocal calls
        calls += 1
        raise JudgeUnavailable("busy")

    retry = Retry(attempts=9, wait_initial_s=20, wait_max_s=20)
    (result,) = await GradingRunner({"judge": judge}, retry=retry, timeout_s=5, missing_reward="mask").run(
        rollouts(1)
    )
    assert calls == 1
    assert result.grades["judge"] == Failed("JudgeUnavailable", "busy", retryable=True)


class Sized:
    """A rule that says where it ran, and is to run in a worker on what is larger than its limit."""

    name, version, score_range, inline_limit = "sized", "1", (0.0, 1e9), 100

    def grade(self, rollout: Rollout, /) -> float:
        return float(os.getpid())


async def test_a_rule_runs_in_a_worker_on_rollouts_above_its_limit() -> None:
    pool = ProcessPool(1)
    try:
        runner = GradingRunner({"sized": Sized()}, pool=pool)
        batch = [
            Rollout(response="x" * 90),
            Rollout(response="x" * 110),
            Rollout(response="x", messages=[{"role": "user", "content": "y" * 110}]),
        ]
        inline, *pooled = [r.reward for r in await runner.run(batch)]
        part = runner.separate(None)
        await part.run(batch[1:])
        assert part.metrics.percentile("sized", 0.5) > 0
    finally:
        pool.close()
    assert inline == os.getpid()
    assert len(set(pooled)) == 1
    assert pooled[0] != os.getpid()


async def test_a_rule_that_cannot_be_sent_to_a_worker_stays_where_it_is() -> None:
    class Held(Sized):
        def __init__(self) -> None:
            self.lock = threading.Lock()

    (result,) = await GradingRunner({"sized": Held()}).run([Rollout(response="x" * 500)])
    assert result.reward == os.getpid()


def test_calls_can_be_watched() -> None:
    """As a tracer does; the runner itself stays as it was."""
    seen: list[tuple[str, str]] = []

    def watched(bound: BoundGrader) -> Any:
        def call(rollout: Rollout) -> Any:
            seen.append((bound.name, rollout.response))
            return bound.call(rollout)

        return call

    plain = GradingRunner({"digit": digit})
    assert plain.with_calls(watched).run_sync([Rollout(response="7")])[0].reward == 0.7
    assert plain.run_sync([Rollout(response="7")])[0].reward == 0.7
    assert seen == [("digit", "7")]


async def test_a_grader_of_several_scores_is_asked_where_one_of_them_is_not_known() -> None:
    class Several:
        name, version, score_range, outputs = "quality", "1", (0.0, 1.0), ("clear", "kind")

        def grade(self, rollout: Rollout, /) -> Any:
            return {"clear": 0.25, "kind": 0.75}

    runner = GradingRunner({"quality": Several()})
    for known, reward in (({"clear": 1.0}, 0.5), ({"clear": 1.0, "kind": 0.0}, 0.5), ({}, 0.5)):
        grades = {f"quality.{name}": Graded(score) for name, score in known.items()}
        (result,) = await runner.run([Rollout(response="x")], known=[grades])
        assert result.reward == reward
        if len(known) == 1:  # asked again, as a whole
            assert (result.score("quality.clear"), result.score("quality.kind")) == (0.25, 0.75)


def test_a_runner_says_what_it_needs() -> None:
    rank = group_grader(lambda members: [0.0] * len(members))
    assert not GradingRunner([digit]).needs_group
    assert not GradingRunner([digit], missing_reward="mask").needs_group
    assert GradingRunner([digit], missing_reward="neutral").needs_group
    assert GradingRunner([digit], transform="rank").needs_group
    assert GradingRunner({"rank": rank}).needs_group


def test_the_spec_changes_with_what_decides_about_rewards_only() -> None:
    def digest(**options: Any) -> str:
        return GradingRunner({"digit": digit}, **options).spec.digest

    same = digest()
    assert digest(max_concurrency=3, timeout_s=1) == same
    changed = [digest(transform="rank"), digest(missing_reward="mask"), digest(reward={"digit": 2.0})]
    other = grader(version="2", name="digit")(digit.function)
    changed.append(GradingRunner({"digit": other}).spec.digest)
    assert len({same, *changed}) == 5
    wide = grader(name="wide", score_range=(-math.inf, math.inf))(lambda response: 0.0)
    spec = GradingRunner({"wide": wide}, Score("wide", if_broken=0.0)).spec
    assert spec.graders["wide"].score_range == ("-inf", "inf")
    assert spec.graders["wide"].bounds() == (-math.inf, math.inf)


def test_runs_have_names_of_their_own_in_every_process(tmp_path: Path) -> None:
    def names(path: Path) -> set[str]:
        runner = GradingRunner([digit], ledger=Ledger(path))
        for _ in range(2):
            runner.run_sync(rollouts(2))
        return {entry.run for entry in read_ledger(path).entries}

    path = tmp_path / "l"
    assert len(names(path)) == 2
    pid = os.fork()
    if pid == 0:
        try:
            names(path)
        finally:
            os._exit(0)
    os.waitpid(pid, 0)
    script = f"""
from pathlib import Path
from tests.run.test_account import digit, rollouts
from judgekit import GradingRunner, Ledger
GradingRunner([digit], ledger=Ledger({str(path)!r})).run_sync(rollouts(2))
"""
    subprocess.run([sys.executable, "-c", script], check=True, cwd=Path(__file__).parents[2], timeout=50)
    assert len({entry.run for entry in read_ledger(path).entries}) == 5


def test_a_runner_gives_what_it_was_made_of(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "l")
    runner = GradingRunner({"digit": digit}, {"digit": 2.0}, ledger=ledger)
    assert runner.ledger is ledger
    assert runner.reward.root.spec() == {"weighted": {"digit": 2.0}}
    assert runner.graders == {"digit": digit}


def test_explain_shows_the_number_and_the_setting() -> None:
    runner = GradingRunner({"digit": digit}, {"digit": 2.0}, transform="center")
    results = runner.run_sync(rollouts(2, 2))
    assert "center over its group: 0.2 → 0.1" in runner.explain(results[1])


def test_results_without_numbers_of_their_group_share_an_empty_dictionary_that_nobody_can_fill() -> None:
    first, second = GradingRunner({"a": grader(lambda response: 1.0)}).run_sync([Rollout(response="x")] * 2)
    assert first.group_numbers == {} == dict(first.group_numbers)
    for change in (
        lambda d: d.update(a=1),
        lambda d: d.setdefault("a", 1),
        lambda d: d.__setitem__("a", 1),
        lambda d: d.clear(),
    ):
        with pytest.raises(TypeError, match="no numbers"):
            change(first.group_numbers)
    for made in (
        pickle.loads(pickle.dumps(second)),
        copy.deepcopy(second),
        cloudpickle.loads(cloudpickle.dumps(second)),
    ):
        assert made == second
        assert made.group_numbers is first.group_numbers is second.group_numbers
    assert b'"group_numbers":{}' in msgspec.json.encode(first)


def test_known_grades_name_those_of_comparisons_too() -> None:
    call = Comparison("run:0", 4)
    known = KnownGrades({"rule": Graded(1.0)}, {"rank": {call: {"rank.style": Graded(0.5)}}})
    assert known == {"rule": Graded(1.0)}
    assert known.compared == {"rank": {call: {"rank.style": Graded(0.5)}}}
    assert known.names() == {"rule", "rank.style"}
