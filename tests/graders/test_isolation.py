"""The table of docs/security.md: each cell is tried, at each level of isolation that this machine has."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from bench_code import documented
from code_escapes import KINDS, LEVELS, Scene, attempts, holds, scene, ways

WAYS = ways()


@pytest.fixture(scope="module")
def at() -> Iterator[Scene]:
    with scene() as found:
        yield found


def test_the_table_has_every_kind_and_level() -> None:
    assert {kind: tuple(held) for kind, held in documented().items()} == KINDS
    assert all(len(held) == len(LEVELS) for held in KINDS.values())


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_level_holds_what_the_table_says(level: str, kind: str, at: Scene) -> None:
    if level not in WAYS:
        pytest.skip(f"this machine has no {level}")
    held = {
        name: holds(WAYS[level], kind, code, at) for name, (of, code) in attempts(at).items() if of == kind
    }
    assert held
    if KINDS[kind][LEVELS.index(level)]:
        assert all(held.values()), [name for name, is_held in held.items() if not is_held]
    else:
        assert not all(held.values())
