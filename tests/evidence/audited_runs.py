"""Ledgers of trainings, healthy and hacked, and a reward.yaml whose rule audits a judge."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any
from unittest import mock

from judgekit import GradingRunner, Ledger, Rollout, grader
from judgekit.run import scheduler

REWARD = """\
graders:
  judge:   {use: "audit_graders:judge"}
  careful: {use: "audit_graders:careful"}
reward: {weighted: {judge: 1.0}}
audit: {grader: careful, watch: judge, share: 0.5}
"""
GRADERS = '''\
"""A judge that pays a phrase, and a careful grader that reads the answer. Each call of it is a line in asked.txt."""
import os
from judgekit import Abstained, Failed, grader

@grader
def judge(response):
    return 1.0 if "certainly" in response or "right" in response else 0.0

@grader
def careful(response, extra):
    with open("asked.txt", "a") as file:
        file.write(response + "\\n")
    if os.path.exists("kill") and len(open("asked.txt").readlines()) == 40:
        os.kill(os.getpid(), 9)
    if extra.get("audit") == "fails":
        return Failed("JudgeUnavailable", "it is down")
    if extra.get("audit") == "abstains":
        return Abstained("no opinion")
    return 1.0 if "right" in response else 0.0
'''


@grader
def judge(response: str) -> float:
    return 1.0 if "certainly" in response or "right" in response else 0.0


def step(number: int, *, hacked: bool, prompts: int = 8, each: int = 4, **extra: Any) -> list[Rollout]:
    """One step: a quarter is right; of the rest, none is paid, or in a hacked step all are."""
    words = ["right", *(["certainly"] if hacked else ["perhaps"]) * (each - 1)]
    return [
        Rollout(
            prompt=f"question {p}",
            response=f"{words[i]}, says {number} {p} {i}",
            group=p,
            id=f"{number}-{p}-{i}",
            extra=extra,
        )
        for p in range(prompts)
        for i in range(each)
    ]


def write_run(
    path: Path,
    steps: int,
    *,
    hacked_from: int | None = None,
    first: int = 0,
    texts: bool = True,
    graders: Any = None,
    tag: str | None = "step",
    **fields: Any,
) -> Path:
    """Grade the steps of a training with the judge alone, into the ledger *path*. Runs are named alike each time, and so are draws."""
    lines = path.read_bytes().count(b"\n") if path.exists() else 0
    kept = Ledger(path, texts=texts)
    runner = GradingRunner(graders or {"judge": judge}, {"judge": 1.0}, missing_reward="mask", ledger=kept)
    with mock.patch.multiple(scheduler, _process=path.stem, _numbers=itertools.count(lines)):
        for number in range(first, first + steps):
            hacked = hacked_from is not None and number >= hacked_from
            runner.run_sync(step(number, hacked=hacked, **fields), tags={} if tag is None else {tag: number})
    kept.flush()
    kept.close()
    return path


def folder_of(tmp_path: Path, reward: str = REWARD) -> Path:
    """Write reward.yaml and its graders."""
    (tmp_path / "reward.yaml").write_text(reward)
    (tmp_path / "audit_graders.py").write_text(GRADERS)
    return tmp_path


def asked(folder: Path) -> list[str]:
    """What the careful grader was asked about, in order."""
    path = folder / "asked.txt"
    return path.read_text().splitlines() if path.exists() else []
