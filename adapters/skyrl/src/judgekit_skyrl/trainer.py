"""Trains as if rollouts without a reward had never been generated."""

from __future__ import annotations

import inspect
import itertools
import logging
import sys
from collections import Counter
from collections.abc import Awaitable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from statistics import fmean
from typing import Any, NamedTuple

from judgekit import ConfigError
from judgekit.trainers import TURN_ESTIMATOR, AuditBeside, turn_advantages, turn_runs
from judgekit_skyrl.entrypoints import class_of
from judgekit_skyrl.env import hosted, pays_turns
from judgekit_skyrl.generator import EXCLUDED, JudgeKitGeneratorMixin

logger = logging.getLogger("judgekit")

_ABSENT = "judgekit_absent"
"""Key of a batch's metadata: for each row, whether it is left out."""
_ALONE = frozenset({"gae", "reinforce++"})
"""Estimators that do not compare a prompt's rollouts with each other."""
_BLIND = frozenset({"grpo", "rloo", "maxrl"})
"""Estimators that add up a trajectory's rewards."""
_SKYRL_TRAIN = "skyrl_train.utils.ppo_utils"
"""Its estimators, and what its loops normalise by; imported where its trainers are."""

Bounds = Sequence[tuple[int, int]]


class JudgeKitTrainerMixin:
    """Leaves out rollouts without a reward, and logs judgekit's figures at every step.

    Mixed into a SkyRL trainer by `make_trainer`. A rollout that judgekit's generator has excluded has no loss and
    advantage 0; it is no part of its group's statistics, of the batch's, nor of the counts that the loss is divided
    by. An estimator that compares a prompt's rollouts needs two of them: the only valid one is left out, too.

    With the estimator `judgekit_turn_grpo`, advantages are those of turns (`judgekit.reward.turns`), of whole and of step-wise
    trajectories.
    """

    generator: Any
    all_metrics: dict[str, float]
    cfg: Any
    _audits: AuditBeside | None = None

    def train(self) -> Any:
        """SkyRL's, with the audits that the reward.yaml asks for beside it. Raises FailureRateError, AuditAlarm, ConfigError.

        To be awaited, but for skyrl_train's synchronous trainer, which has trained when this returns.
        """
        with ExitStack() as stack:
            stack.enter_context(self._beside())
            done = super().train()  # type: ignore[misc]
            return _until(done, stack.pop_all()) if inspect.isawaitable(done) else done

    @contextmanager
    def _beside(self) -> Iterator[None]:
        used = self.cfg.trainer.algorithm.advantage_estimator
        if used in _BLIND and pays_turns():
            raise ConfigError(
                f"trainer.algorithm.advantage_estimator={used} adds up a trajectory's rewards and cannot see which turn earned what: "
                f"write trainer.algorithm.advantage_estimator={TURN_ESTIMATOR}"
            )
        if isinstance(self.generator, JudgeKitGeneratorMixin):
            self.generator.trainer_ends_steps = True
        found = hosted(str(self.cfg.environment.env_class))
        self._audits = AuditBeside.of(None if found is None else found.config)
        try:
            yield
        finally:
            if self._audits is not None:
                self._audits.close()

    async def eval(self, *args: Any, **kwargs: Any) -> dict[str, float]:
        """SkyRL's `eval`, with judgekit's figures. Raises FailureRateError."""
        metrics: dict[str, float] = await super().eval(*args, **kwargs)  # type: ignore[misc]
        return {**metrics, **{f"eval/{key}": value for key, value in self._figures("eval").items()}}

    def postprocess_generator_output(
        self, generator_output: Mapping[str, Any], uids: list[str], *args: Any, **kwargs: Any
    ) -> Any:
        """SkyRL's; its curves of rewards are over the rollouts that have one, if any."""
        given = inspect.signature(super().postprocess_generator_output).bind(  # type: ignore[misc]
            generator_output, uids, *args, **kwargs
        )
        told = given.arguments
        counted = told.get("metrics_generator_output") or generator_output  # with the groups that SkyRL drops
        curves = _reward_curves(counted, told.get("metrics_uids") or uids)
        made = super().postprocess_generator_output(*given.args, **given.kwargs)  # type: ignore[misc]
        if curves is not None:
            for name in [name for name in self.all_metrics if name.startswith("reward/")]:
                kind = (
                    "avg_pass_at" if name.startswith("reward/avg_pass_at") else name.removeprefix("reward/")
                )
                if kind in curves:
                    self.all_metrics[name] = curves[kind]
                elif kind in _REWARD_CURVES:
                    del self.all_metrics[name]
        return made

    def convert_to_training_input(self, generator_output: Mapping[str, Any], uids: list[str]) -> Any:
        """SkyRL's, which it calls once a step, with all rollouts of it. Raises FailureRateError, AuditAlarm."""
        self.all_metrics.update(self._figures("train"))
        if self._audits is not None:
            self.all_metrics.update(self._audits.figures())
        absent = self._absent(generator_output, uids)
        if absent:
            self.all_metrics["judgekit/live_share"] = 1 - sum(absent) / len(absent)
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
        if self.cfg.trainer.algorithm.advantage_estimator == TURN_ESTIMATOR:
            data = self._compare_turns(data, absent)
        elif absent is None:
            data = super().compute_advantages_and_returns(data)  # type: ignore[misc]
        else:
            data = self._compare_rollouts(data, absent)
        if absent is not None and not hasattr(super(), "_normalize_advantages"):
            self._normalize_here(data, absent)
        return data

    def _compare_rollouts(self, data: Any, absent: Any) -> Any:
        """SkyRL's advantages, without what is left out."""
        mask, left = data["response_mask"], not bool(absent.all())
        if left:  # without a row, estimators that whiten would divide by nothing
            data["response_mask"] = mask.masked_fill(absent[:, None], 0)
        data = super().compute_advantages_and_returns(data)  # type: ignore[misc]
        data["response_mask"] = mask
        for key in ("advantages", "returns"):
            data[key] = data[key].masked_fill(absent[:, None], 0.0)
        self._tell_final_rewards(data, absent)
        if not left:
            logger.warning(_NOTHING)
            self.all_metrics.update({"loss/avg_raw_advantages": 0.0, "loss/avg_raw_advantages_abs": 0.0})
        return data

    def _tell_final_rewards(self, data: Any, absent: Any) -> None:
        """Log the mean reward of what is trained on, without what stands in for missing ones."""
        rows = ~absent
        last = _last_steps(data)
        if last is not None:
            flags = [bool(end) for end in last][: len(rows)]
            rows &= _tensor(flags + [False] * (len(rows) - len(flags)))
        name = "loss/avg_final_rewards"
        if not rows.any():
            self.all_metrics.pop(name, None)
        elif name in self.all_metrics:
            mean = float(data["rewards"][rows].sum(-1).mean())
            self.all_metrics[name] = data.metadata["metrics"]["avg_final_rewards"] = mean

    def _normalize_here(self, data: Any, absent: Any) -> None:
        """Normalise what is there as skyrl_train's loop would, whose mean counts padding.

        It does so next, which then changes nothing: the mean is 0, and the deviation 1, of what the response mask has,
        which nothing reads afterwards.
        """
        theirs = sys.modules.get(_SKYRL_TRAIN)
        if theirs is None or absent.all() or not self.cfg.trainer.algorithm.advantage_batch_normalize:
            return
        data["response_mask"] = data["response_mask"].masked_fill(absent[:, None], 0)
        live = _live(data, absent)
        part = theirs.normalize_advantages_dict(
            {key: data[key][live] for key in ("advantages", "response_mask")}
        )
        advantages = data["advantages"].new_zeros(data["advantages"].shape)
        advantages[live] = part["advantages"]
        data["advantages"] = advantages

    def _compare_turns(self, data: Any, absent: Any) -> Any:
        """Give each turn its advantage: its return against that of the same turn in the prompt's other rollouts."""
        trajectories = _trajectories(data, absent)
        groups = [one.group for one in trajectories]
        found = turn_advantages(
            [one.earned for one in trajectories], groups, self.cfg.trainer.algorithm.gamma
        )
        advantages = data["rewards"].new_zeros(data["rewards"].shape)
        for one, values in zip(trajectories, found, strict=True):
            for (row, start, end), value in zip(one.turns, values, strict=False):
                advantages[row, start:end] = value
        data["advantages"], data["returns"] = advantages, advantages.clone()
        if not trajectories:
            logger.warning(_NOTHING)
        paid = [sum(one.earned) for one in trajectories] or [0.0]
        trained = advantages[data["loss_mask"] > 0]
        members = Counter(groups)
        figures = {
            "avg_final_rewards": sum(paid) / len(paid),
            "avg_advantages": float(trained.mean()) if len(trained) else 0.0,
            "avg_advantages_abs": float(trained.abs().mean()) if len(trained) else 0.0,
        }
        lengths = {"avg_response_length": data.metadata["avg_response_length"]}
        data.metadata.setdefault("metrics", {}).update(figures | lengths)
        self.all_metrics.update(
            {
                "loss/avg_final_rewards": figures["avg_final_rewards"],
                "loss/avg_raw_advantages": figures["avg_advantages"],
                "loss/avg_raw_advantages_abs": figures["avg_advantages_abs"],
                "judgekit/without_siblings": float(sum(members[group] == 1 for group in groups)),
            }
        )
        return data

    def _normalize_advantages(self, data: Any, mini_batches: Bounds, *prompts: Bounds | None) -> Any:
        absent = _absent_rows(data)
        if absent is None or self.cfg.trainer.algorithm.loss_reduction == "token_mean_legacy":
            return super()._normalize_advantages(data, mini_batches, *prompts)  # type: ignore[misc]
        live = _live(data, absent)
        before = [0, *(~absent).cumsum(0).tolist()]

        def moved(bounds: Bounds | None) -> Bounds | None:
            return bounds and [(before[a], before[b]) for a, b in bounds if before[a] < before[b]]

        advantages = data["advantages"].new_zeros(data["advantages"].shape)
        if len(live[0]):
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


