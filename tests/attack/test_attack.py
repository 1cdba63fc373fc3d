"""`judgekit attack`: holes that are planted are found, sound rewards have none, and our own rules hold."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from judgekit import Graded, GradingRunner, Rollout, from_function, read_ledger
from judgekit.attack import SHIPPED, Report, Row, find_holes, rows_of
from judgekit.attack.corpus import FAMILIES, completions
from judgekit.config import RewardConfig, load_runner
from judgekit.graders import FinalAnswer, JudgeGrader, MultipleChoice, TextMatch, ToolCallMatch
from judgekit.judges import Sampling
from judgekit.testing import ScriptedJudge

NUMBERS = [row for row in SHIPPED if row.kind == "number"]


def attacked(runner: GradingRunner, rows: Any = NUMBERS, **options: Any) -> Report:
    return asyncio.run(find_holes(runner, rows, **options))


def configured(reward: Any, **graders: Any) -> GradingRunner:
    far = (
        {"far": {"engine": "openai", "url": "http://127.0.0.1:9/v1", "model": "m"}}
        if "judge" in graders
        else {}
    )
    return RewardConfig(graders=graders, judges=far, reward=reward).build()


def found(report: Report, *, certain: bool = True) -> set[tuple[str, str, str]]:
    return {(hole.what, hole.family, hole.term) for hole in report.holes if hole.certain == certain}


@pytest.mark.parametrize("row", SHIPPED, ids=lambda row: row.prompt[:30])
def test_a_corpus_has_each_completion_once_and_says_why(row: Row) -> None:
    made = list(completions(row))
    assert len({one.id for one in made}) == len(made)
    assert all(one.right is FAMILIES[one.family][0] and one.why for one in made)
    assert sum(one.right for one in made) >= 3
    texts = [one.text for one in made if not one.right]
    assert not {one.text for one in made if one.right} & set(texts)
    assert len(made) >= {"number": 300, "maths": 200, "choice": 200, "text": 200}.get(row.kind, 70)


def test_the_corpus_is_the_same_each_time() -> None:
    assert [list(completions(row)) for row in SHIPPED] == [list(completions(row)) for row in SHIPPED]


@pytest.mark.parametrize(
    ("grader", "kinds"),
    [
        (FinalAnswer(), ("number",)),
        (MultipleChoice(), ("choice",)),
        (TextMatch(), ("text",)),
        (TextMatch(part="committed", ignore_case=True), ("text", "choice", "maths")),
        (ToolCallMatch(), ("tools",)),
        (ToolCallMatch(of="exact"), ("tools",)),
    ],
    ids=[
        "final_answer",
        "multiple_choice",
        "text_match",
        "text_match committed",
        "tool_calls",
        "tool_calls exact",
    ],
)
def test_our_rules_pay_no_wrong_completion(grader: Any, kinds: tuple[str, ...]) -> None:
    report = attacked(GradingRunner({"correct": grader}), [row for row in SHIPPED if row.kind in kinds])
    assert report.rows >= 3
    assert [(hole.id, hole.response) for hole in report.holes if hole.what != "right refused"] == []
    assert (report.reach or 0.0) <= 0.7  # one of two calls is a part of the answer


def test_an_argument_that_is_null_may_be_left_out() -> None:
    calls = [{"name": "find", "arguments": {"after": None, "name": "x"}}]
    rows, _ = rows_of([Rollout(prompt="Find x.", response="", ground_truth=calls)])
    report = attacked(GradingRunner({"correct": ToolCallMatch()}), rows)
    assert (report.rows, report.right, report.holes) == (1, 1.0, [])


def test_math_pays_no_wrong_completion() -> None:
    pytest.importorskip("math_verify")
    runner = configured("correct", correct={"use": "math"})
    rows = [row for row in SHIPPED if row.kind in ("number", "maths")][3:8]
    holes = attacked(runner, rows).holes
    assert [(hole.id, hole.response) for hole in holes if hole.what != "right refused"] == []


@pytest.mark.parametrize(
    ("reward", "graders", "hole"),
    [
        pytest.param(
            {"weighted": {"correct": 0.7, "brief": 0.3}},
            {"brief": {"use": "length", "soft_max": 700, "hard_max": 1400}},
            ("nothing paid", "nothing", "brief"),
            id="brevity that is paid without an answer",
        ),
        pytest.param(
            {"gate": {"if": "correct < 1", "then": 1.0, "otherwise": 0.0}},
            {},
            None,
            id="a gate the wrong way round",
        ),
        pytest.param(
            {"weighted": {"correct": 0.2, "said": 0.8}},
            {"said": {"use": "text_match", "how": "contains"}},
            ("above wrong", "denied", "said"),
            id="the weight on a rule that only looks for the text",
        ),
        pytest.param(
            {"max": [{"clip": {"of": "correct", "low": 0.0, "high": 0.5}}, 0.5]},
            {},
            None,
            id="a floor as high as the clip",
        ),
    ],
)
def test_planted_faults_are_found(reward: Any, graders: Any, hole: Any) -> None:
    report = attacked(configured(reward, correct={"use": "final_answer"}, **graders))
    if hole is None:  # a right answer earns no more than a wrong one, on any row
        assert report.rows == 0
        assert any(
            "no more than a wrong one" in why or "no right answer is paid" in why for why in report.skipped
        )
    else:
        assert hole in found(report)


@pytest.mark.parametrize(
    "reward",
    [
        "correct",
        {
            "gate": {
                "if": "correct >= 1",
                "then": {"weighted": {"correct": 0.9, "brief": 0.1}},
                "otherwise": 0.0,
            }
        },
        {"product": ["correct", {"weighted": {"correct": 0.5, "brief": 0.5}}]},
    ],
)
def test_sound_rewards_have_no_hole(reward: Any) -> None:
    graders = {
        "correct": {"use": "final_answer"},
        "brief": {"use": "length", "soft_max": 700, "hard_max": 1400},
    }
    if reward == "correct":
        del graders["brief"]
    report = attacked(configured(reward, **graders))
    assert [hole for hole in report.holes if hole.what != "right refused"] == []
    assert (report.rows, report.nothing, report.reach) == (len(NUMBERS), 0.0, 0.0)


def lenient(response: str, ground_truth: str) -> float:
    return float(ground_truth in response)


def test_a_function_that_is_not_ours_is_attacked() -> None:
    report = attacked(GradingRunner({"reward": from_function(lenient)}))
    families = {hole.family for hole in report.holes if hole.what == "as right" and hole.certain}
    assert {"denied", "hedged", "scattered", "thought", "retracted", "part", "forged"} <= families
    assert report.reach == 1.0


def test_a_judge_that_is_not_asked_counts_as_both_ends() -> None:
    judge = ScriptedJudge("### Final Score: 1")
    runner = GradingRunner(
        {"correct": FinalAnswer(), "judge": JudgeGrader(judge)}, {"correct": 0.4, "judge": 0.6}
    )
    report = attacked(runner)
    assert judge.requests == []
    assert report.unasked == ["judge"]
    assert found(report) == set()  # whatever earns too much, a sound judge would not pay it
    halves = GradingRunner(
        {"said": TextMatch(how="contains"), "judge": JudgeGrader(judge)}, {"said": 0.9, "judge": 0.1}
    )
    possible = found(attacked(halves), certain=False)
    assert ("as right", "denied", "said") in possible


def test_rows_that_only_a_judge_could_pay_are_no_holes() -> None:
    """A rule for texts behind a gate: a number's right answer, in words, is paid by nobody."""
    runner = configured(
        {"gate": {"if": "correct >= 1", "then": "judge", "otherwise": 0.0}},
        correct={"use": "text_match"},
        judge={"use": "judge", "judge": "far"},
    )
    report = attacked(runner, [row for row in SHIPPED if row.kind == "code"])
    assert report.rows == 0
    assert report.skipped == {"no right answer is paid (code)": 2}


