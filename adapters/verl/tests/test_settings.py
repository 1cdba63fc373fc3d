"""What the trainer's configuration may say, and what it is told when it says it wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from judgekit import ConfigError
from judgekit_verl.settings import HOOK_LINE, settings

RULE = "graders: {correct: final_answer}\n"


def write(folder: Path, text: str) -> dict[str, str]:
    file = folder / "reward.yaml"
    file.write_text(text)
    return {"judgekit_config": str(file)}


def test_with_the_hook_a_missing_reward_is_the_groups_mean(tmp_path: Path) -> None:
    made = settings(write(tmp_path, RULE), hook=True)
    assert made.hosted.runner.settings.missing_reward == "neutral"
    assert made.hosted.runner.settings.deadline_s == 600
    assert made.extras == ("correct",)


def test_without_the_hook_it_is_to_be_written(tmp_path: Path) -> None:
    for text in (RULE, RULE + "runner: {missing_reward: mask}", RULE + "runner: {missing_reward: neutral}"):
        with pytest.raises(ConfigError, match="agent_loop_manager_class.*<number> or missing_reward: raise"):
            settings(write(tmp_path, text), hook=False)
    for value in ("0.0", "raise"):
        settings(write(tmp_path, RULE + f"runner: {{missing_reward: {value}}}"), hook=False)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (RULE + "runner: {missing_reward: mask}", "needs loss masking.*neutral"),
        (
            "graders: {judge: {use: judge, judge: local}}\njudges: {local: {engine: vllm}}",
            "each of verl's 8 reward workers would load the model",
        ),
        (
            "graders: {judge: {use: judge, judge: l}}\njudges: {l: {engine: openai, url: verl-router}}",
            "verl hosts no judge",
        ),
        ("graders: {correct: final_anwser}", "reward.yaml: .*did you mean 'final_answer'"),
    ],
)
def test_faults_of_the_file_are_said(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        settings(write(tmp_path, text), hook=True, workers=8)


def test_the_judge_that_verl_hosts(tmp_path: Path) -> None:
    text = "graders: {judge: {use: judge, judge: l}}\njudges: {l: {engine: openai, url: verl-router}}"
    made = settings(write(tmp_path, text), hook=True, router="10.0.0.7:8123")
    assert "http://10.0.0.7:8123" in repr(made.hosted.runner._resources[0])


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({}, "one of .*judgekit_config.*judgekit_runner"),
        ({"judgekit_confg": "x"}, "did you mean 'judgekit_config'"),
        ({"judgekit_config": "/none.yaml"}, "cannot read /none.yaml"),
        ({"judgekit_runner": "graders_for_tests"}, "package.module:name"),
        ({"judgekit_runner": "graders_for_tests:nobody"}, "cannot import"),
        ({"judgekit_runner": "graders_for_tests:letters"}, "not a GradingRunner"),
        (
            {"judgekit_runner": "graders_for_tests:ranked", "judgekit_extras": ["longst"]},
            "did you mean 'longest'",
        ),
    ],
)
def test_faults_of_the_command_line_are_said(given: dict[str, object], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        settings(given, hook=True)


def test_what_needs_groups_says_which_line_to_add() -> None:
    with pytest.raises(ConfigError, match="'longest' grades the rollouts of a prompt together") as error:
        settings({"judgekit_runner": "graders_for_tests:ranked"}, hook=False)
    assert HOOK_LINE in str(error.value)
    with pytest.raises(ConfigError, match="agent_loop_manager_class"):
        settings({"judgekit_runner": "graders_for_tests:down"}, hook=False)


def test_the_failure_rate_is_counted_over_all_workers() -> None:
    made = settings({"judgekit_runner": "graders_for_tests:down"}, hook=True)
    assert made.hosted.max_failure_rate == 0.25
    assert made.hosted.runner.settings.max_failure_rate is None