_REWARD_CURVES = ("avg_pass_at", "avg_raw_reward", "mean_positive_reward")


def _reward_curves(output: Mapping[str, Any], uids: Sequence[str]) -> dict[str, float] | None:
    """Return SkyRL's figures over the rollouts with a reward; None if all have one, {} if none has."""
    reasons = output.get("stop_reasons") or []
    if EXCLUDED not in reasons:
        return None
    last = output.get("is_last_step") or [True] * len(reasons)
    rows = [i for i, reason in enumerate(reasons) if reason != EXCLUDED and last[i]]
    if not rows:
        return {}
    paid = [reward if isinstance(reward, list) else [reward] for reward in output["rewards"]]
    passed = {uids[i]: False for i in rows}
    for i in rows:
        passed[uids[i]] |= paid[i][-1] > 0  # SkyRL's notion: what the last token earns
    figures = (
        fmean(passed.values()),
        fmean(sum(paid[i]) for i in rows),
        fmean(sum(max(reward, 0.0) for reward in paid[i]) for i in rows),
    )
    return dict(zip(_REWARD_CURVES, figures, strict=True))


_NOTHING = "no two rollouts of a prompt have a reward in this step: there is nothing to train on"


class _Trajectory(NamedTuple):
    """A rollout in the trainer's rows."""

    group: str
    turns: list[tuple[int, int, int]]
    """Row, start and end of each turn."""
    earned: list[float]
    """What lies on each turn's tokens, and behind them up to the next turn."""


