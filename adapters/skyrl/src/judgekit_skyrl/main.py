"""SkyRL's entrypoint, with judgekit's environment and generator.

    python -m judgekit_skyrl.main environment.skyrl_gym.judgekit.config=/abs/reward.yaml data.train_data=… …

For scripts that start SkyRL's own entrypoint: `trainer.override_entrypoint=judgekit_skyrl.main` (SkyRL 0.3 and later).
"""

# no `from __future__ import annotations` here: SkyRL reads the types of the dataclasses' fields
import dataclasses
import sys
from typing import Any

import ray

from judgekit import ConfigError
from judgekit_skyrl import entrypoints
from judgekit_skyrl.generator import make_generator
from judgekit_skyrl.trainer import make_trainer, register_estimator

with entrypoints.needs("skyrl"):
    from skyrl.train.config import SkyRLGymConfig, SkyRLTrainConfig
    from skyrl.train.config.config import BaseConfig, EnvironmentConfig
    from skyrl.train.entrypoints.main_base import BasePPOExp, validate_cfg
    from skyrl.train.utils import initialize_ray


@dataclasses.dataclass
class JudgeKitConfig(entrypoints.JudgeKitSection, BaseConfig):  # type: ignore[misc]
    """`environment.skyrl_gym.judgekit.*`."""


@dataclasses.dataclass
class _GymConfig(SkyRLGymConfig):  # type: ignore[misc]
    max_env_workers: int = 256
    judgekit: JudgeKitConfig = dataclasses.field(default_factory=JudgeKitConfig)


@dataclasses.dataclass
class _EnvironmentConfig(EnvironmentConfig):  # type: ignore[misc]
    env_class: str = entrypoints.ENV
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
    gym = cfg.environment.skyrl_gym
    entrypoints.run(gym.judgekit, gym, lambda: experiment(cfg).run())


@ray.remote(num_cpus=1)  # type: ignore[untyped-decorator]
def _entrypoint(cfg: Any) -> None:
    run(cfg)


def parse(arguments: list[str]) -> Any:
    """Parse command-line *arguments* and check them before anything starts. Raises ConfigError."""
    register_estimator()  # SkyRL checks the name before it makes a trainer
    cfg = JudgeKitTrainConfig.from_cli_overrides(
        [a for a in arguments if not a.startswith("trainer.override_entrypoint=")]
    )
    entrypoints.check(cfg.environment.skyrl_gym.judgekit, cfg.generator)
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
