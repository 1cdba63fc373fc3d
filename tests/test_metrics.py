"""Counts and metrics: any name, any process, no count lost, one log line per step and cause."""

from __future__ import annotations

import asyncio
import logging
import math
import pickle
import random
import statistics
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from typing import Any, get_args

import pytest

from judgekit import (
    Abstained,
    ConfigError,
    Failed,
    FailureRateError,
    Graded,
    GradingRunner,
    RewardResult,
    Rollout,
    Score,
    Skipped,
    Usage,
    Weighted,
    grader,
)
from judgekit.metrics import Counts, GraderCounts, Metrics, Moments, SignalLimits, signals
from judgekit.metrics.moments import is_flat
from judgekit.types import Status


def failing(name: str, error: str) -> GradingRunner:
    broken = grader(name="broken")(lambda response: Failed(error))
    return GradingRunner({name: broken})


def rollouts(n: int) -> list[Rollout]:
    return [Rollout(response="", group=i) for i in range(n)]


@pytest.mark.parametrize("name", ["judge", "math:hard", "math:hard:1", ":", "a|b", "failed:a", "line\nend"])
@pytest.mark.parametrize("error", ["JudgeTimeout", "HTTP 500: bad gateway", "a:b:c", ""])
def test_any_name_and_any_error_can_be_counted_and_sent(name: str, error: str) -> None:
    counts = Counts()
    for result in failing(name, error).run_sync(rollouts(3)):
        counts.add(result)
    counts = pickle.loads(pickle.dumps(counts))
    assert f"{name!r} failed on 3 of 3 rollouts ({error} × 3)" in counts.line()
    assert "3 rollouts graded" in counts.line()
    assert (counts.missing, counts.unusual) == (3, True)


def test_an_alarm_needs_more_than_one_of_four() -> None:
    """At least 16 evaluations are assumed, so a share of 0.2 takes 4 failures; 0 takes one."""
    counts = Counts()
    for result in GradingRunner({"judge": rule}).run_sync(step(lambda i, rng: {}, groups=2)):
        counts.add(result)
    for failures in (1, 2, 3, 4):
        for result in failing("judge", "Down").run_sync(rollouts(1)):
            counts.add(result)
        told = f"judge {100 * failures / (8 + failures):.1f} % (Down × {failures})"
        assert counts.excess_failures(0.0) == told
        assert counts.excess_failures(0.2) == (told if failures == 4 else "")


@pytest.mark.parametrize("rate", [0.0, 0.5, 0.99])
@pytest.mark.parametrize("count", [1, 2, 8, 16])
def test_a_batch_of_which_every_grade_failed_raises(rate: float, count: int) -> None:
    """Eight of eight passed, as fewer than sixteen are no rate; one alone may be bad luck."""
    runner = failing("judge", "Down").with_settings(max_failure_rate=rate)
    if count == 1 and rate:
        assert runner.run_sync(rollouts(1))[0].status == "excluded"
        return
    with pytest.raises(FailureRateError, match="judge 100.0 %"):
        runner.run_sync(rollouts(count))


def test_merged_parts_are_the_whole() -> None:
    """Mean, deviation and correlation of two halves merged are those of all, also far from zero."""
    rng = random.Random(7)
    pairs = [(rng.random() * 5, 1e3 + rng.random()) for _ in range(200)]
    halves = [Moments(), Moments()]
    scores = [GraderCounts(), GraderCounts()]
    for i, (x, y) in enumerate(pairs):
        halves[i % 3 == 0].add(x, y)
        scores[i % 3 == 0].add(Graded(y))
    halves[0].merge(halves[1])
    scores[0].merge(scores[1])
    ys = [y for _, y in pairs]
    assert halves[0].mean_y == pytest.approx(statistics.fmean(ys))
    assert halves[0].std_y == pytest.approx(statistics.pstdev(ys), rel=1e-6)
    assert scores[0].std == pytest.approx(statistics.pstdev(ys), rel=1e-6)
    assert halves[0].correlation == pytest.approx(statistics.correlation([x for x, _ in pairs], ys), abs=1e-6)


def test_counts_of_two_halves_are_those_of_all() -> None:
    """Every figure: groups without a reward, equal ones, missing grades by their settings, what judges were asked."""

    def judged(response: str) -> Graded | Failed:
        usage = Usage(calls=1, prompt_tokens=7, cached_tokens=3, completion_tokens=2)
        if response.startswith("down"):
            return Failed("JudgeTimeout", usage=usage)
        return Graded(len(response) % 5 / 4, usage=usage)

    runner = GradingRunner(
        {
            "judge": grader(name="judge")(judged),
            "short": grader(name="short")(lambda response: 1 / len(response)),
        },
        {"judge": 0.8, "short": 0.2},
        missing_reward="exclude",
    )
    words = ["down", "a", "**bold** text", "one two one two one two", "even longer than all others", "equal"]
    given = [
        Rollout(
            response=f"{words[(i * i + i // 4) % 6] if i % 32 > 7 else 'down' if i % 32 < 4 else 'equal'} 1",
            group=i // 4,
        )
        for i in range(160)
    ]
    results = runner.run_sync(given)
    paid = [result.raw_reward for result in results if result.raw_reward is not None]
    whole, *halves = (Counts(bounds=(min(paid), max(paid))) for _ in range(3))
    for at in range(0, 160, 4):
        for counts in (whole, halves[at % 3 == 0]):
            for result, rollout in zip(results[at : at + 4], given[at : at + 4], strict=True):
                counts.add(result, rollout, number=0)
            counts.add_group(results[at : at + 4], given[at : at + 4])
    halves[0].merge(halves[1])
    figures = whole.figures()
    assert figures["judgekit/judge_calls"] == 160
    assert figures["judgekit/judge_cached_tokens"] == 3 * 160
    empty = sum(all(r.raw_reward is None for r in results[at : at + 4]) for at in range(0, 160, 4))
    assert figures["judgekit/empty_group_rate"] == empty / 40 > 0
    assert figures["judgekit/flat_group_rate"] > 0
    assert halves[0].figures() == pytest.approx(figures)
    assert halves[0].line() == whole.line()


