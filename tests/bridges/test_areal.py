"""AReaL's own workflow, engine and groups, by the lines of the documentation; a stand-in generates."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from .conftest import PLANTED, REWARD

HOST = Path(__file__).with_name("areal_host.py")
if not (Path(sys.prefix) / "beside" / "areal").exists():
    pytest.skip("areal is not installed", allow_module_level=True)

ROW = {"messages": [{"role": "user", "content": "2+2?"}], "answer": "4"}
COMMON = "graders: {common: {use: majority}}\nreward: {score: common, if_missing: 0.125}\n"
BY_SOURCE = """
graders: {correct: {use: final_answer}}
reward: {switch: {by: data_source, cases: {math: correct}, otherwise: 0.5}}
"""
SLOW = """
import asyncio

@grader
async def slow(rollout):
    await asyncio.sleep(1)
    return float("4" in rollout.response)
"""
GROUP = ["#### 4", "#### 5", "broken", "#### 5"]
CASES: dict[str, dict[str, Any]] = {
    "missing": {"reward": REWARD, "groups": [GROUP, ["broken"] * 4, ["#### 4", "stop", "#### 5", "broken"]]},
    "zscore": {"reward": f"{REWARD}runner: {{transform: zscore}}\n", "groups": [GROUP]},
    "together": {
        "reward": f"{COMMON}runner: {{transform: center}}\n",
        "groups": [["#### 4", "#### 4", "#### 4", "#### 5"]],
    },
    "alone": {"reward": COMMON, "size": 1, "groups": [["#### 4"], ["#### 5"]]},
    "slow": {"reward": 'graders: {slow: {use: "MODULE:slow"}}\n', "groups": [GROUP] * 64},
    "row": {
        "reward": BY_SOURCE,
        "row": {**ROW, "data_source": "math", "reward_model": {"ground_truth": "5"}},
        "groups": [GROUP],
    },
}


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What became of each case: importing AReaL takes seconds."""
    asked = []
    for name, case in CASES.items():
        folder = tmp_path_factory.mktemp(name)
        (folder / f"areal_{name}.py").write_text(PLANTED + SLOW)
        (folder / "reward.yaml").write_text(case["reward"].replace("MODULE", f"areal_{name}"))
        asked.append({"size": 4, "row": ROW, **case, "folder": str(folder)})
    command = [sys.executable, HOST, json.dumps(asked)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    return dict(zip(CASES, json.loads(done.stdout.splitlines()[-1]), strict=True))


def test_groups_stay_whole_and_a_missing_reward_is_out_of_the_loss(told: dict[str, Any]) -> None:
    """AReaL normalises slices of fixed size: a group that lost a member would shift all after it."""
    first, lost, gone = told["missing"]["kept"]
    assert first == {"rewards": [1.0, 0.25, 0.5, 0.25], "trained": [7, 7, 0, 7]}
    assert lost is None  # the whole group is rejected: there is no mean
    assert gone == "the server has gone"
    graded = [1, 0.25, 0.25, 1, 0.25]
    assert told["missing"]["figures"]["rollout/judgekit/raw"] == pytest.approx(sum(graded) / len(graded))


def test_it_is_text_between_controller_and_workers(told: dict[str, Any]) -> None:
    assert told["missing"]["class_as_text"] == "judgekit.bridges.areal.JudgedRLVRWorkflow"
    assert told["missing"]["reward_as_text"].endswith("/reward.yaml")


def test_advantages_are_exact_where_the_file_normalises(told: dict[str, Any]) -> None:
    """With `transform: zscore`, and AReaL's own normalisation off, a missing member moves no sibling's advantage."""
    valid = [1.0, 0.25, 0.25]
    mean = sum(valid) / 3
    deviation = (sum((x - mean) ** 2 for x in valid) / 2) ** 0.5
    right, wrong = (1.0 - mean) / deviation, (0.25 - mean) / deviation
    (found,) = told["zscore"]["kept"]
    assert found["rewards"] == pytest.approx([right, wrong, 0.0, wrong], abs=1e-6)


def test_graders_of_groups_see_the_whole_group(told: dict[str, Any]) -> None:
    (found,) = told["together"]["kept"]
    assert found["rewards"] == [0.25, 0.25, 0.25, -0.75]
    assert [one["rewards"] for one in told["alone"]["kept"]] == [[0.125], [0.125]]  # as in AReaL's evaluation


def test_nobody_waits_in_a_pool(told: dict[str, Any]) -> None:
    """In AReaL's own pool, 256 rewards of a second each were asked for one after another, and most were paid 0."""
    assert [one["rewards"] for one in told["slow"]["kept"]] == [[1.0, 0.0, 0.0, 0.0]] * 64
    assert told["slow"]["seconds"] < 12


def test_a_row_means_the_same_as_in_other_trainers(told: dict[str, Any]) -> None:
    assert told["row"]["kept"][0]["rewards"] == [0.0, 1.0, 0.0, 1.0]