def test_judges_are_asked_on_request() -> None:
    judge = ScriptedJudge({"The answer is 41.": {"1": 0.9, "0": 0.1}}, default={"1": 0.2, "0": 0.8})
    runner = GradingRunner(
        {"correct": FinalAnswer(), "judge": JudgeGrader(judge, verdict="choice")},
        {"correct": 0.1, "judge": 0.9},
    )
    report = attacked(runner, NUMBERS[:1], judges=True)
    assert len(judge.requests) > 200
    assert report.unasked == []
    holes = [hole for hole in report.worst() if hole.what == "as right"]
    assert holes
    assert all("The answer is 41." in hole.response for hole in holes)
    assert {hole.term for hole in holes} == {"judge"}


@pytest.mark.parametrize("votes", [1, 3])
def test_judges_are_asked_within_a_number_of_calls(votes: int) -> None:
    judge = ScriptedJudge("### Final Score [{nonce}]: 1")
    grader = JudgeGrader(judge, verdict="line", votes=votes, sampling=Sampling(temperature=1.0))
    runner = GradingRunner({"correct": FinalAnswer(), "judge": grader}, {"correct": 0.6, "judge": 0.4})
    first = attacked(runner, NUMBERS[:1], judges=True)
    needed = len(judge.requests)
    assert needed == votes * first.completions
    for limit, rows in ((needed - 1, 0), (needed, 1), (2 * needed, 2)):
        judge.requests.clear()
        report = attacked(runner, NUMBERS[:3], judges=True, calls=limit)
        assert len(judge.requests) <= limit
        assert report.rows >= rows - 1
        assert report.skipped.get("the judges' calls are spent", 0) == 3 - report.rows
    enough, all_at_once = (
        msgspec.structs.replace(attacked(runner, NUMBERS[:3], judges=True, calls=limit), seconds=0.0)
        for limit in (100 * needed, None)
    )
    assert enough == all_at_once
    assert attacked(runner, NUMBERS[:1], calls=1).rows == 1  # nobody is asked


