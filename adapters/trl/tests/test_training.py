"""Trainings of TRL's own trainers on CPU."""

from __future__ import annotations

import math
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from statistics import fmean
from typing import Any
from urllib.request import urlopen

import pytest

from judgekit import FailureRateError, read_ledger
from judgekit_trl import judgekit_reward
from toy_training import GROUP, Steps, check_advantages, rows, series, trainer

RULES = """\
graders:
  repeats: {use: text_match, how: contains, part: whole}
  brief:   {use: length, unit: characters, soft_max: 2, hard_max: 6}
reward: {weighted: {repeats: 0.8, brief: 0.2}}
"""
JUDGE = """\
graders:
  judge: {use: judge, judge: remote, verdict: {format: line, low: 0, high: 10, to: [0, 1]}}
judges:
  remote: {engine: openai, url: "http://127.0.0.1:PORT/v1", model: judge, layers: {restart_wait_s: 0.3, retry: null}}
runner: {max_concurrency: 16, timeout_s: 2}
ledger: {path: ledger.jsonl, texts: true}
"""


def written(folder: Path, text: str) -> Path:
    file = folder / "reward.yaml"
    file.write_text(text)
    return file


@pytest.mark.parametrize(("rloo", "seed"), [(False, 0), (False, 1), (True, 2)])
def test_the_reward_rises(tmp_path: Path, rloo: bool, seed: int) -> None:
    reward = judgekit_reward(written(tmp_path, RULES))
    made = trainer(tmp_path, reward, steps=60, seed=seed, rloo=rloo)
    made.train()
    rewards = series(made, "reward")
    assert len(rewards) == 60
    assert fmean(rewards[-12:]) > fmean(rewards[:12]) + 0.1, rewards
    repeats = series(made, "judgekit/repeats/mean")
    assert fmean(repeats[-12:]) > fmean(repeats[:12]) + 0.1, repeats
    assert set(series(made, "judgekit/scored_rate")) == {1.0}


AUDITED = """\
graders:
  judge:   {use: WATCHED}
  repeats: {use: text_match, how: contains, part: whole}
reward: {weighted: {judge: 1}}
audit: {grader: repeats, watch: judge, share: 0.5, on_alarm: stop}
ledger: {path: ledger.jsonl, texts: true}
"""


PLEASED = """\
from judgekit import grader

@grader
def judge(response: str, ground_truth: str) -> float:
    return float(ground_truth in response or "a" in response)
"""


@pytest.mark.parametrize("hacked", [True, False])
def test_audits_stop_a_training_that_pleases_its_judge(tmp_path: Path, hacked: bool) -> None:
    """The policy learns to write an "a". TRL ends after the step in which the alarm comes; nothing is raised."""
    (tmp_path / "pleased_by_an_a.py").write_text(PLEASED)
    watched = '"pleased_by_an_a:judge"' if hacked else "text_match, how: contains, part: whole"
    reward = judgekit_reward(written(tmp_path, AUDITED.replace("WATCHED", watched)))
    steps = 400 if hacked else 40
    slower = Steps(lambda _: time.sleep(0.1))
    made = trainer(tmp_path, reward, steps=steps, callbacks=[slower])
    slower.trainer = made
    made.train()
    if hacked:
        assert made.state.global_step < steps
        assert series(made, "judgekit/audit/alarm")[-1] == 1
        assert series(made, "judgekit/audit/paid_wrong")[-1] > 0.1
    else:
        assert made.state.global_step == steps
        assert set(series(made, "judgekit/audit/alarm")) == {0.0}
        assert set(series(made, "judgekit/audit/paid_wrong")) == {0.0}


