"""SkyRL's own path from a generator's output to what multiplies the loss, on rows made here.

`errors` compares a batch in which rewards are missing with the batch that never had those rollouts.
"""

from __future__ import annotations

import random
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import numpy as np
import torch

from judgekit import GradingRunner, JudgeUnavailable, Ledger, Rollout, grader, read_ledger
from judgekit.trainers import Counts, hosted_runner
from judgekit_skyrl import make_trainer
from judgekit_skyrl.generator import EXCLUDED
from under_test import TRAIN, configuration, part, ppo_utils

RayPPOTrainer = part("trainer").RayPPOTrainer
FullyAsyncRayPPOTrainer = part("fully_async_trainer").FullyAsyncRayPPOTrainer
TrajectoryID = part("generators.base").TrajectoryID
GROUP = 8
Row = dict[str, Any]


def rows_of(missing: list[int], seed: int, *, step_wise: bool = False) -> list[Row]:
    """A prompt of GROUP rollouts for each of *missing*: so many of its rewards are missing. A row is a rollout, or
    one of its steps; each with random tokens, mask and reward."""
    rng = random.Random(seed)
    rows = []
    for prompt, count in enumerate(missing):
        gone = set(rng.sample(range(GROUP), count))
        for repetition in range(GROUP):
            steps = rng.randint(1, 3) if step_wise else 1
            for step in range(steps):
                length = rng.randint(3, 12)
                last = step == steps - 1
                mask = [1] * length
                if length > 6:  # a tool's answer
                    mask[3:5] = [0, 0]
                rewards = [0.0] * (length - 1) + [rng.random() if last else 0.0]
                if length > 6:
                    rewards[2] = rng.random()  # of the turn before it
                rows.append(
                    {
                        "key": (prompt, repetition, step),
                        "prompt": prompt,
                        "repetition": repetition,
                        "last": last,
                        "missing": repetition in gone,
                        "prompt_ids": [rng.randint(1, 49) for _ in range(4)],
                        "ids": [rng.randint(1, 49) for _ in range(length)],
                        "mask": mask,
                        "rewards": rewards,
                        "noise": [[rng.random() for _ in range(length)] for _ in range(3)],
                    }
                )
    return rows


def as_generated(rows: list[Row], numbers: dict[Any, float] | None = None) -> list[Row]:
    """The rows as judgekit's generator hands them over: a missing reward filled, masked and marked.

    *numbers*: what stands in for the missing rewards, by prompt and repetition.
    """
    found = []
    for row in rows:
        if row["missing"]:
            number = 0.5 if numbers is None else numbers[row["prompt"], row["repetition"]]
            fill = [*[0.0] * (len(row["rewards"]) - 1), number if row["last"] else 0.0]
            row = {**row, "rewards": fill, "mask": [0] * len(row["mask"]), "stop": EXCLUDED}
        found.append(row)
    return found


def settings(prompts: int, estimator: str, step_wise: bool, **more: Any) -> Any:
    given = {
        "trainer.train_batch_size": prompts,
        "trainer.policy_mini_batch_size": prompts,
        "generator.n_samples_per_prompt": GROUP,
        "generator.step_wise_trajectories": step_wise,
        "trainer.algorithm.advantage_estimator": estimator,
        "trainer.algorithm.use_kl_loss": False,
        "trainer.algorithm.kl_loss_coef": 0.1,
        "trainer.algorithm.max_seq_len": 64,
        "trainer.micro_train_batch_size_per_gpu": 4,
        "trainer.policy.model.path": "tiny",
        **more,
    }
    ppo_utils().repopulate_all_registries()
    return configuration(**given)


