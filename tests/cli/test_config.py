"""`judgekit lint` and `judgekit schema`."""

from __future__ import annotations

import json
import re
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from .command import CONFIG
from .in_process import call, refused


@pytest.mark.parametrize(
    ("text", "code", "says"),
    [
        (CONFIG, 0, ["brief: pays up to 0.1 for form alone", "2 graders, rewards from 0 to 1"]),
        (
            "graders: {a: final_answer}\nreward: {gate: {if: a >= 0, then: 1, otherwise: 0}}\n"
            "judges: {j: {engine: openai, url: 'http://127.0.0.1:1', model: m}}\nledger: {path: l.jsonl}\n",
            0,
            [
                "warning: judges.j: no grader asks it, and it is started all the same; take it out",
                "warning: reward: the gate a >= 0 always passes: a lies in 0..1",
                "1 grader, rewards from 0 to 1",
            ],
        ),
        (
            "graders: {a: final_answr}\n",
            2,
            ["graders.a: there is no 'final_answr'; did you mean 'final_answer'?"],
        ),
        ("graders: {a: final_answer}\nledger: {path: 3}\n", 2, ["ledger.path: expected"]),
        (
            "graders: {a: final_answer}\nreward: {gate: {if: a > 1, then: 1, otherwise: 0}}\n",
            2,
            ["can never pass"],
        ),
    ],
)
def test_lint(files: Path, text: str, code: int, says: list[str]) -> None:
    (files / "reward.yaml").write_text(text)
    before = sorted(files.iterdir())
    done = call(files, "lint", "reward.yaml")
    lines = (done.stdout if code == 0 else done.stderr).splitlines()
    assert done.returncode == code, done.stderr
    assert len(lines) == len(says)
    assert all(part in line for part, line in zip(says, lines, strict=True))
    assert (done.stdout if code else done.stderr) == ""
    assert sorted(files.iterdir()) == before


def test_schema_is_printed(files: Path) -> None:
    done = call(files, "schema")
    assert (done.returncode, json.loads(done.stdout)["title"]) == (0, "reward.yaml")


def test_lint_says_that_vllm_is_needed(files: Path) -> None:
    (files / "reward.yaml").write_text(
        "graders: {j: {use: judge, judge: l}}\njudges: {l: {engine: vllm, model: embedded}}\n"
    )
    said = call(files, "lint", "reward.yaml").stdout
    assert ("vLLM is not installed here" in said) is (find_spec("vllm") is None)


def test_lint_names_all_missing_extras_at_once(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("math_verify", "jsonschema"):
        monkeypatch.setitem(sys.modules, module, None)
    (files / "reward.yaml").write_text(
        "graders: {m: math, j: {use: json, schema: {type: object}}, f: final_answer, judge: {use: judge, judge: l}}\n"
        "judges: {l: {engine: vllm, model: embedded}}\n"
    )
    done = call(files, "lint", "reward.yaml")
    assert (done.returncode, done.stdout) == (2, "")
    extras = "math,json" if find_spec("vllm") else "math,json,vllm"
    assert done.stderr.endswith(f": pip install 'judgekit-rl[{extras}]'\n")
    assert "graders.m: " in done.stderr
    assert "graders.j: " in done.stderr
    assert done.stderr.count("\n") == 1


def test_lint_tells_what_a_policy_could_use(files: Path) -> None:
    (files / "reward.yaml").write_text(
        "graders: {correct: final_answer, brief: {use: length, soft_max: 10, hard_max: 20}, loops: action_loop}\n"
        "reward: {weighted: {correct: 0.7, brief: 0.2, loops: 0.1}}\n"
    )
    done = call(files, "lint", "reward.yaml")
    brief, loops, last = done.stdout.splitlines()
    assert brief.startswith("warning: reward: brief: pays up to 0.2 for form alone")
    assert loops.startswith("warning: reward: loops: a rollout that calls no tool is not graded by it")
    assert (done.returncode, last) == (0, "reward.yaml: 3 graders, rewards from 0 to 1")


def test_lint_looks_at_rollouts(files: Path) -> None:
    (files / "rows.jsonl").write_text('{"response": "42"}\n{"response": "43"}\n')
    done = call(files, "lint", "reward.yaml", "rows.jsonl")
    assert (
        "correct: it would abstain on each of the 2 rows that were looked at: there is no ground_truth"
        in done.stdout
    )
    (files / "rows.jsonl").write_text('{"question": "6*7?", "answer": "42"}\n')  # as a trainer reads it
    assert "abstain" not in call(files, "lint", "reward.yaml", "rows.jsonl").stdout
    refused(files, "lint reward.yaml none.jsonl", "none.jsonl")


ROOT = Path(__file__).parents[2]
SHOWN = [
    *sorted((ROOT / "examples").glob("*/reward*.yaml")),
    ROOT / "README.md",
    ROOT / "adapters" / "trl" / "README.md",
]


@pytest.mark.parametrize("path", SHOWN, ids=[str(path.relative_to(ROOT)) for path in SHOWN])
def test_lint_has_nothing_against_what_we_show(files: Path, path: Path) -> None:
    text = path.read_text()
    if path.suffix == ".md":
        (text,) = re.findall(r"```yaml\n(graders.*?)```", text, re.DOTALL)
    for beside in path.parent.glob("*.txt"):
        (files / beside.name).write_bytes(beside.read_bytes())
    (files / "shown.yaml").write_text(text)
    done = call(files, "lint", "shown.yaml")
    assert (done.returncode, done.stderr) == (0, "")
    assert "warning" not in done.stdout
