"""The real verl on CPU: a tiny tokenizer and policy made here, its configuration, and Ray."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

os.environ |= {
    "HF_HUB_OFFLINE": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_worker_niceness": "0",  # else whatever else the machine does starves Ray's workers
    "TRANSFER_QUEUE_ENABLE": "1",
    "PYTHONPATH": os.pathsep.join(filter(None, [str(Path(__file__).parent), os.environ.get("PYTHONPATH")])),
}  # before verl and Ray are imported, here and in Ray's workers
sys.path.insert(0, str(Path(__file__).parent))

import pytest

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # verl swallows what plug-ins raise while it is imported
    import ray
    import verl.trainer.ppo.ray_trainer  # noqa: F401, warns about engines that are not installed
from tiny_policy import make_policy


def pytest_configure(config: pytest.Config) -> None:
    """Ignore warnings of libraries that are not ours: in each test, and in what is collected after the last."""
    config.addinivalue_line("filterwarnings", "ignore")
    warnings.simplefilter("ignore")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(400))


@pytest.fixture(scope="session")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a tiny tokenizer and model."""
    return make_policy(tmp_path_factory.mktemp("policy"))


@pytest.fixture(scope="session")
def tokenizer(policy: Path) -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(policy)


@pytest.fixture(scope="session")
def trainer_config(policy: Path) -> Callable[..., Any]:
    """Composes verl's own trainer configuration with overrides."""
    import verl
    from hydra import compose, initialize_config_dir
    from hydra.core.global_hydra import GlobalHydra

    folder = str(Path(str(verl.__file__)).parent / "trainer" / "config")

    def make(*overrides: str) -> Any:
        GlobalHydra.instance().clear()
        with initialize_config_dir(config_dir=folder, version_base=None):
            return compose(
                config_name="ppo_trainer",
                overrides=[
                    f"actor_rollout_ref.model.path={policy}",
                    "actor_rollout_ref.rollout.name=vllm",
                    "actor_rollout_ref.rollout.prompt_length=64",
                    "actor_rollout_ref.rollout.response_length=32",
                    "actor_rollout_ref.rollout.agent.num_workers=1",
                    "+actor_rollout_ref.model.override_config.attn_implementation=eager",
                    "transfer_queue.enable=True",
                    "transfer_queue.backend.SimpleStorage.num_data_storage_units=1",
                    *overrides,
                ],
            )

    return make


@pytest.fixture(scope="session")
def cluster() -> Iterator[None]:
    ray.init("local", num_cpus=16, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    yield
    ray.shutdown()