class Owned:
    """A judge that is open between `start` and `close`, as an engine is."""

    def __init__(self) -> None:
        self.inner = ScriptedJudge({"1": 0.9, "0": 0.1})
        self.open = self.was_open = False

    async def start(self) -> None:
        self.open = self.was_open = True

    async def close(self) -> None:
        self.open = False

    async def complete(self, request: Any, /) -> Any:
        assert self.open
        return await self.inner.complete(request)


def test_what_an_attack_has_started_is_closed_and_what_others_have_stays() -> None:
    async def attacks() -> None:
        judge = Owned()
        runner = GradingRunner({"judge": JudgeGrader(judge, verdict="choice")}, resources=[judge])
        await find_holes(runner, NUMBERS[:1])
        assert not judge.was_open
        await find_holes(runner, NUMBERS[:1], judges=True)
        assert judge.was_open
        assert not judge.open
        async with runner:
            await find_holes(runner, NUMBERS[:1], judges=True)
            assert judge.open
        assert not judge.open

    asyncio.run(attacks())


def test_graders_that_compare_have_honest_siblings() -> None:
    class Most:
        name, version, score_range = "most", "1", (0.0, 1.0)

        async def grade_group(self, rollouts: Any) -> list[Any]:
            assert len(rollouts) == 4
            return [Graded(float("42" in one.response)) for one in rollouts]

    report = attacked(GradingRunner({"most": Most()}), NUMBERS[:1])
    assert report.rows == 1
    assert "denied" in {hole.family for hole in report.holes}


def test_a_constant_for_missing_rewards_is_pay() -> None:
    class Careful:
        name, version, score_range = "careful", "1", (0.0, 1.0)

        def grade(self, rollout: Rollout) -> float | None:
            return None if len(rollout.response) < 5 else float("42" in rollout.response)

    runner = GradingRunner({"careful": Careful()}, missing_reward=0.6)
    assert ("above wrong", "nothing", "") in found(attacked(runner, NUMBERS[:1]))
    left_out = attacked(GradingRunner({"careful": Careful()}), NUMBERS[:1])
    assert left_out.left_out > 10
    assert ("above wrong", "nothing", "") not in found(left_out)