def loss_weights(
    base: type,
    rows: list[Row],
    cfg: Any,
    *,
    fully_async: bool,
    shards: int = 1,
    logged: dict[str, float] | None = None,
) -> list[Any]:
    """What the loss of each row's tokens is multiplied by: normalised advantages × loss mask.

    *shards*: what skyrl_train pads the number of rows to a multiple of. *logged*: gets what the trainer logs.
    """
    trainer = _trainer(base, cfg, shards)
    if fully_async:
        more = {} if TRAIN else {"group_completion_time_s": None, "prompts": None}
        groups = [
            part("fully_async_trainer").GeneratedOutputGroup(
                generator_output=_output([row for row in rows if row["prompt"] == prompt], cfg),
                uid=str(prompt),
                global_step_when_scheduled=1,
                **more,
            )
            for prompt in dict.fromkeys(row["prompt"] for row in rows)
        ]
        data = trainer.convert_generation_group_mini_batch_to_training_input(groups)
    else:
        uids = [str(row["prompt"]) for row in rows]
        found = trainer.postprocess_generator_output(_output(rows, cfg), uids)
        output, uids = found if isinstance(found, tuple) else (found, uids)  # skyrl_train merges no rows
        data = trainer.convert_to_training_input(output, uids)
    width = data["rewards"].shape[1]
    starts = [0 if TRAIN else width - len(row["ids"]) for row in rows]
    for at, key in enumerate(("values", "action_log_probs", "base_action_log_probs")):
        found = torch.zeros(len(data["rewards"]), width)
        for i, row in enumerate(rows):
            found[i, starts[i] : starts[i] + len(row["ids"])] = torch.tensor(row["noise"][at])
        data[key] = found
    if cfg.trainer.algorithm.use_kl_in_reward:
        data = trainer.apply_reward_kl_penalty(data)
    data = trainer.compute_advantages_and_returns(data)
    if not TRAIN:
        data = trainer._normalize_advantages(
            data, data.metadata["policy_mini_batch_boundaries"], data.metadata["policy_prompt_boundaries"]
        )
    elif cfg.trainer.algorithm.advantage_batch_normalize:  # as its loops do
        data = ppo_utils().normalize_advantages_dict(data)
    used = data["advantages"] * data["loss_mask"]
    if logged is not None:
        logged |= trainer.all_metrics
    return [
        used[i, start : start + len(row["ids"])].clone()
        for i, (row, start) in enumerate(zip(rows, starts, strict=True))
    ]


def _trainer(base: type, cfg: Any, shards: int) -> Any:
    """A trainer without policy and workers."""
    trainer = base.__new__(base)
    trainer.cfg, trainer.all_metrics, trainer.all_timings = cfg, {}, {}
    trainer.tokenizer = SimpleNamespace(pad_token_id=0, decode=lambda ids: "")
    trainer.trajectory_logger, trainer.reward_kl_controller = None, None
    trainer.global_step = trainer.max_staleness_steps = 1
    trainer.dispatch = SimpleNamespace(get_lcm_dp_size=lambda: 1)
    trainer.critic_model = trainer.ref_model = None
    shard = SimpleNamespace(rank=SimpleNamespace(dp_size=shards))
    trainer.policy_model = SimpleNamespace(actor_infos=[shard])
    return trainer


def errors(
    estimator: str,
    missing: list[int],
    seed: int,
    *,
    step_wise: bool = False,
    fully_async: bool = False,
    mixin: bool = True,
    shards: int = 1,
    **more: Any,
) -> tuple[float, int]:
    """(largest error of what multiplies the loss of the valid rows, relative to the largest of these numbers where
    the batch has only them; number of missing rows that multiply anything)."""
    cfg = settings(len(missing), estimator, step_wise, **more)
    rows = rows_of(missing, seed, step_wise=step_wise)
    base = FullyAsyncRayPPOTrainer if fully_async else RayPPOTrainer
    found = loss_weights(
        make_trainer(base) if mixin else base,
        as_generated(rows),
        cfg,
        fully_async=fully_async,
        shards=shards,
    )
    got = dict(zip((row["key"] for row in rows), found, strict=True))
    relative = estimator not in ("gae", "reinforce++")
    valid = [
        row for row in rows if not row["missing"] and not (relative and missing[row["prompt"]] == GROUP - 1)
    ]
    if not valid:
        return 0.0, sum(bool(x.any()) for x in got.values())
    expected = dict(zip((row["key"] for row in valid), _alone(valid, cfg), strict=True))
    scale = max(float(x.abs().max()) for x in expected.values())
    error = max(float((got[key] - x).abs().max()) for key, x in expected.items()) / scale
    return error, sum(bool(x.any()) for key, x in got.items() if key not in expected)


