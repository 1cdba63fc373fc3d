"""What the trainer's configuration may say, and what it is told when it says it wrong."""

from __future__ import annotations

import contextlib
from pathlib import Path
from types import SimpleNamespace

import pytest

from judgekit import ConfigError
from judgekit_verl.settings import HOOK_LINE, check_asked, settings

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


@pytest.mark.parametrize("path", [None, "pkg://judgekit_verl"])
@pytest.mark.parametrize("enable", [True, False])
def test_a_reward_model_that_verl_would_ask_itself_is_refused(enable: bool, path: str | None) -> None:
    function = SimpleNamespace(path=path)
    model = SimpleNamespace(enable=enable)
    config = SimpleNamespace(reward=SimpleNamespace(reward_model=model, custom_reward_function=function))
    refused = enable and path is None
    with pytest.raises(ConfigError, match="as a classifier") if refused else contextlib.nullcontext():
        check_asked(config)


def test_a_failure_rate_needs_the_hook(tmp_path: Path) -> None:
    given = write(tmp_path, RULE + "runner: {missing_reward: 0.0, max_failure_rate: 0.2}")
    settings(given, hook=True)
    with pytest.raises(ConfigError, match="max_failure_rate needs the hook") as error:
        settings(given, hook=False)
    assert HOOK_LINE in str(error.value)


def test_the_failure_rate_is_counted_over_all_workers() -> None:
    made = settings({"judgekit_runner": "graders_for_tests:down"}, hook=True)
    assert made.hosted.max_failure_rate == 0.25
    assert made.hosted.runner.settings.max_failure_rate is None
