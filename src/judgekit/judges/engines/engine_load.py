"""Reads an engine's load from its server's `/metrics`: vLLM's, and SGLang's with `--enable-metrics`."""

from __future__ import annotations

import math
import re

from msgspec import Struct

_LINE = re.compile(r"^(?:vllm|sglang):(\w+)(?:\{[^}]*\})? +(\S+)", re.MULTILINE)
_RUNNING = ("num_requests_running", "num_running_reqs")
_WAITING = ("num_requests_waiting", "num_queue_reqs")
_ASKED = ("prefix_cache_queries_total", "prompt_tokens_total")
_HITS = ("prefix_cache_hits_total", "cached_tokens_total")


class EngineLoad(Struct, frozen=True):
    """What an engine does at one time; over all engines behind one server."""

    running: int
    """Requests that it works on."""
    waiting: int
    """Requests in its queue."""
    asked_tokens: float = 0.0
    """Tokens of prompts that the prefix cache was asked for, since the engine's start."""
    cached_tokens: float = 0.0
    """Those of them that it had."""

    def __add__(self, other: EngineLoad) -> EngineLoad:
        return EngineLoad(
            self.running + other.running,
            self.waiting + other.waiting,
            self.asked_tokens + other.asked_tokens,
            self.cached_tokens + other.cached_tokens,
        )

    def hit_rate(self, before: EngineLoad | None = None) -> float | None:
        """Return the prefix cache's share of hits, 0 to 1, since *before* or the engine's start; None if none was asked for."""
        asked = self.asked_tokens - (before.asked_tokens if before is not None else 0)
        hits = self.cached_tokens - (before.cached_tokens if before is not None else 0)
        return hits / asked if asked > 0 and 0 <= hits <= asked else None


def read_load(page: str) -> EngineLoad | None:
    """Read a page of metrics in Prometheus' text format; None if no engine's are there."""
    sums: dict[str, float] = {}
    for name, text in _LINE.findall(page):
        try:
            value = float(text)
        except ValueError:
            continue
        if math.isfinite(value):
            sums[name] = sums.get(name, 0.0) + value

    def first(names: tuple[str, ...]) -> float | None:
        return next((sums[name] for name in names if name in sums), None)

    running, waiting = first(_RUNNING), first(_WAITING)
    if running is None or waiting is None:
        return None
    asked, hits = first(_ASKED), first(_HITS)
    if asked is None or hits is None:
        asked = hits = 0.0
    return EngineLoad(int(running), int(waiting), asked, hits)
