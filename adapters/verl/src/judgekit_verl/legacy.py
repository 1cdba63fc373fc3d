"""The reward manager for verl 0.4.1 to 0.7.0, called with a whole batch."""

from __future__ import annotations

import logging
import math
from typing import Any

import msgspec
import torch

from judgekit import ConfigError
from judgekit.trainers import plain, run_blocking
from judgekit.types import content_text
from judgekit_verl.estimators import Treatment
from judgekit_verl.openjudge import (
    RewardFunction,
    RewardSample,
    RunnerFunction,
    check_unused,
    checked,
    details_text,
    reward_function,
)
from judgekit_verl.samples import rollout_of_row
from judgekit_verl.settings import settings

logger = logging.getLogger("judgekit")

ALONE_IS_NEUTRAL = ("grpo", "rloo", "opo")
"""Estimators that give a rollout with a uid of its own, and the reward 0, the advantage 0."""


class JudgeKitLegacyRewardManager:
    """`(tokenizer, num_examine, compute_score=None, reward_fn_key="data_source", **reward_kwargs)`.

    Grades a batch with one call on judgekit's background loop, so that connections and engines survive from
    step to step. Rows are grouped by `uid`, in any order; without uids (validation before 0.6) by prompt and
    ground truth. The reward goes on the last token of the response. A batch that already has `rm_scores` is
    not graded again.

    With `judgekit_adv_estimator`, the trainer's `algorithm.adv_estimator`, and `missing_reward: exclude`, a rollout without a
    reward gets a uid of its own in training, so that its siblings' advantages are those of a group without it. verl does
    not tell this manager the estimator, and only `ALONE_IS_NEUTRAL` allow it. With `algorithm.use_kl_in_reward` the KL
    penalty comes on top of that reward, and is such a rollout's advantage.

    *compute_score*: an object with `compute_batch_scores` (see `judgekit_verl.openjudge`), instead of a
    runner. *reward_kwargs*: as in `judgekit_verl.settings`. *num_examine*: samples of each data source to
    print. Can be pickled, because verl 0.5 sends it to a Ray task.
    """

    def __init__(
        self,
        tokenizer: Any,
        num_examine: int = 0,
        compute_score: Any = None,
        reward_fn_key: str = "data_source",
        reward_manager_class_path: str | None = None,
        **reward_kwargs: Any,
    ) -> None:
        self.tokenizer = tokenizer
        self.num_examine = num_examine
        self.reward_fn_key = reward_fn_key
        self._kwargs = reward_kwargs
        self._excludes = False
        estimator = reward_kwargs.get("judgekit_adv_estimator")
        if estimator is not None and estimator not in ALONE_IS_NEUTRAL:
            raise ConfigError(
                f"judgekit_adv_estimator={estimator}: this manager can leave rollouts out for {', '.join(ALONE_IS_NEUTRAL)} "
                "only; without the setting a missing reward is the mean of its group"
            )
        self._given: RewardFunction | None = reward_function(compute_score)
        self._function: RewardFunction | None = self._given
        if self._given is None:
            check_unused(compute_score)
            self._function = self._from_settings()  # report mistakes now, not after the first batch

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_function": self._given}

    def __call__(self, data: Any, return_dict: bool = False) -> Any:
        """Grade a batch.

        Returns a tensor (rows, response length), or with *return_dict* a mapping with `reward_tensor` and
        `reward_extra_info` (lists by name, one value per row). verl swallows an exception and calls again
        without *return_dict*. The second call raises the same error without grading, so that no verdict is
        paid for twice.
        """
        if "rm_scores" in data.batch.keys():  # noqa: SIM118, a TensorDict is no mapping
            return self._scored_already(data, return_dict)
        error = getattr(data, "_judgekit_error", None)
        if error is not None:
            raise error
        try:
            tensor, extra = self._grade(data)
        except Exception as failure:
            data._judgekit_error = failure
            raise
        return {"reward_tensor": tensor, "reward_extra_info": extra} if return_dict else tensor

    def _grade(self, data: Any) -> tuple[torch.Tensor, dict[str, list[Any]]]:
        samples = self._samples(data)
        groups: dict[Any, list[RewardSample]] = {}
        for sample in samples:
            uid = sample.extra.get("uid")
            key = uid if uid is not None else (sample.prompt, repr(sample.extra.get("ground_truth")))
            group = groups.setdefault(key, [])
            sample.group_index = len(group)
            group.append(sample)
        by_prompt = {str(key): group for key, group in groups.items()}
        if self._function is None:
            self._function = self._from_settings()
        results = checked(
            run_blocking(self._function.compute_batch_scores(by_prompt)),
            len(samples),
            type(self._function).__name__,
        )
        responses = data.batch["responses"]
        valid = data.batch["attention_mask"][:, -responses.shape[-1] :].sum(-1)
        tensor = torch.zeros_like(responses, dtype=torch.float32)
        columns = _columns(results)
        scores = torch.tensor([float(r.score) for r in results])
        if self._excludes and not data.meta_info.get("validate") and "uid" in data.non_tensor_batch:
            out = _left_out(list(groups.values()), columns["judgekit/missing"])
            # verl adds these columns to the batch, and groups advantages by this one
            columns["uid"] = [
                f"{sample.extra['uid']}:{row}" if row in out else sample.extra["uid"]
                for row, sample in enumerate(samples)
            ]
            scores[sorted(out)] = 0.0
        tensor[torch.arange(len(samples)), (valid - 1).clamp(min=0)] = scores
        self._examine(samples, results)
        return tensor, columns

    def _samples(self, data: Any) -> list[RewardSample]:
        samples = []
        for index in range(len(data)):
            item = data[index]
            rollout = rollout_of_row(item, self.tokenizer)
            columns = {k: plain(v) for k, v in item.non_tensor_batch.items()}
            source = plain(columns.get(self.reward_fn_key))
            rollout = msgspec.structs.replace(rollout, data_source=str(source or ""))
            columns |= {
                "ground_truth": rollout.ground_truth,
                "data_source": source,
            }
            columns = {**(columns.get("extra_info") or {}), **columns}
            samples.append(
                RewardSample(
                    original_index=index,
                    group_index=0,
                    prompt=rollout.prompt_text,
                    response=rollout.response,
                    messages=list(rollout.messages),
                    rollout=rollout,
                    extra=columns,
                )
            )
        return samples

    def _from_settings(self) -> RunnerFunction:
        estimator = self._kwargs.get("judgekit_adv_estimator")
        made = settings(self._kwargs, hook=True, can_exclude=estimator is not None)
        if made.hosted.mask and not made.hosted.exclude:
            raise ConfigError(
                "verl cannot leave a rollout out of its loss here: write missing_reward: neutral"
            )
        if made.hosted.runner.reward.has_turns:
            raise ConfigError(
                "{turns: …} pays turns on their own tokens, which this verl's managers cannot: it needs verl 0.7.1 or later"
            )
        self._excludes = made.hosted.exclude
        # here a run is a whole batch, so the runner can check its own failure rate
        runner = made.hosted.runner.with_settings(max_failure_rate=made.hosted.max_failure_rate)
        return RunnerFunction(runner, made.extras, made.hosted.numbers)

    def _scored_already(self, data: Any, return_dict: bool) -> Any:
        if not return_dict:
            return data.batch["rm_scores"]
        keys = data.meta_info.get("reward_extra_keys", [])
        return {
            "reward_tensor": data.batch["rm_scores"],
            "reward_extra_info": {key: data.non_tensor_batch[key] for key in keys},
        }

    def _examine(self, samples: list[RewardSample], results: list[Any]) -> None:
        shown: dict[str, int] = {}
        for sample, result in zip(samples, results, strict=True):
            source = str(sample.extra.get("data_source"))
            if shown.get(source, 0) < self.num_examine:
                shown[source] = shown.get(source, 0) + 1
                print(  # noqa: T201, verl's num_examine asks for it
                    f"[prompt] {content_text(sample.prompt)}\n[response] {sample.response}\n"
                    f"[ground_truth] {sample.extra.get('ground_truth')}\n[score] {result.score}\n"
                    f"[reward_info] {result.reward_info}",
                    flush=True,
                )


