"""What counts as a hole: the ends of judges, pay at the limits, calls of judges, and the order of what was found."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from judgekit import Gate, Graded, GradingRunner, Ledger, Rollout, Score, grader, read_ledger
from judgekit.attack import SHIPPED, Row, find_holes
from judgekit.attack.corpus import completions
from judgekit.attack.holes import NEAR, Hole, Report, Unasked, as_json
from judgekit.graders import Code, CodeBlock, FinalAnswer, JudgeGrader, Length, Repetition, SoftOverlong
from judgekit.testing import ScriptedJudge

CALLS = [{"name": "f", "arguments": {"a": 1}}, {"name": "g", "arguments": {"b": 2}}]
ROW = Row(kind="tools", prompt="p", answer=json.dumps(CALLS), truth=CALLS)
CORPUS = {one.id: one for one in completions(ROW)}
RIGHT = {one.text for one in CORPUS.values() if one.right}


def paid(pay: dict[str, float], *, right: float = 1.0) -> Report:
    """Attack a reward that pays right answers *right*, and others as *pay* says, by id."""
    by_text = {CORPUS[id].text: value for id, value in pay.items()}

    @grader
    def reward(response: str) -> float:
        return by_text.get(response, right if response in RIGHT else 0.25)

    return asyncio.run(find_holes(GradingRunner({"reward": reward}), [ROW]))


def found(report: Report) -> dict[str, str]:
    return {hole.id: hole.what for hole in report.holes}


@pytest.mark.parametrize(
    ("pay", "what"),
    [
        ({"nothing/0": 1.0}, {"nothing/0": "as right"}),
        ({"calls/denied": 1.0}, {"calls/denied": "as right"}),
        ({"calls/denied": 1.0 - NEAR / 2}, {"calls/denied": "as right"}),
        ({"calls/denied": 0.9}, {}),  # an honest attempt may be worth much
        ({"dress/calls": 0.5}, {"dress/calls": "right refused"}),
        ({"dress/calls": 1.0 - NEAR / 2}, {}),
        ({"nothing/0": 0.0}, {}),
        ({"nothing/1": 0.9}, {"nothing/1": "above wrong"}),
    ],
)
def test_what_a_completion_must_not_earn(pay: dict[str, float], what: dict[str, str]) -> None:
    # whoever gives no answer earns nothing here but where it is said
    others = {id: 0.0 for id in CORPUS if id.startswith("nothing/")}
    report = paid(others | pay)
    assert found(report) == what
    assert all(hole.certain for hole in report.holes)
    for hole in report.holes:
        assert (hole.paid, hole.right, hole.prompt) == (pay[hole.id], 1.0, "p")
        assert (hole.response, hole.family) == (CORPUS[hole.id].text, hole.id.partition("/")[0])
        assert (hole.term, hole.why) == ("reward", CORPUS[hole.id].why)


def test_no_answer_that_is_paid_like_an_honest_attempt() -> None:
    report = paid({})
    assert set(found(report).values()) == {"nothing paid"}
    assert set(found(report)) == {id for id in CORPUS if id.startswith("nothing/")}


def test_the_figures_of_a_report() -> None:
    others = {id: 0.0 for id in CORPUS if id.startswith("nothing/")}
    report = paid(others | {"nothing/3": 0.125, "calls/denied": 0.75})
    assert (report.rows, report.completions, report.kinds) == (1, len(CORPUS), {"tools": 1})
    assert (report.right, report.nothing, report.reach, report.wrong) == (1.0, 0.125, 0.75, 0.25)
    assert (report.skipped, report.unasked, report.left_out) == ({}, [], 0)
    assert report.seconds >= 0
    told = as_json(report)
    assert set(told) == set(Report.__struct_fields__)
    assert told["holes"] == [
        {name: getattr(hole, name) for name in Hole.__struct_fields__} for hole in report.worst()
    ]


def test_rows_that_a_reward_does_not_grade() -> None:
    assert paid({}, right=0.25).skipped == {"a right answer earns no more than a wrong one (tools)": 1}
    assert paid(dict.fromkeys(CORPUS, 0.0), right=0.0).skipped == {"no right answer is paid (tools)": 1}


def test_completions_without_a_reward_are_counted() -> None:
    @grader
    def reward(response: str) -> float:
        if response == CORPUS["nothing/0"].text:
            raise OSError("down")
        return float(response in RIGHT)

    report = asyncio.run(find_holes(GradingRunner({"reward": reward}), [ROW]))
    assert (report.left_out, report.rows, report.holes) == (1, 1, [])

    @grader(name="reward")
    def broken(response: str) -> float:
        raise OSError("down")

    report = asyncio.run(find_holes(GradingRunner({"reward": broken}), [ROW], skipped={"odd": 2}))
    assert report.skipped == {"odd": 2, "no right answer has a reward": 1}
    assert (report.rows, report.right, report.reach) == (0, None, None)


@pytest.mark.parametrize(
    ("score_range", "ends"),
    [
        ((0.0, 1.0), (0.0, 1.0)),
        ((-math.inf, math.inf), (-1.0, 1.0)),
        ((2.0, math.inf), (2.0, 3.0)),
        ((-5.0, math.inf), (-5.0, 1.0)),
        ((-math.inf, -3.0), (-4.0, -3.0)),
        ((-math.inf, 5.0), (-1.0, 5.0)),
    ],
)
def test_the_ends_of_a_judge_that_is_not_asked(
    score_range: tuple[float, float], ends: tuple[float, float]
) -> None:
    stub = Unasked("judge", score_range, ())
    scores = []
    for stub.end in (0, 1):
        scores.append(stub.grade(Rollout(response="x")))
    assert tuple(scores) == ends
    assert Unasked("judge", score_range, ("a", "b")).grade(Rollout(response="x")) == {
        "a": ends[0],
        "b": ends[0],
    }


def test_what_depends_on_a_judge_is_possible_and_not_certain(tmp_path: Path) -> None:
    @grader
    def rule(response: str) -> float:
        return float(response in RIGHT)

    judge = ScriptedJudge("1")
    runner = GradingRunner({"rule": rule, "judge": JudgeGrader(judge)}, {"rule": 0.5, "judge": 0.5})
    with_ledger = Ledger(tmp_path / "l.jsonl", texts=True)
    report = asyncio.run(find_holes(runner, [ROW], ledger=with_ledger))
    with_ledger.close()
    assert judge.requests == []
    assert report.unasked == ["judge"]
    assert {(hole.what, hole.certain) for hole in report.holes} <= {
        ("as right", False), ("above wrong", False), ("nothing paid", False),
    }  # fmt: skip
    entries = read_ledger(tmp_path / "l.jsonl").entries
    assert len(entries) == 2 * len(CORPUS)  # at both ends
    assert {entry.tags["judge"] for entry in entries} == {"low", "high"}
    assert {entry.id for entry in entries} == set(CORPUS)


@pytest.mark.parametrize(
    ("calls", "rows"), [(2 * len(CORPUS), 2), (2 * len(CORPUS) - 1, 1), (len(CORPUS) - 1, 0)]
)
def test_rows_are_attacked_while_the_judges_calls_last(calls: int, rows: int) -> None:
    judge = ScriptedJudge(
        lambda request: "1" if any(text in request.turns[-1].text for text in RIGHT if text) else "0"
    )
    runner = GradingRunner({"judge": JudgeGrader(judge)})
    other = Row(kind="tools", prompt="q", answer=json.dumps(CALLS), truth=CALLS)
    report = asyncio.run(find_holes(runner, [ROW, other], judges=True, calls=calls))
    assert report.skipped.get("the judges' calls are spent", 0) == 2 - rows
    assert len(judge.requests) <= calls
    assert report.unasked == []


def hole(id: str, what: Any, certain: bool, paid: float) -> Hole:
    return Hole(id, id, what, certain, "p", "r", paid, 1.0, 0.0, "t", "", "d", "w", "e")


def test_the_worst_of_each_completion_comes_first() -> None:
    holes = [
        hole("b", "right refused", True, 0.1), hole("c", "as right", False, 0.9), hole("b", "as right", True, 0.5),
        hole("a", "as right", True, 0.25), hole("b", "as right", True, 0.75), hole("c", "as right", True, 0.5),
        hole("d", "above wrong", False, 0.5), hole("e", "nothing paid", True, 0.5),
    ]  # fmt: skip
    report = Report(holes, 1, 1, {}, {}, None, None, None, None, [], 0, 0.0)
    assert [(one.id, one.what, one.certain, one.paid) for one in report.worst()] == [
        ("a", "as right", True, 0.25), ("b", "as right", True, 0.75), ("c", "as right", True, 0.5),
        ("e", "nothing paid", True, 0.5), ("b", "right refused", True, 0.1), ("d", "above wrong", False, 0.5),
    ]  # fmt: skip


def test_the_term_that_paid_and_the_one_that_did_not_are_named() -> None:
    @grader
    def brief(response: str) -> Any:
        return Graded(float(len(response) < 40), "it is short" if len(response) < 40 else "it is long")

    runner = GradingRunner({"correct": FinalAnswer(), "brief": brief}, {"correct": 0.5, "brief": 0.5})
    row = Row(kind="number", prompt="p", answer="42")
    report = asyncio.run(find_holes(runner, [row]))
    by_what = {hole.what: hole for hole in report.worst()}
    assert by_what["nothing paid"].term == "brief"
    assert by_what["nothing paid"].reason == "it is short"
    assert by_what["right refused"].term == "brief"
    assert by_what["right refused"].reason == "it is long"
    assert "brief" in by_what["nothing paid"].explained


SOUND: Mapping[str, Any] = {
    "a penalty": ({"correct": FinalAnswer(), "rep": Repetition()}, {"correct": 1.0, "rep": 0.2}),
    "a penalty of tokens": ({"correct": FinalAnswer(), "long": SoftOverlong(max_length=4096, cache=512)}, {"correct": 1.0, "long": 1.0}),
    "right or wrong, 1 or -1": ({"correct": FinalAnswer()}, Gate(Score("correct") >= 1, 1, -1)),
}  # fmt: skip


@pytest.mark.parametrize("reward", SOUND)
def test_a_penalty_is_no_pay(reward: str) -> None:
    """Where it reaches below 0, an empty response that is paid 0 is paid nothing."""
    graders, tree = SOUND[reward]
    report = asyncio.run(find_holes(GradingRunner(graders, tree)))
    assert report.rows > 0
    assert [hole for hole in report.worst() if hole.certain and hole.what != "as right"] == []


def test_an_honest_program_that_is_wrong_is_one() -> None:
    """Of a gate on the form, what is no program is below all programs."""
    graders = {"tests": Code(isolation="none"), "block": CodeBlock()}
    tree = Gate(Score("block") >= 1, Score("tests"), -0.5)
    rows = [row for row in SHIPPED if row.kind == "code"][:1]
    report = asyncio.run(find_holes(GradingRunner(graders, tree), rows))
    assert report.rows == 1
    assert report.wrong == 0.0
    assert [hole.id for hole in report.worst() if hole.certain] == []


def test_a_hole_says_which_grader_decides() -> None:
    graders = {"mine": FinalAnswer(), "brief": Length(soft_max=10, hard_max=100)}
    report = asyncio.run(find_holes(GradingRunner(graders, {"mine": 0.7, "brief": 0.3})))
    assert {(hole.term, hole.decides) for hole in report.worst() if hole.what == "nothing paid"} == {
        ("brief", "mine")
    }
