"""Streams: asynchronous inputs, groups that end, back-pressure."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from judgekit import DataError, GradingRunner, Rollout, grader, group_grader
from judgekit.reward.transforms import TransformName


@grader
async def first_digit(response: str) -> float:
    await asyncio.sleep(0)
    return int(response[0]) / 10


async def source(*groups: str) -> AsyncIterator[Rollout]:
    """A rollout for each digit of each group's text."""
    for i, members in enumerate(groups):
        for digit in members:
            yield Rollout(response=digit, group=i, id=f"{i}-{digit}")


async def test_an_asynchronous_input_is_graded_in_its_order_of_arrival() -> None:
    results = [r async for r in GradingRunner([first_digit]).stream(source("12", "3", "45"))]
    assert sorted((r.index, r.group, r.reward) for r in results) == [
        (0, 0, 0.1),
        (1, 0, 0.2),
        (2, 1, 0.3),
        (3, 2, 0.4),
        (4, 2, 0.5),
    ]


async def test_a_group_of_an_asynchronous_input_ends_where_the_next_begins() -> None:
    """Group graders and transforms see whole groups, the last one at the input's end."""
    seen: list[list[str]] = []

    @group_grader
    def order(rollouts: Sequence[Rollout]) -> list[float]:
        seen.append([r.response for r in rollouts])
        return [int(r.response) / 10 for r in rollouts]

    runner = GradingRunner([order], transform="center")
    results = [r async for r in runner.stream(source("13", "555", "02"))]
    assert seen == [["1", "3"], ["5", "5", "5"], ["0", "2"]]
    assert [r.reward for r in sorted(results, key=lambda r: r.index)] == pytest.approx(
        [-0.1, 0.1, 0, 0, 0, -0.1, 0.1]
    )


async def test_results_of_a_group_come_before_the_next_group_is_there() -> None:
    """The input waits for the first group's results before it goes on."""
    taken = asyncio.Event()

    async def slow() -> AsyncIterator[Rollout]:
        yield Rollout(response="1", group="a")
        yield Rollout(response="2", group="b")
        await taken.wait()
        yield Rollout(response="3", group="b")

    rewards = []
    async for result in GradingRunner([first_digit], transform="rank", missing_reward="neutral").stream(
        slow()
    ):
        rewards.append((result.group, result.status))
        taken.set()
    assert rewards == [("a", "neutral"), ("b", "scored"), ("b", "scored")]


async def test_an_asynchronous_input_is_read_no_faster_than_results_are_taken() -> None:
    read = 0

    async def endless() -> AsyncIterator[Rollout]:
        nonlocal read
        while True:
            read += 1
            yield Rollout(response="1", group=read)

    stream = GradingRunner([first_digit], max_concurrency=4).stream(endless())
    for _ in range(10):
        await anext(stream)
    for _ in range(1000):
        await asyncio.sleep(0)
    await stream.aclose()
    assert read < 200
    assert len(asyncio.all_tasks()) == 1


async def test_what_the_input_raises_ends_the_stream() -> None:
    async def broken() -> AsyncIterator[Rollout]:
        yield Rollout(response="1")
        raise OSError("the disk is gone")

    with pytest.raises(OSError, match="the disk is gone"):
        [r async for r in GradingRunner([first_digit]).stream(broken())]

    async def odd() -> AsyncIterator[Rollout]:
        yield "no rollout"  # type: ignore[misc]

    with pytest.raises(DataError, match=r"item 0 is a str, not a judgekit\.Rollout"):
        [r async for r in GradingRunner([first_digit]).stream(odd())]
    assert len(asyncio.all_tasks()) == 1


@pytest.mark.parametrize("transform", ["none", "center"])
async def test_members_that_come_one_by_one_with_other_groups_are_told_of(
    transform: TransformName, caplog: pytest.LogCaptureFixture
) -> None:
    """As an engine finishes them: their groups would be cut into pieces, without a word. It only matters where groups do."""

    async def interleaved() -> AsyncIterator[Rollout]:
        for i in range(12):
            yield Rollout(response="1", group=f"prompt {i % 3}")

    runner = GradingRunner([first_digit], transform=transform)
    with caplog.at_level(logging.WARNING, logger="judgekit"):
        assert len([r async for r in runner.stream(interleaved())]) == 12
    told = [text for text in caplog.messages if "comes again" in text]
    assert len(told) == (0 if transform == "none" else 1)
    assert all("group 'prompt 0' comes again after other groups" in text for text in told)


async def test_a_group_of_an_earlier_epoch_is_another(caplog: pytest.LogCaptureFixture) -> None:
    async def epochs() -> AsyncIterator[Rollout]:
        for i in range(1200):
            yield Rollout(response="1", group=i // 2 % 300)

    with caplog.at_level(logging.WARNING, logger="judgekit"):
        runner = GradingRunner([first_digit], transform="center")
        assert len([r async for r in runner.stream(epochs())]) == 1200
    assert not [text for text in caplog.messages if "comes again" in text]


async def test_a_time_out_of_the_input_is_an_error_and_not_its_end() -> None:
    async def slow() -> AsyncIterator[Rollout]:
        yield Rollout(response="1")
        raise TimeoutError("the engine does not answer")

    with pytest.raises(TimeoutError, match="the engine does not answer"):
        [r async for r in GradingRunner([first_digit], deadline_s=60).stream(slow())]


@pytest.mark.parametrize(
    ("rollouts", "says"),
    [
        (Rollout(response="1"), "give a list of rollouts, such as \\[rollout\\], not one rollout"),
        ([Rollout(response="1", group=0), "no rollout"], r"item 1 is a str, not a judgekit\.Rollout"),
    ],
)
async def test_what_is_no_list_of_rollouts_is_refused_before_any_is_graded(rollouts: Any, says: str) -> None:
    graded = 0

    @grader
    def count(response: str) -> float:
        nonlocal graded
        graded += 1
        return 0.5

    with pytest.raises(DataError, match=says):
        [r async for r in GradingRunner([count]).stream(rollouts)]
    assert graded == 0