def test_rows_of_a_user_are_told_apart() -> None:
    rollouts = [
        Rollout(prompt="a", response="", ground_truth="so it is\n#### 12"),
        Rollout(prompt="b", response="", ground_truth=0.5),
        Rollout(prompt="c", response="", ground_truth="b", extra={"choices": ["x", "y", "z"]}),
        Rollout(prompt="d", response="", ground_truth="\\frac{1}{x+2}"),
        Rollout(prompt=[{"role": "user", "content": "e"}], response="", ground_truth="Lisbon"),
        Rollout(prompt="f", response="", ground_truth=[{"name": "f", "arguments": {"x": 1}}]),
        Rollout(prompt="g", response="", ground_truth="assert f(1) == 2"),
        Rollout(prompt="g", response="x", ground_truth="assert f(1) == 2"),
        Rollout(
            prompt="h", response="", ground_truth="assert f(1) == 2",
            extra={"solution": "def f(x):\n    return x + 1", "entry_point": "f"},
        ),
        Rollout(prompt="i", response=""),
    ]  # fmt: skip
    rows, without = rows_of(rollouts)
    assert [(row.kind, row.answer[:6]) for row in rows] == [
        ("number", "12"), ("number", "0.5"), ("choice", "B"), ("maths", "\\frac{"), ("text", "Lisbon"), ("tools", '[{"nam'), ("code", "def f("),
    ]  # fmt: skip
    assert without == 2
    rollout = rows[2].rollout("The answer is B.")
    assert (rollout.response, rollout.ground_truth) == ("The answer is B.", "b")


def test_the_report_is_plain_values_too(tmp_path: Path) -> None:
    from judgekit.attack.holes import as_json

    report = attacked(GradingRunner({"reward": from_function(lenient)}), NUMBERS[:1])
    told = json.loads(json.dumps(as_json(report)))
    assert told["rows"] == 1
    assert told["holes"][0]["explained"]
    assert len(told["holes"]) == len(report.worst()) < len(report.holes) + 1


@pytest.mark.parametrize("task", ["answer", "words", "tools"])
@pytest.mark.parametrize("judge", ["none", "http"])
def test_the_files_that_init_writes_have_no_certain_hole(task: str, judge: str, tmp_path: Path) -> None:
    call = ["init", "reward.yaml", "--task", task, "--from", "none", "--judge", judge]
    if judge == "http":
        call += ["--model", "m", "--url", "http://127.0.0.1:9/v1"]
    done = subprocess.run(
        [sys.executable, "-m", "judgekit", *call], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    report = attacked(load_runner(tmp_path / "reward.yaml"), [row for row in SHIPPED if row.kind != "code"])
    assert report.rows >= 3
    assert [(h.id, h.what) for h in report.worst() if h.certain and h.what != "right refused"] == []


def test_the_readmes_reward_has_no_certain_hole(tmp_path: Path) -> None:
    readme = (Path(__file__).parents[2] / "README.md").read_text()
    (shown,) = re.findall(r"```yaml\n(graders:.*?)```", readme, re.DOTALL)
    (tmp_path / "reward.yaml").write_text(shown)
    report = attacked(load_runner(tmp_path / "reward.yaml", judges={"local": ScriptedJudge("x")}))
    assert [(h.id, h.what) for h in report.worst() if h.certain and h.what != "right refused"] == []


def test_a_ledger_keeps_what_was_graded(tmp_path: Path) -> None:
    """Under the completions' ids, with each end of a judge that was not asked as a run of its own."""
    reward = tmp_path / "reward.yaml"
    reward.write_text(
        "graders: {correct: {use: final_answer}, judge: {use: judge, judge: local}}\n"
        "judges: {local: {engine: vllm, model: embedded}}\nreward: {weighted: {correct: 0.9, judge: 0.1}}\n"
    )
    rows = tmp_path / "rows.jsonl"
    rows.write_text(json.dumps({"prompt": "6 * 7?", "response": "", "ground_truth": "42"}) + "\n")
    ledger = tmp_path / "attack.jsonl"
    command = [
        sys.executable,
        "-m",
        "judgekit",
        "attack",
        str(reward),
        str(rows),
        "--ledger",
        str(ledger),
        "--json",
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    report = json.loads(done.stdout)
    entries = read_ledger(ledger).entries
    assert len(entries) == 2 * report["completions"]
    assert {entry.tags["judge"] for entry in entries} == {"low", "high"}
    assert "42" in next(entry.response for entry in entries if entry.id == "dress/plain")
    (row,) = rows_of([Rollout(prompt="6 * 7?", response="", ground_truth="42")])[0]
    assert {entry.id for entry in entries} == {one.id for one in completions(row)}
    again = subprocess.run(command, capture_output=True, text=True)
    assert (again.returncode, "is there already" in again.stderr) == (2, True)
