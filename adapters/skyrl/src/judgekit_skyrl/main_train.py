"""skyrl-train's entrypoint, with judgekit's environment, generator and trainer.

    python -m judgekit_skyrl.main_train environment.skyrl_gym.judgekit.config=/abs/reward.yaml data.train_data=… …

Takes all arguments of skyrl-train 0.3.1, by Hydra.
"""

import asyncio
import inspect
import sys
from importlib.metadata import version
from typing import Any

import ray

from judgekit import ConfigError
from judgekit_skyrl import entrypoints
from judgekit_skyrl.generator import make_generator
from judgekit_skyrl.trainer import make_trainer, register_estimator

with entrypoints.needs("skyrl_train"):
    import hydra
    from hydra.core.config_store import ConfigStore
    from omegaconf import OmegaConf
    from skyrl_train.entrypoints.main_base import BasePPOExp, config_dir, validate_cfg
    from skyrl_train.fully_async_trainer import FullyAsyncRayPPOTrainer
    from skyrl_train.generators.skyrl_gym_generator import SkyRLGymGenerator
    from skyrl_train.trainer import RayPPOTrainer
    from skyrl_train.utils import initialize_ray

CONFIG = "judgekit_ppo_config"
"""The configuration's name: skyrl_train's own with judgekit's section."""
_SECTION = OmegaConf.structured(entrypoints.JudgeKitSection)
OmegaConf.set_struct(_SECTION.wraps_kwargs, False)  # takes any key
ConfigStore.instance().store(
    name=CONFIG,
    node={
        "defaults": ["ppo_base_config", "_self_"],
        "environment": {
            "env_class": entrypoints.ENV,
            "skyrl_gym": {"max_env_workers": 256, "judgekit": _SECTION},
        },
    },
)


class JudgeKitExp(BasePPOExp):  # type: ignore[misc]
    """skyrl_train's experiment with judgekit's generator, and the trainer that is asked for."""

    def get_generator(self, cfg: Any, tokenizer: Any, inference_engine_client: Any) -> Any:
        if not cfg.environment.skyrl_gym.judgekit.grouped:
            return super().get_generator(cfg, tokenizer, inference_engine_client)
        return make_generator(SkyRLGymGenerator)(
            generator_cfg=cfg.generator,
            skyrl_gym_cfg=cfg.environment.skyrl_gym,
            inference_engine_client=inference_engine_client,
            tokenizer=tokenizer,
            model_name=cfg.trainer.policy.model.path,
        )

    def get_trainer(self, *args: Any, **kwargs: Any) -> Any:
        ahead = self.cfg.environment.skyrl_gym.judgekit.fully_async
        return make_trainer(FullyAsyncRayPPOTrainer if ahead else RayPPOTrainer)(*args, **kwargs)

    def run(self) -> None:
        done = self._setup_trainer().train()
        if inspect.iscoroutine(done):  # the fully asynchronous one
            asyncio.run(done)


def run(cfg: Any, experiment: type = JudgeKitExp) -> None:
    """Serve the judge, register the environment, train, stop the judge; inside the entrypoint task."""
    gym = cfg.environment.skyrl_gym
    entrypoints.run(OmegaConf.to_object(gym.judgekit), gym, lambda: experiment(cfg).run())


@ray.remote(num_cpus=1)  # type: ignore[untyped-decorator]
def _entrypoint(cfg: Any) -> None:
    run(cfg)


def check(cfg: Any) -> None:
    """Check the configuration before anything starts. Raises ConfigError."""
    here = version("skyrl-train")
    if here.startswith(("0.1.", "0.2.", "0.3.0")):
        raise ConfigError(
            f"skyrl-train {here} is here, whose own trainers break: pip install --no-deps skyrl-train==0.3.1"
        )
    section = cfg.environment.skyrl_gym.judgekit
    entrypoints.check(section, cfg.generator)
    if section.fully_async and cfg.generator.step_wise_trajectories:
        raise ConfigError(
            "generator.step_wise_trajectories=true fails in skyrl-train's own fully asynchronous trainer: set one of it "
            "and environment.skyrl_gym.judgekit.fully_async to false"
        )


@hydra.main(config_path=config_dir, config_name=CONFIG, version_base=None)  # type: ignore[untyped-decorator]
def main(cfg: Any) -> None:
    """The command line."""
    try:
        check(cfg)
    except ConfigError as error:
        sys.exit(f"judgekit_skyrl: {error}")
    register_estimator()  # skyrl_train checks the name before it makes a trainer
    validate_cfg(cfg)
    initialize_ray(cfg)
    ray.get(_entrypoint.remote(cfg))


if __name__ == "__main__":
    main()
