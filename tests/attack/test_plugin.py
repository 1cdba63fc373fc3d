"""The pytest plug-in, as a user's tests have it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from judgekit import Gate, GradingRunner, Rollout, Score, grader
from judgekit.attack.tested import TestedResult, TestedReward
from judgekit.errors import ConfigError
from judgekit.graders import FinalAnswer
from judgekit.testing import ScriptedJudge

PLUGIN = "judgekit.testing.pytest_plugin"
REWARD = """
graders:
  correct: final_answer
  judge: {use: judge, judge: local}
judges:
  local: {engine: openai, url: "http://127.0.0.1:9/v1", model: m}
reward:
  gate: {if: correct >= 1, then: {weighted: {correct: 0.5, judge: 0.5}}, otherwise: 0}
"""
TESTS = """
from judgekit.testing import ScriptedJudge

JUDGE = {"1": 0.8, "0": 0.2}

def test_right_is_more_than_wrong(judgekit_reward):
    reward = judgekit_reward("reward.yaml", judges={"local": ScriptedJudge(JUDGE)})
    right, wrong, empty = reward.group("6 * 7?", "42", ["It is 42.", "It is 41.", ""])
    assert right > wrong + 0.3 and empty <= wrong
    assert right.grades["correct"].score == 1 and round(right.score("judge"), 1) == 0.8
    assert reward.attack() == []

def test_that_fails(judgekit_reward):
    reward = judgekit_reward("reward.yaml", judges={"local": ScriptedJudge(JUDGE)})
    right, wrong = reward.group("6 * 7?", "42", ["It is 42.", "It is 41."])
    assert wrong > right

def test_a_score_behind_a_gate(judgekit_reward):
    reward = judgekit_reward("reward.yaml", judges={"local": ScriptedJudge(JUDGE)})
    (wrong,) = reward.group("6 * 7?", "42", ["It is 41."])
    assert wrong.score("judge") == 0
"""


def test_a_users_tests_need_no_import(tmp_path: Path) -> None:
    (tmp_path / "reward.yaml").write_text(REWARD)
    (tmp_path / "test_reward.py").write_text(TESTS)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_reward.py"],
        cwd=tmp_path, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert "2 failed, 1 passed" in done.stdout, done.stdout + done.stderr
    assert "0 > 0.9" in done.stdout
    assert "weighted" in done.stdout  # the tree of the right one
    assert "'judge' was not asked: its gate was not passed" in done.stdout


def test_the_plugin_costs_a_users_pytest_next_to_nothing() -> None:
    """No more than `import judgekit`, which is light."""
    code = f"import sys, judgekit; had = set(sys.modules); import pytest, judgekit.testing; had |= set(sys.modules); import {PLUGIN}; print([m for m in sys.modules if m not in had and m != {PLUGIN!r}])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_rewards_are_made_of_files_runners_and_functions(tmp_path: Path) -> None:
    (tmp_path / "reward.yaml").write_text(REWARD)
    judged = TestedReward(tmp_path / "reward.yaml", judges={"local": ScriptedJudge({"1": 1.0, "0": 0.0})})
    assert judged.group("p", "42", ["42"])[0] == 1.0
    assert TestedReward(GradingRunner({"correct": FinalAnswer()})).group("p", "42", ["42"])[0] == 1

    def length(response: str) -> float:
        return min(1.0, len(response) / 10)

    short, long = TestedReward(length).group("p", None, ["x", "x" * 9])
    assert long > short
    assert round(long - short, 6) == 0.8
    assert sorted([long, short]) == [short, long]


def test_a_reward_that_is_missing_is_no_number() -> None:
    def broken(response: str) -> float:
        raise OSError("down")

    (missing,) = TestedReward(broken).group("p", None, ["x"])
    with pytest.raises(AssertionError, match=r"(?s)there is no reward:\n.*OSError: down"):
        assert missing > 0
    with pytest.raises(AssertionError, match="'reward' has no score"):
        missing.score("reward")
    with pytest.raises(AssertionError, match="no grader is called 'other'; there are reward"):
        missing.score("other")


async def test_a_score_behind_a_gate_that_was_not_passed_is_none() -> None:
    right, fluent = grader(lambda response: 0.0, name="right"), grader(lambda response: 1.0, name="fluent")
    runner = GradingRunner([right, fluent], Gate(if_="right >= 1", then=Score("fluent"), otherwise=0.0))
    (result,) = await runner.run([Rollout(response="x")])
    with pytest.raises(
        AssertionError, match=r"^'fluent' was not asked: its gate was not passed \(right >= 1\)$"
    ):
        TestedResult(runner, result).score("fluent")


@pytest.mark.parametrize(
    ("reward", "options", "says"),
    [
        (3, {}, "a reward is a reward.yaml's path"),
        ("none.yaml", {}, "none.yaml"),
        (GradingRunner({"c": FinalAnswer()}), {"judges": {"j": 1}}, "a runner has its own"),
    ],
)
def test_wrong_arguments(reward: Any, options: Any, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        TestedReward(reward, **options)


def test_an_attack_with_rows_of_ones_own() -> None:
    from judgekit import Rollout

    def lenient(response: str, ground_truth: str) -> float:
        return float(ground_truth in response)

    reward = TestedReward(lenient)
    assert {hole.family for hole in reward.attack([Rollout(prompt="p", response="", ground_truth="42")])} >= {
        "denied"
    }
    with pytest.raises(ConfigError, match="no row could be used"):
        reward.attack([Rollout(prompt="p", response="")])
    assert json.dumps(reward.runner.spec.reward)


def test_what_a_linked_file_names_lies_beside_the_link(tmp_path: Path) -> None:
    """Also where the same text was read before, from elsewhere."""
    text = "graders: {judge: {use: judge, judge: local, template: mine.txt}}\njudges: {local: {engine: vllm, model: embedded}}\n"
    (tmp_path / "shared.yaml").write_text(text)
    for name in ("a", "b"):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "mine.txt").write_text(f"Version {name}. {{CANDIDATE_SOLUTION}} {{HOW_TO_ANSWER}}")
        (folder / "reward.yaml").symlink_to(tmp_path / "shared.yaml")
        made = TestedReward(str(folder / "reward.yaml"), judges={"local": ScriptedJudge("1")})
        assert made.runner.graders["judge"].asking.template.text.startswith(f"Version {name}.")