class Server:
    """The judge's process."""

    def __init__(self) -> None:
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            self.port = taken.getsockname()[1]
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        command = [sys.executable, str(Path(__file__).with_name("judge_server.py")), str(self.port)]
        self.process = subprocess.Popen(command)
        while True:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            assert self.process.poll() is None
            time.sleep(0.05)

    def die(self, after: int) -> None:
        urlopen(f"http://127.0.0.1:{self.port}/die?after={after}").close()

    def stop(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()


@pytest.fixture
def server() -> Any:
    made = Server()
    yield made
    made.stop()


def test_the_judge_is_killed_in_the_middle(tmp_path: Path, server: Server) -> None:
    """In the third batch, and back for the sixth: given rewards are right, the others are none, training goes on."""
    server.start()

    def begin(step: int) -> None:
        if step == 2:
            server.die(after=20)
        if step == 5:
            assert server.process is not None
            assert server.process.wait() == -9
            server.start()

    steps = Steps(begin)
    file = written(tmp_path, JUDGE.replace("PORT", str(server.port)))
    made = trainer(tmp_path / "run", judgekit_reward(file), steps=8, callbacks=[steps])
    steps.trainer = made
    made.train()
    assert len(steps.kept) == 8
    missing = []
    for kept in steps.kept:
        given = 0
        for prompt, completion, reward in zip(
            kept["prompts"], kept["completions"], kept["rewards"], strict=True
        ):
            if math.isnan(reward):
                continue
            given += 1
            right = prompt[-1]["content"][-1] in completion
            assert reward == pytest.approx(1.0 if right else 0.2)
        missing.append(len(kept["rewards"]) - given)
        for start in range(0, 64, GROUP):
            check_advantages(kept["rewards"][start:][:GROUP], kept["advantages"][start:][:GROUP])
    assert missing[:2] == [0, 0]
    assert 0 < missing[2] < 64
    assert missing[3:5] == [64, 64]
    assert missing[5:] == [0, 0, 0]
    rates = [
        rate for row in made.state.log_history if (rate := row.get("judgekit/excluded_rate")) is not None
    ]
    assert rates == [count / 64 for count in missing]
    in_ledger = [entry.reward for entry in read_ledger(tmp_path / "ledger.jsonl").entries]
    assert len(in_ledger) == 8 * 64
    assert sum(reward is None for reward in in_ledger) == sum(missing)


def test_the_judge_hangs(tmp_path: Path, server: Server) -> None:
    """TRL waits for ever: the deadline of a call ends it, although a judge that is away is waited for."""
    server.start()
    assert server.process is not None
    signals = {1: signal.SIGSTOP, 2: signal.SIGCONT}
    steps = Steps(lambda step: server.process.send_signal(signals[step]) if step in signals else None)
    text = JUDGE.replace("PORT", str(server.port)).replace(", layers: {restart_wait_s: 0.3, retry: null}", "")
    text = text.replace("timeout_s: 2", "timeout_s: 60, deadline_s: 3")
    made = trainer(tmp_path / "run", judgekit_reward(written(tmp_path, text)), steps=3, callbacks=[steps])
    steps.trainer = made
    made.train()
    assert series(made, "judgekit/excluded_rate") == [0.0, 1.0, 0.0]


def test_too_many_failures_end_it(tmp_path: Path, server: Server) -> None:
    server.start()
    server.die(after=80)
    text = JUDGE.replace("PORT", str(server.port)).replace(
        "timeout_s: 2", "timeout_s: 2, max_failure_rate: 0.3"
    )
    made = trainer(tmp_path / "run", judgekit_reward(written(tmp_path, text)), steps=4)
    with pytest.raises(FailureRateError, match=r"max_failure_rate=0.3.*judge"):
        made.train()
    assert made.state.global_step == 1


def test_validation(tmp_path: Path) -> None:
    """Another number of rollouts, figures of its own, and no mix-up with training in the ledger."""
    text = RULES + "ledger: {path: ledger.jsonl}\n"
    made = trainer(
        tmp_path / "run",
        judgekit_reward(written(tmp_path, text)),
        steps=2,
        validation=rows(16),
        num_generations_eval=2,
        per_device_eval_batch_size=16,
        eval_strategy="steps",
        eval_steps=1,
    )
    made.train()
    found = [row for row in made.state.log_history if "eval_judgekit/repeats/mean" in row]
    assert len(found) == 2
    assert all(row["eval_judgekit/rollouts"] == 16 for row in found)
    assert series(made, "judgekit/rollouts") == [64, 64]
    entries = read_ledger(tmp_path / "ledger.jsonl").entries
    phases = [entry.tags["phase"] for entry in entries]
    assert (phases.count("train"), phases.count("eval")) == (128, 64)
    sizes: dict[Any, int] = {}
    for entry in entries:
        sizes[entry.run, entry.group] = sizes.get((entry.run, entry.group), 0) + 1
    assert sorted(sizes.values()) == [2] * 32 + [8] * 16
