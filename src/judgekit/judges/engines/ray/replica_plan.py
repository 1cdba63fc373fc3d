"""Plans the resources of a Ray judge's replicas."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from judgekit.errors import ConfigError

_OF_SHARE = 0.9
"""The engine's part of a shared GPU's memory; the rest is for what it does not count."""


class ReplicaPlan(Struct, frozen=True):
    """What is reserved for replicas, and what their engines are told of it."""

    groups: list[list[dict[str, float]]]
    """Bundles of each placement group: one group with a bundle for each replica, or a group for each replica that spans nodes."""
    gpus: float
    """Of one replica."""
    spans: bool = False
    """Whether a replica has several bundles, so that it may be on several nodes."""
    memory_share: float | None = None
    """Share of a GPU's memory for a replica that has a fraction of it, 0 to 1."""
    engine_args: Mapping[str, Any] = {}


def replica_plan(
    replicas: int,
    *,
    tensor: int,
    pipeline: int,
    gpus: float | None,
    cpus: float,
    has_gpus: bool,
    engine_args: Mapping[str, Any],
) -> ReplicaPlan:
    """Plan *replicas* of an engine. *gpus*: None takes what the engine needs, where the cluster has any. Raises ConfigError."""
    data = engine_args.get("data_parallel_size", 1)
    if replicas < 1 or tensor < 1:
        raise ConfigError("ray: replicas and tensor_parallel_size are at least 1")
    if pipeline < 1:
        raise ConfigError(f"ray: pipeline_parallel_size is at least 1, not {pipeline}")
    world = tensor * pipeline * (data if isinstance(data, int) and data > 0 else 1)
    if gpus is None:
        gpus = float(world) if has_gpus else 0.0
    if 0 < gpus < 1 and world > 1:
        raise ConfigError("ray: a fraction of a GPU cannot hold a tensor-parallel engine")
    if cpus < 0 or not (cpus or gpus):
        raise ConfigError(f"ray: a replica needs CPUs (above 0) or GPUs, not cpus={cpus:g}, gpus={gpus:g}")
    if pipeline > 1:
        if gpus not in (0, world):
            raise ConfigError(f"ray: {tensor} × {pipeline} stages need {world} GPUs, not gpus={gpus:g}")
        each: dict[str, float] = {"CPU": 1.0, **({"GPU": 1.0} if gpus else {})}
        bundles = [{**each, "CPU": 1.0 + cpus}, *([each] * (world - 1))]  # the first holds the actor, too
        told = {"pipeline_parallel_size": pipeline, "distributed_executor_backend": "ray"}
        return ReplicaPlan([bundles] * replicas, gpus, spans=True, engine_args=told)
    share = round(gpus * _OF_SHARE, 4) if 0 < gpus < 1 else None
    bundle = {"CPU": cpus, **({"GPU": gpus} if gpus else {})}
    return ReplicaPlan([[bundle] * replicas], gpus, memory_share=share)
