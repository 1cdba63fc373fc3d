"""Turns in a ledger: read back, placed again with other weights, and absent from old ledgers."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from judgekit import Gate, Graded, GradingRunner, Ledger, RewardResult, Rollout, Turns, Weighted, read_ledger
from judgekit.data.result_files import result_row
from judgekit.ledger.schema import Entry
from judgekit.replay import known_grades, replay
from judgekit.reward.nodes import Node


class Process:
    """Says of each turn what its number is; of every fourth turn nothing."""

    name, version, score_range = "process", "1", (-10.0, 10.0)

    def grade(self, rollout: Rollout) -> Graded:
        said = [str(m["content"]) for m in rollout.messages if m["role"] == "assistant"]
        turns = tuple(None if at % 4 == 3 else float(text) / 7 for at, text in enumerate(said))
        return Graded(turns[0] or 0.0, turns=turns)


class Silent(Process):
    def grade(self, rollout: Rollout) -> Graded:
        raise AssertionError("asked")


class Outcome:
    name, version, score_range = "outcome", "1", (0.0, 1.0)

    def grade(self, rollout: Rollout) -> float:
        return float(len(rollout.response) % 2)


GRADERS: dict[str, Any] = {"process": Process(), "outcome": Outcome()}
REWARD = Weighted({"outcome": 1.0, "process": (0.3, Turns("process", how="change"))})
OTHER = Gate("outcome >= 1", Weighted({"outcome": 0.7, "process": (0.1, Turns("process", how="mean"))}), 0.25)


def rollouts() -> list[Rollout]:
    rng = random.Random(0)
    made = []
    for i in range(60):
        messages: list[Any] = []
        for _ in range(rng.randint(1, 7)):
            messages += [
                {"role": "assistant", "content": str(rng.randint(-60, 60))},
                {"role": "tool", "content": "x"},
            ]
        made.append(Rollout(response=messages[-2]["content"], messages=messages, group=i // 4, id=str(i)))
    return made


def read(path: Path) -> list[tuple[float, ...]]:
    return [tuple(e.turns) for e in sorted(read_ledger(path).entries, key=lambda entry: entry.index)]


def replayed(path: Path, reward: Node | None = None) -> list[RewardResult]:
    found = replay(path, reward)
    return [
        result
        for _, result in sorted(
            zip([e.id.zfill(2) for e in found.entries], found.results, strict=True), key=lambda pair: pair[0]
        )
    ]


def turns(results: Sequence[RewardResult]) -> list[tuple[float, ...]]:
    return [result.turns for result in results]


def run(reward: Node, path: Path | None = None, **options: Any) -> list[RewardResult]:
    ledger = None if path is None else Ledger(path, **options)
    return GradingRunner(GRADERS, reward, ledger=ledger).run_sync(rollouts())


@pytest.mark.parametrize("texts", [False, True])
def test_a_replay_places_again_bit_for_bit(tmp_path: Path, texts: bool) -> None:
    """Whether the ledger keeps messages or not; with the same weights and with others."""
    path = tmp_path / "l.jsonl"
    made = run(REWARD, path, texts=texts)
    assert read(path) == turns(made)
    assert turns(replayed(path)) == turns(made)
    other, expected = replayed(path, OTHER), run(OTHER)
    assert turns(other) == turns(expected)
    assert any(not any(result.turns) and len(result.turns) > 1 for result in expected)
    assert all(sum(result.turns) + result.outcome == pytest.approx(result.reward) for result in other)


def test_a_gated_grader_leaves_the_number_of_turns_in_the_line(tmp_path: Path) -> None:
    path, again = tmp_path / "l.jsonl", tmp_path / "again.jsonl"
    made = run(OTHER, path)
    assert turns(replayed(path)) == turns(made)
    ledger = Ledger(again)
    replay(path).write(ledger)
    ledger.close()
    assert read(again) == turns(made)


def test_grades_with_turns_are_known_to_another_run(tmp_path: Path) -> None:
    path = tmp_path / "l.jsonl"
    made = run(REWARD, path)
    again, asked = GradingRunner({**GRADERS, "process": Silent()}, REWARD), rollouts()
    known = known_grades(read_ledger(path), again, asked).grades
    assert turns(asyncio.run(again.run(asked, known=known))) == turns(made)
    fewer = msgspec.structs.replace(asked[1], messages=[])
    results = asyncio.run(again.run([fewer], known=known[1:2]))
    assert getattr(results[0].grades["process"], "error", "") == "WrongTurns"


def test_old_lines_have_no_turns(tmp_path: Path) -> None:
    path = tmp_path / "l.jsonl"
    GradingRunner({"outcome": Outcome()}, ledger=Ledger(path)).run_sync(rollouts()[:1])
    assert b"turns" not in path.read_bytes()
    (entry,) = read_ledger(path).entries
    assert (entry.turns, replay(path).results[0].turns) == ((), ())


def test_rows_of_json_have_turns_where_there_are_some() -> None:
    (first, *_), rollout = run(REWARD), rollouts()[0]
    assert result_row(rollout, first)["turns"] == first.turns
    assert "turns" not in result_row(rollout, msgspec.structs.replace(first, turns=()))


def test_a_line_reads_back_with_the_turns_of_its_grades() -> None:
    (first, *_) = run(REWARD)
    entry = Entry.of(first, rollouts()[0], spec="s", run="r")
    again = msgspec.json.decode(msgspec.json.encode(entry), type=Entry)
    assert again.grades == first.grades
    assert tuple(again.turns) == first.turns
