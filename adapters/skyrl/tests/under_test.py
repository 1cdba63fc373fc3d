"""The SkyRL under test: the package skyrl, or skyrl_train where there is no skyrl."""

from __future__ import annotations

import copy
import functools
import importlib
from importlib.metadata import version
from importlib.util import find_spec
from typing import Any

TRAIN = find_spec("skyrl") is None
VERSION = version("skyrl-train" if TRAIN else "skyrl")
MODEL = ("tiny",) if TRAIN else ()
"""What skyrl_train's generator takes after the tokenizer."""


def part(name: str) -> Any:
    """A module of it."""
    return importlib.import_module(f"skyrl_train.{name}" if TRAIN else f"skyrl.train.{name}")


def ppo_utils() -> Any:
    return importlib.import_module(f"{'' if TRAIN else 'skyrl.backends.'}skyrl_train.utils.ppo_utils")


def configuration(**settings: Any) -> Any:
    """Its configuration, as its command line makes it; skyrl_train takes keys that it does not know, too."""
    return copy.deepcopy(_made(tuple(f"{key}={value}" for key, value in settings.items())))


@functools.lru_cache(4)
def _made(arguments: tuple[str, ...]) -> Any:
    if not TRAIN:
        return part("config").SkyRLTrainConfig.from_cli_overrides(list(arguments))
    from hydra import compose, initialize_config_dir

    with initialize_config_dir(config_dir=str(part("config.utils").CONFIG_DIR), version_base=None):
        return compose(config_name="ppo_base_config", overrides=[f"++{given}" for given in arguments])
