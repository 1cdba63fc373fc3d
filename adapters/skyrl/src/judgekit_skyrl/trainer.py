"""Trains as if rollouts without a reward had never been generated."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from judgekit.trainers import AuditBeside
from judgekit_skyrl.env import hosted
from judgekit_skyrl.generator import EXCLUDED, JudgeKitGeneratorMixin

logger = logging.getLogger("judgekit")

_ABSENT = "judgekit_absent"
"""Key of a batch's metadata: for each row, whether it is left out."""
_ALONE = frozenset({"gae", "reinforce++"})
"""Estimators that do not compare a prompt's rollouts with each other."""

Bounds = Sequence[tuple[int, int]]


class JudgeKitTrainerMixin:
    """Leaves out rollouts without a reward, and logs judgekit's figures at every step.

    Mixed into a SkyRL trainer by `make_trainer`. A rollout that judgekit's generator has excluded has no loss and
    advantage 0; it is no part of its group's statistics, of the batch's, nor of the counts that the loss is divided
    by. An estimator that compares a prompt's rollouts needs two of them: the only valid one is left out, too.
    """

    generator: Any
    all_metrics: dict[str, float]
    cfg: Any
    _audits: AuditBeside | None = None

    async def train(self) -> None:
        """SkyRL's, with the audits that the reward.yaml asks for beside it. Raises FailureRateError, AuditAlarm."""
        if isinstance(self.generator, JudgeKitGeneratorMixin):
            self.generator.trainer_ends_steps = True
        found = hosted(str(self.cfg.environment.env_class))
        self._audits = AuditBeside.of(None if found is None else found.config)
        try:
            await super().train()  # type: ignore[misc]
        finally:
            if self._audits is not None:
                self._audits.close()

    async def eval(self, *args: Any, **kwargs: Any) -> dict[str, float]:
        """SkyRL's `eval`, with judgekit's figures. Raises FailureRateError."""
        metrics: dict[str, float] = await super().eval(*args, **kwargs)  # type: ignore[misc]
        return {**metrics, **{f"eval/{key}": value for key, value in self._figures("eval").items()}}

    def convert_to_training_input(self, generator_output: Mapping[str, Any], uids: list[str]) -> Any:
        """SkyRL's, which it calls once a step, with all rollouts of it. Raises FailureRateError, AuditAlarm."""
        self.all_metrics.update(self._figures("train"))
        if self._audits is not None:
            self.all_metrics.update(self._audits.figures())
        absent = self._absent(generator_output, uids)
        data = super().convert_to_training_input(generator_output, uids)  # type: ignore[misc]
        if any(absent):
            # after the conversion: it derives mini-batches from groups, which must stay what they are
            own = [
                f"{uid}: left out {i}" if gone else uid
                for i, (uid, gone) in enumerate(zip(uids, absent, strict=True))
            ]
            data.metadata["uids"] = own + list(data.metadata["uids"])[len(own) :]
            data.metadata[_ABSENT] = absent
            data["loss_mask"][: len(absent)][_tensor(absent)] = 0
        return data

    def compute_advantages_and_returns(self, data: Any) -> Any:
        absent = _absent_rows(data)
        if absent is None:
            return super().compute_advantages_and_returns(data)  # type: ignore[misc]
        mask, left = data["response_mask"], not bool(absent.all())
        if left:  # without a row, estimators that whiten would divide by nothing
            data["response_mask"] = mask.masked_fill(absent[:, None], 0)
        data = super().compute_advantages_and_returns(data)  # type: ignore[misc]
        data["response_mask"] = mask
        for key in ("advantages", "returns"):
            data[key] = data[key].masked_fill(absent[:, None], 0.0)
        if not left:
            logger.warning(
                "no two rollouts of a prompt have a reward in this step: there is nothing to train on"
            )
            self.all_metrics.update({"loss/avg_raw_advantages": 0.0, "loss/avg_raw_advantages_abs": 0.0})
        return data

    def _normalize_advantages(self, data: Any, mini_batches: Bounds, *prompts: Bounds | None) -> Any:
        absent = _absent_rows(data)
        if absent is None or self.cfg.trainer.algorithm.loss_reduction == "token_mean_legacy":
            return super()._normalize_advantages(data, mini_batches, *prompts)  # type: ignore[misc]
        live = (~absent).nonzero().squeeze(-1)
        before = [0, *(~absent).cumsum(0).tolist()]

        def moved(bounds: Bounds | None) -> Bounds | None:
            return bounds and [(before[a], before[b]) for a, b in bounds if before[a] < before[b]]

        advantages = data["advantages"].new_zeros(data["advantages"].shape)
        if len(live):
            part = type(data)({key: data[key][live] for key in ("advantages", "response_mask", "loss_mask")})
            part.metadata = {}
            part = super()._normalize_advantages(part, moved(mini_batches), *map(moved, prompts))  # type: ignore[misc]
            advantages[live] = part["advantages"]
        data["advantages"] = advantages
        return data

    def _absent(self, output: Mapping[str, Any], uids: Sequence[str]) -> list[bool]:
        """Say of each row whether it is left out."""
        absent = [reason == EXCLUDED for reason in output.get("stop_reasons") or [""] * len(uids)]
        if self.cfg.trainer.algorithm.advantage_estimator in _ALONE:
            return absent
        last = output.get("is_last_step") or [True] * len(uids)
        valid = Counter(uid for uid, gone, end in zip(uids, absent, last, strict=True) if end and not gone)
        torn = {uid for uid, gone in zip(uids, absent, strict=True) if gone}
        return [gone or (uid in torn and valid[uid] < 2) for uid, gone in zip(uids, absent, strict=True)]

    def _figures(self, phase: str) -> dict[str, float]:
        generator = getattr(self, "generator", None)
        return generator.end_step(phase) if isinstance(generator, JudgeKitGeneratorMixin) else {}


def _absent_rows(data: Any) -> Any:
    """The flags of the batch's rows as a tensor, padding included; None where all rows are there."""
    absent = (data.metadata or {}).get(_ABSENT)
    if absent is None:
        return None
    return _tensor(absent + [True] * (len(data["response_mask"]) - len(absent)))


def _tensor(flags: Sequence[bool]) -> Any:
    import torch

    return torch.tensor(flags, dtype=torch.bool)


def make_trainer(base: type | None = None) -> type:
    """Return *base* (default: RayPPOTrainer) with the mixin; construct it like *base*."""
    if base is None:
        from skyrl.train.trainer import RayPPOTrainer

        base = RayPPOTrainer
    return type(f"JudgeKit{base.__name__}", (JudgeKitTrainerMixin, base), {})
