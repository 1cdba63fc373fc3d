"""Is a grader right? Certificates from labels before a training, audits while it runs. All but audits needs the extra `evidence`."""

import importlib
from typing import TYPE_CHECKING, Any

from judgekit.evidence.alarm import Alarm

if TYPE_CHECKING:
    from judgekit.evidence.certificate import thresholds
    from judgekit.evidence.shares import interval

_MODULES = {"interval": "shares", "thresholds": "certificate"}

__all__ = ["Alarm", "interval", "thresholds"]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
