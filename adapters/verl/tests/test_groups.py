"""The hook in the real AgentLoopManagers, V1 with its TransferQueue and V0, with a policy that is not there."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from omegaconf import OmegaConf

from batches import FakePolicy, batch, grade_groups, objects

HOOK = "+actor_rollout_ref.rollout.agent.agent_loop_manager_class=judgekit_verl.JudgeKitAgentLoopManager"
MANAGER = "reward.reward_manager.name=judgekit"


def columns(prompts: list[str]) -> dict[str, Any]:
    count = len(prompts)
    return {
        "dummy_tensor": torch.zeros(count, 1, dtype=torch.uint8),
        "raw_prompt": objects([[{"role": "user", "content": p}] for p in prompts]),
        "data_source": objects(["openai/gsm8k"] * count),
        "ability": objects(["math"] * count),
        "reward_model": objects([{"style": "rule", "ground_truth": str(i)} for i in range(count)]),
        "extra_info": objects([{"index": i, "split": "train"} for i in range(count)]),
        "index": objects(list(range(count))),
        "tools_kwargs": objects([{}] * count),
        "interaction_kwargs": objects([{}] * count),
        "uid": objects([str(uuid.uuid4()) for _ in range(count)]),
    }


class V1:
    """The default trainer's half that generates and grades."""

    def __init__(self, config: Any, policy: FakePolicy) -> None:
        import transfer_queue as tq
        from verl.experimental.reward_loop import RewardLoopManager
        from verl.utils.import_utils import load_class_from_fqn

        self.number = 0
        tq.init(config.transfer_queue)
        self.loop = RewardLoopManager(config)
        fqn = config.actor_rollout_ref.rollout.agent.agent_loop_manager_class
        self.manager = load_class_from_fqn(fqn, "AgentLoopManager").create(
            config=config,
            llm_client=policy,
            teacher_client=None,
            reward_loop_worker_handles=self.loop.reward_loop_worker_handles,
        )

    def step(self, prompts: list[str], *, validate: bool = False, wait_s: float = 90) -> list[dict[str, Any]]:
        """Generate and grade; one mapping per trajectory with its group, response length and score."""
        import transfer_queue as tq
        from verl.utils import tensordict_utils as tu

        given = columns(prompts)
        made = tu.get_tensordict(given)
        self.number += 1
        tu.assign_non_tensor_data(made, "global_steps", self.number)
        if validate:
            tu.assign_non_tensor_data(made, "validate", True)
        part, uids = ("val" if validate else "train"), list(given["uid"])
        tags = [{"is_prompt": True, "status": "pending", "global_steps": self.number} for _ in uids]
        tq.kv_batch_put(keys=uids, partition_id=part, tags=tags)
        self.manager.generate_sequences(made)
        end = time.time() + wait_s
        while True:
            items = tq.kv_list()[part]
            if all(items[u]["status"] in ("finished", "failure") for u in uids):
                break
            assert time.time() < end, [items[u]["status"] for u in uids]
            time.sleep(0.1)
        keys = [k for k in items if not items[k].get("is_prompt")]
        rows = []
        if keys:
            data = tq.kv_batch_get(
                keys=keys,
                partition_id=part,
                select_fields=["responses", "rm_scores", "extra_fields", "uid", "response_mask", "loss_mask"],
            )
            for key, response, scores, extra, uid, mask, loss_mask in zip(
                keys,
                data["responses"].unbind(),
                data["rm_scores"].unbind(),
                data["extra_fields"],
                data["uid"],
                data["response_mask"].unbind(),
                data["loss_mask"].unbind(),
                strict=True,
            ):
                extra = getattr(extra, "data", extra)
                assert scores[:-1].count_nonzero() == 0
                assert mask.tolist() == loss_mask.tolist()
                rows.append(
                    {
                        "group": uids.index(key[:36]),
                        "length": len(response),
                        "score": float(scores.sum()),
                        "info": extra["reward_extra_info"],
                        "own_uid": str(getattr(uid, "data", uid)) != key[:36],
                        "trained": int(mask.sum()),
                        "tags": items[key],
                    }
                )
        tq.kv_clear(keys=list(items), partition_id=part)
        return rows

    def close(self) -> None:
        import ray
        import transfer_queue as tq

        for worker in (*self.loop.reward_loop_workers, *self.manager.agent_loop_workers):
            ray.kill(worker)
        tq.close()


