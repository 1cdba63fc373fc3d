"""What the mixin needs of a generator, and no more: as other versions of SkyRL have it."""

from __future__ import annotations

import asyncio
import inspect
import sys
from collections import namedtuple
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
import skyrl_gym

from envs_for_tests import longest, right
from judgekit import ConfigError, FailureRateError, GradingRunner
from judgekit_skyrl import make_generator, make_trainer, register
from judgekit_skyrl.entrypoints import needs
from judgekit_skyrl.trainer import AuditBeside

Trajectory = namedtuple("Trajectory", "instance_id repetition_id")


@dataclass
class AgentLoopOutput:
    """skyrl_train 0.2 and 0.3."""

    response_ids: list[int]
    reward: Any
    stop_reason: str
    loss_mask: list[int]
    prompt_ids: list[int]
    rollout_logprobs: Any = None
    env_metrics: dict[str, Any] = field(default_factory=dict)


class LegacyGenerator:
    """skyrl_train's generator before it moved into skyrl: other parameters, positional trajectory ids."""

    batched = False

    async def generate(self, input_batch: dict[str, Any]) -> dict[str, Any]:
        loops = [
            self.agent_loop(prompt, env, extras, 64, 512, None, trajectory)
            for prompt, env, extras, trajectory in zip(
                input_batch["prompts"],
                input_batch["env_classes"],
                input_batch["env_extras"],
                input_batch["trajectory_ids"] or [None] * len(input_batch["prompts"]),
                strict=True,
            )
        ]
        outs = await asyncio.gather(*loops)
        return {"rewards": [o.reward for o in outs], "metrics": [o.env_metrics for o in outs]}

    async def agent_loop(
        self,
        prompt: Any,
        env_class: str,
        env_extras: dict[str, Any],
        max_tokens: int,
        max_input_length: int,
        sampling_params: Any = None,
        trajectory_id: Any = None,
    ) -> AgentLoopOutput:
        env = skyrl_gym.make(env_class, env_config={}, extras=env_extras)
        prompt, _ = env.init(prompt)
        action = "x" * (1 + trajectory_id.repetition_id) if trajectory_id else "#### 1"
        out = env.step(action)
        reward: Any = (
            [0.0, 0.0, out["reward"]] if trajectory_id and trajectory_id.repetition_id else out["reward"]
        )
        return AgentLoopOutput([1, 2, 3], reward, "stop", [1, 1, 1], [1], None, env.get_metrics())


