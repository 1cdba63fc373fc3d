"""Grading by group in the real SkyRLGymGenerator."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from envs_for_tests import flaky, hangs, longest
from judgekit import ConfigError, FailureRateError, Fallback, GradingRunner, Ledger, read_ledger
from judgekit.graders import FinalAnswer
from judgekit_skyrl import make_generator, register
from stand_ins import ScriptedPolicy, generator, input_of, totals
from under_test import TRAIN, VERSION, part

validate_generator_output = part("utils.trainer_utils").validate_generator_output


def ranked(**options: Any) -> GradingRunner:
    return GradingRunner({"longest": longest}, missing_reward="neutral", **options)


def by_call(prompt: str, call: int) -> str:
    return "x" * call


def groups_of(out: Any, size: int) -> list[list[float]]:
    found = totals(out)
    return [found[i : i + size] for i in range(0, len(found), size)]


@pytest.mark.parametrize("workers", [0, 1, 32])
@pytest.mark.parametrize("step_wise", [False, True])
async def test_a_prompts_rollouts_compete(tokenizer: Any, workers: int, step_wise: bool) -> None:
    """No thread waits for siblings: any number of them will do."""
    register(runner=ranked())
    policy = ScriptedPolicy(tokenizer, by_call)
    made = generator(make_generator(), tokenizer, policy, workers=workers, step_wise_trajectories=step_wise)
    out = await made.generate(input_of(8, 4), disable_tqdm=True)
    if VERSION >= "0.2" and not (TRAIN and step_wise):  # skyrl_train has no check of steps
        validate_generator_output(32, out, **({} if TRAIN else {"step_wise": step_wise}))
    for rewards in groups_of(out, 4):
        assert sorted(rewards) == pytest.approx([0, 1 / 3, 2 / 3, 1])
    for rewards in out["rewards"]:
        assert not any(rewards[:-1])
    assert out["rollout_metrics"]["environment/judgekit/longest_mean"] == pytest.approx(0.5)


async def test_a_failure_is_its_groups_mean(tokenizer: Any, tmp_path: Any) -> None:
    ledger = Ledger(tmp_path / "ledger.jsonl")
    register(runner=GradingRunner({"flaky": flaky}, missing_reward="neutral", ledger=ledger))
    policy = ScriptedPolicy(tokenizer, lambda prompt, call: ["down", "good", "bad", "good"][call % 4])
    out = await generator(make_generator(), tokenizer, policy, workers=0).generate(
        input_of(1, 4), disable_tqdm=True
    )
    assert sorted(totals(out)) == pytest.approx([0, 2 / 3, 1, 1])
    assert out["rollout_metrics"]["environment/judgekit/missing_mean"] == 0.25
    entries = read_ledger(tmp_path / "ledger.jsonl").entries
    assert sorted(e.id for e in entries) == ["0_0", "0_1", "0_2", "0_3"]
    assert all(e.tags == {"global_step": 7, "phase": "train"} for e in entries)
    assert sum(e.status == "neutral" for e in entries) == 1


async def test_a_masked_failure_has_no_loss(tokenizer: Any) -> None:
    register(runner=GradingRunner({"flaky": flaky}, missing_reward="mask"))
    policy = ScriptedPolicy(tokenizer, lambda prompt, call: "down" if call == 2 else "good")
    out = await generator(make_generator(), tokenizer, policy).generate(input_of(1, 3), disable_tqdm=True)
    assert sorted(any(mask) for mask in out["loss_masks"]) == [False, True, True]
    assert totals(out) == [1, 1, 1]


async def test_a_judge_that_is_down_everywhere(tokenizer: Any) -> None:
    """Neutral rewards, and the run goes on; with a failure rate it ends with the reason."""
    policy = ScriptedPolicy(tokenizer, lambda prompt, call: "down")
    register(runner=GradingRunner({"flaky": flaky}, missing_reward="neutral"))
    out = await generator(make_generator(), tokenizer, policy).generate(input_of(4, 4), disable_tqdm=True)
    for rewards in groups_of(out, 4):
        assert len(set(rewards)) == 1
    register(runner=GradingRunner({"flaky": flaky}, missing_reward="neutral", max_failure_rate=0.5))
    made = generator(make_generator(), tokenizer, policy)
    await made.generate(input_of(4, 4), disable_tqdm=True)
    with pytest.raises(FailureRateError, match="flaky 100.0 % .*× 16"):
        made.end_step()
    assert made.end_step() == {}


async def test_without_a_trainer_of_ours_a_step_ends_with_the_next(tokenizer: Any) -> None:
    """Calls of one step are counted together, in whatever order they end; evaluation apart."""
    register(runner=GradingRunner({"flaky": flaky}, missing_reward="neutral", max_failure_rate=0.5))
    policy = ScriptedPolicy(tokenizer, lambda prompt, call: "down" if call <= 20 else "good")
    made = generator(make_generator(), tokenizer, policy)
    for _ in range(5):
        await made.generate(input_of(1, 4, step=7), disable_tqdm=True)
    await made.generate(input_of(1, 4, step=7, phase="eval"), disable_tqdm=True)
    with pytest.raises(FailureRateError, match="flaky 100.0 % .*× 20"):
        await made.generate(input_of(1, 4, step=8), disable_tqdm=True)
    await made.generate(input_of(1, 4, step=7), disable_tqdm=True)
    figures = made.end_step()
    assert figures["judgekit/rollouts"] == 4


async def test_rows_of_other_environments_are_named_once(tokenizer: Any, caplog: Any) -> None:
    """SkyRL's own gsm8k data says env_class=gsm8k, which counts before the launch script's."""
    register(runner=ranked())
    made = generator(make_generator(), tokenizer, ScriptedPolicy(tokenizer, lambda prompt, call: "#### 1"))
    for _ in range(2):
        await made.generate(input_of(1, 2, "gsm8k"), disable_tqdm=True)
    assert caplog.text.count("judgekit does not grade the rollouts of env_class=gsm8k") == 1


async def test_what_a_rollout_carries(tokenizer: Any) -> None:
    """The policy's tokens and why it stopped, which the generator knows; a tool's text is not the policy's."""
    from judgekit import Rollout, grader
    from judgekit.graders import InformationGain, SoftOverlong

    seen: list[Rollout] = []

    @grader
    def keep(rollout: Rollout) -> float:
        seen.append(rollout)
        return 1.0

    graders = {"keep": keep, "gain": InformationGain(), "short": SoftOverlong(max_length=64, cache=8)}
    register(runner=GradingRunner(graders), wraps="envs_for_tests:Searching")
    script = ScriptedPolicy(
        tokenizer, lambda prompt, call: "<answer>7</answer>" if "found" in prompt else "look"
    )
    for step_wise in (False, True):
        made = generator(make_generator(), tokenizer, script, max_turns=3, step_wise_trajectories=step_wise)
        out = await made.generate(input_of(1, 2), disable_tqdm=True)
        rollout = seen.pop()
        assert [m["role"] for m in rollout.messages] == ["user", "assistant", "tool", "assistant"]
        assert rollout.response == "<answer>7</answer>"
        assert rollout.response_tokens == sum(map(sum, out["loss_masks"])) / 2 > len("look")
        assert rollout.finish_reason == "stop"
        metrics = out["rollout_metrics"]
        assert metrics["environment/judgekit/gain_mean"] > 0
        assert "environment/judgekit/short_mean" in metrics