@pytest.fixture
def v1(cluster: None, trainer_config: Callable[..., Any], tokenizer: Any) -> Iterator[Callable[..., V1]]:
    made: list[V1] = []

    def make(runner: str | None, script: Any, *overrides: str) -> V1:
        config = trainer_config(
            HOOK,
            MANAGER,
            *(
                []
                if runner is None
                else [f"+reward.reward_kwargs.judgekit_runner=graders_for_tests:{runner}"]
            ),
            "reward.num_workers=2",
            "actor_rollout_ref.rollout.n=3",
            "actor_rollout_ref.rollout.val_kwargs.n=2",
            *overrides,
        )
        made.append(V1(config, FakePolicy(tokenizer, script)))
        return made[-1]

    yield make
    for one in made:
        one.close()


def of_group(rows: list[dict[str, Any]], group: int) -> list[dict[str, Any]]:
    return sorted((r for r in rows if r["group"] == group), key=lambda r: r["length"])


def test_v1_groups_come_whole(v1: Callable[..., V1]) -> None:
    """Ranks within each group, in training with three rollouts and in validation with two."""
    trainer = v1("ranked", lambda prompt, call: "x" * call)
    for validate, ranks in ((False, [0, 0.5, 1]), (True, [0, 1]), (False, [0, 0.5, 1])):
        rows = trainer.step(["a", "b", "c"], validate=validate)
        for group in range(3):
            assert [r["score"] for r in of_group(rows, group)] == ranks
            assert all(r["info"]["judgekit/missing"] == 0 for r in of_group(rows, group))


def test_v1_turns_are_paid_by_token(v1: Callable[..., V1]) -> None:
    """Through the TransferQueue."""
    trainer = v1("by_turn", lambda prompt, call: "x" * call, "algorithm.adv_estimator=judgekit_turn_grpo")
    rows = trainer.step(["a", "b"])
    assert sorted(round(r["score"], 3) for r in rows) == [0.05, 0.1, 0.15, 0.2, 0.25, 0.3]
    assert all(r["info"]["judgekit/unplaced"] == 0.0 for r in rows)


def test_v1_sessions_that_fail_leave_their_group(v1: Callable[..., V1]) -> None:
    trainer = v1("ranked", lambda prompt, call: None if call in (2, 5, 6) else "x" * call)
    rows = trainer.step(["a", "b", "c"])
    assert len(rows) == 6
    for group in range(3):
        members = of_group(rows, group)
        if len(members) == 2:
            assert [r["score"] for r in members] == [0, 1]


def test_v1_a_judge_that_is_down_pays_nobody_zero(v1: Callable[..., V1], caplog: Any) -> None:
    """The missing reward is its group's mean; the driver says so before the next step."""
    trainer = v1("down_at_times", lambda prompt, call: ["down", "aaaa", "zzzz"][call % 3])
    rows = trainer.step(["p"] * 4)
    found = {"missing": 0}
    for group in range(4):
        members = of_group(rows, group)
        valid = [r["score"] for r in members if not r["info"]["judgekit/missing"]]
        for row in members:
            if row["info"]["judgekit/missing"]:
                found["missing"] += 1
                assert valid
                assert row["score"] == pytest.approx(sum(valid) / len(valid))
                assert row["info"]["judgekit/flaky"] is None
    assert found["missing"] == 4
    with caplog.at_level("INFO", logger="judgekit"):
        trainer.step(["p"])
    assert (
        "12 rollouts graded; grader 'flaky' failed on 4 of 12 rollouts (JudgeUnavailable × 4); 4 of 12 rewards are missing (4 neutral)"
        in caplog.text
    )


def test_v1_rollouts_without_a_reward_are_left_out(v1: Callable[..., V1]) -> None:
    """In training, not in validation; of a prompt without two rewards, two members keep a token each."""
    trainer = v1(
        "excluding",
        lambda prompt, call: "down" if "lost" in prompt or ("one" in prompt and call % 3 == 0) else "aaaa",
        "algorithm.adv_estimator=grpo",
    )
    lost = of_group(trainer.step(["lost"]), 0)
    assert sorted(row["trained"] for row in lost) == [0, 1, 1]
    assert all(row["own_uid"] for row in lost)
    for row in lost:  # verl's curves are over the rest, and need one row at least
        assert row["tags"]["judgekit_left_out"]
        assert row["tags"]["is_padding"] == (not row["trained"])
        assert row["tags"]["status"] == "success"
    rows = of_group(trainer.step(["one"]), 0)
    assert len(rows) == 3
    for row in rows:
        missing = row["info"]["judgekit/missing"] == 1
        assert row["own_uid"] == missing
        assert row["tags"].get("is_padding", False) == missing
        assert row["trained"] == (0 if missing else row["length"])
    assert sum(row["own_uid"] for row in rows) == 1
    for row in trainer.step(["lost"], validate=True):
        assert row["trained"] == row["length"]
        assert not row["own_uid"]