def recorded(
    estimator: str,
    missing: list[int],
    seed: int,
    *,
    step_wise: bool = False,
    fully_async: bool = False,
    **more: Any,
) -> tuple[int, float]:
    """Grade a batch with judgekit, its judge down for what is missing, and hand it to the trainer.

    Returns how many rollouts and figures ledger and figures record otherwise than the trainer did, and the
    largest error of judgekit's curves, and of SkyRL's, against numpy over what was graded.
    """
    cfg = settings(len(missing), estimator, step_wise, **more)
    rows = rows_of(missing, seed, step_wise=step_wise)
    graded = _Graded(rows)
    base = FullyAsyncRayPPOTrainer if fully_async else RayPPOTrainer
    logged: dict[str, float] = {}
    used = loss_weights(
        make_trainer(base), as_generated(rows, graded.numbers), cfg, fully_async=fully_async, logged=logged
    )
    relative = estimator not in ("gae", "reinforce++")
    wrong = 0
    live = []
    for row, weights in zip(rows, used, strict=True):
        alone = relative and missing[row["prompt"]] == GROUP - 1
        live.append(not row["missing"] and not alone)
        wrong += bool(weights.any()) and not live[-1]
        if row["last"]:
            entry = graded.entries[row["prompt"], row["repetition"]]
            wrong += entry.status != ("excluded" if row["missing"] else "scored")
            wrong += (entry.reward is None) != row["missing"]
            wrong += live[-1] and not weights.any()
    share = sum(missing) / (GROUP * len(missing))
    wrong += abs(graded.figures["judgekit/excluded_rate"] - share) > 1e-9
    wrong += abs(logged["judgekit/live_share"] - np.mean(live)) > 1e-9
    ends = [(row, kept) for row, kept in zip(rows, live, strict=True) if row["last"]]
    graded_rewards = [sum(row["rewards"]) for row, _ in ends if not row["missing"]]
    trained = [sum(row["rewards"]) for row, kept in ends if kept]
    expected = {"judgekit/reward_mean": graded_rewards, "reward/avg_raw_reward": graded_rewards}
    if not cfg.trainer.algorithm.use_kl_in_reward:
        expected["loss/avg_final_rewards"] = trained
    curves = 0.0
    for name, rewards in expected.items():
        told = {**graded.figures, **logged}.get(name)
        wrong += (told is None) != (not rewards)  # what nobody was paid has no point in a curve
        if told is not None and rewards:
            curves = max(curves, abs(told - float(np.mean(rewards))))
    return int(wrong), curves


class _Graded:
    """What judgekit makes of rows whose rewards a judge gives, which is down for some."""

    def __init__(self, rows: list[Row]) -> None:
        ends = {f"{row['prompt']}_{row['repetition']}": row for row in rows if row["last"]}

        @grader(score_range=(0.0, 100.0))
        async def judge(rollout: Rollout) -> float:
            row = ends[rollout.id]
            if row["missing"]:
                raise JudgeUnavailable("down")
            return float(sum(row["rewards"]))

        with TemporaryDirectory() as folder:
            path = Path(folder) / "ledger.jsonl"
            found = hosted_runner(
                runner=GradingRunner([judge], ledger=Ledger(path)),
                grouped=True,
                can_mask=True,
                can_exclude=True,
                grouping_hint="",
            )
            rollouts = [Rollout(response="", group=row["prompt"], id=id) for id, row in ends.items()]
            results = found.runner.run_sync(rollouts)
            entries = {entry.id: entry for entry in read_ledger(path).entries}
        counts = Counts()
        for result in results:
            counts.add(result)
        self.figures = counts.figures()
        self.numbers: dict[Any, float] = {}
        for start in range(0, len(results), GROUP):
            keys = [(row["prompt"], row["repetition"]) for row in list(ends.values())[start : start + GROUP]]
            self.numbers |= zip(keys, found.numbers(results[start : start + GROUP]), strict=True)
        self.entries = {(row["prompt"], row["repetition"]): entries[id] for id, row in ends.items()}


def _alone(rows: list[Row], cfg: Any) -> list[Any]:
    """A batch that never had the others: one mini-batch, as the whole of the other is."""
    one = patch.object(
        part("trainer"),
        "compute_prompt_mini_batch_boundaries",
        lambda uids, *_: [(0, len(uids))],
        create=TRAIN,
    )
    with one:
        ours = cfg.trainer.algorithm.advantage_estimator == "judgekit_turn_grpo"  # SkyRL has none such
        return loss_weights(make_trainer() if ours else RayPPOTrainer, rows, cfg, fully_async=False)


def _output(rows: list[Row], cfg: Any) -> dict[str, Any]:
    step_wise = cfg.generator.step_wise_trajectories
    return {
        "prompt_token_ids": [row["prompt_ids"] for row in rows],
        "response_ids": [row["ids"] for row in rows],
        "rewards": [row["rewards"] for row in rows],
        "loss_masks": [row["mask"] for row in rows],
        "stop_reasons": [row.get("stop", "stop") for row in rows],
        "rollout_metrics": {},
        "rollout_logprobs": None,
        "rollout_expert_indices": None,
        "trajectory_ids": [TrajectoryID(str(row["prompt"]), row["repetition"]) for row in rows]
        if step_wise
        else None,
        "is_last_step": [row["last"] for row in rows] if step_wise else None,
    }