def _left_out(groups: list[list[RewardSample]], missing: list[float]) -> set[int]:
    """Rows that are compared with nobody."""
    out = set()
    for group in groups:
        rows = [sample.original_index for sample in group]
        fates = Treatment(own_uid=True, least=2).of_group([missing[row] == 1 for row in rows])
        out |= {row for row, fate in zip(rows, fates, strict=True) if fate is not None}
    return out


def _columns(results: list[Any]) -> dict[str, list[Any]]:
    """Returns `reward_extra_info`: one value per row for each name, and the details as JSON."""
    infos = [dict(result.reward_info or {}) for result in results]
    names = list(dict.fromkeys(name for info in infos for name in info))
    columns = {name: _whole([info.get(name) for info in infos]) for name in names}
    if "details" in columns:
        raise ConfigError(
            "reward_info has a key 'details', which is reserved for the results' details: rename it"
        )
    columns["details"] = [details_text(result) for result in results]
    return columns


def _whole(values: list[Any]) -> list[Any]:
    """Replaces None, which validation in these versions cannot average."""
    gap: Any = "" if any(isinstance(value, str) for value in values) else math.nan
    return [gap if value is None else value for value in values]


try:
    from verl.workers.reward_manager import register

    register("judgekit")(JudgeKitLegacyRewardManager)
except (ImportError, AssertionError, ValueError):  # a verl without these managers, or a second import
    pass


def compute_score(*_: Any, **__: Any) -> float:
    """A target for `custom_reward_function.name`, so that verl 0.6 imports this file; never called."""
    raise ConfigError("judgekit grades in its reward manager: set reward_model.reward_manager=judgekit")
