"""`judgekit init`: every file that it can write is a reward that loads, and every wrong answer is one sentence."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest

from judgekit import Rollout
from judgekit.cli.init import JUDGES, NEXT, SYNONYMS, TASKS, needs_judge, reward_yaml
from judgekit.config import load_runner
from judgekit.run.lint import findings

from .command import refused, run


@pytest.mark.parametrize(
    ("task", "judge"), [(t, j) for t in TASKS for j in JUDGES if j != "none" or not needs_judge(t)]
)
def test_every_reward_loads_without_a_warning(
    tmp_path: Path, task: str, judge: str, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "reward.yaml"
    path.write_text(reward_yaml(task, judge, "org/model", "http://127.0.0.1:8000/v1"))
    runner = load_runner(path)
    assert runner.reward.bounds() == (0.0, 1.0)
    assert ("judge" in runner.graders) == (judge != "none")
    assert caplog.messages == findings(runner) == []


@pytest.mark.parametrize("trainer", NEXT)
def test_it_says_how_to_go_on(tmp_path: Path, trainer: str) -> None:
    done = run(tmp_path, "init", "--from", trainer, "--judge", "ray", "--model", "org/model")
    assert done.returncode == 0, done.stderr
    assert "judgekit serve --engine ray --name judge --model org/model --gpus 1" in done.stdout
    readme = (Path(__file__).parents[2] / "README.md").read_text()
    for line in NEXT[trainer].splitlines()[:4]:
        if trainer in ("verl", "skyrl"):  # whose lines the README's tests run
            assert line.strip().removesuffix(" \\").split('="')[0].split("config=")[0] in readme
    assert ("$PWD/reward.yaml" in done.stdout) == (trainer in ("verl", "skyrl"))
    again = run(tmp_path, "init")
    refused(again, "reward.yaml exists: --force overwrites it", tmp_path)


def test_it_writes_what_then_grades(files: Path) -> None:
    done = run(files, "init", "new.yaml", "--task", "answer")
    assert done.returncode == 0
    done = run(files, "grade", "new.yaml", "rollouts.jsonl", "--out", "graded.jsonl")
    assert done.returncode == 0, done.stderr
    assert (files / "ledger.jsonl").exists()


SEARCH = {"type": "function", "function": {"name": "search", "arguments": '{"query": "x"}'}}
ROWS = {
    "maths": Rollout(prompt="144 / 2?", response=r"It is $\boxed{\frac{144}{2}}$.", ground_truth="72"),
    "answer": Rollout(prompt="144 / 2?", response="The answer is 72.", ground_truth="72"),
    "code": Rollout(
        prompt="Add one.",
        response="```python\nprint(int(input()) + 1)\n```",
        ground_truth=[{"input": "1", "output": "2"}],
    ),
    "tools": Rollout(
        prompt="Find x.",
        response="Done.",
        messages=[{"role": "assistant", "content": None, "tool_calls": [SEARCH]}],
        ground_truth=[{"name": "search", "arguments": {"query": "x"}}],
    ),
    "instructions": Rollout(
        prompt="Write a line without a comma.",
        response="no comma here",
        extra={"instruction_id_list": ["punctuation:no_comma"], "kwargs": [{}]},
    ),
    "open": Rollout(prompt="Write a line.", response="A line."),
}


@pytest.mark.parametrize(
    ("task", "judge"), [(t, j) for t in TASKS for j in ("none", "http") if j != "none" or not needs_judge(t)]
)
def test_every_reward_scores_a_row_of_its_task(tmp_path: Path, task: str, judge: str) -> None:
    """A good row gets nearly everything, and nothing is missing."""
    path = tmp_path / "reward.yaml"
    text = reward_yaml(task, judge, "org/model", "http://127.0.0.1:8000/v1")
    scripted = '{engine: "judgekit.testing:ScriptedJudge", script: {"0": 0.1, "1": 0.9}}'
    path.write_text(re.sub(r"main: \{.*\}", f"main: {scripted}", text))
    (result,) = load_runner(path).run_sync([ROWS[task]])
    assert result.missing == ()
    assert result.reward == pytest.approx(
        0.96 if judge == "http" and task != "open" else 0.9 if judge == "http" else 1.0
    )


@pytest.mark.parametrize("name", SYNONYMS)
def test_a_task_has_several_names(tmp_path: Path, name: str) -> None:
    assert run(tmp_path, "init", "--task", name, "--judge", "http").returncode == 0
    (tmp_path / "mine").write_text((tmp_path / "reward.yaml").read_text())
    assert run(tmp_path, "init", "--task", SYNONYMS[name], "--judge", "http", "--force").returncode == 0
    assert (tmp_path / "reward.yaml").read_text() == (tmp_path / "mine").read_text()


def test_a_request_without_a_right_answer_goes_to_a_judge(tmp_path: Path) -> None:
    assert run(tmp_path, "init", "--task", "open").returncode == 0
    assert load_runner(tmp_path / "reward.yaml").graders.keys() == {"brief", "judge"}


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (
            ("--task", "poetry"),
            "--task: there is no 'poetry'; there are maths, answer, code, tools, instructions, open",
        ),
        (("--judge", "oracle"), "--judge: there is no 'oracle'; there are none, vllm, ray, http"),
        (
            ("--task", "open", "--judge", "none"),
            "--task open needs a judge: by rules alone an empty response",
        ),
        (("--from", "ppo"), "--from: there is no 'ppo'; there are none, verl, skyrl, trl"),
        (("--model", "m"), "--model is of a judge: give --judge vllm or ray or http, too"),
        (("--judge", "ray", "--url", "u"), "--url is of a judge: give --judge http, too"),
        (("folder/",), "is a folder: give the name of a file"),
    ],
)
def test_wrong_answers_are_said_and_write_nothing(tmp_path: Path, args: tuple[str, ...], says: str) -> None:
    (tmp_path / "folder").mkdir()
    refused(run(tmp_path, "init", *args), says, tmp_path)
    assert not (tmp_path / "reward.yaml").exists()


def test_questions_are_asked_on_a_terminal(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "judgekit", "init"],
        cwd=tmp_path,
        stdin=theirs,
        stdout=subprocess.PIPE,
        text=True,
    )
    os.close(theirs)
    os.write(ours, b"trl\nmaths\nhttp\n\nhttp://127.0.0.1:9/v1\n")
    told, _ = process.communicate(timeout=60)
    os.close(ours)
    assert process.returncode == 0
    assert "a problem with one final answer" in told
    written = (tmp_path / "reward.yaml").read_text()
    assert 'url: "http://127.0.0.1:9/v1", model: "Qwen/Qwen2.5-1.5B-Instruct"' in written
    assert "correct: {use: math}" in written