def _trajectories(data: Any, absent: Any) -> list[_Trajectory]:
    """Return the batch's rollouts, without padding and what is left out."""
    rewards, uids = data["rewards"].double().cpu(), data.metadata["uids"]
    flags = (data["loss_mask"] > 0).byte().cpu()
    last = _last_steps(data)
    if last is None:
        last = [True] * len(uids)
    found: list[_Trajectory] = []
    turns: list[tuple[int, int, int]] = []
    earned: list[float] = []
    loose = 0.0
    """What lies on no turn yet."""
    for row in range(len(rewards) - data.metadata.get("pad_size", 0)):
        gone = absent is not None and bool(absent[row])
        runs = [] if gone else turn_runs(flags[row].numpy().tobytes())
        bounds = [0, *(start for start, _ in runs), rewards.shape[1]]
        before, *own = (float(rewards[row, a:b].sum()) for a, b in itertools.pairwise(bounds))
        loose += before
        turns += [(row, *run) for run in runs]
        if earned:
            earned[-1] += loose
        elif own:
            own[0] += loose
        if earned or own:
            loose = 0.0
        earned += own
        if last[row]:
            if not gone:
                found.append(_Trajectory(uids[row], turns, earned or [loose]))
            turns, earned, loose = [], [], 0.0
    return found


def _last_steps(data: Any) -> Any:
    """Whether each row is its trajectory's last; None where rows are trajectories."""
    last = data.metadata.get("is_last_step")
    return data.get("is_last_step") if last is None else last  # skyrl_train has them among the tensors


def _absent_rows(data: Any) -> Any:
    """The flags of the batch's rows as a tensor, padding included; None where all rows are there."""
    absent = (data.metadata or {}).get(_ABSENT)
    if absent is None:
        return None
    return _tensor(absent + [True] * (len(data["response_mask"]) - len(absent)))


def _live(data: Any, absent: Any) -> tuple[Any, Any]:
    """Index what is there: rows, at their own width, which means over padding count."""
    rows = (~absent).nonzero()
    return rows, data["response_mask"][rows[:, 0]].any(0).nonzero().squeeze(-1)


def _tensor(flags: Sequence[bool]) -> Any:
    import torch

    return torch.tensor(flags, dtype=torch.bool)


async def _until(done: Awaitable[Any], job: AbstractContextManager[Any]) -> Any:
    with job:
        return await done


def register_estimator() -> None:
    """Make the name of the estimator of turns one that SkyRL's checks of a configuration know."""
    for name in ("skyrl.backends.skyrl_train.utils.ppo_utils", _SKYRL_TRAIN):
        registry = getattr(sys.modules.get(name), "AdvantageEstimatorRegistry", None)
        if registry is not None and TURN_ESTIMATOR not in registry.list_available():
            registry.register(TURN_ESTIMATOR, _of_our_trainer)


def _of_our_trainer(**_: Any) -> Any:
    raise ConfigError(
        f"advantage_estimator={TURN_ESTIMATOR} is computed by the trainer of judgekit_skyrl.make_trainer(): build it with that, or start "
        "with python -m judgekit_skyrl.main (skyrl-train: judgekit_skyrl.main_train)"
    )


def make_trainer(base: type | None = None) -> type:
    """Return *base* (default: RayPPOTrainer) with the mixin; construct it like *base*. Raises ConfigError."""
    if base is None:
        base = class_of("trainer", "RayPPOTrainer")
    register_estimator()
    return type(f"JudgeKit{base.__name__}", (JudgeKitTrainerMixin, base), {})
