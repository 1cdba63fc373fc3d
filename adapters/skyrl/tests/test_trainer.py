"""A rollout without a reward changes nothing for the others, and gets nothing itself."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from advantages import errors, recorded
from envs_for_tests import flaky
from judgekit import GradingRunner, JudgeUnavailable, Ledger, Rollout, grader, read_ledger
from judgekit_skyrl import make_generator, register
from judgekit_skyrl.generator import EXCLUDED
from stand_ins import ScriptedPolicy, generator, input_of
from toy_training import train
from under_test import TRAIN, VERSION

pytestmark = pytest.mark.skipif(VERSION < "0.3", reason="other tests say what there is before")


@pytest.mark.parametrize("fully_async", [False, True], ids=["sync", "fully_async"])
@pytest.mark.parametrize("step_wise", [False, True], ids=["whole", "step_wise"])
def test_siblings_advantages_do_not_move(step_wise: bool, fully_async: bool) -> None:
    if TRAIN and step_wise and fully_async:
        pytest.skip("skyrl_train's own conversion fails on steps")
    for missing in ([0, 1, 4, 7], [8, 2, 6], [7, 8], [3, 5]):
        error, nonzero = errors("grpo", missing, 0, step_wise=step_wise, fully_async=fully_async)
        assert error <= 1e-6
        assert nonzero == 0


@pytest.mark.parametrize("fully_async", [False, True], ids=["sync", "fully_async"])
@pytest.mark.parametrize("step_wise", [False, True], ids=["whole", "step_wise"])
def test_what_is_recorded_is_what_was_done(step_wise: bool, fully_async: bool) -> None:
    """By ledger, by figures, and by the curves, judgekit's and SkyRL's."""
    if TRAIN and step_wise and fully_async:
        pytest.skip("skyrl_train's own conversion fails on steps")
    for missing in ([0, 1, 4, 7], [8, 2, 6], [7, 8], [8, 8], [0, 0]):
        wrong, curves = recorded("grpo", missing, 0, step_wise=step_wise, fully_async=fully_async)
        assert wrong == 0
        assert curves <= 1e-6


@pytest.mark.parametrize("estimator", ["rloo", *([] if TRAIN else ["maxrl"]), "reinforce++", "gae"])
@pytest.mark.parametrize("kl", [False, True])
def test_other_estimators(estimator: str, kl: bool) -> None:
    for missing in ([0, 3, 7, 8], [1, 2, 4, 5, 6]):
        error, nonzero = errors(estimator, missing, 1, **{"trainer.algorithm.use_kl_in_reward": kl})
        assert error <= 1e-6
        assert nonzero == 0


@pytest.mark.parametrize(
    "more",
    [
        {"trainer.algorithm.advantage_batch_normalize": True},
        {"trainer.algorithm.loss_reduction": "sequence_mean"},
        {"trainer.algorithm.loss_reduction": "seq_mean_token_sum_norm"},
        {"trainer.algorithm.loss_reduction": "prompt_mean"},
    ],
    ids=lambda more: next(iter(more.values())),
)
def test_nor_do_the_counts_that_the_loss_is_divided_by(more: dict[str, Any]) -> None:
    if TRAIN and "trainer.algorithm.loss_reduction" in more:
        pytest.skip("skyrl_train's workers divide by micro-batches")
    for missing in ([0, 5, 8, 2], [6, 6]):  # of the second, the longest rows are missing
        assert errors("grpo", missing, 2, **more)[0] <= 1e-6


@pytest.mark.skipif(not TRAIN, reason="skyrl_train's, which clones rows until shards are even")
@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize("estimator", ["grpo", "gae"])
def test_nor_do_rows_that_only_pad(estimator: str, normalize: bool) -> None:
    more = {"trainer.algorithm.advantage_batch_normalize": normalize}
    assert errors(estimator, [0, 5, 8, 2], 2, shards=7, **more)[0] <= 1e-6


@pytest.mark.parametrize("estimator", ["grpo", "reinforce++", "gae"])
def test_nothing_left(estimator: str) -> None:
    assert errors(estimator, [8, 8], 3) == (0.0, 0)


def test_the_harness_sees_the_difference() -> None:
    """SkyRL's own trainer, handed the same rows."""
    assert errors("grpo", [0, 4], 0, mixin=False)[0] > 0.1


@pytest.mark.parametrize("step_wise", [False, True])
async def test_the_generator_marks_them(tokenizer: Any, step_wise: bool) -> None:
    """Exclusion is the default; the mark survives SkyRL's own use of stop reasons, and evaluation has none."""
    register(runner=GradingRunner({"flaky": flaky}))
    script = ScriptedPolicy(
        tokenizer, lambda prompt, call: "down" if call % 4 == 2 else "good" if call % 2 else "bad"
    )
    options: dict[str, Any] = {"zero_reward_on_non_stop": True, "step_wise_trajectories": step_wise}
    made = generator(make_generator(), tokenizer, script, **options)
    out = await made.generate(input_of(2, 4), disable_tqdm=True)
    assert out["stop_reasons"].count(EXCLUDED) == 2
    for reason, mask in zip(out["stop_reasons"], out["loss_masks"], strict=True):
        assert any(mask) == (reason != EXCLUDED)
    out = await made.generate(input_of(2, 4, phase="eval"), disable_tqdm=True)
    assert EXCLUDED not in out["stop_reasons"]


