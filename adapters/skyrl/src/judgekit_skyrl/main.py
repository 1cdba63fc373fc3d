"""SkyRL's entrypoint, with judgekit's environment and generator.

    python -m judgekit_skyrl.main environment.skyrl_gym.judgekit.config=/abs/reward.yaml data.train_data=… …

For scripts that start SkyRL's own entrypoint: `trainer.override_entrypoint=judgekit_skyrl.main` (SkyRL 0.3 and later).
"""

# no `from __future__ import annotations` here: SkyRL reads the types of the dataclasses' fields
import dataclasses
import sys
from typing import Any

import ray
from skyrl.train.config import SkyRLGymConfig, SkyRLTrainConfig
from skyrl.train.config.config import BaseConfig, EnvironmentConfig
from skyrl.train.entrypoints.main_base import BasePPOExp, validate_cfg
from skyrl.train.utils import initialize_ray

from judgekit import ConfigError
from judgekit.trainers import run_blocking
from judgekit_skyrl.env import register, section_of
from judgekit_skyrl.generator import make_generator
from judgekit_skyrl.trainer import make_trainer, register_estimator

ENV = "judgekit"


@dataclasses.dataclass
class JudgeKitConfig(BaseConfig):  # type: ignore[misc]
    """`environment.skyrl_gym.judgekit.*`."""

    config: str | None = None
    """Path of a reward.yaml, readable on the node of the entrypoint task."""
    runner: str | None = None
    """Instead of `config`: a GradingRunner as package.module:name."""
    grouped: bool = True
    """Grade a prompt's rollouts together, in the generator; false: each by itself, in `step()`."""
    wraps: str | None = None
    """Another environment, whose conversations are graded: one of SkyRL's by its id (search, text2sql, …), which
    keeps its own section environment.skyrl_gym.<id>, or a BaseTextEnv as package.module:Class."""
    wraps_kwargs: dict[str, Any] = dataclasses.field(default_factory=dict)
    """Further arguments of its class: environment.skyrl_gym.judgekit.wraps_kwargs.<name>=…"""
    fully_async: bool = False
    """Use the fully asynchronous trainer, on SkyRL before 0.3, which has no trainer.fully_async.enabled."""
    serve: str | None = None
    """A judge model to serve as Ray actors before the trainer takes its GPUs, and to stop afterwards."""
    serve_name: str = "judge"
    """The name that reward.yaml finds it by: engine: ray, name: …"""
    serve_replicas: int = 1
    serve_gpus: float | None = None
    """GPUs of one replica; by default serve_tensor_parallel_size, if the cluster has GPUs. A fraction shares one."""
    serve_tensor_parallel_size: int = 1
    """GPUs that one replica's model is spread over."""
    serve_max_model_len: int | None = None
    """The judge's context in tokens, prompt and reply together; by default the model's."""
    serve_gpu_memory_utilization: float | None = None
    """Share (0..1) of each GPU's memory that the judge may take; by default vLLM's."""
    serve_python: str | None = None
    """Serve it with another environment's interpreter, for a vLLM other than SkyRL's. The path must exist on every
    node; the environment needs judgekit, and SkyRL's versions of Python and Ray."""


@dataclasses.dataclass
class _GymConfig(SkyRLGymConfig):  # type: ignore[misc]
    max_env_workers: int = 256
    judgekit: JudgeKitConfig = dataclasses.field(default_factory=JudgeKitConfig)


@dataclasses.dataclass
class _EnvironmentConfig(EnvironmentConfig):  # type: ignore[misc]
    env_class: str = ENV
    skyrl_gym: _GymConfig = dataclasses.field(default_factory=_GymConfig)


@dataclasses.dataclass
class JudgeKitTrainConfig(SkyRLTrainConfig):  # type: ignore[misc]
    """SkyRL's configuration with judgekit's section."""

    environment: _EnvironmentConfig = dataclasses.field(default_factory=_EnvironmentConfig)


