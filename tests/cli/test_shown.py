"""What commands print and write, to the letter: a session in `shown/` for each kind of work.

A session has the commands, and below each what it printed and with which code it ended. Times, folders and names of runs,
which differ each time, are replaced. After a change that is meant, `python -m tests.cli.test_shown` writes the sessions again:
read the diff.
"""

from __future__ import annotations

import json
import re
import shlex
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from unittest import mock

import pytest
from rich.console import Console, ConsoleDimensions

from judgekit import Failed, GradingRunner, Ledger, Rollout, grader
from tests.evidence.audited_runs import folder_of, write_run

from .command import CONFIG
from .in_process import call

SHOWN = Path(__file__).with_name("shown")
SIZE = ConsoleDimensions(140, 40)
CHANGES = (
    (r"\b[0-9.]+(e[+-]\d+)? (s|ms|µs)(?![a-z])", "TIME"),
    (r"\b\d{4}-\d\d-\d\d\b", "DATE"),
    (r'("(?:from|to|seconds|p50_s|p95_s|wall_s|time|started|ended)": ?)[0-9.e+-]+', r"\1TIME"),
    (r"(?<![.0-9a-f])[0-9a-f]{16,}\b", "DIGEST"),
    (r"\b[0-9a-f]{6,12}-[0-9a-f]+\b", "RUN"),
    (r" {2,}", "  "),  # a table is as wide as its times
    (r" +\n", "\n"),
)


# ---- what a session begins with


