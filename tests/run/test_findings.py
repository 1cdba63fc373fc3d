"""What lint sees that needs no rollout: planted faults are found, and sound rewards are left alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from judgekit import Abstained, Graded, Rollout, from_function
from judgekit.cli.graders import EXAMPLES
from judgekit.config import load_runner
from judgekit.graders import (
    FinalAnswer,
    Instructions,
    JsonFormat,
    JsonMatch,
    Length,
    MultipleChoice,
    Sql,
    ToolCallFormat,
)
from judgekit.graders.function import Wrapper
from judgekit.graders.protocol import as_grade
from judgekit.reward.gates import Gate
from judgekit.reward.nodes import Score
from judgekit.run.findings import findings
from judgekit.run.runner import GradingRunner

RULES = {
    "calls": "tool_calls",
    "loops": "action_loop",
    "correct": "final_answer",
    "brief": "{use: length, soft_max: 10, hard_max: 20}",
}


def found(folder: Path, reward: str, runner: str) -> list[str]:
    graders = ", ".join(f"{name}: {use}" for name, use in RULES.items() if name in reward)
    (folder / "r.yaml").write_text(f"graders: {{{graders}}}\nreward: {reward}\nrunner: {runner}\n")
    return findings(load_runner(folder / "r.yaml"))


LOOPS = "{weight: 0.2, of: {score: loops, if_missing: renormalise}}"


@pytest.mark.parametrize(
    ("reward", "runner", "says"),
    [
        ("{weighted: {correct: 0.8, loops: 0.2}}", "{}", ["loops: a rollout that calls no tool is not graded by it, and its reward is missing, not low (missing_reward: exclude)"]),
        ("{weighted: {correct: 0.8, loops: 0.2}}", "{missing_reward: neutral}", ["(missing_reward: neutral)"]),
        (f"{{weighted: {{correct: 0.8, loops: {LOOPS}}}}}", "{missing_reward: 0}", ["and its weight goes to the other terms, which a policy can choose"]),
        ("{product: [correct, loops]}", "{}", ["a rollout that calls no tool"]),
        ("{gate: {if: 'loops >= 1', then: correct, otherwise: 0}}", "{}", ["a rollout that calls no tool"]),
        ("{gate: {if: 'correct >= 1', then: 1, otherwise: loops}}", "{}", ["a rollout that calls no tool"]),
        ("{weighted: {correct: 0.7, brief: 0.3}}", "{}", ["brief: pays up to 0.3 for form alone, also to an empty or wrong response: put it behind a gate, such as"]),
        ("{weighted: {correct: 3, brief: 1}, normalize: true}", "{}", ["pays up to 0.25 for form"]),
        ("{weighted: {correct: 0.7, short: {weight: 0.3, of: {clip: {of: brief, low: 0, high: 0.5}}}}}", "{}", ["short: pays up to 0.15"]),
        ("{fallback: [{weighted: {correct: 0.7, brief: 0.3}}, 0]}", "{}", ["brief: pays up to 0.3"]),
        ("{weighted: {correct: 0.7, form: {weight: 0.3, of: {weighted: {brief: 1}}}}}", "{}", ["form: pays up to 0.3"]),
        ("{weighted: {correct: 0.7, brief: {weight: 0.3, of: {fallback: [brief, 0]}}}}", "{}", ["brief: pays up to 0.3"]),
        ("{clip: {of: {weighted: {correct: 0.7, brief: 0.3}}, low: 0, high: 0.9}}", "{}", ["brief: pays up to"]),
        ("{gate: {if: 'brief > 0', then: {weighted: {correct: 0.7, brief: 0.3}}, otherwise: 0}}", "{}", ["brief: pays up to"]),
        ("{gate: {if: 'correct >= 0', then: {weighted: {correct: 0.7, brief: 0.3}}, otherwise: 0}}", "{}", ["brief: pays up to"]),
        ("{gate: {if: 'share(correct >= 1) > 0', then: {weighted: {correct: 0.7, brief: 0.3}}, otherwise: 0}}", "{}", ["brief: pays up to"]),
        ("{gate: {if: 'share(correct >= 1) >= 0.5', then: {weighted: {correct: 0.7, brief: 0.3}}, otherwise: 0}}", "{}", ["brief: pays up to"]),
        ("{gate: {if: 'share(brief >= 1) >= 1', then: {weighted: {correct: 0.7, brief: 0.3}}, otherwise: 0}}", "{}", ["brief: pays up to"]),
        ("{gate: {if: 'share(correct >= 0) >= 1', then: {weighted: {correct: 0.7, brief: 0.3}}, otherwise: 0}}", "{}", ["brief: pays up to"]),
        ("{weighted: {correct: 0.7, bonus: {weight: 0.3, of: 1}}}", "{}", ["the term 'bonus' is 1 for every rollout"]),
        ("{weighted: {correct: 0.7, brief: {weight: 0.3, of: {clip: {of: brief, low: 1, high: 2}}}}}", "{}", ["clip 1..2 is 1 for every rollout"]),
        ("{max: [correct, 1]}", "{}", ["max is 1 for every rollout"]),
        ("{gate: {if: 'correct >= 1', then: 1, otherwise: 1}}", "{}", ["gate correct >= 1 is 1 for every rollout"]),
    ],
)  # fmt: skip
def test_faults_are_found(tmp_path: Path, reward: str, runner: str, says: list[str]) -> None:
    told = found(tmp_path, reward, runner)
    told = [text for text in told if says[0] in text]
    assert len(told) == 1


@pytest.mark.parametrize(
    ("reward", "runner"),
    [
        ("{weighted: {correct: 0.8, loops: {weight: 0.2, of: {score: loops, if_missing: 0}}}}", "{}"),
        ("{weighted: {correct: 0.8, loops: 0.2}}", "{missing_reward: 0}"),
        ("{weighted: {correct: 0.8, loops: 0.2}}", "{missing_reward: raise}"),
        ("{weighted: {correct: 0.8, loops: 0}}", "{}"),
        ("{gate: {if: 'calls > 0', then: {weighted: {calls: 0.8, loops: 0.2}}, otherwise: 0}}", "{}"),
        (f"{{gate: {{if: 'calls > 0', then: {{weighted: {{calls: 0.8, loops: {LOOPS}}}}}, otherwise: 0}}}}", "{}"),
        ("{gate: {if: 'correct >= 1', then: {weighted: {correct: 0.7, brief: 0.3}}, otherwise: 0}}", "{}"),
        ("{gate: {if: 'share(correct >= 1) >= 1', then: {weighted: {correct: 0.7, brief: 0.3}}, otherwise: 0}}", "{}"),
        ("{product: [correct, brief]}", "{}"),
        ("{product: [correct, {weighted: {brief: 0.3, base: {weight: 0.7, of: correct}}}]}", "{}"),
        ("{weighted: {correct: 0.7, brief: -0.3}}", "{}"),
        ("{weighted: {correct: 0.7, brief: 0}}", "{}"),
        ("{max: [correct, 0.1]}", "{}"),
        ("{product: [correct, {weighted: {base: {weight: 0.9, of: 1}, brief: 0.1}}]}", "{}"),
        ("brief", "{}"),
    ],
)  # fmt: skip
def test_sound_rewards_are_left_alone(tmp_path: Path, reward: str, runner: str) -> None:
    assert found(tmp_path, reward, runner) == []


def test_a_function_that_never_reads_the_response() -> None:
    def hard(prompt: str, ground_truth: str) -> float:
        return float(len(prompt) > 100)

    (text,) = findings(GradingRunner({"hard": from_function(hard), "correct": FinalAnswer()}))
    assert text.startswith(
        "hard: it reads only ground_truth, prompt, so all rollouts of a prompt get one score"
    )

    def whole(rollout: Rollout) -> float:
        return 1.0

    def mapped(text: str, prompt: str) -> float:
        return 1.0

    assert findings(GradingRunner({"whole": from_function(whole)})) == []
    assert findings(GradingRunner({"mapped": from_function(mapped, fields={"text": "response"})})) == []


def test_functions_of_trainers_are_content() -> None:
    def accuracy(completions: list[str], answer: list[str]) -> list[float]:
        return [1.0 for _ in completions]

    graders = {"a": from_function(accuracy, score_range=(0, 1)), "brief": Length(soft_max=5, hard_max=9)}
    (text,) = findings(GradingRunner(graders, {"a": 0.9, "brief": 0.1}))
    assert text.startswith("brief: pays up to 0.1")


def test_rows_without_a_reference_are_told() -> None:
    runner = GradingRunner({"correct": FinalAnswer()})
    rows = [Rollout(response="42"), Rollout(response="43")]
    assert findings(runner, rows) == [
        "correct: it would abstain on each of the 2 rows that were looked at: there is no ground_truth"
    ]
    assert findings(runner, [*rows, Rollout(response="42", ground_truth="42")]) == []


@pytest.mark.parametrize(
    ("rule", "row", "says"),
    [
        (FinalAnswer(), {"ground_truth": "Paris"}, "the reference has no number"),
        (JsonMatch(), {"ground_truth": "Paris"}, "the reference is not JSON"),
        (MultipleChoice(), {"ground_truth": "Paris"}, "the reference is not an option"),
        (JsonFormat(schema="extra.schema"), {}, "there is no schema at extra.schema"),
        (Sql(database="extra.schema"), {"ground_truth": "SELECT 1"}, "there is no database at extra.schema"),
        (Instructions(), {}, "there are no constraints"),
        (
            Instructions(),
            {"extra": {"instruction_id_list": [["a"]], "kwargs": [{}]}},
            "a constraint's id is a text",
        ),
        (
            Instructions(),
            {"extra": {"instruction_id_list": "[" * 30_000, "kwargs": [{}]}},
            "the constraints are not JSON",
        ),
        (FinalAnswer(), {"ground_truth": "42"}, ""),
        (JsonMatch(), {"ground_truth": "{}"}, ""),
        (
            Sql(database="extra.schema"),
            {"ground_truth": "SELECT 1", "extra": {"schema": "CREATE TABLE t (a)"}},
            "",
        ),
        (Instructions(), {"extra": {"instruction_id_list": ["punctuation:no_comma"], "kwargs": [{}]}}, ""),
    ],
)
def test_rows_that_a_rule_cannot_grade_are_told(rule: Any, row: dict[str, Any], says: str) -> None:
    """Whatever their responses are: those of a data set may be empty."""
    rows = [Rollout(response=response, **row) for response in ("", "x")]
    found = [text for text in findings(GradingRunner({"rule": rule}), rows) if "would abstain" in text]
    assert len(found) == bool(says)
    if says:
        assert f"it would abstain on each of the 2 rows that were looked at: {says}" in found[0]


def test_a_template_that_needs_a_reference_where_there_is_none(tmp_path: Path) -> None:
    judge = '{engine: "judgekit.testing:ScriptedJudge", script: "1"}'
    (tmp_path / "r.yaml").write_text(
        f"graders: {{judge: {{use: judge, judge: j}}}}\njudges: {{j: {judge}}}\n"
    )
    rows = [Rollout(prompt="Write a line.", response="A line.")]
    (text,) = findings(load_runner(tmp_path / "r.yaml"), rows)
    assert (
        "there is no ground_truth for {REFERENCE_SOLUTION}; template: open asks without a reference" in text
    )
    (tmp_path / "r.yaml").write_text(
        f"graders: {{judge: {{use: judge, judge: j, template: open}}}}\njudges: {{j: {judge}}}\n"
    )
    assert findings(load_runner(tmp_path / "r.yaml"), rows) == []


NOTHING = Rollout(prompt="6 * 7?", response="", ground_truth="42")
CALL = {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "f", "arguments": "{}"}}]}


@pytest.mark.parametrize(
    "name",
    [
        n
        for n in EXAMPLES
        if "judge" not in EXAMPLES[n] and n not in ("service", "service_group", "reward_model", "patch")
    ],
)
def test_the_shipped_rules_say_themselves_how_they_are_dodged(tmp_path: Path, name: str) -> None:
    """A rule that abstains on an empty response without calls, and not on another, says so, and no other rule does."""
    (tmp_path / "r.yaml").write_text(f"graders: {{it: {EXAMPLES[name]}}}\n")
    grader: Any = load_runner(tmp_path / "r.yaml").graders["it"]
    if not hasattr(grader, "grade"):
        assert not getattr(grader, "dodge", "")
        return
    full = Rollout(
        prompt="6 * 7?", response="It is 42.", ground_truth="42",
        messages=[{"role": "user", "content": "6 * 7?"}, CALL, {"role": "tool", "content": "12 degrees"}, CALL],
    )  # fmt: skip
    try:
        empty, other = (as_grade(grader.grade(r), grader.score_range) for r in (NOTHING, full))
    except Exception:
        pytest.skip("it needs other data")
    if not isinstance(other, Abstained):
        assert isinstance(empty, Abstained) == bool(grader.dodge), (empty, other)
    if isinstance(empty, Graded) and empty.score > 0 and empty.score > grader.score_range[0]:
        assert grader.only_form


def test_a_setting_can_close_the_door() -> None:
    runner = GradingRunner(
        {"form": ToolCallFormat(without="zero"), "correct": FinalAnswer()},
        Gate(Score("correct") >= 1, Score("form"), 0),
    )
    assert findings(runner) == []


NEEDS = FinalAnswer()
WITH, WITHOUT = Rollout(response="42", ground_truth="42"), Rollout(response="42")


class Holder:
    """A grader of others, under the name by which its kind holds them."""

    name, version, score_range = "holder", "1", (0.0, 1.0)

    def __init__(self, **held: Any) -> None:
        self.__dict__.update(held)

    def grade(self, rollout: Rollout, /) -> Graded:
        return Graded(0.5)


@pytest.mark.parametrize(
    ("held", "lacks"),
    [
        ({"correct": NEEDS}, True),
        ({"correct": Length(soft_max=5, hard_max=9)}, False),
        ({"members": {"a": NEEDS}}, True),
        ({"members": {"a": Length(soft_max=5, hard_max=9), "b": NEEDS}}, True),
        ({"members": {"a": Length(soft_max=5, hard_max=9)}}, False),
        ({"members": {}}, False),
        ({"inputs": ("ground_truth",)}, True),
        ({"inputs": ("prompt",)}, False),
        ({}, False),
    ],
)
def test_a_grader_lacks_what_those_that_it_asks_lack(held: dict[str, Any], lacks: bool) -> None:
    runner = GradingRunner({"it": Holder(**held)})
    says = "it: it would abstain on each of the 2 rows that were looked at: there is no ground_truth"
    assert findings(runner, [WITHOUT, WITHOUT]) == ([says] if lacks else [])
    assert findings(runner, [WITHOUT, WITH]) == []


def test_what_is_wrapped_lacks_what_it_lacks_without() -> None:
    runner = GradingRunner({"it": Wrapper(NEEDS)})
    says = "it: it would abstain on each of the 1 rows that were looked at: there is no ground_truth"
    assert findings(runner, [WITHOUT]) == [says]
    assert findings(runner, [WITH]) == []


@pytest.mark.parametrize("field", ["reference", "cases"])
def test_a_reference_may_be_somewhere_else(field: str) -> None:
    runner = GradingRunner({"it": Holder(inputs=("ground_truth",), **{field: "extra.answer"})})
    assert findings(runner, [WITH]) == [
        "it: it would abstain on each of the 1 rows that were looked at: there is no extra.answer"
    ]
    assert findings(runner, [Rollout(response="42", extra={"answer": "42"})]) == []


def test_no_rows_say_nothing() -> None:
    assert findings(GradingRunner({"it": NEEDS}), []) == []
