"""What the package promises from outside: its public names, and that importing it is light."""

from __future__ import annotations

import importlib
import subprocess
import sys

import pytest

HEAVY = (
    "torch",
    "vllm",
    "ray",
    "transformers",
    "tokenizers",
    "numpy",
    "verl",
    "skyrl",
    "trl",
    "openai",
    "aiohttp",
    "pydantic",
    "yaml",
    "loguru",
    "rich",
    "typer",
)


@pytest.mark.parametrize("module", ["judgekit", "judgekit.graders", "judgekit.judges"])
def test_all_names_are_there_and_sorted(module: str) -> None:
    package = importlib.import_module(module)
    assert list(package.__all__) == sorted(
        package.__all__, key=lambda name: (not name.isupper(), name.lower())
    ) or list(package.__all__) == sorted(package.__all__)
    for name in package.__all__:
        assert getattr(package, name).__doc__ or name == "__version__"


def test_import_is_light() -> None:
    program = f"import judgekit, judgekit.graders, judgekit.judges, sys; print([m for m in {HEAVY!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_version_is_the_distributions() -> None:
    from importlib.metadata import version

    import judgekit

    assert judgekit.__version__ == version("judgekit-rl")