def test_nothing_is_lost_between_two_resets() -> None:
    """Four threads count while a fifth resets: every count is in exactly one summary."""
    metrics = Metrics()
    (result,) = failing("judge", "Down").run_sync(rollouts(1))
    done = threading.Event()
    seen: list[float] = []

    def reset() -> None:
        while not done.is_set():
            seen.append(metrics.summary(reset=True).get("judgekit/rollouts", 0.0))

    def count() -> None:
        for _ in range(2000):
            metrics.add(result, Rollout(response=""))

    resetting = threading.Thread(target=reset)
    counting = [threading.Thread(target=count) for _ in range(4)]
    for thread in (resetting, *counting):
        thread.start()
    for thread in counting:
        thread.join()
    done.set()
    resetting.join()
    assert sum(seen) + metrics.summary().get("judgekit/rollouts", 0.0) == 8000
    metrics.summary(reset=True)
    assert metrics.summary() == {}


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What the metrics said; on a busy machine a rule may be reported as slow, too."""
    return [record.getMessage() for record in caplog.records if record.module == "metrics"]


def test_a_host_with_one_run_per_rollout_is_told_once(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """1,024 failing runs of one rollout: the first is told, the others together, not a line for each."""
    now = time.monotonic()
    monkeypatch.setattr("judgekit.metrics.metrics.time.monotonic", lambda: now)
    runner = failing("judge", "Down").with_settings(shared=True)
    with caplog.at_level(logging.WARNING, logger="judgekit"):
        for rollout in rollouts(100):
            runner.run_sync([rollout])
        assert len(told(caplog)) == 2
        caplog.clear()
        now += 11
        runner.run_sync(rollouts(1))
    assert told(caplog) == [
        "grader 'judge' failed on 100 of 100 rollouts (Down × 100)",
        "100 of 100 rewards are missing (100 excluded)",
    ]


def test_a_large_run_is_told_at_its_end(caplog: pytest.LogCaptureFixture) -> None:
    runner = failing("judge", "Down")
    with caplog.at_level(logging.WARNING, logger="judgekit"):
        for _ in range(2):
            runner.run_sync(rollouts(64))
    assert [m for m in caplog.messages if "missing" in m] == [
        "64 of 64 rewards are missing (64 excluded)"
    ] * 2


def test_figures_without_a_score_are_left_out() -> None:
    runner = failing("judge", "Down")
    runner.run_sync(rollouts(2))
    summary = runner.metrics.summary()
    assert summary["judgekit/judge/failure_rate"] == 1.0
    assert "judgekit/judge/mean" not in summary
    assert all(math.isfinite(value) for value in summary.values())


def test_unreadable_verdicts_are_counted_by_group() -> None:
    """So that a policy that learns to provoke them shows, whoever's failure they are."""
    metrics = Metrics()
    broken = grader(name="judge")(lambda response: Failed("VerdictError") if "x" in response else 1.0)
    members = [Rollout(response=r, group=g) for g, r in ((1, "x"), (1, "x"), (1, ""), (2, ""), (3, "x"))]
    for result in GradingRunner({"judge": broken}).run_sync(members):
        metrics.add(result, members[result.index])
    found = pickle.loads(pickle.dumps(metrics.counts)).graders["judge"]
    assert found.unreadable == {1: 2, 3: 1}
    summary = metrics.summary()
    assert summary["judgekit/judge/unreadable_rate"] == 3 / 5
    assert summary["judgekit/judge/unreadable_groups"] == 2
    assert summary["judgekit/judge/unreadable_in_worst_group"] == 2


def test_the_groups_of_unreadable_verdicts_are_bounded() -> None:
    counts, more = GraderCounts(), GraderCounts()
    for i in range(10_100):
        counts.add(Failed("VerdictError"), i)
        more.add(Failed("VerdictError"), -i)
    counts.merge(more)
    assert len(counts.unreadable) == 10_001
    assert sum(counts.unreadable.values()) == 20_200
    whole = Counts()
    whole.graders["judge"] = counts
    assert whole.figures()["judgekit/judge/unreadable_in_worst_group"] == 2


def test_what_a_grader_writes_into_its_errors_does_not_fill_the_memory() -> None:
    """An address, an id or a time in each error's name, over a run of days."""
    total = Counts()
    for part in range(3):
        counts = Counts()
        for i in range(9_000):
            grade = Failed(f"HTTP 500 at {part}-{i}")
            policies = (f"no case fits {part}-{i}",)
            counts.add(
                RewardResult(
                    index=0, group=0, reward=None, status="excluded", raw_reward=None, contributions={},
                    grades={"judge": grade}, policies=policies,
                )
            )  # fmt: skip
        total.merge(counts)
    assert (len(total.graders["judge"].errors), len(total.policies)) == (10_001, 10_001)
    assert (total.graders["judge"].failed, total.policies.total()) == (27_000, 27_000)


WORDS = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"]


@grader(name="rule")
def rule(extra: dict[str, Any]) -> float:
    return extra["score"]  # type: ignore[no-any-return]


@grader(name="judge")
async def judge(extra: dict[str, Any]) -> Graded:
    score = extra["score"]
    return Graded(1 - score if extra["opposed"] else score, usage=Usage())  # from a cache: no calls


