"""verl's advantages of batches with missing rewards, as our hook treats them, and of the valid members alone."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
import torch
from omegaconf import OmegaConf
from tensordict import TensorDict
from verl import DataProto
from verl.trainer.ppo.ray_trainer import compute_advantage
from verl.trainer.ppo.v1.utils import compute_advantage_for_multi_trajectories

from judgekit import GradingRunner, JudgeUnavailable, Ledger, Rollout, grader, read_ledger
from judgekit.trainers import Counts, hosted_runner
from judgekit_verl import estimators
from judgekit_verl.curves import leave_out_of_curves
from judgekit_verl.group import leave_out
from judgekit_verl.sessions import LEFT_OUT

PROMPTS, N, TOKENS = 12, 8, 24


class Case(NamedTuple):
    name: str
    """As written in `algorithm.adv_estimator`."""
    v1: bool
    std: bool = True
    most: int = 7
    """Missing members of 8 up to which it is exact."""

    def __str__(self) -> str:
        return f"{'V1' if self.v1 else 'V0'} {self.name}{'' if self.std else ' without std'}"


CASES = [
    *(
        Case(name, True)
        for name in (
            "grpo",
            "grpo_vectorized",
            "rloo",
            "rloo_vectorized",
            "opo",
            "reinforce_plus_plus",
            "judgekit_reinforce_plus_plus_baseline",
            "judgekit_grpo_passk",
            "judgekit_gpg",
            "remax",
            "gae",
            "optimal_token_baseline",
        )
    ),
    Case("grpo", True, std=False),
    Case("gdpo", True, most=6),
    Case("reinforce_plus_plus_baseline", True, most=6),
    *(Case("judgekit_" + name, False) for name in estimators.REGISTERED),
    *(Case(name, False) for name in ("reinforce_plus_plus", "reinforce_plus_plus_baseline", "remax", "gae")),
    Case("grpo", False, std=False),
    Case("judgekit_grpo", False, std=False),
    Case("judgekit_turn_grpo", True),
    Case("judgekit_turn_grpo", False),
]
NOT_EXACT = {
    "V1 gdpo, fewer than 2 of a group valid": "the two tokens that such a group keeps count in the batch's whitening "
    "(verl 0.9.1's V1 trainer itself stops at GDPO: KeyError 'prompts')",
    "V1 reinforce_plus_plus_baseline, fewer than 2 of a group valid": "the same; judgekit_reinforce_plus_plus_baseline "
    "is exact",
    "V0 gdpo": "verl hands the terms' columns to the estimator called gdpo alone, and V0 keeps the uid: refused unless "
    "missing_reward: raise; transform: gdpo and judgekit_reinforce_plus_plus_baseline are the same, and exact",
    "V0 optimal_token_baseline, tir_optimal_token_baseline": "need columns that verl hands to these names alone: neutral",
}


class Compared(NamedTuple):
    error: float
    """Of a valid row's advantage, the largest."""
    of_missing: float
    """The largest advantage of a row that is left out."""
    recorded_wrong: int
    """Rows, and figures, of which ledger or figures say another thing than what the trainer did."""
    curve_error: float
    """Of judgekit's curves, the largest, against numpy over what was graded."""


def compare(case: Case, missing: int, *, seed: int, binary: bool = False, neutral: bool = False) -> Compared:
    """Compare a batch's advantages with those of the valid members alone, and what is recorded with what was done.

    *missing*: of each odd group's 8 members; of every fourth, one less; even groups are whole.
    *neutral*: without our treatment.
    """
    made = _batch(seed, missing, binary)
    algorithm = OmegaConf.create(
        {
            "adv_estimator": case.name,
            "norm_adv_by_std_in_grpo": case.std,
            "gamma": 1.0,
            "lam": 0.95,
            "use_pf_ppo": False,
            "gdpo_reward_keys": ["a", "b"],
            "gdpo_reward_weights": [0.7, 0.3],
        }
    )
    treatment = None if neutral else estimators.treatment(algorithm, made.hosted, v1=case.v1)
    assert neutral or treatment is not None
    fates: list[Any] = [None] * len(made.missing)
    if treatment is not None:
        for p in range(PROMPTS):
            members = slice(p * N, p * N + N)
            fates[members] = treatment.of_group(made.missing[members].tolist())
    trained = np.array([fate is None for fate in fates]) & (~made.missing if neutral else True)
    rows = np.flatnonzero(trained)
    reference = algorithm.copy()
    if case.name != "judgekit_turn_grpo":  # verl has none such
        reference.adv_estimator = case.name.removeprefix("judgekit_")
    expected = _advantages(
        made.data(made.uid, made.mask, case).select_idxs(torch.tensor(rows)),
        reference,
        [made.keys[i] for i in rows],
        case,
    )
    uid, mask = made.uid.copy(), made.mask.clone()
    if case.v1:
        for i, fate in enumerate(fates):
            if fate is not None:
                uid[i] = fate.uid(uid[i], i % N)
                length = int(made.length[i])
                mask[i, :length] = torch.tensor(fate.mask(mask[i, :length].tolist()))
    data = made.data(uid, mask, case)
    if not case.v1 and not neutral:
        leave_out(data, fates, made.length - 1)
    got = _advantages(data, algorithm, made.keys, case)
    loss = got * data.batch["response_mask"]
    error = float((got - _scattered(expected, rows, got))[rows].mul(made.mask[rows]).abs().max())
    others = torch.tensor(~trained)
    of_missing = float(loss[others].abs().max()) if others.any() else 0.0
    reached = (
        data.batch["response_mask"].sum(1) > 1
    ).numpy()  # a row that is left out keeps one token at most
    return Compared(
        error, of_missing, 0 if neutral else made.recorded_wrong(fates, reached), made.curve_error()
    )