def graded(folder: Path) -> None:
    """Groups with right, wrong, unreadable and failing rollouts."""
    rows = [
        {"prompt": "2+2?", "response": "#### 4", "ground_truth": "4", "group": "a", "id": "a1"},
        {"prompt": "2+2?", "response": "five, which is a very long guess of a lot of words", "ground_truth": "4", "group": "a", "id": "a2"},
        {"prompt": "3+3?", "response": "#### 6", "ground_truth": "6", "group": "b", "id": "b1"},
        {"prompt": "3+3?", "response": "#### 6 it is", "ground_truth": "6", "group": "b", "id": "b2"},
        {"prompt": "4+4?", "response": "#### 8", "ground_truth": None, "group": "c", "id": "c1"},
        {"prompt": "4+4?", "response": "bad luck: <red>9</red>", "ground_truth": "8", "group": "c", "id": "c2"},
    ]  # fmt: skip
    (folder / "rollouts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "reward.yaml").write_text(CONFIG)
    (folder / "mine.py").write_text(
        "from judgekit import grader\n\n@grader\ndef luck(response):\n"
        "    if 'bad luck' in response:\n        raise ConnectionError('the\\x1b server is down')\n    return 0.5\n"
    )
    (folder / "luck.yaml").write_text(
        "graders: {correct: final_answer, luck: 'mine:luck'}\n"
        "reward: {gate: {if: correct >= 0.5, then: luck, otherwise: {weighted: {luck: 0.25}}}}\n"
        "runner: {missing_reward: neutral, transform: center}\n"
    )
    (folder / "strict.yaml").write_text(
        "graders: {correct: final_answer, brief: {use: length, soft_max: 10, hard_max: 20}}\n"
        "reward: {gate: {if: correct > 0, then: brief, otherwise: 0}}\n"
    )


def attacked(folder: Path) -> None:
    """Rewards with and without holes, and one with a judge."""
    rules = (
        "graders:\n  correct: {use: final_answer}\n  brief: {use: length, soft_max: 700, hard_max: 1400}\n"
    )
    (folder / "open.yaml").write_text(f"{rules}reward:\n  weighted: {{correct: 0.7, brief: 0.3}}\n")
    (folder / "gated.yaml").write_text(
        f"{rules}reward:\n  gate: {{if: correct >= 1, then: brief, otherwise: 0}}\n"
    )
    (folder / "loose.yaml").write_text("graders: {has: 'mine:has'}\n")
    (folder / "mine.py").write_text(
        "from judgekit import grader\n\n@grader\ndef has(response, ground_truth):\n"
        "    return float(str(ground_truth) in response or 'correct' in response)\n"
    )
    (folder / "judged.yaml").write_text(
        "graders:\n  correct: final_answer\n  judge: {use: judge, judge: far}\n"
        "judges:\n  far: {engine: openai, url: 'http://127.0.0.1:9/v1', model: m}\n"
        "reward:\n  weighted: {correct: 0, judge: 1}\n"
    )
    rows = [{"prompt": "2+2?", "response": "x", "ground_truth": "4"}, {"prompt": "a poem", "response": "y"}]
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def audited(folder: Path) -> None:
    """A training whose policy begins to please the judge, and one whose policy does not."""
    folder_of(folder)
    write_run(folder / "hacked.jsonl", 8, hacked_from=3)
    write_run(folder / "healthy.jsonl", 2)
    write_run(folder / "failing.jsonl", 1, audit="fails")


@grader
def judge(extra: dict[str, object]) -> object:
    return Failed("JudgeUnavailable", "it is down") if extra["score"] is None else extra["score"]


def labelled(folder: Path) -> None:
    """A judge's grades, with labels of enough and of too few prompts."""
    for name, prompts, mistaken in (("many", 120, 30), ("few", 6, 0)):
        kept = Ledger(folder / f"{name}.jsonl", texts=True)
        runner = GradingRunner({"judge": judge}, missing_reward="mask", ledger=kept)
        scores = [[0.95, 0.9, 0.6 if i < mistaken else 0.05, None if i == 1 else 0.1] for i in range(prompts)]
        runner.run_sync(
            [
                Rollout(prompt=f"q{i}", response=f"r{j}", group=i, id=f"{i}-{j}", extra={"score": score})
                for i, group in enumerate(scores)
                for j, score in enumerate(group)
            ]
        )
        kept.close()
        said = [{"id": f"{i}-{j}", "label": int(j < 2)} for i in range(prompts) for j in range(4)]
        (folder / f"{name}.labels.jsonl").write_text("".join(json.dumps(row) + "\n" for row in said))


def begun(folder: Path) -> None:
    """Rows of a user who has no reward yet."""
    rows = [{"question": "2+2?", "completion": "It is 4.", "gold": i} for i in range(3)]
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    prompts = [{"prompt": [{"role": "user", "content": "Hi"}], "rubric": ["is polite"]}]
    (folder / "prompts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in prompts))


FULL = "grade reward.yaml rollouts.jsonl --ledger full.jsonl --json"
LUCK = "grade luck.yaml rollouts.jsonl --ledger l.jsonl --json"
SESSIONS: dict[str, tuple[Callable[[Path], None], list[str]]] = {
    "grade": (
        graded,
        ["grade reward.yaml rollouts.jsonl --out g.jsonl --ledger l.jsonl --report r.html", "cat g.jsonl"],
    ),
    "grade again": (
        graded,
        [
            "grade reward.yaml rollouts.jsonl --ledger l.jsonl",
            "grade reward.yaml rollouts.jsonl --ledger l.jsonl",
            "grade reward.yaml rollouts.jsonl --ledger l.jsonl --resume --json",
            "grade strict.yaml rollouts.jsonl --ledger l.jsonl --resume",
            "grade luck.yaml rollouts.jsonl --ledger new.jsonl --resume --limit 1",
        ],
    ),
    "grade with failures": (
        graded,
        [
            "grade luck.yaml rollouts.jsonl --ledger l.jsonl --out luck.csv",
            "cat luck.csv",
            "grade luck.yaml rollouts.jsonl --ledger l.jsonl --resume --json",
            "grade luck.yaml rollouts.jsonl --json --limit 2",
        ],
    ),
    "report": (
        graded,
        [
            LUCK,
            "report l.jsonl",
            "report l.jsonl --json --force --price-in 1 --price-out 2",
            "report l.jsonl --price-in 1",
            "report l.jsonl --out r.html --price-out 1",
            "export l.jsonl t.csv",
            "cat t.csv",
            "export l.jsonl -",
        ],
    ),
    "replay": (
        graded,
        [
            FULL,
            "replay full.jsonl --reward strict.yaml --out new.jsonl",
            "sort new.jsonl",
            "replay full.jsonl --reward strict.yaml --json",
            LUCK,
            "replay l.jsonl",
            "replay l.jsonl --reward strict.yaml",
            "replay l.jsonl --only failed --reward luck.yaml --ledger again.jsonl",
        ],
    ),
    "compare": (
        graded,
        [
            FULL,
            LUCK,
            "compare full.jsonl l.jsonl",
            "compare full.jsonl --reward strict.yaml --out c.html",
            "compare full.jsonl --reward luck.yaml --grade",
        ],
    ),
    "compare rewards": (
        graded,
        [
            FULL,
            "compare full.jsonl --reward strict.yaml --reward reward.yaml",
            "compare full.jsonl --reward strict.yaml --json",
            "compare full.jsonl --reward luck.yaml",
            "compare full.jsonl",
            "compare full.jsonl full.jsonl --grade",
            "compare full.jsonl full.jsonl --reward strict.yaml",
            "compare full.jsonl --reward strict.yaml --reward reward.yaml --out c.html",
            "compare full.jsonl full.jsonl --json --out -",
        ],
    ),
    "attack": (attacked, ["attack open.yaml rows.jsonl"]),
    "attack and show": (attacked, ["attack open.yaml rows.jsonl --show nothing/0 --at-most 57"]),
    "attack what is sound": (attacked, ["attack gated.yaml rows.jsonl"]),
    "attack what is loose": (attacked, ["attack loose.yaml rows.jsonl"]),
    "attack a judge": (attacked, ["attack judged.yaml rows.jsonl"]),
    "audit": (
        audited,
        [
            "audit hacked.jsonl --reward reward.yaml --out curve.md",
            "cat curve.md",
            "audit hacked.jsonl --reward reward.yaml --json",
        ],
    ),
    "audit what is healthy": (
        audited,
        [
            "audit healthy.jsonl --reward reward.yaml --share 1",
            "audit failing.jsonl --reward reward.yaml",
        ],
    ),
    "certify": (
        labelled,
        [
            "certify many.jsonl --labels many.labels.jsonl --grader judge --out c.md",
            "cat c.md",
            "certify few.jsonl --labels few.labels.jsonl --grader judge --out c.json",
            "cat c.json",
            "certify few.jsonl --grader judge",
        ],
    ),
    "init": (
        begun,
        [
            "init a.yaml --data rows.jsonl",
            "cat a.yaml",
            "lint a.yaml rows.jsonl",
            "init c.yaml --task code --judge vllm --from trl",
            "cat c.yaml",
        ],
    ),
    "init with a judge": (
        begun,
        [
            "init b.yaml --data prompts.jsonl --judge http --from verl",
            "cat b.yaml",
            "init d.yaml --task tools --judge ray --from openrlhf",
            "cat d.yaml",
        ],
    ),
    "graders": (begun, ["graders length", "graders mth"]),
}


def session(name: str, folder: Path) -> str:
    """Make the calls of a session in *folder*; return them with what they showed."""
    begin, lines = SESSIONS[name]
    begin(folder)
    parts = []
    for line in lines:
        words = shlex.split(line)
        if words[0] in ("cat", "sort"):
            written = (folder / words[1]).read_text().splitlines(keepends=True)
            parts.append(f"$ {line}\n{''.join(sorted(written) if words[0] == 'sort' else written)}")
            continue
        done = call(folder, *words)
        stderr = re.sub(r"(?m)^\d\d:\d\d:\d\d .*\n", "", done.stderr)  # the log, whose time is its own
        ends = f"exit code {done.returncode}\n" if done.returncode else ""
        parts.append(f"$ judgekit {line}\n{done.stdout}{stderr and '[stderr] ' + stderr}{ends}")
    text = "\n".join(parts).replace(str(folder), "FOLDER")
    for pattern, other in CHANGES:
        text = re.sub(pattern, other, text)
    return re.sub(r"\d+\.\d{7,}", lambda number: f"{float(number[0]):.6g}", text)


@pytest.mark.parametrize("name", SESSIONS)
def test_a_session_shows_what_it_did(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Console, "size", property(lambda self: SIZE))
    assert session(name, tmp_path) == (SHOWN / f"{name}.txt").read_text()


def write() -> None:
    with mock.patch.object(Console, "size", property(lambda self: SIZE)):
        for name in SESSIONS:
            with tempfile.TemporaryDirectory() as folder:
                (SHOWN / f"{name}.txt").write_text(session(name, Path(folder)))


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[2]))
    write()
