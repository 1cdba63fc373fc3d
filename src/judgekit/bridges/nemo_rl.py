"""NeMo-RL: an environment that ends each episode with a reward.

    from nemo_rl.distributed.ray_actor_environment_registry import ACTOR_ENVIRONMENT_REGISTRY
    from nemo_rl.distributed.virtual_cluster import PY_EXECUTABLES
    from nemo_rl.environments.utils import register_env

    actor = "judgekit.bridges.nemo_rl.JudgeKitActor"
    ACTOR_ENVIRONMENT_REGISTRY[actor] = PY_EXECUTABLES.SYSTEM
    register_env("judgekit", actor)                                          # and env: {judgekit: {reward: reward.yaml}}

A missing reward becomes the mean of its group, where `metadata` names groups (`group`); NeMo-RL has no other way to say it.
A row that is alone in its group has no such mean, and ends the step with a MissingRewardError. With asynchronous rollouts
NeMo-RL hands over samples one by one: graders of groups are refused then, and a missing reward needs a number or `raise`.

With `terms: true` beside `reward`, NeMo-RL gets each term of the top `weighted`, times its weight, as `reward/<name>` for its GDPO.
That divides each by its deviation, so write the weights once more, in the order of the names:
`grpo.adv_estimator: {name: gdpo, reward_weights: […]}`; the log says which.

Source: NeMo-RL 7ea279a, nemo_rl/environments/interfaces.py, nemo_rl/environments/utils.py, nemo_rl/experience/rollouts.py
(`multi_rewards`), nemo_rl/algorithms/advantage_estimator.py (`GDPOAdvantageEstimator`).
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from itertools import chain
from typing import Any

import ray
import torch
from nemo_rl.environments.interfaces import EnvironmentInterface, EnvironmentReturn

from judgekit.bridges.bridge import bridge, reward_file, value
from judgekit.trainers import rollout_of
from judgekit.types import RewardResult, Rollout

logger = logging.getLogger("judgekit")


class JudgeKitEnvironment(EnvironmentInterface):  # type: ignore[misc]
    """Grades message logs. *cfg*: `reward`, the path of a reward.yaml; `terms`, whether NeMo-RL gets its terms."""

    def __init__(self, cfg: dict[str, Any]) -> None:
        self._file = reward_file(cfg.get("reward"))
        self._terms = bool(cfg.get("terms", False))
        if self._terms:
            weights = sorted(bridge(self._file, grouped=True).weights(fills=True).items())
            logger.info(
                "NeMo-RL's GDPO: grpo.adv_estimator.reward_weights: %s, for %s",
                [abs(weight) for _, weight in weights],
                ", ".join(name for name, _ in weights),
            )

    def step(self, message_log_batch: Sequence[Any], metadata: Sequence[dict[str, Any]]) -> Any:
        """Grade a batch of message logs. *metadata*: the rows, with a reference and, where known, a `group`.

        A single sample is graded alone, whatever group it is of. Raises MissingRewardError, ConfigError.
        """
        pairs = list(zip(message_log_batch, metadata, strict=True))
        grouped = len(pairs) > 1 and all(row.get("group") is not None for row in metadata)
        groups: dict[Any, list[int]] = {}
        for i, row in enumerate(metadata):
            groups.setdefault(str(row["group"]) if grouped else i, []).append(i)
        graded = bridge(self._file, grouped=grouped).grade_groups(
            [[_rollout(*pairs[i]) for i in places] for places in groups.values()]
        )
        results = dict(zip(chain(*groups.values()), chain(*graded), strict=True))
        return EnvironmentReturn(
            observations=[{"role": "environment", "content": ""} for _ in pairs],
            metadata=list(metadata),
            next_stop_strings=[None] * len(pairs),
            rewards=self._by_term(graded, [i for places in groups.values() for i in places])
            if self._terms
            else torch.tensor([value(results[i]) for i in range(len(pairs))], dtype=torch.float32),
            terminateds=torch.ones(len(pairs)),
            answers=None,
        )

    def _by_term(self, graded: Sequence[Sequence[RewardResult]], places: Sequence[int]) -> dict[str, Any]:
        """Return each term's tensor. *places*: of the groups' results in the batch. Raises MissingRewardError."""
        found: dict[str, list[float]] = {}
        for results in graded:
            for result in results:
                value(result)
            for name, numbers in bridge(self._file, grouped=True).term_numbers(results).items():
                found.setdefault(name, []).extend(numbers)
        return {
            name: torch.tensor(
                [number for _, number in sorted(zip(places, numbers, strict=True))], dtype=torch.float32
            )
            for name, numbers in found.items()
        }

    def global_post_process_and_metrics(self, batch: Any) -> tuple[Any, dict[str, float]]:
        """Return the batch as it is: NeMo-RL's interface asks for this method, and no trainer of it calls it."""
        return batch, {}


JudgeKitActor = ray.remote(max_concurrency=1000)(JudgeKitEnvironment)
"""The environment as a Ray actor, as NeMo-RL's launchers start it, for as many samples at once as come one by one."""


def _rollout(log: Sequence[dict[str, Any]], row: dict[str, Any]) -> Rollout:
    messages = [{"role": message["role"], "content": message["content"]} for message in log]
    # an episode ends with its first step: what the assistant said before is the prompt's history
    said = (i for i, message in reversed([*enumerate(messages)]) if message["role"] == "assistant")
    last = next(said, len(messages))
    group = str(row["group"]) if row.get("group") is not None else None
    return rollout_of(row, prompt=messages[:last], turns=messages[last:], group=group)