def test_v1_too_many_failures_end_the_training(v1: Callable[..., V1]) -> None:
    from judgekit import FailureRateError

    trainer = v1("down", lambda prompt, call: "x")
    rows = trainer.step(["a", "b"])
    assert {r["score"] for r in rows} == {0.5}  # the same for all: nobody learns from it
    with pytest.raises(FailureRateError, match="always_down 100.0 % .*× 6"):
        trainer.step(["a", "b"])


def test_v0_groups_of_a_batch(
    cluster: None, trainer_config: Callable[..., Any], tokenizer: Any, caplog: Any
) -> None:
    import logging

    import ray
    from verl import DataProto
    from verl.experimental.reward_loop import RewardLoopManager
    from verl.utils.import_utils import load_class_from_fqn

    config = trainer_config(
        HOOK,
        MANAGER,
        "+reward.reward_kwargs.judgekit_runner=graders_for_tests:ranked",
        "reward.num_workers=2",
        "actor_rollout_ref.rollout.agent.num_workers=2",
        "actor_rollout_ref.rollout.n=3",
        "actor_rollout_ref.rollout.val_kwargs.n=2",
        "trainer.use_v1=False",
    )
    loop = RewardLoopManager(config)
    fqn = config.actor_rollout_ref.rollout.agent.agent_loop_manager_class
    manager = load_class_from_fqn(fqn, "AgentLoopManager").create(
        config=config,
        llm_client=FakePolicy(tokenizer, lambda prompt, call: "x" * call),
        teacher_client=None,
        reward_loop_worker_handles=loop.reward_loop_workers,
    )
    try:
        data = DataProto.from_single_dict(columns(["a", "b"]))
        data.meta_info["global_steps"] = 7
        data = data.repeat(repeat_times=3, interleave=True)
        data.non_tensor_batch["__do_sample__"] = objects([True, True, True, True, True, False])
        with caplog.at_level(logging.INFO, "judgekit"):
            out = manager.generate_sequences(data)
        # validation: two per prompt, filled up to a multiple of the workers with the first rows once more
        padded = DataProto.from_single_dict(columns(["c", "d"])).repeat(repeat_times=2, interleave=True)
        padded = DataProto.concat([padded, padded[:2]])
        padded.meta_info |= {"global_steps": 7, "validate": True}
        validated = manager.generate_sequences(padded)
    finally:
        for worker in (*loop.reward_loop_workers, *manager.agent_loop_workers):
            ray.kill(worker)
    assert "6 rollouts graded" in caplog.text  # each once, with its group and not before
    assert [sorted(validated.batch["rm_scores"].sum(1)[i : i + 2].tolist()) for i in (0, 2)] == [[0, 1]] * 2
    width = out.batch["prompts"].shape[1]
    lengths = out.batch["attention_mask"][:, width:].sum(1).tolist()
    scores = out.batch["rm_scores"]
    for members in ([0, 1, 2], [3, 4]):  # the greedy row stands alone
        by_length = sorted(members, key=lambda i: lengths[i])
        expected = [k / (len(members) - 1) for k in range(len(members))]
        assert [float(scores[i].sum()) for i in by_length] == pytest.approx(expected)
        for i in by_length[1:]:
            assert scores[i].nonzero().item() == lengths[i] - 1
    assert out.non_tensor_batch["judgekit/missing"].tolist() == [0, 0, 0, 0, 0, 1]
    assert "judgekit/longest" in out.meta_info["reward_extra_keys"]


