"""Which of several lines of one rollout counts, in whatever order they are read."""

from __future__ import annotations

from itertools import permutations
from types import SimpleNamespace
from typing import Any

import pytest

from judgekit.ledger.standing import Standing, group_key, latest


def line(name: str, **fields: Any) -> Any:
    """A line of rollout 7 of run a, finished unless told otherwise."""
    given: dict[str, Any] = dict(
        run="a", id="7", group="g", rollout_digest="d", index=0, order=0, time=0.0, status="scored", tags={}
    )
    return SimpleNamespace(name=name, **(given | fields))


def counting(lines: list[Any]) -> set[str]:
    standing = Standing.of(lines)
    left_out = standing.repeated | standing.replaced
    return {one.name for at, one in enumerate(lines) if at not in left_out}


def resuming(name: str, *runs: Any, **fields: Any) -> Any:
    return line(name, **({"run": "b", "tags": {"resumes": list(runs)}} | fields))


@pytest.mark.parametrize(
    ("lines", "counts"),
    [
        ([line("only")], {"only"}),
        ([line("begun", status="unfinished", order=2), line("done", order=1)], {"done"}),
        ([line("begun", status="unfinished", time=9.0), line("failed", status="missing")], {"failed"}),
        (
            [line(name, status="unfinished", order=at, time=-at) for at, name in enumerate("wxyz")],
            {"z"},
        ),
        ([line("early", order=1, time=9.0), line("late", order=2, time=1.0)], {"late"}),
        ([line("early", time=1.0), line("late", time=1.5)], {"late"}),
        ([line("first"), line("second", index=1)], {"first", "second"}),
        ([line("this"), line("other", rollout_digest="e")], {"this", "other"}),
        ([line("this"), line("other", id="8")], {"this", "other"}),
        ([line("this"), line("other", run="b")], {"this", "other"}),
        ([line(str(group), group=group) for group in (1, True, 1.0)], {"1", "True", "1.0"}),
        ([line("text", group="1"), line("number", group=1), line("none", group=None)], {"text", "number", "none"}),
        ([line("old"), resuming("new", "a")], {"new"}),
        ([line("old", order=5), resuming("new", "a", order=1, time=-1.0)], {"new"}),
        ([line("old"), resuming("begun", "a", status="unfinished")], {"old"}),
        ([line("begun", status="unfinished"), resuming("as well", "a", status="unfinished")], {"as well"}),
        ([line("old"), resuming("of another run", "c")], {"old", "of another run"}),
        ([line("old", id="8"), resuming("of another rollout", "a")], {"old", "of another rollout"}),
        ([line("old"), resuming("new", "a", index=3)], {"new"}),
        ([line("a number", run="12"), resuming("new", 12)], {"new"}),
        ([line("old", run="1"), resuming("no list", tags={"resumes": "1"})], {"old", "no list"}),
        ([resuming("itself", "b")], {"itself"}),
        ([line("a"), line("c", run="c"), resuming("both", "a", "c")], {"both"}),
        ([line("a"), resuming("b", "a"), resuming("c", "a", "b", run="c")], {"c"}),
        ([line("old"), line("twin", id="8"), resuming("new", "a")], {"twin", "new"}),
    ],
    ids=lambda value: "-".join(one.name for one in value) if isinstance(value, list) else "",
)  # fmt: skip
def test_one_line_of_a_rollout_counts(lines: list[Any], counts: set[str]) -> None:
    for order in permutations(lines):
        assert counting(list(order)) == counts


def test_of_two_equal_lines_the_one_that_is_read_later_counts() -> None:
    """As of a file that was copied into the folder."""
    assert counting([line("first"), line("copy")]) == {"copy"}


def test_both_kinds_of_superseded_lines_are_told_apart() -> None:
    lines = [
        line("begun", status="unfinished"),
        line("done", order=1),
        resuming("again", "a"),
        line("else", id="9"),
    ]
    standing = Standing.of(lines)
    assert (standing.repeated, standing.replaced) == ({0}, {0, 1})
    assert [one.name for one in latest(lines)] == ["done", "again", "else"]
    assert latest([]) == []


def test_a_reader_is_told_which_line_counted_so_far() -> None:
    standing = Standing()
    told = [
        standing.add(one)
        for one in (
            line("begun", status="unfinished"),
            line("other", id="8"),
            line("done"),
            line("late", status="unfinished", order=9),
            line("again", order=1),
            line("another run", run="b"),
        )
    ]
    assert told == [None, None, 0, 2, 2, None]
    assert standing.repeated == {0, 3, 2}
    assert [standing.rollouts[at] == standing.rollouts[0] for at in range(6)] == [
        True,
        False,
        True,
        True,
        True,
        True,
    ]


def test_a_group_has_a_key_of_its_own() -> None:
    names: list[Any] = ["1", 1, True, 1.0, None, ("x", 1), ["x", "1"], {"a": 1}, "", '"1"']
    assert len({group_key(name) for name in names}) == len(names)
    assert group_key(("x", 1)) == group_key(["x", 1])
