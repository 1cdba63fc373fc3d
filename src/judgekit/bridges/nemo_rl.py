"""NeMo-RL: an environment that ends each episode with a reward.

    env = ray.remote(JudgeKitEnvironment).remote({"reward": "reward.yaml"})

A missing reward becomes the mean of its group, where `metadata` names groups (`group`); NeMo-RL has no other way to say it.
A row that is alone in its group has no such mean, and ends the step with a MissingRewardError. So for rows without groups, or
with one rollout each (a validation), write `missing_reward: <number>` or `raise`.

Source: NeMo-RL 0.5, nemo_rl/environments/interfaces.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any

import torch
from nemo_rl.environments.interfaces import EnvironmentInterface, EnvironmentReturn

from judgekit.bridges.bridge import bridge, figures, reward_file, value
from judgekit.trainers import rollout_of
from judgekit.types import RewardResult, Rollout


class JudgeKitEnvironment(EnvironmentInterface):  # type: ignore[misc]
    """Grades message logs. *cfg*: `reward`, the path of a reward.yaml."""

    def __init__(self, cfg: dict[str, Any]) -> None:
        self._file = reward_file(cfg.get("reward"))
        self._last: list[RewardResult] = []

    def step(self, message_log_batch: Sequence[Any], metadata: Sequence[dict[str, Any]]) -> Any:
        """Grade a batch of message logs. *metadata*: the rows, with a reference and, where known, a `group`."""
        pairs = list(zip(message_log_batch, metadata, strict=True))
        grouped = all(row.get("group") is not None for row in metadata)
        groups: dict[Any, list[int]] = {}
        for i, row in enumerate(metadata):
            groups.setdefault(str(row["group"]) if grouped else i, []).append(i)
        graded = bridge(self._file, grouped=grouped).grade_groups(
            [[_rollout(*pairs[i]) for i in places] for places in groups.values()]
        )
        results = dict(zip(chain(*groups.values()), chain(*graded), strict=True))
        self._last = [results[i] for i in range(len(pairs))]
        return EnvironmentReturn(
            observations=[{"role": "environment", "content": ""} for _ in pairs],
            metadata=list(metadata),
            next_stop_strings=[None] * len(pairs),
            rewards=torch.tensor([value(result) for result in self._last], dtype=torch.float32),
            terminateds=torch.ones(len(pairs)),
            answers=None,
        )

    def global_post_process_and_metrics(self, batch: Any) -> tuple[Any, dict[str, float]]:
        """Add the last step's means per grader, and the share of missing rewards."""
        found: dict[str, list[float]] = {}
        for result in self._last:
            for name, figure in figures(result).items():
                found.setdefault(name, []).append(figure)
        return batch, {name: sum(values) / len(values) for name, values in found.items()}


def _rollout(log: Sequence[dict[str, Any]], row: dict[str, Any]) -> Rollout:
    messages = [{"role": message["role"], "content": message["content"]} for message in log]
    first = next((i for i, message in enumerate(messages) if message["role"] == "assistant"), len(messages))
    group = str(row["group"]) if row.get("group") is not None else None
    return rollout_of(row, prompt=messages[:first], turns=messages[first:], group=group)