def _scattered(part: torch.Tensor, rows: Any, like: torch.Tensor) -> torch.Tensor:
    whole = torch.zeros_like(like)
    whole[torch.tensor(rows)] = part
    return whole


def _advantages(data: DataProto, algorithm: Any, keys: list[str], case: Case) -> torch.Tensor:
    given = {
        "adv_estimator": algorithm.adv_estimator,
        "gamma": algorithm.gamma,
        "lam": algorithm.lam,
        "num_repeat": N,
        "norm_adv_by_std_in_grpo": algorithm.norm_adv_by_std_in_grpo,
        "config": algorithm,
    }
    if case.v1:
        data = compute_advantage_for_multi_trajectories(data, batch_keys=keys, **given)
    else:
        data = compute_advantage(data, **given)
    return data.batch["advantages"]


def gdpo_by_transform(missing: int, *, seed: int, v1: bool) -> float:
    """Largest difference of `transform: gdpo` and verl's GDPO over the members that can be compared."""
    made = _Batch(np.random.default_rng(seed), missing, False, transform="gdpo")
    case = Case("judgekit_reinforce_plus_plus_baseline", v1)
    given = {"adv_estimator": case.name, "norm_adv_by_std_in_grpo": True, "gamma": 1.0, "lam": 1.0}
    terms = {"gdpo_reward_keys": ["a", "b"], "gdpo_reward_weights": [0.7, 0.3]}
    algorithm = OmegaConf.create({**given, **terms})
    treatment = estimators.treatment(algorithm, made.hosted, v1=v1)
    assert treatment is not None
    fates: list[Any] = []
    for start in range(0, len(made.missing), N):
        fates += treatment.of_group([status != "scored" for status in made.statuses[start : start + N]])
    rows = np.flatnonzero([fate is None for fate in fates])
    uid, mask = made.uid.copy(), made.mask.clone()
    for row, fate in enumerate(fates):
        if fate is not None:
            mask[row] = 0
    reference = OmegaConf.merge(algorithm, {"adv_estimator": "gdpo"})
    alone = made.data(made.uid, made.mask, case).select_idxs(torch.tensor(rows))
    expected = _advantages(alone, reference, [made.keys[i] for i in rows], case._replace(name="gdpo"))
    got = _advantages(made.data(uid, mask, case), algorithm, made.keys, case)
    return float((got[torch.tensor(rows)] - expected).mul(made.mask[rows]).abs().max())


@lru_cache
def _batch(seed: int, missing: int, binary: bool) -> _Batch:
    return _Batch(np.random.default_rng(seed), missing, binary)


