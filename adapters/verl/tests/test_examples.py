"""Every launch script in examples/ is understood by verl, and its reward.yaml by judgekit."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from verl.trainer.ppo.reward import load_reward_manager
from verl.trainer.ppo.utils import need_critic, need_reference_policy
from verl.utils.config import validate_config

import judgekit_verl
from judgekit_verl.manager import has_hook
from judgekit_verl.settings import settings

EXAMPLES = Path(__file__).parents[3] / "examples" / "verl"


def run_script(
    script: Path, folder: Path, *given: str, judgekit: str = "true", curl: str = "true"
) -> subprocess.CompletedProcess[str]:
    """Run it as `bash script.sh`, with commands in the place of a GPU's; prints what it hands to verl's main_ppo."""
    fakes = {
        "python3": '[ "$1" = -m ] && { shift 2; printf "%s\\n" "$@"; } || true',
        "ray": '[ "$1" = stop ] && echo ray stop >&2; while [ "$1" ] && [ "$1" != -- ]; do shift; done; [ "$1" ] && { shift; "$@"; } || true',
        "judgekit": judgekit,
        "curl": curl,
    }
    for name, does in fakes.items():
        fake = folder / name
        fake.write_text(f"#!/bin/sh\n{does}\n")
        fake.chmod(0o755)
    environment = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}", "RAY_ADDRESS": "http://head:8265"}
    copy = folder / "verl"
    shutil.copytree(script.parent, copy)
    return subprocess.run(
        ["bash", str(copy / script.name), *given], env=environment, capture_output=True, text=True, timeout=60
    )


def arguments_of(script: Path, folder: Path) -> list[str]:
    done = run_script(
        script, folder, curl=f"test -e {folder}/up || {{ touch {folder}/up; false; }}", judgekit="sleep 5"
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.parametrize("name", ["run_judge_http", "run_listwise"])
def test_a_server_that_ends_is_not_waited_for(name: str, tmp_path: Path) -> None:
    done = run_script(EXAMPLES / f"{name}.sh", tmp_path, judgekit="echo no such model; exit 3", curl="false")
    assert done.returncode == 1
    assert "no such model" in done.stderr
    assert not done.stdout


def test_a_ray_cluster_is_left_to_nobody(tmp_path: Path) -> None:
    """`judgekit serve` fails; the cluster that the script started is stopped."""
    fake = 'case "$*" in *--stop*) ;; *) exit 3;; esac'
    done = run_script(EXAMPLES / "run_judge_ray.sh", tmp_path, judgekit=fake)
    assert done.returncode == 3
    assert "ray stop" in done.stderr


def test_a_listwise_judge_in_validation() -> None:
    """With one sample a prompt, right and wrong answers have different rewards."""
    from judgekit import GradingRunner, Rollout
    from judgekit.trainers import load_config

    config = load_config(EXAMPLES / "reward_listwise.yaml")
    runner: GradingRunner = config.build()
    alone = [
        [Rollout(prompt=f"q{i}", response=f"#### {i}", ground_truth="0", group=str(i))] for i in range(2)
    ]
    results = asyncio.run(runner.run_groups(alone))
    assert [group[0].reward for group in results] == [1, 0]


@pytest.mark.parametrize("script", sorted(EXAMPLES.glob("run_*.sh")), ids=lambda path: path.stem)
async def test_launch_scripts(
    script: Path, tmp_path: Path, trainer_config: Callable[..., Any], tokenizer: Any
) -> None:
    given = arguments_of(script, tmp_path)
    assert given
    config = trainer_config(*given)
    validate_config(
        config=config, use_reference_policy=need_reference_policy(config), use_critic=need_critic(config)
    )
    if script.stem == "run_compute_score":
        reward = load_reward_manager(config, tokenizer).compute_score.args[0]
        assert reward is judgekit_verl.compute_score
        return
    assert config.reward.reward_manager.name == "judgekit"
    assert has_hook(config)
    settings(dict(config.reward.reward_kwargs), hook=True, workers=config.reward.num_workers)


@pytest.mark.parametrize("language", ["en", "zh"])
def test_the_trajectory_judge_is_asked_in_either_language(
    language: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from judgekit import Graded, Rollout
    from judgekit.testing import ScriptedJudge
    from judgekit.trainers import load_config

    monkeypatch.setenv("JUDGE_LANGUAGE", language)
    runner = load_config(EXAMPLES / "reward_trajectory.yaml").build()
    grader: Any = runner.graders["judge"]
    grader.judge = judge = ScriptedJudge("### Final Score [{nonce}]: 7")
    turns = [{"role": "assistant", "content": "I calculate"}, {"role": "tool", "content": "36 apples"}]
    rollout = Rollout(prompt="How many?", response="I calculate", messages=turns)
    (result,) = asyncio.run(runner.run([rollout]))
    grade = result.grades["judge"]
    assert isinstance(grade, Graded), grade
    assert grade.score == pytest.approx(0.7)
    prompt = repr(judge.requests[0])
    assert "36 apples" in prompt
    assert ("TASK:" if language == "en" else "任务") in prompt


def test_the_calculator_is_a_tool_of_verls() -> None:
    from verl.tools.function_tool import load_function_tools_from_path

    (tool,) = load_function_tools_from_path(str(EXAMPLES / "tools.py"))
    assert asyncio.run(tool.call({"expression": "(48 + 24) / -2"})) == "-36"
    for hostile in ("__import__('os')", "2 ** 9", "1 / 0", "(" * 150, "f'{1}'"):
        assert asyncio.run(tool.call({"expression": hostile})).startswith("cannot calculate that")


@pytest.mark.parametrize(
    ("task", "rows", "truth"),
    [
        ("gsm8k", {"question": "6 * 7?", "answer": "6 * 7 = 42\n#### 1,042"}, "1042"),
        ("math500", {"problem": "?", "solution": r"So \boxed{7}."}, "7"),
        ("math", {"problem": "?", "solution": r"So \boxed{\frac{1}{2}}."}, r"\frac{1}{2}"),
    ],
)
def test_data_scripts(task: str, rows: dict[str, str], truth: str, tmp_path: Path) -> None:
    file = tmp_path / "train.jsonl"
    file.write_text(json.dumps(rows) + "\n")
    command = [sys.executable, str(EXAMPLES / "make_data.py"), task, "--train", str(file)]
    done = subprocess.run([*command, "--out", str(tmp_path)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    made = pd.read_parquet(tmp_path / "train.parquet")
    assert made.iloc[0]["reward_model"]["ground_truth"] == truth
    assert made.iloc[0]["prompt"][0]["content"].startswith(next(iter(rows.values())))
    done = subprocess.run(
        [*command, "--out", str(tmp_path), "--references", "both"], capture_output=True, text=True
    )
    made = pd.read_parquet(tmp_path / "train.parquet").iloc[0]
    assert list(made["reward_model"]["ground_truth"]) == [truth, list(rows.values())[1]]
    assert made["extra_info"]["target_gt"] == truth
    file.write_text("{")
    done = subprocess.run([*command, "--out", str(tmp_path)], capture_output=True, text=True)
    assert done.returncode
    assert "line 1" in done.stderr
