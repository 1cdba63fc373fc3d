"""Puts judgekit's figures into the metrics of verl's V1 trainer, beside its own, at every training step.

    trainer.v1.sampler.custom_sampler.path=pkg://judgekit_verl
    trainer.v1.sampler.custom_sampler.name=JudgeKitReplayBuffer

verl has one place where others may add to a step's metrics: the sampler, which takes the step's trajectories out of the
queue. These are verl's own samplers, with our figures added to what they return.
"""

from __future__ import annotations

from typing import Any

import transfer_queue as tq
from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer, ReplayBufferAsync

from judgekit import ConfigError
from judgekit_verl.estimators import LIVE_SHARE
from judgekit_verl.sessions import LEFT_OUT
from judgekit_verl.step_counts import StepWatch


class _Curves:
    def sample(self, global_steps: int, partition_id: str, batch_size: int) -> tuple[Any, dict[str, Any]]:
        """As verl's; with the figures of what was graded for training since the last step."""
        batch, metrics = super().sample(global_steps, partition_id, batch_size)  # type: ignore[misc]
        watch = StepWatch.newest()
        if partition_id != "val":
            kept = [key for key, tag in zip(batch.keys, batch.tags, strict=True) if _counts(tag)]
            shares = leave_out_of_curves(batch.tags)
            if kept and shares[LIVE_SHARE]:
                # verl reads the tags again from the queue
                tags = [{"is_padding": True} for _ in kept]
                tq.kv_batch_put(keys=kept, partition_id=partition_id, tags=tags)
            metrics = {**metrics, **(watch.figures() if watch is not None else {}), **shares}
        return batch, metrics


def _counts(tag: dict[str, Any]) -> bool:
    """Whether a row that is left out would count in verl's curves: it has a token in its mask."""
    return bool(tag.get(LEFT_OUT)) and not tag.get("is_padding")


def leave_out_of_curves(tags: list[dict[str, Any]]) -> dict[str, float]:
    """Take rows that are not trained on out of verl's curves; return the share of the others.

    At least one row must be left. `critic/score/mean` and its like are over the rows without the tag
    `is_padding`, and verl reads it for nothing else. Where no row has a reward they are over numbers that
    stand in for rewards: judgekit's own curve has no point there.
    """
    live = [not tag.get(LEFT_OUT, False) for tag in tags]
    if any(live):
        for tag, trained in zip(tags, live, strict=True):
            if not trained:
                tag["is_padding"] = True
    return {LIVE_SHARE: sum(live) / len(live)} if live else {}


class _Sync(_Curves, ReplayBuffer):  # type: ignore[misc]
    pass


class _Async(_Curves, ReplayBufferAsync):  # type: ignore[misc]
    pass


class JudgeKitReplayBuffer:
    """verl's sampler for the configured trainer mode, with judgekit's figures. Raises ConfigError for DAPO's filter."""

    def __new__(cls, **given: Any) -> Any:
        """Make verl's own, as verl's trainer does.

        verl does not tell a custom sampler of `algorithm.filter_groups`; it would be switched off in silence.
        """
        trainer = getattr(given.get("refill_fn"), "__self__", None)
        if trainer is None:
            raise ConfigError(
                "this verl does not make its sampler as 0.9.1 does: remove trainer.v1.sampler.custom_sampler"
            )
        config = trainer.config
        filtered = bool((config.algorithm.get("filter_groups", None) or {}).get("enable", False))
        if filtered or config.trainer.v1.sampler.get("sync_refill_failed_groups", False):
            raise ConfigError(
                "verl tells no custom sampler of algorithm.filter_groups and sync_refill_failed_groups, so that they would "
                "do nothing: remove trainer.v1.sampler.custom_sampler, which only adds judgekit's figures to the metrics"
            )
        return (_Sync if given["trainer_mode"] == "sync" else _Async)(**given)