class _Batch:
    """As the trainers have it before the advantages: padded on the right, with tools' tokens in between."""

    def __init__(self, rng: Any, missing: int, binary: bool, transform: Any = "none") -> None:
        self.transform = transform
        count = PROMPTS * N
        self.length = torch.tensor(rng.integers(6, TOKENS + 1, count))
        self.attention = (torch.arange(TOKENS)[None] < self.length[:, None]).long()
        self.mask = self.attention.clone()
        for i in range(0, count, 3):
            self.mask[i, 2:4] = 0
        uids = np.array([f"{p:08d}-0000" for p in range(PROMPTS)], dtype=object)
        self.uid = np.repeat(uids, N)
        self.keys = [f"{uid}_{i % N}_0" for i, uid in enumerate(self.uid)]
        self.terms = rng.random((2, count))
        if binary:
            self.terms = np.repeat(rng.random((1, count)) > 0.5, 2, axis=0) * 1.0
        self.missing = np.zeros(count, bool)
        for p in range(1, PROMPTS, 2):
            lost = max(0, missing - (p % 4 == 3))
            self.missing[p * N + rng.permutation(N)[:lost]] = True
        self._grade()
        self.logp = -torch.tensor(rng.random((count, TOKENS)), dtype=torch.float32)
        self.values = torch.tensor(rng.random((count, TOKENS)), dtype=torch.float32)
        self.pi2 = torch.exp(2 * self.logp) + 0.1
        self.baselines = torch.tensor(np.repeat(rng.random(PROMPTS), N), dtype=torch.float32)

    def _grade(self) -> None:
        """Have judgekit grade the batch, its judge down for what is missing, and take the numbers for the tensor."""

        @grader
        async def a(rollout: Rollout) -> float:
            return self._term(0, int(rollout.id))

        @grader
        async def b(rollout: Rollout) -> float:
            return self._term(1, int(rollout.id))

        with TemporaryDirectory() as folder:
            path = Path(folder) / "ledger.jsonl"
            runner = GradingRunner(
                [a, b], {"a": 0.7, "b": 0.3}, transform=self.transform, ledger=Ledger(path)
            )
            self.hosted = hosted_runner(
                runner=runner, grouped=True, can_mask=True, can_exclude=True, grouping_hint=""
            )
            rollouts = [Rollout(response="", group=int(i // N), id=str(i)) for i in range(len(self.missing))]
            results = self.hosted.runner.run_sync(rollouts)
            self.statuses = [result.status for result in results]
            self.entries = {int(entry.id): entry for entry in read_ledger(path).entries}
        counts = Counts()
        self.scores = np.zeros(len(results))
        for start in range(0, len(results), N):
            group = results[start : start + N]
            self.scores[start : start + N] = self.hosted.numbers(group)
            gone = self.missing[start : start + N]
            for term in self.terms:  # verl's GDPO reads columns
                term[start : start + N][gone] = term[start : start + N][~gone].mean()
            for result, rollout in zip(group, rollouts[start : start + N], strict=True):
                counts.add(result, rollout)
        self.figures = counts.figures()

    def _term(self, term: int, row: int) -> float:
        if self.missing[row]:
            raise JudgeUnavailable("down")
        return float(self.terms[term][row])

    def recorded_wrong(self, fates: list[Any], reached: Any) -> int:
        """Count what is recorded otherwise than it was done. *reached*: rows whose loss is not masked."""
        wrong = 0
        for row, (fate, gone) in enumerate(zip(fates, self.missing, strict=True)):
            entry = self.entries[row]
            alone = (
                self.missing[row // N * N : row // N * N + N].sum() >= N - 1
            )  # with nobody to be compared with
            wrong += entry.status != ("excluded" if gone else "scored")
            wrong += (entry.reward is None) != gone
            wrong += bool(reached[row]) != (fate is None)
            wrong += (fate is not None) != gone and not (alone and fate is not None)
        share = float(self.missing.mean())
        wrong += abs(self.figures["judgekit/excluded_rate"] - share) > 1e-9
        wrong += abs(self.figures["judgekit/scored_rate"] - (1 - share)) > 1e-9
        tags = [{} if fate is None else {LEFT_OUT: True} for fate in fates]
        live = leave_out_of_curves(tags)[estimators.LIVE_SHARE]
        wrong += abs(live - float(np.mean(reached))) > 1e-9
        return int(wrong)

    def curve_error(self) -> float:
        """Return the largest error of judgekit's curves."""
        valid = ~self.missing
        rewards = 0.7 * self.terms[0][valid] + 0.3 * self.terms[1][valid]
        expected = {"reward_mean": rewards.mean(), "reward_std": rewards.std()}
        for name, term in zip("ab", self.terms, strict=True):
            expected |= {f"{name}/mean": term[valid].mean(), f"{name}/std": term[valid].std()}
        return max(abs(self.figures[f"judgekit/{name}"] - value) for name, value in expected.items())

    def data(self, uid: Any, mask: torch.Tensor, case: Case) -> DataProto:
        count = len(self.missing)
        rewards = torch.zeros(count, TOKENS)
        rewards[torch.arange(count), self.length - 1] = torch.tensor(self.scores, dtype=torch.float32)
        if case.name == "judgekit_turn_grpo":
            rewards[:, 1] = torch.tensor(self.terms[1], dtype=torch.float32)  # of the first turn
        prompts = torch.ones(count, 2, dtype=torch.long)
        tensors = {
            "token_level_scores": rewards,
            "token_level_rewards": rewards.clone(),
            "response_mask": mask.clone(),
            "values": self.values.clone(),
            "old_log_probs": self.logp.clone(),
            "sum_pi_squared": self.pi2.clone(),
            "responses": torch.ones(count, TOKENS, dtype=torch.long),
            "prompts": prompts,
            "attention_mask": torch.cat([prompts, self.attention], 1),
        }
        if case.name == "remax":
            tensors["reward_baselines"] = self.baselines.clone()
        columns = {"uid": uid, "a": self.terms[0], "b": self.terms[1]}
        return DataProto(batch=TensorDict(tensors, batch_size=count), non_tensor_batch=columns)
