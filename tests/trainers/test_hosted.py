"""What the trainers' adapters share: the runner that a launch names, fit for a trainer."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec
import pytest

from judgekit import (
    ConfigError,
    Failed,
    FailureRateError,
    Gate,
    GradingRunner,
    Rollout,
    Score,
    Weighted,
    grader,
    group_grader,
)
from judgekit.reward.nodes import Turns
from judgekit.trainers import (
    Counts,
    HostedRunner,
    RewardConfig,
    check_failure_rate,
    hosted_runner,
    share_limits,
)
from judgekit.trainers.hosted import DEADLINE_S, without_fill
from judgekit.trainers.versions import host_version

HINT = "turn on the group hook"


@grader
def one(response: str) -> float:
    return 1.0


@group_grader
def together(rollouts: Sequence[Rollout]) -> list[float]:
    return [1.0] * len(rollouts)


@grader(per="turn")
def stepwise(turn: str) -> float:
    return 1.0


def hosted(runner: Any = None, **options: Any) -> Any:
    given = {"grouped": True, "can_mask": True, "grouping_hint": HINT, **options}
    return hosted_runner(runner=runner, **given)


def test_a_runner_that_is_named_twice_says_the_same_twice() -> None:
    """As where an environment is registered again: mask and the failure rate are not lost the second time."""
    runner = GradingRunner([one], missing_reward="mask", max_failure_rate=0.2)
    for _ in range(2):
        made = hosted(runner)
        assert (made.mask, made.max_failure_rate) == (True, 0.2)
        assert (made.runner.settings.missing_reward, made.runner.settings.max_failure_rate) == ("mask", None)
        assert made.runner.metrics is runner.metrics
    settings = runner.settings
    assert (settings.missing_reward, settings.max_failure_rate, settings.deadline_s) == ("mask", 0.2, None)


@pytest.mark.parametrize(
    ("setting", "can_exclude", "hosts", "mask"),
    [
        ("mask", False, "mask", True),
        ("exclude", True, "exclude", True),
        ("exclude", False, "neutral", False),
        ("neutral", True, "neutral", False),
        ("raise", True, "raise", False),
        (-1.0, True, -1.0, False),
    ],
)
def test_a_missing_reward_is_what_the_trainer_makes_of_it(
    setting: Any, can_exclude: bool, hosts: Any, mask: bool
) -> None:
    made = hosted(GradingRunner([one], missing_reward=setting), can_exclude=can_exclude)
    assert (made.runner.settings.missing_reward, made.mask) == (hosts, mask)
    assert made.runner.spec.missing_reward == hosts  # the ledger says what was done, not what was written


@grader
def number(response: str) -> float:
    if response == "down":
        raise ConnectionError("down")
    return float(response)


def graded(*responses: str, **settings: Any) -> tuple[Any, Any]:
    made = hosted(GradingRunner([number], **settings), can_exclude=True)
    return made, made.runner.run_sync([Rollout(response=text, group=0) for text in responses])


@pytest.mark.parametrize("setting", ["exclude", "mask"])
def test_a_number_is_invented_for_the_tensor_alone(setting: Any) -> None:
    made, results = graded("0.2", "down", "0.6", missing_reward=setting)
    status = {"exclude": "excluded", "mask": "masked"}[setting]
    assert [result.status for result in results] == ["scored", status, "scored"]
    assert results[1].reward is None
    assert made.numbers(results) == pytest.approx([0.2, 0.4, 0.6])
    counts = Counts()
    for result in results:
        counts.add(result)
    assert counts.figures()["judgekit/reward_mean"] == pytest.approx(0.4)
    assert counts.figures()[f"judgekit/{status}_rate"] == pytest.approx(1 / 3)
    assert f"1 of 3 rewards are missing (1 {status})" in counts.line()


def test_the_fill_of_a_flat_group_is_exactly_its_members_reward() -> None:
    """A filter that looks for groups whose rewards are all equal must find it."""
    for value in (0.1, 0.7, 1 / 3):
        made, results = graded(*["down"] * 5, *[str(value)] * 3)
        assert made.numbers(results) == [value] * 8


def test_a_group_without_a_reward_has_one_number_for_all() -> None:
    made, results = graded("down", "down")
    assert made.numbers(results) == [0.0, 0.0]
    made.runner.run_sync([Rollout(response=text, group=0) for text in ("0.2", "0.6")])
    assert made.numbers(results) == pytest.approx([0.4, 0.4])  # of what was graded so far


@pytest.mark.parametrize(("transform", "fill"), [("zscore", 0.0), ("rank", 0.5)])
def test_relative_rewards_have_their_neutral_value(transform: Any, fill: float) -> None:
    made, results = graded("0.2", "down", "0.6", transform=transform)
    assert made.numbers(results)[1] == fill
    made, lone = graded("0.2", "down", transform=transform)  # one member has no rank and no deviation
    assert [result.status for result in lone] == ["excluded"] * 2
    assert made.numbers(lone) == [fill, fill]


def test_a_dropped_group_has_the_mean_of_what_it_earned() -> None:
    made, results = graded("0.6", "0.6", "down", drop_if="flat(reward)")
    assert [result.status for result in results] == ["dropped", "dropped", "excluded"]
    assert made.numbers(results) == [0.6] * 3


def test_turns_under_a_transform_are_a_trajectorys_where_the_trainer_does_not_place_them() -> None:
    runner = GradingRunner([stepwise], Turns("stepwise"), transform="rank", missing_reward=0.0)
    assert hosted(runner, places=False).runner.settings.transform == "rank"


def test_a_deadline_is_given_where_none_is_written() -> None:
    assert hosted(GradingRunner([one])).runner.settings.deadline_s == DEADLINE_S
    assert hosted(GradingRunner([one], deadline_s=5)).runner.settings.deadline_s == 5


async def test_all_runs_share_the_places_of_a_hosted_runner() -> None:
    import asyncio

    active = peak = 0

    @grader
    async def judge(response: str) -> float:
        nonlocal active, peak
        active += 1
        peak = max(peak, active)
        await asyncio.sleep(0)
        active -= 1
        return 1.0

    runner = hosted(GradingRunner([judge], max_concurrency=3)).runner
    assert runner.settings.missing_reward == "neutral"  # this host cannot exclude
    async with asyncio.TaskGroup() as tasks:
        for i in range(20):
            tasks.create_task(runner.run([Rollout(response="", group=i)]))
    assert peak == 3


@pytest.mark.parametrize(
    ("runner", "options", "says"),
    [
        (GradingRunner([one], missing_reward="mask"), {"can_mask": False}, "write missing_reward: neutral"),
        (
            GradingRunner([one], missing_reward="mask"),
            {"can_mask": False, "can_exclude": True},
            "write missing_reward: exclude",
        ),
        (GradingRunner([one], missing_reward="mask"), {"grouped": False}, f"loss masking.*{HINT}.*<number>"),
        (GradingRunner([together], missing_reward=0.0), {"grouped": False}, f"'together' grades.*: {HINT}"),
        (
            GradingRunner([one], transform="rank", missing_reward=0.0),
            {"grouped": False},
            f"transform: rank needs.*: {HINT}",
        ),
        (
            GradingRunner([one], Gate("spread(one) > 0", 1.0, 0.0), missing_reward=0.0),
            {"grouped": False},
            rf"spread\(one\) looks at the rollouts.*: {HINT}",
        ),
        (
            GradingRunner([stepwise], Turns("stepwise"), transform="rank", missing_reward=0.0),
            {"places": True},
            "transform: rank changes the rewards of whole trajectories",
        ),
        (GradingRunner([one], missing_reward="neutral"), {"grouped": False}, f"neutral .*{HINT}.*<number>"),
        (GradingRunner([one], missing_reward="exclude"), {"grouped": False}, f"exclude .*{HINT}.*<number>"),
    ],
)
def test_what_a_trainer_cannot_do_is_said_with_what_to_write(
    runner: GradingRunner, options: dict[str, Any], says: str
) -> None:
    with pytest.raises(ConfigError, match=says):
        hosted(runner, **options)


@pytest.mark.parametrize("name", ["masked", "missing", "raw"])
def test_a_grader_with_the_name_of_an_adapter_s_figure_is_refused(name: str) -> None:
    """Its scores would be taken for that figure: for whether the reward is missing, say."""
    with pytest.raises(ConfigError, match=f"graders: '{name}' is .*choose another name"):
        hosted(GradingRunner({"one": one, name: one}, {"one": 1.0, name: 1.0}))


@pytest.mark.parametrize("setting", ["raise", 0.25])
def test_rollouts_that_come_alone_are_graded_alone(setting: Any) -> None:
    made = hosted(GradingRunner([one], missing_reward=setting), grouped=False, can_mask=False)
    assert made.runner.run_sync([Rollout(response="")])[0].reward == 1.0


# ---- where the trainer weights the terms


def of_terms(reward: Any, **settings: Any) -> HostedRunner:
    @grader
    def kind(response: str) -> float:
        if response == "down":
            raise ConnectionError("down")
        return 1.0 - float(response)

    made: HostedRunner = hosted(GradingRunner([number, kind], reward, **settings), can_exclude=True)
    return made


def graded_terms(made: HostedRunner, *responses: str) -> list[Any]:
    return list(made.runner.run_sync([Rollout(response=text, group=0) for text in responses]))


def weighted(*, normalize: bool = True, kind: Any = None, **weights: Any) -> Weighted:
    weights = weights or {"number": 3.0, "kind": -1.0}
    return Weighted(weights if kind is None else {**weights, "kind": kind}, normalize=normalize)


@pytest.mark.parametrize(("normalize", "weights"), [(True, (0.75, -0.25)), (False, (3.0, -1.0))])
def test_a_trainer_that_weights_terms_gets_their_values_and_weights(normalize: bool, weights: Any) -> None:
    made = of_terms(weighted(normalize=normalize))
    assert made.weights() == dict(zip(("number", "kind"), weights, strict=True))
    results = graded_terms(made, "0.2", "0.6")
    assert [made.terms(result) for result in results] == [
        {"number": pytest.approx(0.2), "kind": pytest.approx(0.8)},
        {"number": pytest.approx(0.6), "kind": pytest.approx(0.4)},
    ]
    numbers = made.term_numbers(results)
    assert numbers["number"] == pytest.approx([weights[0] * 0.2, weights[0] * 0.6])
    assert numbers["kind"] == pytest.approx([weights[1] * 0.8, weights[1] * 0.4])
    for at, result in enumerate(results):
        assert sum(column[at] for column in numbers.values()) == pytest.approx(result.reward)


def test_a_term_without_a_weight_is_none() -> None:
    assert of_terms(weighted(number=2.0, kind=0.0)).weights() == {"number": 1.0}


@pytest.mark.parametrize("setting", ["exclude", "neutral"])
def test_a_missing_term_is_the_mean_of_its_siblings(setting: Any) -> None:
    made = of_terms(weighted(number=1.0, kind=1.0), missing_reward=setting)
    results = graded_terms(made, "0.2", "down", "0.6")
    numbers = made.term_numbers(results)
    assert numbers["number"] == pytest.approx([0.1, 0.2, 0.3])
    assert numbers["kind"] == pytest.approx([0.4, 0.3, 0.2])
    assert made.term_numbers(graded_terms(made, "down", "down")) == {"number": [0.0, 0.0], "kind": [0.0, 0.0]}
    if setting == "exclude":
        assert made.terms(results[1]) == {}


@pytest.mark.parametrize(
    ("reward", "settings", "says"),
    [
        (Gate("number >= 0", Score("kind"), 0.0), {}, "the top of the reward is a weighted of them"),
        (weighted(kind=[[0, 1.0], [10, 0.5]]), {}, "some of these move with the step"),
        (
            weighted(),
            {"transform": "center"},
            "transform: center is one of whole rewards.*write transform: none",
        ),
        (
            weighted(),
            {"missing_reward": 0.5},
            "missing_reward: 0.5 says nothing of terms.*write exclude or raise",
        ),
        (weighted(), {"missing_reward": "mask"}, "missing_reward: mask says nothing of terms"),
        (weighted(), {"missing_reward": "neutral"}, "missing_reward: neutral says nothing of terms"),
    ],
)
def test_what_only_a_whole_reward_can_do_is_refused_of_terms(reward: Any, settings: Any, says: str) -> None:
    made = of_terms(reward, **settings)
    with pytest.raises(ConfigError, match=says):
        made.weights()
    if settings.get("missing_reward") == "neutral":  # a number where the trainer needs one
        assert set(made.weights(fills=True)) == {"number", "kind"}
    else:
        with pytest.raises(ConfigError, match=says):
            made.term_numbers([])


def test_a_reward_without_terms_has_none() -> None:
    made = of_terms(Gate("number >= 0", Score("kind"), 0.0))
    assert made.terms(graded_terms(made, "0.2")[0]) == {}


@pytest.mark.parametrize("setting", ["exclude", "raise"])
def test_a_missing_reward_that_says_nothing_of_terms_is_no_obstacle(setting: Any) -> None:
    assert of_terms(weighted(), missing_reward=setting).weights() == {"number": 0.75, "kind": -0.25}


# ---- groups that are left out


@pytest.mark.parametrize(
    ("setting", "options", "says"),
    [
        ("exclude", {"can_exclude": True}, None),
        ("mask", {"can_exclude": True}, "write missing_reward: exclude, not mask"),
        (0.0, {"grouped": False}, "write missing_reward: exclude, not 0.0"),
        ("exclude", {}, "this trainer cannot leave one out: take it out"),
        (
            "exclude",
            {"grouped": False, "can_exclude": True},
            f"this trainer hands over rollouts one at a time: {HINT}",
        ),
    ],
)
def test_groups_are_dropped_where_the_trainer_can_leave_them_out(
    setting: Any, options: dict[str, Any], says: str | None
) -> None:
    runner = GradingRunner([one], missing_reward=setting, drop_if="flat(reward)")
    if says is None:
        assert hosted(runner, **options).runner.settings.drop_if is not None
        return
    with pytest.raises(ConfigError, match=f"drop_if leaves whole groups out of the training; {says}"):
        hosted(runner, **options)


@pytest.mark.parametrize(("setting", "fill"), [("neutral", 0.5), (0.25, 0.25)])
def test_a_number_that_is_there_is_nobody_s_fill(setting: Any, fill: float) -> None:
    made, results = graded("0.25", "down", "0.75", missing_reward=setting)
    assert made.numbers(results) == [0.25, fill, 0.75]


def test_the_mean_of_what_a_dropped_group_earned_is_that_of_its_raw_rewards() -> None:
    made, results = graded("0.2", "0.6", drop_if="spread(reward) < 5", missing_reward="exclude")
    assert [result.status for result in results] == ["dropped"] * 2
    assert made.numbers(results) == pytest.approx([0.4, 0.4])


def test_a_grader_of_groups_that_can_grade_one_alone_is_welcome_there() -> None:
    class Either:
        name, version, score_range, grades_alone = "either", "1", (0.0, 1.0), True

        def grade_group(self, rollouts: Sequence[Rollout]) -> list[float]:
            return [1.0] * len(rollouts)

    runner = GradingRunner([Either()], missing_reward=0.0)  # type: ignore[list-item]
    assert hosted(runner, grouped=False).runner.run_sync([Rollout(response="")])[0].reward == 1.0


def test_a_trainer_that_masks_says_whether_it_excludes() -> None:
    for setting, can_exclude, mask, exclude in (
        ("exclude", True, True, True), ("mask", True, True, False), ("neutral", True, False, False),
        ("exclude", False, False, False),
    ):  # fmt: skip
        made = hosted(GradingRunner([one], missing_reward=setting), can_exclude=can_exclude)
        assert (made.mask, made.exclude, made.config) == (mask, exclude, None)


def test_rollouts_that_come_alone_may_be_excluded_where_the_trainer_can() -> None:
    made = hosted(GradingRunner([one], missing_reward="exclude"), grouped=False, can_exclude=True)
    assert (made.runner.settings.missing_reward, made.exclude) == ("exclude", True)
    with pytest.raises(ConfigError, match="mask needs loss masking"):
        hosted(GradingRunner([one], missing_reward="mask"), can_mask=True, grouped=False)


def test_turns_are_placed_without_a_transform_and_by_default_not_at_all() -> None:
    plain_turns = GradingRunner([stepwise], Turns("stepwise"), missing_reward=0.0)
    assert hosted(plain_turns, places=True).runner.settings.transform == "none"
    ranked = GradingRunner([stepwise], Turns("stepwise"), transform="rank", missing_reward=0.0)
    assert hosted(ranked).runner.settings.transform == "rank"
    no_turns = GradingRunner([one], transform="rank", missing_reward=0.0)
    assert hosted(no_turns, places=True).runner.settings.transform == "rank"


# ---- by name and by file


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    made = ModuleType("my_rewards")
    made.runner = GradingRunner([one])  # type: ignore[attr-defined]
    made.make = lambda: made.runner  # type: ignore[attr-defined]
    made.number = 7  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "my_rewards", made)
    return made


def test_a_runner_is_found_by_its_name_or_made_by_a_function(module: ModuleType) -> None:
    for name in ("my_rewards:runner", "my_rewards:make"):
        assert hosted(name).runner.metrics is module.runner.metrics


@pytest.mark.parametrize(
    ("target", "says"),
    [
        ("my_rewards", "package.module:name, not 'my_rewards'"),
        ("my_rewards:other", "cannot import my_rewards:other"),
        ("no_such_module_here:x", "cannot import no_such_module_here:x"),
        ("my_rewards:number", "my_rewards:number is int, not a GradingRunner"),
    ],
)
def test_a_name_that_leads_nowhere_is_said(target: str, says: str, module: ModuleType) -> None:
    with pytest.raises(ConfigError, match=re.escape(says)):
        hosted(target)


def test_one_way_to_say_it_is_needed() -> None:
    for given in ({}, {"runner": GradingRunner([one]), "config": "reward.yaml"}):
        with pytest.raises(ConfigError, match="one of a reward.yaml and a GradingRunner"):
            hosted_runner(grouped=True, can_mask=True, grouping_hint="", **given)  # type: ignore[arg-type]


def test_a_file_is_prepared_by_the_adapter_and_its_faults_name_it(tmp_path: Path) -> None:
    path = tmp_path / "reward.yaml"
    path.write_text(
        "graders: {brief: {use: length, soft_max: 3, hard_max: 5}}\nrunner: {max_failure_rate: 0.5}\n"
    )
    seen: list[RewardConfig] = []
    made = hosted(config=path, prepare=seen.append)
    assert [type(c) for c in seen] == [RewardConfig]
    assert (made.max_failure_rate, made.config) == (0.5, str(path))
    assert made.runner.run_sync([Rollout(response="abc")])[0].reward == 1.0

    def refuse(config: RewardConfig) -> None:
        raise ConfigError("no judges here")

    with pytest.raises(ConfigError, match=r"reward\.yaml: no judges here"):
        hosted(config=path, prepare=refuse)


def test_failures_are_checked_over_a_whole_step() -> None:
    down = grader(name="down")(lambda response: Failed("Down"))
    counts = Counts()
    for result in GradingRunner([down]).run_sync([Rollout(response="", group=i) for i in range(20)]):
        counts.add(result)
    check_failure_rate(counts, None)
    with pytest.raises(FailureRateError, match=r"max_failure_rate=0.99 allows: down 100.0 % \(Down × 20\)"):
        check_failure_rate(counts, 0.99)
    check_failure_rate(Counts(), 0.0)


def test_the_judges_limits_are_divided_by_the_processes() -> None:
    judge = {"engine": "openai", "layers": {"max_concurrency": 100, "requests_per_minute": 8.0}}
    share_limits(judge, 8)
    assert judge["layers"] == {"max_concurrency": 13, "requests_per_minute": 1.0}
    bare: list[dict[str, Any]] = [{"engine": "openai"}, {"layers": None}, {"layers": {"timeout_s": 3}}]
    for one_judge in bare:
        before = dict(one_judge)
        share_limits(one_judge, 8)
        assert one_judge == before


def test_a_fill_is_taken_from_a_rollout_that_is_alone() -> None:
    @grader
    def down(response: str) -> float:
        if response == "bad":
            raise ConnectionError("down")
        return 0.7

    runner = GradingRunner({"down": down}, missing_reward="neutral")
    good, bad = runner.run_sync([Rollout(response=text, group=0) for text in ("good", "bad")])
    assert (bad.status, bad.reward) == ("neutral", 0.7)
    assert without_fill(good) is good
    assert (without_fill(bad).status, without_fill(bad).reward) == ("masked", None)
    dropped = msgspec.structs.replace(good, status="dropped")
    assert (without_fill(dropped).status, without_fill(dropped).reward) == ("masked", None)


def test_the_oldest_version_is_taken() -> None:
    import msgspec

    words = {"adapter": "judgekit-x", "name": "X", "lacks": "has no hook"}
    found = tuple(map(int, re.findall(r"[0-9]+", msgspec.__version__)[:2]))
    assert host_version("msgspec", found, **words) == found
    assert host_version("msgspec", (0, 1, 0, 0, 0, 0), **words)[-1] == 0
    with pytest.raises(ConfigError, match="has no hook; judgekit-x needs 999.0 or later"):
        host_version("msgspec", (999, 0), **words)
    with pytest.raises(ConfigError, match=f"X {msgspec.__version__} has no hook"):
        host_version("msgspec", (*found[:1], found[1] + 1), **words)
    with pytest.raises(ConfigError, match="X is not installed here: pip install no-such-package"):
        host_version("no-such-package", (1,), **words)
