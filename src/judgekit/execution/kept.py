"""Keeps what was used last, within a number of entries and of bytes."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Kept(Generic[K, V]):
    """Drops what was not used for longest, once there are more than *entries*, or they take more than *most_bytes*."""

    def __init__(self, entries: int, most_bytes: int) -> None:
        self.entries = entries
        self.most_bytes = most_bytes
        self.bytes = 0
        self._of: OrderedDict[K, tuple[V, int]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._of)

    def get(self, key: K) -> V | None:
        found = self._of.get(key)
        if found is None:
            return None
        self._of.move_to_end(key)
        return found[0]

    def put(self, key: K, value: V, size: int) -> None:
        """Keep a value that takes *size* bytes; one that is larger than all that may be kept is not."""
        self.drop(key)
        if size > self.most_bytes:
            return
        self._of[key] = value, size
        self.bytes += size
        while len(self._of) > self.entries or self.bytes > self.most_bytes:
            self.bytes -= self._of.popitem(last=False)[1][1]

    def drop(self, key: K) -> None:
        """Keep it no longer, if it is kept."""
        found = self._of.pop(key, None)
        if found is not None:
            self.bytes -= found[1]