async def test_a_judge_that_hangs(tokenizer: Any) -> None:
    register(runner=GradingRunner({"hangs": hangs}, missing_reward="neutral", timeout_s=0.3))
    policy = ScriptedPolicy(tokenizer, lambda prompt, call: "hang" if call == 3 else "x")
    out = await generator(make_generator(), tokenizer, policy).generate(input_of(4, 4), disable_tqdm=True)
    assert totals(out) == [1] * 16
    assert out["rollout_metrics"]["environment/judgekit/missing_mean"] == 1 / 16


async def test_evaluation_with_one_rollout(tokenizer: Any) -> None:
    """A rank says nothing there: only what grades a rollout alone counts, if the reward says so."""
    from judgekit import Score, Weighted

    reward = Weighted({"correct": 0.5, Score("longest", if_missing="renormalise"): 0.5})
    runner = GradingRunner({"correct": FinalAnswer(), "longest": longest}, reward, missing_reward="neutral")
    register(runner=runner)
    policy = ScriptedPolicy(tokenizer, lambda prompt, call: "#### 1")
    out = await generator(make_generator(), tokenizer, policy).generate(
        input_of(3, 1, phase="eval"), disable_tqdm=True
    )
    assert totals(out) == [0, 1, 0]


async def test_other_environments_pass_untouched(tokenizer: Any) -> None:
    register(runner=ranked())
    rows = [
        {
            "prompt": [{"role": "user", "content": f"q{i}"}],
            "env_class": env,
            "uid": str(i),
            "env_extras": {"reward_spec": {"method": "rule", "ground_truth": "1"}},
        }
        for i, env in enumerate(["judgekit", "gsm8k", "judgekit"])
    ]
    given, _ = part("generators.utils").prepare_generator_input(rows, 2, None, "judgekit", "train", 1)
    policy = ScriptedPolicy(tokenizer, lambda prompt, call: "#### 1" + "x" * call * ("q1" not in prompt))
    out = await generator(make_generator(), tokenizer, policy).generate(given, disable_tqdm=True)
    first, theirs, last = groups_of(out, 2)
    assert sorted(first) == sorted(last) == [0, 1]
    assert theirs == [1, 1]


