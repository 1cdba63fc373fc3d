"""`judgekit init`: every file that it can write is a reward that loads, and every wrong answer is one sentence."""

from __future__ import annotations

import json
import os
import pty
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from judgekit import Rollout
from judgekit.cli.init import (
    JUDGES,
    NEXT,
    ONE_BY_ONE,
    RUBRIC,
    RUBRIC_FILE,
    SYNONYMS,
    TASKS,
    needs_judge,
    reward_yaml,
)
from judgekit.config import load_runner
from judgekit.data import read_rollouts
from judgekit.judges.base import JudgeRequest
from judgekit.run.findings import findings
from judgekit.testing import ScriptedJudge, prompt_text

from .command import refused
from .in_process import call


@pytest.mark.parametrize(
    ("task", "judge"), [(t, j) for t in TASKS for j in JUDGES if j != "none" or not needs_judge(t)]
)
def test_every_reward_loads_without_a_warning(
    tmp_path: Path, task: str, judge: str, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "reward.yaml"
    path.write_text(reward_yaml(task, judge, "org/model", "http://127.0.0.1:8000/v1"))
    (tmp_path / RUBRIC_FILE).write_text(RUBRIC)
    runner = load_runner(path)
    assert runner.reward.bounds() == (0.0, 1.0)
    assert ("judge" in runner.graders) == (judge != "none")
    assert caplog.messages == findings(runner) == []


@pytest.mark.parametrize("trainer", NEXT)
def test_it_says_how_to_go_on(tmp_path: Path, trainer: str) -> None:
    done = call(tmp_path, "init", "--from", trainer, "--judge", "ray", "--model", "org/model")
    assert done.returncode == 0, done.stderr
    assert "judgekit serve --engine ray --name judge --model org/model --gpus 1" in done.stdout
    readme = (Path(__file__).parents[2] / "README.md").read_text()
    for line in NEXT[trainer].splitlines()[:4]:
        if trainer in ("verl", "skyrl"):  # whose lines the README's tests run
            assert line.strip().removesuffix(" \\").split('="')[0].split("config=")[0] in readme
    assert ("$PWD/reward.yaml" in done.stdout) == (trainer not in ("none", "trl"))
    assert ("missing_reward: raise" in (tmp_path / "reward.yaml").read_text()) == (trainer == "openrlhf")
    schema = json.loads((tmp_path / "reward.schema.json").read_text())
    first = (tmp_path / "reward.yaml").read_text().splitlines()[0]
    assert (schema["title"], first) == ("reward.yaml", "# yaml-language-server: $schema=reward.schema.json")
    again = call(tmp_path, "init")
    refused(again, "reward.yaml exists: --force overwrites it", tmp_path)


def test_it_writes_what_then_grades(files: Path) -> None:
    done = call(files, "init", "new.yaml", "--task", "answer")
    assert done.returncode == 0
    done = call(files, "grade", "new.yaml", "rollouts.jsonl", "--out", "graded.jsonl")
    assert done.returncode == 0, done.stderr
    assert (files / "ledger.jsonl").exists()


SEARCH = {"type": "function", "function": {"name": "search", "arguments": '{"query": "x"}'}}
ROWS = {
    "maths": Rollout(prompt="144 / 2?", response=r"It is $\boxed{\frac{144}{2}}$.", ground_truth="72"),
    "answer": Rollout(prompt="144 / 2?", response="The answer is 72.", ground_truth="72"),
    "words": Rollout(
        prompt="Who wrote Emma?", response="The answer is Jane Austen.", ground_truth="Jane Austen"
    ),
    "choice": Rollout(
        prompt="The largest planet?",
        response="The answer is B.",
        ground_truth="Jupiter",
        extra={"options": ["Mars", "Jupiter"]},
    ),
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
    "rubric": Rollout(prompt="Write a line.", response="A line."),
    "preference": Rollout(prompt="Write a line.", response="A line."),
}


def says(request: JudgeRequest) -> dict[str, float]:
    """What a judge says that likes everything, and a line better than anything else."""
    if len(request.choices) == 2:
        return {"0": 0.1, "1": 0.9}
    first = prompt_text(request).partition("RESPONSE B:")[0]
    return {"A": 0.9, "C": 0.0, "B": 0.1} if "A line." in first else {"A": 0.1, "C": 0.0, "B": 0.9}


@pytest.mark.parametrize(
    ("task", "judge"), [(t, j) for t in TASKS for j in ("none", "http") if j != "none" or not needs_judge(t)]
)
def test_every_reward_scores_a_row_of_its_task(tmp_path: Path, task: str, judge: str) -> None:
    """A good row gets nearly everything, and nothing is missing."""
    path = tmp_path / "reward.yaml"
    text = reward_yaml(task, judge, "org/model", "http://127.0.0.1:8000/v1")
    path.write_text(text)
    (tmp_path / RUBRIC_FILE).write_text(RUBRIC)
    runner = load_runner(path, judges={"main": ScriptedJudge(says)} if judge != "none" else {})
    rows = [ROWS[task]]
    if TASKS[task].compares:
        rows.append(Rollout(prompt=rows[0].prompt, response="Nothing."))
    result, *others = runner.run_sync(rows)
    assert result.missing == ()
    if task == "preference":  # by strengths, which one comparison does not make sure of
        assert result.reward is not None
        assert 0.75 < result.reward < 0.9
        assert [other.reward for other in others] == pytest.approx([1 - result.reward])
        return
    alone = judge == "http" and needs_judge(task)
    assert result.reward == pytest.approx(0.9 if alone else 0.96 if judge == "http" else 1.0)
    assert not others


@pytest.mark.parametrize("name", SYNONYMS)
def test_a_task_has_several_names(tmp_path: Path, name: str) -> None:
    assert call(tmp_path, "init", "--task", name, "--judge", "http").returncode == 0
    (tmp_path / "mine").write_text((tmp_path / "reward.yaml").read_text())
    assert call(tmp_path, "init", "--task", SYNONYMS[name], "--judge", "http", "--force").returncode == 0
    assert (tmp_path / "reward.yaml").read_text() == (tmp_path / "mine").read_text()


TASK_OF_ROWS = [
    ({"question": "144 / 2?", "completion": "72", "answer": "144/2 = 72\n#### 72"}, "answer", "prompt=question"),
    ({"prompt": "144 / 2?", "response": "72", "label": 72}, "answer", "ground_truth=label"),
    ({"problem": "144 / 2?", "generation": "72", "solution": "\\frac{144}{2}"}, "maths", "response=generation"),
    ({"prompt": "Who?", "response": "Jane Austen", "answer": "Jane Austen"}, "words", "ground_truth=answer"),
    ({"prompt": "Who?", "response": "Jane Austen", "reward_model": {"ground_truth": "Jane Austen"}}, "words", ""),
    ({"prompt": "+1", "response": "x", "ground_truth": [{"input": "1", "output": "2"}]}, "code", ""),
    ({"prompt": "+1", "response": "x", "ground_truth": "assert f(1) == 2"}, "code", ""),
    ({"prompt": "Find x.", "response": "", "messages": [{"role": "assistant", "content": "", "tool_calls": [SEARCH]}],
      "ground_truth": [{"name": "search", "arguments": {"query": "x"}}]}, "tools", ""),
    ({"query": "Find x.", "response": "[search(query='x')]", "answers": '[{"name": "search", "arguments": {"query": "x"}}]'}, "tools",
     "ground_truth=answers"),
    ({"prompt": "Find x.", "response": "No.", "ground_truth": '<think>I</think><tool_call>{"name": "search", "parameters": {}}</tool_call>'},
     "tools", ""),
    ({"prompt": "Who?", "response": "Austen", "golden_answers": ["Austen", "Jane"]}, "words", "ground_truth=golden_answers"),
    ({"question": "?", "response": "B", "choices": ["Mars", "Jupiter"], "answer": 1}, "choice", "ground_truth=answer"),
    ({"question": "?", "response": "B", "options": ["Mars", "Jupiter"], "answer": "B", "answer_index": 1}, "choice", "ground_truth=answer"),
    ({"question": "?", "response": "B", "choices": {"text": ["Mars", "Jupiter"], "label": ["1", "2"]}, "answerKey": "2"}, "choice",
     "ground_truth=answerKey"),
    ({"ctx": "?", "response": "B", "endings": ["falls.", "flies."], "label": "1"}, "choice", "ground_truth=label"),
    ({"question": "?", "response": "yes", "answer": True}, "choice", "ground_truth=answer"),
    ({"prompt": "p", "response": "r", "instruction_id_list": ["punctuation:no_comma"], "kwargs": [{}]}, "instructions", ""),
    ({"instruction": "Write.", "output": "A line."}, "open", "response=output,prompt=instruction"),
    ({"prompt": [{"role": "user", "content": "Write."}], "completion": [{"role": "assistant", "content": "A line."}]},
     "open", "response=completion"),
    ({"prompt": "Write.", "responses": ["A line.", "Another."], "uid": "a"}, "open", "group=uid"),
    ({"prompt": "Write.", "chosen": "A line.", "rejected": "No."}, "preference", ""),
    ({"question": "Write.", "chosen": [{"role": "assistant", "content": "A line."}], "rejected": [{"role": "assistant", "content": "No."}]},
     "preference", "prompt=question"),
    ({"prompt": "Write.", "completion": "A line.", "rubric": [{"text": "It is a line.", "weight": 2}]}, "rubric", "response=completion"),
    ({"prompt": "Write.", "response": "A line.", "ground_truth": "x", "rubrics": "It is a line."}, "rubric", ""),
]  # fmt: skip


@pytest.mark.parametrize(
    ("row", "task", "mapping"), TASK_OF_ROWS, ids=[f"{i}-{t}" for i, (_, t, _) in enumerate(TASK_OF_ROWS)]
)
def test_it_looks_at_the_users_rows(tmp_path: Path, row: dict[str, Any], task: str, mapping: str) -> None:
    """The file that is written has the task's graders, and the line that it shows reads the rows."""
    (tmp_path / "rows.jsonl").write_text(json.dumps(row) + "\n")
    done = call(tmp_path, "init", "--data", "rows.jsonl")
    assert (done.returncode, done.stderr) == (0, "")
    assert f"  task         {task}: " in done.stdout
    text = (tmp_path / "reward.yaml").read_text()
    assert TASKS[task].about in text
    line = next(line for line in text.splitlines() if line.startswith("# judgekit grade "))
    assert mapping in line
    words = shlex.split(line.removeprefix("# judgekit "))
    graders = load_runner(tmp_path / "reward.yaml").graders
    if "judge" not in graders and task != "code":
        assert call(tmp_path, *words).returncode == 0
        (graded,) = map(json.loads, (tmp_path / "graded.jsonl").read_text().splitlines())
        assert graded["status"] == "scored"


def test_rows_without_responses_are_prompts(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text('{"question": "144 / 2?", "answer": "72"}\n')
    done = call(tmp_path, "init", "--data", "rows.jsonl", "--from", "trl", "--task", "maths")
    assert done.returncode == 0
    assert "there are no responses: these are prompts, for a trainer" in done.stdout
    assert "task  " not in done.stdout
    assert "# judgekit grade " not in (tmp_path / "reward.yaml").read_text()


def test_a_rubric_stands_beside_the_file(tmp_path: Path) -> None:
    done = call(tmp_path, "init", "mine.yaml", "--task", "rubric")
    assert f"wrote {RUBRIC_FILE}: put your criteria into it" in done.stdout
    assert (tmp_path / RUBRIC_FILE).read_text() == RUBRIC
    (tmp_path / RUBRIC_FILE).write_text(RUBRIC.replace("true", "mine"))
    done = call(tmp_path, "init", "mine.yaml", "--task", "rubric", "--force")
    assert f"{RUBRIC_FILE} is there already" in done.stdout
    assert "mine" in (tmp_path / RUBRIC_FILE).read_text()


def test_criteria_in_another_form_are_told(tmp_path: Path) -> None:
    row = {"prompt": "Write.", "response": "A line.", "rubric": [{"rule": "It is a line."}]}
    (tmp_path / "rows.jsonl").write_text(json.dumps(row) + "\n")
    assert "'rubric' holds no criteria that are read" in call(tmp_path, "init", "--data", "rows.jsonl").stdout
    assert not (tmp_path / RUBRIC_FILE).exists()


def test_the_rows_own_criteria_are_asked_about(tmp_path: Path) -> None:
    rows = [{"prompt": "Write.", "response": "A line.", "rubric": ["It rhymes.", "It is short."]}]
    (tmp_path / "rows.jsonl").write_text(json.dumps(rows[0]) + "\n")
    assert call(tmp_path, "init", "--data", "rows.jsonl").returncode == 0
    assert "extra.rubric" in (tmp_path / RUBRIC_FILE).read_text().splitlines()[0]
    judge = ScriptedJudge({"It rhymes.": {"0": 1.0, "1": 0.0}, "It is short.": {"0": 0.0, "1": 1.0}})
    (result,) = load_runner(tmp_path / "reward.yaml", judges={"main": judge}).run_sync(
        read_rollouts(tmp_path / "rows.jsonl")
    )
    assert result.reward == 0.5


@pytest.mark.parametrize("trainer", NEXT)
def test_what_compares_needs_a_trainer_with_whole_groups(tmp_path: Path, trainer: str) -> None:
    done = call(tmp_path, "init", "--task", "preference", "--from", trainer)
    if trainer in ONE_BY_ONE:
        assert (done.returncode, done.stderr.count("\n")) == (2, 1)
        assert f"{trainer} hands them over one by one" in done.stderr
    else:
        assert done.returncode == 0
        assert ("--group" in done.stdout) == (trainer in ("nemo-gym", "slime"))


def test_a_columns_name_cannot_write_into_the_file(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text('{"response": "72", "answer": "72", "uid": 1, "x\\nreward: 1": 3}\n')
    (tmp_path / "a\nreward: 1.jsonl").write_text('{"response": "72", "answer": "72"}\n')
    done = call(tmp_path, "init", "--data", "a\nreward: 1.jsonl")
    assert done.returncode == 0
    assert load_runner(tmp_path / "reward.yaml").graders.keys() == {"correct", "brief"}
    assert "\nreward: 1" not in (tmp_path / "reward.yaml").read_text()


def test_an_editors_schema_of_the_users_stays(tmp_path: Path) -> None:
    (tmp_path / "reward.schema.json").write_text("mine")
    assert call(tmp_path, "init").returncode == 0
    assert (tmp_path / "reward.schema.json").read_text() == "mine"


def test_a_request_without_a_right_answer_goes_to_a_judge(tmp_path: Path) -> None:
    assert call(tmp_path, "init", "--task", "open").returncode == 0
    assert load_runner(tmp_path / "reward.yaml").graders.keys() == {"brief", "judge"}


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (
            ("--task", "poetry"),
            "--task: there is no 'poetry'; there are maths, answer, words, choice, code, tools, instructions, open, rubric, preference",
        ),
        (("--judge", "oracle"), "--judge: there is no 'oracle'; there are none, vllm, ray, http"),
        (
            ("--task", "open", "--judge", "none"),
            "--task open needs a judge: by rules alone an empty response",
        ),
        (
            ("--from", "ppo"),
            "--from: there is no 'ppo'; there are none, verl, skyrl, trl, verifiers, openrlhf, slime, nemo-gym, areal",
        ),
        (("--model", "m"), "--model is of a judge: give --judge vllm or ray or http, too"),
        (("--judge", "ray", "--url", "u"), "--url is of a judge: give --judge http, too"),
        (("folder/",), "is a folder: give the name of a file"),
        (("--data", "none.jsonl"), "none.jsonl"),
        (("--data", "empty.jsonl"), "empty.jsonl holds no rows"),
        (
            ("empty.jsonl", "--data", "empty.jsonl", "--force"),
            "empty.jsonl would overwrite empty.jsonl, which is read",
        ),
    ],
)
def test_wrong_answers_are_said_and_write_nothing(tmp_path: Path, args: tuple[str, ...], says: str) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "empty.jsonl").touch()
    refused(call(tmp_path, "init", *args), says, tmp_path)
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