def test_v1_a_baseline_with_its_prompts_uid_is_a_group_of_its_own(v1: Callable[..., V1]) -> None:
    """As REMAX has it: the same uid once more, greedy, with one rollout."""
    import transfer_queue as tq
    from verl.utils import tensordict_utils as tu

    trainer = v1("ranked", lambda prompt, call: "x" * call)
    given = columns(["a", "a"])
    uid = given["uid"][0]
    given["uid"] = objects([uid, uid])
    given["__rollout_n__"] = objects([3, 1])
    given["__do_sample__"] = objects([True, False])
    made = tu.get_tensordict(given)
    tu.assign_non_tensor_data(made, "global_steps", 7)
    tq.kv_batch_put(
        keys=[uid], partition_id="train", tags=[{"is_prompt": True, "status": "pending", "global_steps": 7}]
    )
    trainer.manager.generate_sequences(made)
    end = time.time() + 60
    watch = trainer.manager.watch
    while watch._steps.rollouts < 4:
        assert time.time() < end, watch._steps.rollouts
        time.sleep(0.2)
    counts = watch._steps._counts
    assert counts.statuses == {"scored": 3, "neutral": 1}  # alone, where a rank says nothing


def test_v0_a_prompt_whose_baseline_has_no_reward_is_left_out(
    trainer_config: Callable[..., Any], tokenizer: Any
) -> None:
    """REMAX would subtract from all of its rollouts what stands in for that reward."""
    config = trainer_config(
        HOOK,
        MANAGER,
        "+reward.reward_kwargs.judgekit_runner=graders_for_tests:excluding",
        "algorithm.adv_estimator=remax",
        "trainer.use_v1=False",
    )
    data = batch(tokenizer, ["aaaa", "zzzz", "down", "aaaa", "zzzz", "aazz"], uids=[*"aaabbb"])
    data.non_tensor_batch["__do_sample__"] = objects([True, True, False] * 2)
    out = grade_groups(config, tokenizer, data)
    trained = out.batch["response_mask"].sum(1) > 0
    assert trained.tolist() == [False, False, False, True, True, True]
    assert out.batch["rm_scores"].sum(1)[3:].tolist() == [1.0, 0.5, 0.75]
    alone = batch(tokenizer, ["down", "down"], uids=[*"ab"])
    assert not grade_groups(config, tokenizer, alone).batch["response_mask"].any()
    together = batch(tokenizer, ["down", "down"], uids=[*"aa"])
    assert grade_groups(config, tokenizer, together).batch["response_mask"].sum(1).tolist() == [1, 1]


@pytest.mark.parametrize("fault", ["not sent", "not received"])
def test_v1_a_rollout_that_does_not_arrive_keeps_nobody_waiting(
    tokenizer: Any, fault: str, monkeypatch: Any
) -> None:
    """Ray cannot pickle it here, or cannot unpickle it there."""
    from judgekit_verl import sessions
    from judgekit_verl.manager import Arrived

    answer = {"reward_score": 0.5, "reward_extra_info": {}}

    def remote(message: Any) -> asyncio.Future[Any]:
        future = asyncio.get_running_loop().create_future()
        if isinstance(message, Arrived) and message.session == 1:
            if fault == "not sent":
                raise TypeError("cannot pickle it")
            future.set_exception(TypeError("cannot unpickle it"))
        elif isinstance(message, Arrived):
            future.set_result({})
        elif fault == "not sent":
            future.set_result({"group": [answer for _ in message.sessions]})
        return future  # else never done: the group's answer waits for who does not arrive

    async def generate(self: Any, sampling_params: Any, trajectory: Any, **kwargs: Any) -> Any:
        output = SimpleNamespace(
            reward_score=None,
            response_ids=[5],
            response_mask=[1],
            extra_fields={},
            num_turns=1,
            metrics=SimpleNamespace(),
        )
        await self._compute_score([output], kwargs)
        return output

    real = sessions.group_worker_v1()
    monkeypatch.setattr(real.__mro__[2], "_run_agent_loop", generate)  # verl's
    worker = real.__new__(real)
    worker.tokenizer, worker.background_tasks = tokenizer, set()
    worker.config = OmegaConf.create({"actor_rollout_ref": {"rollout": {"response_length": 8}}})

    async def both() -> list[Any]:
        worker.reward_loop_worker_handles = [SimpleNamespace(compute_score=SimpleNamespace(remote=remote))]
        worker._meet({"u": 2}, training=True)
        members = (worker._run_agent_loop({}, {}, session_id=i, uid="u") for i in range(2))
        return await asyncio.wait_for(asyncio.gather(*members, return_exceptions=True), 5)

    first, second = asyncio.run(both())
    assert isinstance(second, TypeError)
    assert isinstance(first, TypeError) if fault == "not received" else first.reward_score == 0.5