class JudgeKitExp(BasePPOExp):  # type: ignore[misc]
    """SkyRL's experiment with judgekit's generator, and the configured trainer."""

    def get_generator(self, cfg: Any, tokenizer: Any, inference_engine_client: Any) -> Any:
        if not cfg.environment.skyrl_gym.judgekit.grouped:
            return super().get_generator(cfg, tokenizer, inference_engine_client)
        base: type | None = None
        if getattr(cfg.generator, "vision_language_generator", False):  # 0.2 and later
            from skyrl.train.generators.skyrl_vlm_generator import SkyRLVLMGymGenerator

            base = SkyRLVLMGymGenerator
        arguments = {
            "generator_cfg": cfg.generator,
            "skyrl_gym_cfg": cfg.environment.skyrl_gym,
            "inference_engine_client": inference_engine_client,
            "tokenizer": tokenizer,
        }
        try:
            from skyrl.backends.skyrl_train.inference_servers.utils import resolve_policy_model_name

            arguments["policy_model_name"] = resolve_policy_model_name(cfg)
        except ImportError:  # before 0.3
            pass
        return make_generator(base)(**arguments)

    def get_trainer(self, *args: Any, **kwargs: Any) -> Any:
        asked = self.cfg.environment.skyrl_gym.judgekit.fully_async
        if asked or getattr(self.cfg.trainer.fully_async, "enabled", False):
            from skyrl.train.fully_async_trainer import FullyAsyncRayPPOTrainer

            return make_trainer(FullyAsyncRayPPOTrainer)(*args, **kwargs)
        return make_trainer()(*args, **kwargs)


def run(cfg: Any, experiment: type = JudgeKitExp) -> None:
    """Serve the judge, register the environment, train, stop the judge; inside the entrypoint task."""
    from judgekit.cli import logs

    logs.set_up()  # SkyRL logs through loguru: judgekit's lines stand among its own
    section = cfg.environment.skyrl_gym.judgekit
    served = None
    try:
        if section.serve is not None:
            from judgekit.judges.engines.ray.judge import start_ray_judge

            served = start_ray_judge(
                section.serve,
                name=section.serve_name,
                replicas=section.serve_replicas,
                gpus=section.serve_gpus,
                tensor_parallel_size=section.serve_tensor_parallel_size,
                options={
                    name: value
                    for name in ("max_model_len", "gpu_memory_utilization")
                    if (value := getattr(section, f"serve_{name}")) is not None
                },
                python=section.serve_python,
            )
            run_blocking(
                served.start()
            )  # it must have its GPUs before the trainer creates its placement groups
        register(
            ENV,
            config=section.config,
            runner=section.runner,
            grouped=section.grouped,
            wraps=section.wraps,
            wraps_config=getattr(cfg.environment.skyrl_gym, section_of(section.wraps) or "", None),
            wraps_kwargs=section.wraps_kwargs,
        )
        experiment(cfg).run()
    finally:
        if served is not None:
            run_blocking(served.stop())


@ray.remote(num_cpus=1)  # type: ignore[untyped-decorator]
def _entrypoint(cfg: Any) -> None:
    run(cfg)


def parse(arguments: list[str]) -> Any:
    """Parse command-line *arguments* and check them before anything starts. Raises ConfigError."""
    register_estimator()  # SkyRL checks the name before it makes a trainer
    cfg = JudgeKitTrainConfig.from_cli_overrides(
        [a for a in arguments if not a.startswith("trainer.override_entrypoint=")]
    )
    section = cfg.environment.skyrl_gym.judgekit
    if (section.config is None) == (section.runner is None):
        raise ConfigError(
            "say how to grade with one of environment.skyrl_gym.judgekit.config=/path/to/reward.yaml and "
            "environment.skyrl_gym.judgekit.runner=package.module:runner"
        )
    if cfg.generator.batched:
        raise ConfigError(
            "generator.batched=true steps the environments one after another, so that the judge is asked one question "
            "at a time: set generator.batched=false"
        )
    return cfg


def main() -> None:
    """The command line."""
    try:
        cfg = parse(sys.argv[1:])
    except ConfigError as error:
        sys.exit(f"judgekit_skyrl: {error}")
    validate_cfg(cfg)
    initialize_ray(cfg)
    ray.get(_entrypoint.remote(cfg))


if __name__ == "__main__":
    main()
