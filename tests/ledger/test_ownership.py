"""What was graded is what is recorded, whatever the host does with its objects afterwards."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from judgekit import Graded, GradingRunner, Ledger, RewardResult, Rollout, grader, group_grader, read_ledger
from judgekit.ledger.schema import rollout_digest
from judgekit.trainers import GroupCollector

COUNT = 40

notes: dict[str, Any] = {"seen": 0}


@grader
def rule(rollout: Rollout) -> Graded:
    """A grader that goes on using the metadata that it has returned."""
    notes["seen"] = rollout.extra["place"]
    return Graded(0.5, metadata=notes)


@grader
async def judge(rollout: Rollout) -> Graded:
    await asyncio.sleep(0)
    return Graded(rollout.extra["place"] / COUNT, metadata={"why": ["so"]})


@group_grader
async def rank(rollouts: Any) -> list[Graded]:
    return [Graded(i / len(rollouts), metadata={"of": len(rollouts)}) for i in range(len(rollouts))]


def rollouts() -> list[Rollout]:
    return [
        Rollout(
            response=f"text {i}",
            id=str(i),
            group=i // 4,
            messages=[{"role": "user", "content": "q"}, {"role": "assistant", "content": "graded"}],
            ground_truth={"accepted": ["4"]},
            extra={"place": i},
        )
        for i in range(COUNT)
    ]


def use(rollout: Any, result: Any) -> None:
    """What a host does with an episode whose reward it has: its book-keeping, and the next turn."""
    rollout.extra["later"] = True
    rollout.extra.pop("place")
    rollout.messages.append({"role": "user", "content": "next"})
    rollout.messages[1]["content"] = "another turn"
    rollout.ground_truth["accepted"].clear()
    for name, grade in list(result.grades.items()):
        grade.metadata.clear()
        grade.metadata["mine"] = True
        result.grades[name] = Graded(0.125)
    result.grades["theirs"] = Graded(1.0)
    result.contributions.clear()


async def by_run(runner: GradingRunner, batch: list[Rollout]) -> None:
    for result in await runner.run(batch):
        use(batch[result.index], result)


async def by_stream(runner: GradingRunner, batch: list[Rollout]) -> None:
    async for result in runner.stream(batch):
        use(batch[result.index], result)


async def by_collector(runner: GradingRunner, batch: list[Rollout]) -> None:
    collector = GroupCollector(runner)

    async def member(rollout: Rollout) -> None:
        use(rollout, await collector.arrive(rollout.group, rollout, size=4))

    await asyncio.gather(*map(member, batch))


async def by_shared_runner(runner: GradingRunner, batch: list[Rollout]) -> None:
    runner = runner.with_settings(shared=True)

    async def group(members: list[Rollout]) -> None:
        for rollout, result in zip(members, (await runner.run_groups([members]))[0], strict=True):
            use(rollout, result)

    await asyncio.gather(*(group(batch[i : i + 4]) for i in range(0, COUNT, 4)))


@pytest.mark.parametrize("way", [by_run, by_stream, by_collector, by_shared_runner])
@pytest.mark.parametrize("transform", ["none", "center"])
@pytest.mark.parametrize("texts", [True, False])
async def test_what_a_host_does_afterwards_is_not_recorded(
    way: Callable[..., Coroutine[Any, Any, None]], transform: Any, texts: bool, tmp_path: Path
) -> None:
    ledger = Ledger(tmp_path / "l", texts=texts)
    runner = GradingRunner([rule, judge, rank], transform=transform, ledger=ledger)
    batch, graded = rollouts(), rollouts()
    await way(runner, batch)
    await asyncio.to_thread(ledger.close)
    entries = sorted(read_ledger(tmp_path / "l").entries, key=lambda entry: int(entry.id))
    assert [entry.rollout_digest for entry in entries] == [rollout_digest(rollout) for rollout in graded]
    for place, (entry, rollout) in enumerate(zip(entries, graded, strict=True)):
        assert entry.grades.keys() == {"rule", "judge", "rank"}
        assert entry.grades["judge"] == Graded(place / COUNT, metadata={"why": ["so"]})
        assert entry.grades["rank"].metadata == {"of": 4}  # type: ignore[union-attr]
        assert entry.contributions.keys() == {"rule", "judge", "rank", "residual"}
        if texts:
            kept = (list(entry.messages), entry.ground_truth, entry.extra)
            assert kept == (rollout.messages, rollout.ground_truth, rollout.extra)


async def test_lines_that_are_written_are_not_changed_by_a_grader_that_keeps_its_metadata(
    tmp_path: Path,
) -> None:
    """Each says what the shared dict held when it was written, of an unfinished rollout, too."""
    ledger = Ledger(tmp_path / "l")
    runner = GradingRunner([rule], ledger=ledger)
    for rollout in rollouts()[:5]:
        await runner.run([rollout])
    await asyncio.to_thread(ledger.close)
    kept: list[Any] = [entry.grades["rule"] for entry in read_ledger(tmp_path / "l").entries]
    assert [grade.metadata["seen"] for grade in kept] == list(range(5))


async def test_a_rollout_that_its_host_changes_meanwhile_stays_one_rollout(tmp_path: Path) -> None:
    """Its lines have the digest of what was handed in when its first grade came."""
    release = asyncio.Event()

    @grader
    async def late(rollout: Rollout) -> float:
        await release.wait()
        return 1.0

    path = tmp_path / "l"
    runner = GradingRunner([judge, late], ledger=Ledger(path))
    (rollout,) = rollouts()[:1]
    running = asyncio.create_task(runner.run([rollout]))
    while not (path.exists() and "unfinished" in path.read_text()):
        await asyncio.sleep(0.01)
    before = copy.deepcopy(rollout)
    rollout.extra["turn"] = 2  # type: ignore[index]
    release.set()
    await running
    (entry,) = (await asyncio.to_thread(read_ledger, path)).entries
    assert (entry.status, entry.rollout_digest) == ("scored", rollout_digest(before))


async def test_without_a_ledger_nothing_is_copied_or_encoded(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*args: Any) -> Any:
        raise AssertionError

    monkeypatch.setattr("judgekit.run.results.Entry.of", never)
    monkeypatch.setattr("judgekit.run.results.rollout_digest", never)
    shared: dict[str, Any] = {"a": 1}

    @grader
    async def keeps(response: str) -> Graded:
        return Graded(1.0, metadata=shared)

    results: list[RewardResult] = await GradingRunner([keeps, judge, rank]).run(rollouts())
    assert all(result.grades["keeps"].metadata is shared for result in results)  # type: ignore[union-attr]
