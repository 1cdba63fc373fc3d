"""What stands in for skyrl_train's GPU half: its own worker, on CPU and in this process."""

from __future__ import annotations

import threading
import types
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any
from unittest.mock import patch

import ray
import skyrl_train.trainer
import torch
from skyrl_train.distributed.dispatch import ActorInfo, MeshRank
from skyrl_train.utils.ppo_utils import PolicyLossRegistry
from skyrl_train.workers.worker import PolicyWorkerBase


class CPUModel(torch.nn.Module):
    """Called as skyrl_train's wrapper of a model is."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(
        self,
        sequences: Any,
        num_actions: int,
        attention_mask: Any = None,
        temperature: float = 1.0,
        return_output: bool = False,
        **_: Any,
    ) -> Any:
        position = (attention_mask.long().cumsum(1) - 1).clamp(min=0)
        logits = self.model(input_ids=sequences, attention_mask=attention_mask, position_ids=position).logits
        scores = torch.log_softmax(logits.float() / temperature, -1)
        taken = scores[:, :-1].gather(-1, sequences[:, 1:, None]).squeeze(-1)[:, -num_actions:]
        return (taken, {"entropy": -(scores.exp() * scores).sum(-1)}) if return_output else taken


class Strategy:
    """In the place of FSDP."""

    def backward(self, loss: Any, model: Any, optimizer: Any, **_: Any) -> None:
        loss.backward()

    def optimizer_step(self, optimizer: Any, model: Any, scheduler: Any, **_: Any) -> Any:
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        return norm

    def all_reduce(self, status: Any) -> Any:
        return status

    def is_rank_0(self) -> bool:
        return False


@contextmanager
def no_gpu() -> Iterator[None]:
    with (
        patch("torch.cuda.current_device", lambda: "cpu"),
        patch("torch.distributed.barrier", lambda *_, **__: None),
        patch("torch.autocast", lambda *_, **__: nullcontext()),
    ):
        yield


class CPUGroup:
    """In the place of a group of Ray actors: one worker. Returns what Ray would refer to."""

    def __init__(self, cfg: Any, model: Any, engine: Any, lock: threading.Lock, lr: float) -> None:
        rank = MeshRank(dp=0, sp=0, tp=0, pp=0, world_size=1, dp_size=1, pp_size=1)
        self.actor_infos = [ActorInfo(None, rank)]
        self.engine, self.lock = engine, lock
        worker = self.worker = PolicyWorkerBase.__new__(PolicyWorkerBase)
        worker.cfg, worker.mesh_rank, worker.record_memory = cfg, rank, False
        worker.policy_loss_fn = PolicyLossRegistry.get(cfg.trainer.algorithm.policy_loss_type)
        worker.model, worker.strategy = CPUModel(model), Strategy()
        worker.optimizer = torch.optim.AdamW(model.parameters(), lr=lr, weight_decay=0.0)
        worker.scheduler = torch.optim.lr_scheduler.ConstantLR(worker.optimizer, 1.0)
        worker._normalize_mini_batch_size()

    def async_run_ray_method(self, dispatch: str, method: str, *args: Any, data: Any = None) -> list[Any]:
        if method not in ("ppo_train", "forward"):
            return [None]
        with self.lock, no_gpu():
            return [getattr(self.worker, method)(args[0] if args else data)]

    async def async_run_method(self, dispatch: str, method: str, *args: Any) -> None:
        assert method == "broadcast_to_inference_engines"
        self.engine.increment_weight_version()


def in_process(
    trainer: type, cfg: Any, model: Any, engine: Any, lock: threading.Lock, lr: float = 3e-3
) -> type:
    """The trainer with its model in this process."""
    skyrl_train.trainer.ray = types.SimpleNamespace(get=lambda refs: refs, ObjectRef=ray.ObjectRef)

    class OnCPU(trainer):  # type: ignore[misc, valid-type]
        def __init__(self, **kwargs: Any) -> None:
            super().__init__(**kwargs)
            self.policy_model = CPUGroup(cfg, model, engine, lock, lr)

        def init_weight_sync_state(self) -> None: ...

    return OnCPU
