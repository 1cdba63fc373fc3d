"""Graders by the names that reward.yaml has for them."""

from __future__ import annotations

import importlib
from typing import Any

from judgekit.graders.registry import GRADERS


def class_of(rule: str) -> Any:
    module, _, name = GRADERS[rule].partition(":")
    return getattr(importlib.import_module(module), name)
