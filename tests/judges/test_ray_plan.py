"""What Ray reserves for a judge's replicas."""

from __future__ import annotations

from typing import Any

import pytest

from judgekit import ConfigError
from judgekit.judges.engines.ray.replica_plan import ReplicaPlan, replica_plan


def plan(replicas: int = 1, **options: Any) -> ReplicaPlan:
    given = {"tensor": 1, "pipeline": 1, "gpus": None, "cpus": 1.0, "has_gpus": True, "engine_args": {}}
    return replica_plan(replicas, **{**given, **options})


def test_a_bundle_for_each_replica() -> None:
    assert plan(3, tensor=2) == ReplicaPlan([[{"CPU": 1.0, "GPU": 2.0}] * 3], 2.0)
    assert plan(2, has_gpus=False) == ReplicaPlan([[{"CPU": 1.0}] * 2], 0.0)
    assert plan(engine_args={"data_parallel_size": 4}).gpus == 4.0


def test_a_shared_gpu_is_shared_in_memory_too() -> None:
    assert plan(gpus=0.5).memory_share == 0.45
    assert plan(gpus=1.0).memory_share is None
    with pytest.raises(ConfigError, match="a fraction of a GPU"):
        plan(gpus=0.5, tensor=2)


def test_a_replica_that_spans_nodes_has_a_group_of_its_own() -> None:
    found = plan(2, tensor=4, pipeline=2)
    assert found.spans
    assert len(found.groups) == 2
    assert found.groups[0] == [{"CPU": 2.0, "GPU": 1.0}, *[{"CPU": 1.0, "GPU": 1.0}] * 7]
    assert found.engine_args == {"pipeline_parallel_size": 2, "distributed_executor_backend": "ray"}
    with pytest.raises(ConfigError, match="4 × 2 stages need 8 GPUs, not gpus=4"):
        plan(tensor=4, pipeline=2, gpus=4.0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"replicas": 0}, "at least 1"),
        ({"tensor": 0}, "at least 1"),
        ({"pipeline": 0}, "pipeline_parallel_size is at least 1"),
        ({"cpus": 0.0, "gpus": 0.0}, "needs CPUs"),
    ],
)
def test_wrong_plans(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        plan(**options)
