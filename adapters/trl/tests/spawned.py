"""Runs in a process of its own, which knows nothing of TRL."""

from __future__ import annotations

import asyncio
from typing import Any


def call(reward: Any, queue: Any) -> None:
    given = {"completions": ["a", "b"], "completion_ids": [[1], [1]], "solution": ["b", "b"]}
    queue.put(asyncio.run(reward(prompts=["?", "?"], **given)))
