"""What was used last is kept, within a number of entries and of bytes."""

from __future__ import annotations

import random

from judgekit.execution.kept import Kept


def test_what_was_not_used_for_longest_is_dropped() -> None:
    kept: Kept[str, int] = Kept(2, 100)
    kept.put("a", 1, 10)
    kept.put("b", 2, 10)
    assert kept.get("a") == 1
    kept.put("c", 3, 10)
    assert [kept.get(key) for key in "abc"] == [1, None, 3]
    assert (len(kept), kept.bytes) == (2, 20)


def test_bytes_are_never_more_than_they_may_be() -> None:
    rng = random.Random(1)
    kept: Kept[int, int] = Kept(50, 1000)
    sizes: dict[int, int] = {}
    for number in range(5000):
        key, size = rng.randrange(80), rng.choice((1, 30, 400, 1001))
        kept.put(key, number, size)
        sizes[key] = size
        assert kept.get(key) == (number if size <= 1000 else None)
        there = [key for key in sizes if key in kept._of]
        assert kept.bytes == sum(sizes[key] for key in there) <= 1000
        assert len(kept) == len(there) <= 50


def test_nothing_is_kept_where_nothing_may_be() -> None:
    kept: Kept[str, int] = Kept(0, 100)
    kept.put("a", 1, 10)
    assert (kept.get("a"), kept.bytes) == (None, 0)