@pytest.mark.parametrize("step_wise", [False, True])
async def test_a_dropped_group_is_left_out_as_missing_rewards_are(tokenizer: Any, step_wise: bool) -> None:
    @grader
    def short(response: str) -> float:
        return 1 / (1 + len(response))

    register(runner=GradingRunner({"short": short}, drop_if="spread(reward) < 0.02"))
    script = ScriptedPolicy(tokenizer, lambda prompt, call: "no" if call % 4 == 2 and call > 3 else "good")
    made = generator(make_generator(), tokenizer, script, step_wise_trajectories=step_wise)
    out = await made.generate(input_of(2, 4), disable_tqdm=True)
    left = out["stop_reasons"].count(EXCLUDED)
    assert left == 4  # of two groups, the one that is flat
    for reason, mask in zip(out["stop_reasons"], out["loss_masks"], strict=True):
        assert any(mask) == (reason != EXCLUDED)
    register(runner=GradingRunner({"flaky": flaky}))


@pytest.mark.parametrize("setting", ["exclude", "mask"])
@pytest.mark.parametrize("ours", [False, True], ids=["their_trainer", "our_trainer"])
async def test_the_ledger_says_what_the_trainer_does(
    tokenizer: Any, tmp_path: Path, setting: Any, ours: bool
) -> None:
    """Left out, or without loss in a group whose mean it does not move; no number of ours is in the ledger."""
    ledger = Ledger(tmp_path / "ledger.jsonl")
    register(runner=GradingRunner({"flaky": flaky}, missing_reward=setting, ledger=ledger))
    script = ScriptedPolicy(tokenizer, lambda prompt, call: ["down", "good", "bad", "good"][call % 4])
    made = generator(make_generator(), tokenizer, script)
    made.trainer_ends_steps = ours
    out = await made.generate(input_of(1, 4), disable_tqdm=True)
    told = "excluded" if setting == "exclude" and ours else "masked"
    entries = read_ledger(tmp_path / "ledger.jsonl").entries
    assert sorted(entry.status for entry in entries) == sorted([told] + ["scored"] * 3)
    assert [entry.reward for entry in entries if entry.status == told] == [None]
    figures = made.end_step()
    assert (figures[f"judgekit/{told}_rate"], figures["judgekit/reward_mean"]) == pytest.approx((0.25, 2 / 3))
    # SkyRL's tensor has its group's mean
    assert sorted(map(sum, out["rewards"])) == pytest.approx([0, 2 / 3, 1, 1])
    register(runner=GradingRunner({"flaky": flaky}))


@pytest.mark.parametrize("fully_async", [False, True], ids=["sync", "fully_async"])
def test_training_goes_on_with_one_of_four_missing(tmp_path: Path, fully_async: bool) -> None:
    """One prompt's share is no step's: max_failure_rate is of the step, though a call may be one prompt."""
    asked = [0]

    @grader
    async def judge(rollout: Rollout) -> float:
        asked[0] += 1
        if asked[0] % 4 == 0:
            raise JudgeUnavailable("down on purpose")
        return sum(c in "0123456789" for c in rollout.response) / max(1, len(rollout.response))

    runner = GradingRunner({"judge": judge}, max_failure_rate=0.4)
    rows = train(tmp_path, steps=6, seed=0, fully_async=fully_async, runner=runner)
    rates = rows.series("judgekit/judge/failure_rate")
    # a fully asynchronous generator runs ahead: a step may find nothing graded since the last one
    assert 3 <= len(rates) <= 6 if fully_async else len(rates) == 6
    assert all(0 < rate < 0.4 for rate in rates)
    assert max(rows.series("judgekit/excluded_rate")) > 0
    assert set(rows.series("judgekit/neutral_rate")) == {0.0}
    if not fully_async:  # SkyRL's own curve is over what was graded, too
        assert rows.series("reward/avg_raw_reward") == pytest.approx(rows.series("judgekit/reward_mean"))
    assert (
        len(rows.series("judgekit/judge/mean")) == len(rows.series("judgekit/flat_group_rate")) == len(rates)
    )


def test_a_step_with_nothing_to_train_on(tmp_path: Path) -> None:
    @grader
    async def judge(rollout: Rollout) -> float:
        raise JudgeUnavailable("down on purpose")

    lines: list[str] = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
    logger = logging.getLogger("judgekit")  # SkyRL takes over the handlers of the root
    logger.addHandler(handler)
    try:
        rows = train(tmp_path, steps=3, seed=0, fully_async=False, runner=GradingRunner({"judge": judge}))
    finally:
        logger.removeHandler(handler)
    assert rows.series("policy/raw_grad_norm" if TRAIN else "policy/grad_norm") == [0.0] * 3
    assert rows.series("loss/avg_raw_advantages_abs") == [0.0] * 3
    for curve in ("reward/avg_raw_reward", "loss/avg_final_rewards", "judgekit/reward_mean"):
        assert rows.series(curve) == []  # no number was paid, so there is none to show
    assert rows.series("judgekit/excluded_rate") == [1.0] * 3
    assert sum("there is nothing to train on" in line for line in lines) == 3
    # the last step is told like the others
    assert sum("failed on 32 of 32 rollouts" in line and "graded" in line for line in lines) == 3
