"""The real SkyRL on CPU, with a tokenizer made here and a policy engine that is not there."""

from __future__ import annotations

import os
import sys
import typing
import warnings
from pathlib import Path

os.environ |= {
    "HF_HUB_OFFLINE": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_worker_niceness": "0",  # else whatever else the machine does starves Ray's workers
}
sys.path.insert(0, str(Path(__file__).parent))
if sys.version_info < (3, 12):  # skyrl 0.3.0 gives pydantic a TypedDict that it takes from 3.12 on only
    import typing_extensions

    typing.TypedDict = typing_extensions.TypedDict  # type: ignore[misc, assignment]

import pytest
import transformers
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from under_test import TRAIN, VERSION, part

# skyrl before 0.3, and skyrl_train, were written for a Ray whose module had this name too
sys.modules["ray.util.placement_group"].PlacementGroupSchedulingStrategy = PlacementGroupSchedulingStrategy  # type: ignore[attr-defined]

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    part("generators.skyrl_gym_generator")

if TRAIN or VERSION == "0.1.0":  # for transformers 4, where a chat template gave a list of ids
    template = transformers.PreTrainedTokenizerBase.apply_chat_template
    transformers.PreTrainedTokenizerBase.apply_chat_template = lambda *args, **kw: template(  # type: ignore[method-assign]
        *args, **{"return_dict": False, **kw}
    )


def pytest_configure(config: pytest.Config) -> None:
    """Ignore warnings of libraries that are not ours: in each test, and in what is collected after the last."""
    config.addinivalue_line("filterwarnings", "ignore")
    warnings.simplefilter("ignore")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        item.add_marker(pytest.mark.timeout(300))


@pytest.fixture(scope="session")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> typing.Any:
    from stand_ins import make_tokenizer

    return make_tokenizer(tmp_path_factory.mktemp("tokenizer"))