def batch(trajectories: bool = True) -> dict[str, Any]:
    ids = [Trajectory(str(i // 2), i % 2) for i in range(4)] if trajectories else None
    return {
        "prompts": [[{"role": "user", "content": "q"}]] * 4,
        "env_classes": ["judgekit"] * 4,
        "env_extras": [{"reward_spec": {"ground_truth": "1"}} for _ in range(4)],
        "trajectory_ids": ids,
    }


async def test_the_legacy_generator() -> None:
    """Scalar and per-token rewards alike."""
    register(runner=GradingRunner({"longest": longest}, missing_reward="neutral"))
    out = await make_generator(LegacyGenerator)().generate(batch())
    assert out["rewards"] == [0.0, [0.0, 0.0, 1.0]] * 2
    assert all(m["judgekit/missing_mean"] == 0 for m in out["metrics"])


async def test_before_trajectory_ids_only_alone() -> None:
    register(runner=GradingRunner({"longest": longest}, missing_reward="neutral"))
    with pytest.raises(ConfigError, match="no trajectory_ids.*grouped=False"):
        await make_generator(LegacyGenerator)().generate(batch(trajectories=False))
    register(runner=right(), grouped=False)
    out = await LegacyGenerator().generate(batch(trajectories=False))
    assert out["rewards"] == [1.0] * 4


def test_the_entrypoint_serves_before_it_trains_and_stops_after(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also when the training fails."""
    from judgekit_skyrl import main

    done: list[str] = []

    class Served:
        async def start(self) -> None:
            done.append("started")

        async def stop(self) -> int:
            done.append("stopped")
            return 1

    def start_ray_judge(model: str, **options: Any) -> Served:
        done.append(f"serves {model} as {options['name']} × {options['replicas']}")
        assert options["tensor_parallel_size"] == 2
        assert options["options"] == {"max_model_len": 4096, "gpu_memory_utilization": 0.4}
        return Served()

    monkeypatch.setattr("judgekit.judges.engines.ray.judge.start_ray_judge", start_ray_judge)

    class Experiment:
        def __init__(self, cfg: Any) -> None:
            done.append("trains")

        def run(self) -> None:
            raise RuntimeError("out of memory")

    section = SimpleNamespace(
        config=None,
        runner="envs_for_tests:right",
        grouped=True,
        wraps=None,
        wraps_kwargs={},
        serve="some/judge",
        serve_name="judge",
        serve_replicas=2,
        serve_gpus=1,
        serve_tensor_parallel_size=2,
        serve_max_model_len=4096,
        serve_gpu_memory_utilization=0.4,
        serve_python=None,
    )
    cfg = SimpleNamespace(environment=SimpleNamespace(skyrl_gym=SimpleNamespace(judgekit=section)))
    with pytest.raises(RuntimeError, match="out of memory"):
        main.run(cfg, Experiment)
    assert done == ["serves some/judge as judge × 2", "started", "trains", "stopped"]


class Blocking:
    """skyrl_train's synchronous trainer: it has trained when `train` returns."""

    def __init__(self, done: list[str], error: Exception | None) -> None:
        self.done, self.error = done, error
        algorithm = SimpleNamespace(advantage_estimator="grpo")
        self.cfg = SimpleNamespace(
            trainer=SimpleNamespace(algorithm=algorithm), environment=SimpleNamespace(env_class="judgekit")
        )
        self.generator = make_generator(LegacyGenerator)()

    def train(self) -> str:
        self.done.append("trained")
        if self.error is not None:
            raise self.error
        return "result"


class Awaited(Blocking):
    """All others of SkyRL's."""

    async def train(self) -> str:  # type: ignore[override]
        await asyncio.sleep(0)
        return super().train()


class Wrapped(Awaited):
    """A trainer of one's own, around one of these."""

    def train(self) -> Any:  # type: ignore[override]
        return super().train()


@pytest.mark.parametrize("base", [Blocking, Awaited, Wrapped])
@pytest.mark.parametrize("error", [None, FailureRateError("too many", [])], ids=["ends", "fails"])
def test_audits_end_with_the_training(
    base: type, error: Exception | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A trainer's `train` stays what it is, a coroutine or not."""
    done: list[str] = []

    def of(config: Any) -> Any:
        done.append("audits")
        return SimpleNamespace(close=lambda: done.append("closed"))

    monkeypatch.setattr(AuditBeside, "of", of)
    made = make_trainer(base)(done, error)

    def train() -> Any:
        found = made.train()
        assert inspect.isawaitable(found) == (base is not Blocking)
        return asyncio.run(found) if base is not Blocking else found

    if error is None:
        assert train() == "result"
    else:
        with pytest.raises(FailureRateError, match="too many"):
            train()
    assert made.generator.trainer_ends_steps
    assert done == ["audits", "trained", "closed"]


def test_without_skyrl_the_bases_are_said_to_be_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [*sys.modules, "skyrl", "skyrl_train"]:
        if name.partition(".")[0] in ("skyrl", "skyrl_train"):
            monkeypatch.setitem(sys.modules, name, None)
    for make in (make_generator, make_trainer):
        with pytest.raises(ConfigError, match="neither skyrl nor skyrl-train is installed here"):
            make()


def test_an_entrypoint_names_its_package() -> None:
    with (
        pytest.raises(ConfigError, match="skyrl is not installed here: python -m judgekit_skyrl.main is for"),
        needs("skyrl"),
    ):
        raise ModuleNotFoundError("No module named 'skyrl.train'", name="skyrl.train")
    with pytest.raises(ModuleNotFoundError, match="vllm"), needs("skyrl"):
        raise ModuleNotFoundError("No module named 'vllm'", name="vllm")
