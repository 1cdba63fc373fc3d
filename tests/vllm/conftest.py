"""Fixtures with real engines; these tests run in the environment `vllm`."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

from judgekit.execution.background import run_blocking
from judgekit.judges import VLLMJudge

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))


def pytest_configure(config: pytest.Config) -> None:
    """Ignore warnings of libraries that are not ours: in each test, and in what is collected after the last."""
    config.addinivalue_line("filterwarnings", "ignore")
    warnings.simplefilter("ignore")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        item.add_marker(pytest.mark.timeout(600))


@pytest.fixture(scope="session")
def random_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random one-layer judge model: it believes nothing, but its engine is real and light."""
    from tiny_models import make_model

    return make_model(tmp_path_factory.mktemp("models") / "random")


@pytest.fixture(scope="session")
def engine(random_model: Path) -> Iterator[VLLMJudge]:
    """A real engine with the random model; it serves every test's event loop in turn."""
    judge = VLLMJudge(random_model, max_model_len=2048)
    run_blocking(judge.start())
    yield judge
    run_blocking(judge.close())
