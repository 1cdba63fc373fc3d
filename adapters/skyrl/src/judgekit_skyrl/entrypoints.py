"""What the entrypoints of both packages do, skyrl and skyrl_train; imports neither."""

# no `from __future__ import annotations` here: SkyRL and OmegaConf read the types of the dataclass's fields
import dataclasses
import importlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from judgekit import ConfigError
from judgekit.trainers import run_blocking
from judgekit_skyrl.env import register, section_of

ENV = "judgekit"
_SAY = "python -m judgekit_skyrl.main is for the package skyrl, python -m judgekit_skyrl.main_train for skyrl-train"


@dataclasses.dataclass
class JudgeKitSection:
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
    """Use the fully asynchronous trainer, where there is no trainer.fully_async.enabled: SkyRL before 0.3, skyrl-train."""
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


def check(section: JudgeKitSection, generator: Any) -> None:
    """Check what an entrypoint was given, before anything starts. Raises ConfigError."""
    if (section.config is None) == (section.runner is None):
        raise ConfigError(
            "say how to grade with one of environment.skyrl_gym.judgekit.config=/path/to/reward.yaml and "
            "environment.skyrl_gym.judgekit.runner=package.module:runner"
        )
    if generator.batched:
        raise ConfigError(
            "generator.batched=true steps the environments one after another, so that the judge is asked one question "
            "at a time: set generator.batched=false"
        )


def run(section: JudgeKitSection, gym: Any, train: Callable[[], None]) -> None:
    """Serve the judge, register the environment, train, stop the judge; inside the entrypoint task.

    *gym*: `environment.skyrl_gym`, where a wrapped environment has its own section.
    """
    from judgekit.cli import logs

    logs.set_up()  # SkyRL logs through loguru: judgekit's lines stand among its own
    with _served(section):
        register(
            ENV,
            config=section.config,
            runner=section.runner,
            grouped=section.grouped,
            wraps=section.wraps,
            wraps_config=getattr(gym, section_of(section.wraps) or "", None),
            wraps_kwargs=section.wraps_kwargs,
        )
        train()


@contextmanager
def _served(section: JudgeKitSection) -> Iterator[None]:
    """Serve the judge that is asked for, before the trainer takes its GPUs."""
    if section.serve is None:
        yield
        return
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
    try:
        run_blocking(served.start())
        yield
    finally:
        run_blocking(served.stop())


@contextmanager
def needs(package: str) -> Iterator[None]:
    """Say which package an entrypoint is for, where it cannot be imported."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != package:
            raise
        raise ConfigError(f"{package} is not installed here: {_SAY}") from None


def class_of(module: str, name: str) -> type:
    """Return a class of skyrl's, or, where that is not installed, of skyrl_train's.

    Raises ConfigError where neither is.
    """
    for package in ("skyrl.train", "skyrl_train"):
        try:
            found: type = getattr(importlib.import_module(f"{package}.{module}"), name)
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] != package.partition(".")[0]:
                raise
        else:
            return found
    raise ConfigError(
        "neither skyrl nor skyrl-train is installed here: install the one that you train with, or give the class to build on"
    )