async def test_a_policy_failure_reaches_the_trainer_and_leaves_nothing(tokenizer: Any) -> None:
    register(runner=ranked())

    def script(prompt: str, call: int) -> Any:
        return RuntimeError("the engine died") if call == 6 else "x"

    made = generator(make_generator(), tokenizer, ScriptedPolicy(tokenizer, script))
    with pytest.raises(RuntimeError, match="the engine died"):
        await made.generate(input_of(4, 4), disable_tqdm=True)
    for _ in range(100):
        if len(asyncio.all_tasks()) == 1:
            break
        await asyncio.sleep(0.02)
    assert len(asyncio.all_tasks()) == 1


async def test_many_generate_calls_at_once(tokenizer: Any) -> None:
    """The fully asynchronous trainer makes one call per prompt; the same prompt may be in two of them."""
    register(runner=ranked())
    made = generator(make_generator(), tokenizer, ScriptedPolicy(tokenizer, by_call), workers=2)
    threads = threading.active_count()
    outs = await asyncio.gather(*(made.generate(input_of(1, 4), disable_tqdm=True) for _ in range(24)))
    for out in outs:
        assert sorted(totals(out)) == pytest.approx([0, 1 / 3, 2 / 3, 1])
    # before 0.3, and in skyrl_train, the metrics of environments were lost when calls were put together
    if VERSION >= "0.3" and not TRAIN:
        together = part("generators.utils").concatenate_generator_outputs(outs)
        assert together["rollout_metrics"]["environment/judgekit/longest_mean"] == pytest.approx(0.5)
    assert threading.active_count() <= threads + 16


async def test_a_truncated_rollout_is_paid_nothing_if_skyrl_is_told_so(tokenizer: Any) -> None:
    register(runner=ranked())
    policy = ScriptedPolicy(tokenizer, lambda prompt, call: "x" * call + ("…" if call == 3 else ""))
    made = generator(
        make_generator(), tokenizer, policy, zero_reward_on_non_stop=True, apply_overlong_filtering=True
    )
    out = await made.generate(input_of(1, 4), disable_tqdm=True)
    at = out["stop_reasons"].index("length")
    assert totals(out)[at] == 0
    assert not any(out["loss_masks"][at])


async def test_batched_generation_is_refused(tokenizer: Any) -> None:
    register(runner=ranked())
    made = generator(make_generator(), tokenizer, ScriptedPolicy(tokenizer, by_call), batched=True)
    with pytest.raises(ConfigError, match=r"one question at a time: set generator\.batched=false"):
        await made.generate(input_of(1, 2), disable_tqdm=True)


async def test_multi_turn_that_ends_without_its_last_step(tokenizer: Any) -> None:
    """The conversation outgrows the context; what there is of it is graded."""
    seen: list[Any] = []
    from judgekit import grader

    def judge(rollout: Any) -> float:
        seen.append(len(rollout.messages))
        return 1.0

    register(
        runner=GradingRunner({"judge": grader(judge)}),
        wraps="envs_for_tests:Guessing",
        wraps_kwargs={"turns": 9},
    )
    policy = ScriptedPolicy(tokenizer, lambda prompt, call: "guess " * 10)
    made = generator(make_generator(), tokenizer, policy, max_turns=9, max_input_length=300)
    out = await made.generate(input_of(1, 2), disable_tqdm=True)
    assert len(seen) == 2
    assert all(1 < n < 18 for n in seen)
    assert all(total > 1 for total in totals(out))


async def test_failures_that_cost_no_reward_are_told_too(tokenizer: Any, caplog: Any) -> None:
    """The reward comes from another grader; that the judge is down is not to be missed."""
    both = {"flaky": flaky, "correct": FinalAnswer()}
    register(runner=GradingRunner(both, Fallback("flaky", "correct"), missing_reward="neutral"))
    policy = ScriptedPolicy(tokenizer, lambda prompt, call: "down #### 0")
    made = generator(make_generator(), tokenizer, policy)
    await made.generate(input_of(1, 2), disable_tqdm=True)
    made.end_step()
    assert "2 rollouts graded; grader 'flaky' failed on 2 of 2 rollouts (JudgeUnavailable × 2)" in caplog.text


async def test_failures_of_a_step_that_nobody_ends_are_told(tokenizer: Any, caplog: Any) -> None:
    """The last step of a trainer that is not ours: the runner itself says what went wrong."""
    register(runner=GradingRunner({"flaky": flaky}, missing_reward="neutral"))
    policy = ScriptedPolicy(tokenizer, lambda prompt, call: "down #### 0")
    made = generator(make_generator(), tokenizer, policy)
    await made.generate(input_of(1, 2), disable_tqdm=True)
    assert "grader 'flaky' failed on" in caplog.text
