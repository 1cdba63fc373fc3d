"""`judgekit lint` and `judgekit schema`."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path

import pytest

from .command import CONFIG, run


@pytest.mark.parametrize(
    ("text", "code", "says"),
    [
        (CONFIG, 0, ["2 graders, rewards from 0 to 1"]),
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
    done = run(files, "lint", "reward.yaml")
    lines = (done.stdout if code == 0 else done.stderr).splitlines()
    assert done.returncode == code, done.stderr
    assert len(lines) == len(says)
    assert all(part in line for part, line in zip(says, lines, strict=True))
    assert (done.stdout if code else done.stderr) == ""
    assert sorted(files.iterdir()) == before


def test_schema_is_printed(files: Path) -> None:
    done = run(files, "schema")
    assert (done.returncode, json.loads(done.stdout)["title"]) == (0, "reward.yaml")


def test_lint_says_that_vllm_is_needed(files: Path) -> None:
    (files / "reward.yaml").write_text(
        "graders: {j: {use: judge, judge: l}}\njudges: {l: {engine: vllm, model: embedded}}\n"
    )
    said = run(files, "lint", "reward.yaml").stdout
    assert ("vLLM is not installed here" in said) is (find_spec("vllm") is None)