def step(row: Callable[[int, random.Random], dict[str, Any]], groups: int = 20) -> list[Rollout]:
    """Groups of four with random scores and texts, but for what *row* says."""
    rng = random.Random(7)
    made = []
    for i in range(4 * groups):
        given = {
            "response": " ".join(rng.choices(WORDS, k=40)),
            "tokens": rng.randint(10, 90),
            "score": rng.random(),
            **row(i, rng),
        }
        extra = {"score": given["score"], "opposed": given.get("opposed", False)}
        made.append(
            Rollout(response=given["response"], group=i // 4, response_tokens=given["tokens"], extra=extra)
        )
    return made


SIGNS: list[tuple[str, str, Callable[[int, random.Random], dict[str, Any]]]] = [
    ("length", "reward_length_correlation_in_groups", lambda i, rng: {"score": (n := rng.randint(10, 90)) / 90, "tokens": n}),
    ("repetition", "reward_repetition_correlation", lambda i, rng: {"score": (n := rng.randint(0, 20)) / 20, "response": " ".join(["a b c d e f"] * n + rng.choices(WORDS, k=60))}),
    ("formatting", "reward_formatting_correlation", lambda i, rng: {"score": (n := rng.randint(0, 20)) / 20, "response": "- a point\n" * n + "word " * 90}),
    ("flat_groups", "flat_group_rate", lambda i, rng: {"score": i // 4 % 2}),
    ("saturation", "reward_at_high_rate", lambda i, rng: {"score": 1.0 if i % 16 else 0.5}),
    ("saturation", "reward_at_low_rate", lambda i, rng: {"score": 0.0 if i % 16 else 0.5}),
    ("disagreement", "judge/correlation_with/rule", lambda i, rng: {"opposed": True}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "figure", "row"), SIGNS)
def test_a_step_that_shows_it_raises_a_signal(
    name: str,
    figure: str,
    row: Callable[[int, random.Random], dict[str, Any]],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """In the metrics, and as one line in the log; and only beyond the limit that was set."""
    runner = GradingRunner([rule, judge], {"rule": 1.0, "judge": 0})
    with caplog.at_level(logging.WARNING, logger="judgekit"):
        runner.run_sync(step(row))
    raised = {signal.name for signal in runner.metrics.counts.signals() if signal.raised}
    assert name in raised
    (line,) = [m for m in caplog.messages if m.startswith("signals: ")]
    summary = runner.metrics.summary()
    assert summary["judgekit/signals_raised"] >= 1
    assert figure.removeprefix("judgekit/") in {key.removeprefix("judgekit/") for key in summary}
    counted = pickle.loads(pickle.dumps(runner.metrics.counts))  # another process's
    total = Counts()
    total.merge(counted)
    assert line in total.line()
    assert total.unusual
    limits = SignalLimits(**{name: -1.0 if name == "disagreement" else 1.0})
    patient = GradingRunner(runner.graders, runner.reward.root, signals=limits)
    patient.run_sync(step(row))
    assert name not in {signal.name for signal in patient.metrics.counts.signals() if signal.raised}


def test_a_plain_step_raises_none() -> None:
    runner = GradingRunner([rule, judge])
    runner.run_sync(step(lambda i, rng: {}))
    counts = runner.metrics.counts
    assert [signal.text for signal in counts.signals() if signal.raised] == []
    assert {signal.name for signal in counts.signals()} == {
        "length",
        "repetition",
        "formatting",
        "flat_groups",
        "saturation",
        "disagreement",
        "missing",
    }
    assert not counts.unusual


def test_length_is_compared_within_groups_where_they_are_known() -> None:
    """Hard prompts have long answers and low rewards; rollouts that come alone have a laxer limit."""

    def row(i: int, rng: random.Random) -> dict[str, Any]:
        hard = i // 4 % 2
        return {"tokens": 500 * hard + rng.randint(1, 9), "score": (1 - hard) * 0.9 + 0.05 * rng.random()}

    together, alone = GradingRunner([rule]), GradingRunner([rule])
    together.run_sync(step(row))
    for rollout in step(row):
        alone.run_sync([rollout])
    assert "length" not in {signal.name for signal in together.metrics.counts.signals() if signal.raised}
    (found,) = [s for s in alone.metrics.counts.signals() if s.name.startswith("length")]
    assert (found.name, found.raised, found.limit) == ("length_overall", True, 0.8)


@pytest.mark.parametrize("weights", [(0.1, 0.2, 0.3), (0.7, 0.1, 0.2)])
@pytest.mark.parametrize("normalize", [True, False])
@pytest.mark.parametrize("if_missing", ["propagate", "renormalise"])
def test_rewards_that_are_all_the_highest_are_counted_as_such(
    weights: tuple[float, ...], normalize: bool, if_missing: Any
) -> None:
    """Also where other terms than all of them make it, and round it differently."""

    @grader
    def best(response: str) -> float | None:
        return None if if_missing == "renormalise" and int(response) % 3 == 0 else 1.0

    @grader
    def one(response: str) -> float:
        return 1.0

    terms = {str(i): (weight, Score(str(i), if_missing=if_missing)) for i, weight in enumerate(weights)}
    runner = GradingRunner({"0": best, **dict.fromkeys("12", one)}, Weighted(terms, normalize=normalize))
    runner.run_sync([Rollout(response=str(i)) for i in range(9)])
    assert runner.metrics.summary()["judgekit/reward_at_high_rate"] == 1.0


def test_what_is_not_known_is_no_figure() -> None:
    """Counts of results alone know no lengths, texts or bounds: they say nothing of them."""
    counts = Counts()
    for result in GradingRunner([rule]).run_sync(step(lambda i, rng: {})):
        counts.add(result)
    assert not [key for key in counts.figures() if "correlation" in key or "reward_at" in key]


def hacked(count: int = 1024) -> list[Rollout]:
    """A step whose reward is the length alone, and half of whose texts repeat themselves."""
    rng = random.Random(3)
    made = []
    for i in range(count):
        size = rng.randint(50, 400)
        words = ["the", "same", "few", "words", "again"] * size if i % 2 else rng.choices(WORDS, k=size)
        text = " ".join(words[:size])
        made.append(Rollout(response=text, group=i // 8, extra={"score": len(text) / 4000}))
    return made


def test_which_texts_are_analysed_depends_on_their_number_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first 64 since the last reset, and every 32nd after them; lengths are compared in every group."""
    looked: list[str] = []
    real = signals.Evidence.add

    def add(self: signals.Evidence, result: RewardResult, response: str) -> None:
        looked.append(response)
        real(self, result, response)

    @grader(name="late")
    async def late(extra: dict[str, Any]) -> float:
        for _ in range(random.randrange(9)):
            await asyncio.sleep(0)
        return extra["score"]  # type: ignore[no-any-return]

    monkeypatch.setattr(signals.Evidence, "add", add)
    batch = hacked()
    expected = Counter(batch[i].response for i in range(1024) if i < 64 or i % 32 == 0)
    figures = []
    for _ in range(2):
        first, second = GradingRunner([late]), GradingRunner([late])  # one does not starve the other
        for runner in (first, second, first):
            looked.clear()
            runner.run_sync(batch)
            counts = runner.metrics.counts
            assert Counter(looked) == expected
            assert (counts.evidence.length.n, counts.evidence.repetition.n) == (1024, 94)
            assert {s.name for s in counts.signals() if s.raised} >= {"length"}
            figures.append(runner.metrics.summary(reset=True))
    names = [name for name in figures[0] if "correlation" in name]
    assert len(names) == 4
    for other in figures[1:]:
        assert [other[name] for name in names] == pytest.approx([figures[0][name] for name in names])


async def test_runs_of_one_rollout_are_analysed_as_a_run_of_many(monkeypatch: pytest.MonkeyPatch) -> None:
    runner = GradingRunner([rule]).with_settings(shared=True)
    batch = hacked()
    for rollout in batch[:512]:
        await runner.run([rollout])
    await asyncio.gather(*(runner.run([rollout]) for rollout in batch[512:]))
    assert runner.metrics.counts.evidence.repetition.n == 94


async def test_a_stream_is_analysed_as_a_batch() -> None:
    runner = GradingRunner([rule])
    batch = hacked()

    async def source() -> AsyncIterator[Rollout]:
        for rollout in batch:
            yield rollout

    assert len([result async for result in runner.stream(source())]) == 1024
    assert runner.metrics.counts.evidence.repetition.n == 94
    assert len([result async for result in runner.stream(source())]) == 1024
    assert runner.metrics.counts.evidence.repetition.n == 94 + 32


def test_no_more_than_the_beginning_of_a_text_is_analysed() -> None:
    evidence = signals.Evidence()
    (result,) = GradingRunner([rule]).run_sync(step(lambda i, rng: {})[:1])
    evidence.add(result, "word " * 1600 + "again and again and again and again " * 100)
    assert evidence.repetition.mean_x == signals.repetition("word " * 1600)


def test_an_absurd_length_costs_no_result() -> None:
    batch = [
        Rollout(response="x", response_tokens=10**400, group=i // 2, extra={"score": i / 4}) for i in range(4)
    ]
    runner = GradingRunner([rule])
    assert [result.reward for result in runner.run_sync(batch)] == [0.0, 0.25, 0.5, 0.75]
    assert all(math.isfinite(value) for value in runner.metrics.summary().values())


@pytest.mark.parametrize("value", [2, True, "0.4", None, math.nan])
def test_a_limit_that_is_none_is_refused(value: Any) -> None:
    with pytest.raises(ConfigError, match="the limit of the signal 'length' is a number from -1 to 1"):
        SignalLimits(length=value)
    with pytest.raises(ConfigError, match="signals is an object such as SignalLimits"):
        GradingRunner([rule], signals={"length": 0.4})  # type: ignore[arg-type]


def test_enormous_rewards_leave_the_figures_readable() -> None:
    big = GradingRunner([rule], {"rule": 1e200})
    big.run_sync(step(lambda i, rng: {}))
    assert all(math.isfinite(value) for value in big.metrics.summary().values())


def test_limits_that_are_set_later_hold_for_that_runner_alone(caplog: pytest.LogCaptureFixture) -> None:
    """Both count together; each tells, in the log and in its metrics, what is beyond its own limits."""
    lax = GradingRunner([rule], signals=SignalLimits(length=1.0, length_overall=1.0))
    strict = lax.with_settings(signals=SignalLimits(length=0.2))
    batch = step(lambda i, rng: {"score": (n := rng.randint(10, 90)) / 90, "tokens": n})
    for runner, told in ((lax, False), (strict, True), (lax, False)):
        caplog.clear()
        with caplog.at_level(logging.WARNING, logger="judgekit"):
            runner.run_sync(batch)
        assert ("reward and length correlate" in caplog.text) is told
        assert any(signal.raised for signal in runner.metrics.counts.signals()) is told
        assert runner.metrics.limits is runner.settings.signals
    assert lax.metrics.counts.rollouts == strict.metrics.counts.rollouts == 3 * len(batch)
    strict.metrics.summary(reset=True)
    assert lax.metrics.counts.rollouts == 0


# ---- figure by figure


def counted(reward: float | None, status: str = "scored", **fields: Any) -> RewardResult:
    given = {"index": 0, "group": 0, "contributions": {}, "grades": {}, **fields}
    return RewardResult(reward=reward, status=status, raw_reward=reward, **given)  # type: ignore[arg-type]


def of_pairs(pairs: list[tuple[float, float]]) -> Moments:
    made = Moments()
    for x, y in pairs:
        made.add(x, y)
    return made


def test_the_figures_of_a_step_are_these() -> None:
    counts = Counts(bounds=(0.0, 1.0))
    down = Failed("Down", cause="infrastructure")
    unread = Failed("VerdictError", cause="rollout")
    given: list[tuple[RewardResult, str]] = [
        (counted(1.0, grades={"a": Graded(1.0), "b": Graded(0.5, usage=Usage(1, 10, 4, 2))}, usage=Usage(1, 10, 4, 2)), "xx"),
        (counted(0.0, grades={"a": Graded(0.0), "b": down}), "xxxx"),
        (counted(0.5, grades={"a": Graded(0.5), "b": unread}, policies=("p",)), "xxxxxx"),
        (counted(None, "excluded", grades={"a": Abstained("no"), "b": unread}, group=1), "x"),
        (counted(0.5, "dropped", grades={"a": Skipped("b > 0")}), "xxxxxxxx"),
    ]  # fmt: skip
    rollouts = [Rollout(response=text) for _, text in given]
    for (result, _), rollout in zip(given, rollouts, strict=True):
        counts.add(result, rollout)
    counts.add_group([result for result, _ in given[:3]], rollouts[:3])
    counts.add_group([given[3][0]], rollouts[3:4])
    counts.add_rewards(rollouts[:2], [0.5, 0.5])
    counts.add_rewards(rollouts[:1], [0.5], least=2)
    assert counts.figures("") == pytest.approx(
        {
            "a/mean": 0.5,
            "a/std": math.sqrt(1 / 6),
            "a/count": 3,
            "a/abstain_rate": 0.25,
            "a/failure_rate": 0.0,
            "b/mean": 0.5,
            "b/std": 0.0,
            "b/count": 1,
            "b/abstain_rate": 0.0,
            "b/failure_rate": 0.75,
            "b/failure_rate_infrastructure": 0.25,
            "b/failure_rate_rollout": 0.5,
            "b/unreadable_rate": 0.5,
            "b/unreadable_groups": 2,
            "b/unreadable_in_worst_group": 1,
            "rollouts": 5,
            **{f"{status}_rate": 0.0 for status in get_args(Status)},
            "scored_rate": 0.6,
            "excluded_rate": 0.2,
            "dropped_rate": 0.2,
            "flat_group_rate": 0.5,
            "empty_group_rate": 0.5,
            "reward_mean": 0.5,
            "reward_std": math.sqrt(1 / 6),
            "reward_length_correlation": -0.5,
            "reward_at_low_rate": 1 / 3,
            "reward_at_high_rate": 1 / 3,
            "reward_length_correlation_in_groups": counts.evidence.length.correlation,
            "reward_repetition_correlation": 0.0,
            "reward_formatting_correlation": 0.0,
            "judge_calls": 1,
            "judge_prompt_tokens": 10,
            "judge_cached_tokens": 4,
            "judge_completion_tokens": 2,
        }
    )
    assert counts.evidence.length.correlation == pytest.approx(-1 / math.sqrt(5))
    assert list(counts.warnings()) == [
        "grader 'b' failed on 3 of 4 rollouts (VerdictError × 2, Down × 1)",
        "1 of 5 rewards are missing (1 excluded)",
    ]
    assert counts.line() == "; ".join(["5 rollouts graded", *counts.warnings()])
    assert counts.policies == {"p": 1}


def test_limits_are_these_where_none_are_given() -> None:
    limits = {
        "length": 0.5, "length_overall": 0.8, "repetition": 0.4, "formatting": 0.5, "flat_groups": 0.8,
        "saturation": 0.9, "missing": 0.05, "disagreement": -0.3,
    }  # fmt: skip
    assert {name: getattr(SignalLimits(), name) for name in SignalLimits.__struct_fields__} == limits
    for value in (-1, 1, 0.0):
        assert SignalLimits(length=value).length == value
    for value in (-1.01, 1.01):
        with pytest.raises(ConfigError):
            SignalLimits(length=value)


LIMITS = SignalLimits(flat_groups=0.5, saturation=0.5, missing=0.25, disagreement=-0.5)


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (signals.flat(15, 15, LIMITS), []),
        (signals.flat(8, 16, LIMITS), [("flat_groups", "", 0.5, 0.5, 16, False, "50.0% of 16 groups have equal rewards: they give a group-relative estimator no gradient")]),
        (signals.flat(9, 16, LIMITS), [("flat_groups", "", 0.5625, 0.5, 16, True, "56.2% of 16 groups have equal rewards: they give a group-relative estimator no gradient")]),
        (signals.saturated("highest", 63, 63, LIMITS), []),
        (signals.saturated("highest", 32, 64, LIMITS), [("saturation", "highest", 0.5, 0.5, 64, False, "50.0% of 64 rewards are the highest one: there is nothing left to learn from them")]),
        (signals.saturated("lowest", 48, 64, LIMITS), [("saturation", "lowest", 0.75, 0.5, 64, True, "75.0% of 64 rewards are the lowest one: there is nothing left to learn from them")]),
        (signals.missing("a", 0, 0, "", LIMITS), []),
        (signals.missing("a", 1, 4, "X × 1", LIMITS), [("missing", "a", 0.25, 0.25, 4, False, "a failed on 25.0% of 4 rollouts (X × 1)")]),
        (signals.missing("a", 1, 2, "", LIMITS), [("missing", "a", 0.5, 0.25, 2, True, "a failed on 50.0% of 2 rollouts")]),
        ([signals.correlated("length", of_pairs([(1, 1), (2, 0), (3, 0)]), 0.9)], [("length", "", pytest.approx(-0.8660254), 0.9, 3, False, "reward and length correlate by -0.87 over 3 rollouts")]),
        ([signals.correlated("length", of_pairs([(1, 1), (2, 0), (3, 0)]), 0.5, what="size")], [("length", "", pytest.approx(-0.8660254), 0.5, 3, True, "reward and size correlate by -0.87 over 3 rollouts")]),
        ([signals.correlated("length", of_pairs([(1, 1), (2, 0), (3, 0)]), 0.5, by_amount=False)], [("length", "", pytest.approx(-0.8660254), 0.5, 3, False, "reward and length correlate by -0.87 over 3 rollouts")]),
    ],
)  # fmt: skip
def test_a_signal_is_raised_beyond_its_limit(found: Any, expected: list[Any]) -> None:
    assert [tuple(getattr(one, name) for name in one.__struct_fields__) for one in found] == expected


@pytest.mark.parametrize(
    ("pairs", "correlation", "std"),
    [
        ([], 0.0, math.nan),
        ([(1, 1)], 0.0, 0.0),
        ([(1, 1), (2, 2)], 1.0, 0.5),
        ([(1, 2), (2, 1)], -1.0, 0.5),
        ([(1, 1), (1, 2)], 0.0, 0.5),
        ([(1, 1), (2, 1)], 0.0, 0.0),
        ([(1e9, 1), (1e9 + 1e-6, 2)], 0.0, 0.5),
    ],
)
def test_a_correlation_needs_two_sides_that_vary(pairs: Any, correlation: float, std: float) -> None:
    made = of_pairs(pairs)
    assert made.correlation == pytest.approx(correlation)
    assert made.std_y == pytest.approx(std, nan_ok=True)
    other = of_pairs([])
    other.merge(made)
    other.merge(of_pairs([]))
    assert (other.n, other.mean_x, other.mean_y) == (made.n, made.mean_x, made.mean_y)


@pytest.mark.parametrize(
    ("rewards", "flat"),
    [([1.0, 1.0], True), ([0.0, 0.0], True), ([1.0, 1.0 + 5e-10], True), ([1.0, 1.0 + 2e-9], False), ([-1.0, -1.0 - 5e-10], True), ([-1.0, -1.0 - 2e-9], False), ([-1.0, 1.0], False), ([0.0, 1e-12], False)],
)  # fmt: skip
def test_equal_rewards_are_equal_up_to_rounding(rewards: list[float], flat: bool) -> None:
    assert is_flat(rewards) is flat


@pytest.mark.parametrize(
    ("text", "repeated", "marks"),
    [
        ("", 0.0, 0.0),
        ("a b c d e", 0.0, 0.0),
        ("a b c d e f", 0.0, 0.0),
        ("a a a a a a", 0.5, 0.0),
        ("a a a a a a a", 2 / 3, 0.0),
        ("- a\n* b\n", 0.0, 25.0),
        ("**a**", 0.0, 40.0),
        ("# a\n####### b\n   ## c\n    # d", 0.0, 100 * 2 / 29),
        ("1. a\n2) b\n| c\n```\n-d", 0.0, 100 * 4 / 20),
    ],
)
def test_what_is_easily_inflated_is_measured(text: str, repeated: float, marks: float) -> None:
    assert signals.repetition(text) == pytest.approx(repeated)
    assert signals.formatting(text) == pytest.approx(marks)


def test_a_length_is_in_tokens_where_they_are_known() -> None:
    assert signals.length_of(Rollout(response="abc")) == 3
    assert signals.length_of(Rollout(response="abc", response_tokens=7)) == 7
    assert signals.length_of(Rollout(response="abc", response_tokens=0)) == 3
    assert signals.length_of(Rollout(response="abc", response_tokens=1 << 60)) == 1 << 53


def test_evidence_is_enough_from_64_rollouts_on() -> None:
    evidence = signals.Evidence("size")
    judge = Graded(0.0, usage=Usage())
    for i in range(63):
        evidence.add(
            counted(i / 63, grades={"j": Graded(i / 63, usage=Usage()), "r": Graded(1 - i / 63)}), "x" * i
        )
    evidence.add_group([1.0], [1.0])
    evidence.add_group(list(range(63)), [i / 63 for i in range(63)])
    assert list(evidence.signals(SignalLimits())) == []
    evidence.add(counted(0.5, grades={"j": judge, "r": Graded(1.0), "s": Abstained("no")}), "**x**")
    evidence.add_group([5.0, 5.0], [0.25, 0.25])
    found = {signal.name: signal for signal in evidence.signals(SignalLimits())}
    assert {*found} == {"length", "repetition", "formatting", "disagreement"}
    assert found["length"].text == "reward and size correlate by 1.00 over 65 rollouts"
    assert (found["length"].raised, found["repetition"].raised, found["formatting"].raised) == (
        True,
        False,
        False,
    )
    assert (found["disagreement"].subject, found["disagreement"].raised) == ("j / r", True)
    assert found["disagreement"].text == "j and r correlate by -1.00 over 64 rollouts"
    assert found["disagreement"].count == 64


def test_times_are_told_by_their_share() -> None:
    metrics = Metrics()
    timings = metrics.timings("a")
    assert metrics.timings("a") is timings
    assert all(kept.maxlen == 4096 for kept in timings)
    assert math.isnan(metrics.percentile("a", 0.5))
    assert math.isnan(metrics.starved("a"))
    timings.seconds.extend([3.0, 1.0, 2.0, 4.0])
    timings.waits.extend([0.5, 0.25])
    timings.starved.extend([True, False, False, False])
    assert [metrics.percentile("a", share) for share in (0.0, 0.5, 0.95, 1.0)] == [1.0, 3.0, 4.0, 4.0]
    assert metrics.starved("a") == 0.25
    assert metrics.summary("x/") == {
        "x/a/p50_s": 3.0, "x/a/p95_s": 4.0, "x/a/queue_wait_p95_s": 0.5, "x/a/starved": 0.25,
    }  # fmt: skip
    assert (metrics.begin(3), metrics.begin(2), metrics.begin(1)) == (0, 3, 5)
    metrics.summary(reset=True)
    assert (metrics.begin(1), metrics.summary()) == (0, {})
    assert repr(metrics) == "<Metrics of 0 rollouts>"
    metrics.add(counted(1.0), Rollout(response="x"))
    metrics.add(counted(None, "excluded"), Rollout(response="x"))
    assert repr(metrics) == "<Metrics of 2 rollouts: 1 scored, 1 excluded>"
    assert metrics._repr_html_().count("scored_rate") == 1


# ---- edges


def graded_as(grade: Any) -> RewardResult:
    return counted(0.5, grades={"a": grade})


def test_scores_are_added_up_from_nothing() -> None:
    counts = GraderCounts()
    assert (counts.mean, counts.squares, counts.failed, counts.asked) == (0.0, 0.0, 0, 0)
    assert math.isnan(counts.std)
    for score in (0.25, 0.75):
        counts.add(Graded(score))
    assert (counts.graded, counts.mean, counts.squares, counts.std) == (2, 0.5, 0.125, 0.25)
    counts.merge(GraderCounts())
    assert (counts.graded, counts.mean, counts.squares) == (2, 0.5, 0.125)
    counts.add(Failed("X"))
    counts.add(Abstained("no"))
    counts.add(Skipped("a > 0"))
    assert (counts.asked, counts.failed, counts.abstained, counts.skipped) == (4, 1, 1, 1)


def test_counts_of_graders_are_merged_figure_by_figure() -> None:
    one, other = GraderCounts(), GraderCounts()
    for counts, grades in (
        (one, [Graded(0.0), Failed("X", cause="infrastructure"), Failed("VerdictError", cause="rollout")]),
        (
            other,
            [Graded(1.0), Graded(0.5), Abstained("no"), Skipped("g"), Failed("X", cause="infrastructure")],
        ),
    ):
        for group, grade in enumerate(grades):
            counts.add(grade, group)
    one.merge(other)
    assert (one.graded, one.abstained, one.skipped, one.failed, one.infrastructure) == (3, 1, 1, 3, 2)
    assert (one.mean, one.squares) == pytest.approx((0.5, 0.5))
    assert one.errors == {"X": 2, "VerdictError": 1}
    assert one.unreadable == {2: 1}
    assert one.top_errors() == "X × 2, VerdictError × 1"
    for name in ("Y", "Y", "Y", "Z"):
        one.add(Failed(name))
    assert one.top_errors() == "Y × 3, X × 2, VerdictError × 1"


@pytest.mark.parametrize(
    ("bounds", "rewards", "low", "high"),
    [
        ((0.0, 1.0), [0.0, 1.0, 0.5, -0.5, 1.5], 2, 2),
        ((0.0, 1.0), [1e-15, 1 - 1e-10, 1 - 1e-8], 0, 1),
        ((-1.0, 2.0), [-1 + 1e-10, -1 + 1e-8, 2 - 1e-10, 2 - 1e-8], 1, 1),
        ((-2.0, -1.0), [-2 + 1e-10, -1 - 1e-10, -1.5], 1, 1),
        ((1.0, 1.0), [1.0], 1, 0),
        ((-math.inf, math.inf), [1e300, -1e300], 0, 0),
    ],
)
def test_rewards_at_the_bounds_are_counted(
    bounds: tuple[float, float], rewards: list[float], low: int, high: int
) -> None:
    counts = Counts(bounds=bounds)
    for reward in rewards:
        counts.add(counted(reward))
    assert (counts.at_low, counts.at_high, counts.rewards.n) == (low, high, len(rewards))
    assert ("reward_at_low_rate" in counts.figures("")) is (bounds[0] > -math.inf)


def test_every_32nd_text_after_the_first_64_is_analysed() -> None:
    for first, number, analysed in (
        (0, None, True), (63, None, True), (64, None, True), (65, None, False), (95, None, False), (96, None, True),
        (0, 63, True), (0, 65, False), (0, 128, True), (0, 129, False),
    ):  # fmt: skip
        counts = Counts(first=first)
        counts.add(counted(0.5), Rollout(response="x"), number)
        assert counts.evidence.repetition.n == int(analysed), (first, number)
    counts = Counts(first=64)
    for _ in range(33):
        counts.add(counted(0.5), Rollout(response="x"))
    assert counts.evidence.repetition.n == 2  # numbers 64 and 96
    counts.add(counted(0.5))
    assert (counts.evidence.repetition.n, counts.rewards.n) == (2, 34)


def test_a_reward_that_is_dropped_or_missing_is_in_no_mean() -> None:
    counts = Counts(bounds=(0.0, 1.0))
    counts.add(counted(1.0, "dropped"))
    counts.add(counted(None, "masked"))
    counts.add(counted(0.0), Rollout(response="xyz"))
    assert (counts.rewards.n, counts.at_low, counts.at_high) == (1, 1, 0)
    assert (counts.rewards.mean_x, counts.rewards.mean_y) == (3.0, 0.0)
    assert (counts.rollouts, counts.missing) == (3, 1)


def test_groups_are_counted_by_their_valid_members() -> None:
    counts = Counts()
    rollouts = [Rollout(response="x" * n) for n in (1, 2, 3)]
    for rewards, least in (([], 1), ([0.5], 1), ([0.5], 2), ([0.5, 0.5], 2), ([0.5, 0.5, 1.0], 4)):
        counts.add_rewards(rollouts[: len(rewards)], rewards, least=least)
    assert (counts.groups, counts.compared_groups, counts.flat_groups, counts.empty_groups) == (5, 2, 1, 3)
    counts.add_rewards([], [])
    assert counts.empty_groups == 4
    other = Counts()
    other.merge(counts)
    other.merge(counts)
    assert (other.groups, other.compared_groups, other.flat_groups, other.empty_groups) == (12, 4, 2, 8)


def test_merging_passes_limits_and_bounds_on() -> None:
    lax, strict = SignalLimits(length=1.0), SignalLimits(length=0.1)
    one, other = Counts(), Counts(lax, (0.0, 1.0))
    one.merge(other)
    assert (one.limits, one.low, one.high) == (lax, other.low, other.high)
    one.merge(Counts(strict, (-1.0, 2.0)))
    assert (one.limits, one.low, one.high) == (lax, other.low, other.high)


def test_what_is_unusual_is_a_missing_reward_a_failure_or_a_raised_signal() -> None:
    plain = Counts()
    plain.add(graded_as(Graded(0.5)))
    assert not plain.unusual
    assert plain.line() == "1 rollouts graded"
    missing = Counts()
    missing.add(counted(None, "neutral"))
    failed = Counts()
    failed.add(graded_as(Failed("X")))
    flat = Counts()
    for _ in range(16):
        flat.add_rewards([Rollout(response="x")] * 2, [1.0, 1.0])
    assert [counts.unusual for counts in (missing, failed, flat)] == [True, True, True]
    assert list(failed.trouble()) == ["grader 'a' failed on 1 of 1 rollouts (X × 1)"]
    assert list(missing.trouble()) == ["1 of 1 rewards are missing (1 neutral)"]
    assert list(flat.warnings()) == [
        "signals: 100.0% of 16 groups have equal rewards: they give a group-relative estimator no gradient"
    ]


def test_length_over_all_rollouts_is_for_those_that_come_one_by_one() -> None:
    def names(counts: Counts) -> list[str]:
        return [signal.name for signal in counts.signals()]

    counts = Counts()
    for i in range(63):
        counts.add(counted(i / 64), Rollout(response="x" * i))
    assert "length_overall" not in names(counts)
    counts.add(counted(1.0), Rollout(response="x" * 64))
    found = next(signal for signal in counts.signals() if signal.name == "length_overall")
    assert (found.count, found.limit, found.raised) == (64, 0.8, True)
    assert found.text == "reward and length correlate by 1.00 over 64 rollouts"
    same = Counts()
    for i in range(64):
        same.add(counted(i / 64), Rollout(response="x"))
    assert "length_overall" not in names(same)
    counts.add_rewards([Rollout(response="x" * i) for i in range(64)], [i / 64 for i in range(64)])
    assert "length_overall" not in names(counts)
    assert "length" in names(counts)


def test_saturation_is_told_where_the_bounds_are_known() -> None:
    for bounds, told in (((0.0, 1.0), ["highest", "lowest"]), ((-math.inf, math.inf), [])):
        counts = Counts(bounds=bounds)
        for i in range(64):
            counts.add(counted(float(i < 60)))
        found = [signal for signal in counts.signals() if signal.name == "saturation"]
        assert [signal.subject for signal in found] == told
        assert [signal.value for signal in found] == ([60 / 64, 4 / 64] if told else [])
        assert ("signals_raised" in counts.figures("")) is True
        assert counts.figures("")["signals_raised"] == len(told) / 2


@pytest.mark.parametrize(
    ("failures", "others", "allowed", "so_far", "says"),
    [
        (4, 16, 0.2, False, ""),
        (5, 15, 0.2, False, "a 25.0 % (X × 5)"),
        (1, 0, 0.5, False, ""),
        (2, 0, 0.5, False, "a 100.0 % (X × 2)"),
        (2, 0, 0.5, True, ""),
        (2, 1, 0.5, False, ""),
        (9, 0, 0.5, True, "a 100.0 % (X × 9)"),
    ],
)
def test_failures_beyond_the_share_are_told(
    failures: int, others: int, allowed: float, so_far: bool, says: str
) -> None:
    counts = Counts()
    for _ in range(failures):
        counts.add(graded_as(Failed("X", cause="infrastructure")))
    for _ in range(others):
        counts.add(graded_as(Graded(0.5)))
    assert counts.excess_failures(allowed, so_far=so_far) == says


def test_names_beyond_so_many_are_counted_together() -> None:
    counts = GraderCounts()
    for i in range(9_999):
        counts.add(Failed(str(i)))
    counts.add(Failed("the last"))
    counts.add(Failed("one more"))
    counts.add(Failed("the last"))
    assert (counts.errors["the last"], counts.errors["(others)"], counts.failed) == (2, 1, 10_002)
    assert "one more" not in counts.errors


@pytest.mark.parametrize(
    ("rollouts", "after", "now", "logged"),
    [(63, 9.99, False, False), (64, 9.99, False, True), (63, 10.0, False, True), (1, 0.0, True, True)],
)
def test_small_runs_are_told_together_every_ten_seconds(
    rollouts: int,
    after: float,
    now: bool,
    logged: bool,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = 1000.0
    monkeypatch.setattr("judgekit.metrics.metrics.time.monotonic", lambda: clock)
    metrics = Metrics()
    metrics.tell(1)
    metrics.add(counted(None, "excluded"), Rollout(response="x"))
    clock += after
    metrics.tell(rollouts, now=now)
    assert caplog.messages == (["1 of 1 rewards are missing (1 excluded)"] if logged else [])
    metrics.tell(64)
    assert caplog.messages == ["1 of 1 rewards are missing (1 excluded)"]  # and not again
    assert metrics.counts.rollouts == 1


def test_limits_are_seen_and_the_counts_are_shared() -> None:
    limits = SignalLimits(length=0.1)
    metrics = Metrics((0.0, 1.0), limits)
    assert metrics.with_limits(limits) is metrics
    other = metrics.with_limits(SignalLimits(length=0.2))
    other.add(counted(0.0), Rollout(response="x"))
    assert (metrics.limits, metrics.counts.rollouts, metrics.counts.at_low) == (limits, 1, 1)
    assert other.counts.limits == SignalLimits(length=0.2)
    assert metrics.counts.limits is limits


def test_only_a_reset_begins_anew() -> None:
    metrics = Metrics((0.0, 1.0))
    metrics.add(counted(1.0), Rollout(response="x"))
    metrics.add_rewards([Rollout(response="x")], [1.0], least=2)
    metrics.timings("a").seconds.append(1.0)
    for _ in range(2):
        summary = metrics.summary("")
        assert (summary["rollouts"], summary["empty_group_rate"], summary["a/p50_s"]) == (1, 1.0, 1.0)
    assert metrics.summary(reset=True)["judgekit/reward_at_high_rate"] == 1.0
    assert (metrics.summary(), list(metrics.timings("a").seconds)) == ({}, [])


def test_disagreements_are_of_judges_and_rules_whose_scores_vary() -> None:
    evidence = signals.Evidence()
    for i in range(4):
        grades = {
            "judge": Graded(i / 4, usage=Usage()), "other": Graded(i / 4, usage=Usage()), "rule": Graded(i / 4), "flat": Graded(1.0),
        }  # fmt: skip
        evidence.add(counted(0.5, grades=grades), "x")
    assert [(judge, rule, moments.n) for judge, rule, moments in evidence.disagreements()] == [
        ("judge", "rule", 4),
        ("other", "rule", 4),
    ]
    assert evidence.judges == {"judge", "other"}
    merged = signals.Evidence()
    merged.merge(evidence)
    merged.merge(evidence)
    assert [moments.n for _, _, moments in merged.disagreements()] == [8, 8]
    assert merged.judges == {"judge", "other"}
    late = signals.Evidence()
    late.add(counted(0.5, grades={"judge": Graded(0.0), "rule": Graded(0.0)}), "x")
    late.add(counted(None, "masked", grades={"judge": Graded(1.0, usage=Usage())}), "x")
    assert (late.repetition.n, late.formatting.n) == (1, 1)
    late.pairs["judge", "rule"] = evidence.pairs["judge", "rule"]
    late.pairs["rule", "judge"] = evidence.pairs["judge", "rule"]
    assert [(judge, rule) for judge, rule, _ in late.disagreements()] == [("judge", "rule")]


def test_moments_are_these() -> None:
    made = of_pairs([(1, 2), (3, 6), (5, 4)])
    assert (made.n, made.mean_x, made.mean_y, made.xx, made.yy, made.xy) == pytest.approx((3, 3, 4, 8, 8, 4))
    other = of_pairs([(7, 0), (9, 8)])
    made.merge(other)
    whole = of_pairs([(1, 2), (3, 6), (5, 4), (7, 0), (9, 8)])
    for name in Moments.__slots__:
        assert getattr(made, name) == pytest.approx(getattr(whole, name))


def test_rollouts_are_numbered_from_0() -> None:
    counts = Counts()
    for _ in range(65):
        counts.add(counted(0.5), Rollout(response="x"))
    assert counts.evidence.repetition.n == 65  # the last one is number 64
