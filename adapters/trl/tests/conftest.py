"""The real TRL on CPU, with a tokenizer and a policy made here."""

from __future__ import annotations

import os
import sys
import warnings
from pathlib import Path

os.environ |= {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false", "TRL_EXPERIMENTAL_SILENCE": "1"}
sys.path.insert(0, str(Path(__file__).parent))

import pytest

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import torch
    import trl.trainer.grpo_trainer
    import trl.trainer.rloo_trainer  # noqa: F401

torch.set_num_threads(1)  # a tiny model is fastest on one


def pytest_configure(config: pytest.Config) -> None:
    """Ignore warnings of libraries that are not ours: in each test, and in what is collected after the last."""
    config.addinivalue_line("filterwarnings", "ignore")
    warnings.simplefilter("ignore")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        item.add_marker(pytest.mark.timeout(300))
