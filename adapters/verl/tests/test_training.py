"""verl's own trainer, `python -m verl.trainer.main_ppo`, on CPU, with rules and a vLLM judge over HTTP."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

from judgekit import Failed, Graded, read_ledger
from judgekit_verl import join_dump
from train_on_cpu import reward_file, train

VLLM = Path(sys.prefix).parent / "vllm" / "bin" / "python"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """The embedded judge on a vLLM server, in vLLM's own environment."""
    if not VLLM.exists():
        pytest.skip("the vllm environment is not made (make env-vllm)")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [str(VLLM), "-m", "judgekit", "serve", "--name", f"verl-test-{port}", "--port", str(port)]
    with (tmp_path / "serve.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        for _ in range(240):
            time.sleep(0.5)
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=2)
                break
            except OSError:
                assert process.poll() is None, (tmp_path / "serve.log").read_text()
        yield f"http://127.0.0.1:{port}/v1", process
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


def test_it_learns_and_outlives_its_judge(
    server: tuple[str, subprocess.Popen[bytes]], tmp_path: Path
) -> None:
    """The score rises; then the judge is killed, and from there on no reward is a number that nobody gave."""
    url, process = server
    killed: list[str] = []

    def kill_at_step_10(line: str) -> None:
        if "step:10 " in line and not killed:
            killed.append(line)
            process.send_signal(signal.SIGTERM)

    status, scores, text = train(
        tmp_path / "run", reward_file(tmp_path, url), steps=14, seed=0, on_line=kill_at_step_10
    )
    assert status == 0, text[-4000:]
    assert len(scores) == 14
    assert fmean(scores[5:10]) > fmean(scores[:5]), scores
    assert killed
    assert "rewards are missing" in text  # the driver's line
    assert "grader 'judge' failed on" in text
    entries = read_ledger(tmp_path / "ledger.jsonl").entries
    assert len(entries) == 14 * 4 * 8
    graded = [e for e in entries if isinstance(e.grades["judge"], Graded)]
    failed = [e for e in entries if isinstance(e.grades["judge"], Failed)]
    assert len(graded) >= 10 * 4 * 8
    assert failed
    for entry in failed:
        assert (entry.status, entry.reward) == ("excluded", None)
        assert entry.missing == ["judge"]
    joined = list(join_dump(tmp_path / "ledger.jsonl", tmp_path / "run" / "dump"))
    assert len(joined) == len(entries)
    for row, entry in joined:
        assert entry is not None
        if entry.reward is not None:
            assert entry.reward == pytest.approx(row["score"], abs=1e-5)
        assert entry.tags == {"global_steps": row["step"]}


def test_a_judge_that_stays_away_ends_it_with_the_reason(tmp_path: Path) -> None:
    file = reward_file(tmp_path, "http://127.0.0.1:9/v1")
    file.write_text(file.read_text().replace("timeout_s: 20", "timeout_s: 20, max_failure_rate: 0.5"))
    status, scores, text = train(tmp_path / "run", file, steps=6, seed=0)
    assert status != 0
    assert len(scores) < 6
    assert "FailureRateError" in text
    assert "grader 'judge' failed on 32 of 32 rollouts" in text


def series(text: str, name: str) -> list[float]:
    return [float(x) for x in re.findall(rf"[ \-]{name}:(?:np\.float64\()?([-\d.e]+)", text)]


def trained_on(entries: Any, step: int | None) -> list[float]:
    """Rewards of the rollouts that an estimator can compare: of groups with two rewards at least."""
    of_step = [entry for entry in entries if step is None or entry.tags["global_steps"] == step]
    valid = Counter(entry.group for entry in of_step if entry.reward is not None)
    return [entry.reward for entry in of_step if entry.reward is not None and valid[entry.group] > 1]


@pytest.mark.parametrize("down", ["half", "all"])
def test_rollouts_without_a_reward_are_not_trained_on(tmp_path: Path, down: str) -> None:
    """With half of the judge's answers missing the policy learns; with all of them it stays as it is."""
    file = reward_file(tmp_path, None)
    grader = {"half": "half_down", "all": "always_down"}[down]
    text = file.read_text().replace(
        "reward: {weighted: {letters: 1}}", "reward: {weighted: {letters: 1, judge: 0.1}}"
    )
    file.write_text(text.replace("reward:", f"  judge: {{use: 'graders_for_tests:{grader}'}}\nreward:", 1))
    status, scores, text = train(tmp_path / "run", file, steps=2, seed=0)
    assert status == 0, text[-4000:]
    assert len(scores) == 2
    norms = [float(x) for x in re.findall(r"actor/grad_norm:(?:np\.float64\()?([-\d.e]+)", text)]
    assert len(norms) == 2
    curves = [float(x) for x in re.findall(r"judgekit/letters/mean:(?:np\.float64\()?([-\d.e]+)", text)]
    assert len(curves) == 2  # a figure of ours at each step, among verl's own
    entries = read_ledger(tmp_path / "ledger.jsonl").entries
    missing = [entry for entry in entries if entry.status == "excluded"]
    rates = series(text, "judgekit/excluded_rate")
    assert len(rates) == 2
    for step, rate in enumerate(rates, 1):
        of_step = [entry for entry in entries if entry.tags["global_steps"] == step]
        gone = [entry for entry in of_step if entry.status == "excluded"]
        assert rate == pytest.approx(len(gone) / len(of_step))
    if down == "half":  # verl's own curve is over what was graded and trained on, too
        assert "judgekit/live_share" in text
        for step, curve in enumerate(series(text, "critic/score/mean"), 1):
            assert curve == pytest.approx(fmean(trained_on(entries, step)), abs=1e-5)
    else:
        assert series(text, "judgekit/live_share") == [0, 0]
    if down == "all":
        assert len(missing) == len(entries)
        assert norms == [0, 0]
    else:
        assert 8 <= len(missing) <= 56
        assert min(norms) > 0


def test_figures_of_every_step_in_v0(tmp_path: Path) -> None:
    """Under the one name that this trainer leaves open; rewards are missing there, too, and the policy learns."""
    file = reward_file(tmp_path, None)
    text = file.read_text().replace(
        "reward: {weighted: {letters: 1}}", "reward: {weighted: {letters: 1, judge: 0.1}}"
    )
    file.write_text(text.replace("reward:", "  judge: {use: 'graders_for_tests:half_down'}\nreward:", 1))
    overrides = ("trainer.use_v1=False", "algorithm.adv_estimator=judgekit_grpo")
    status, scores, printed = train(tmp_path / "run", file, steps=2, seed=0, overrides=overrides)
    assert status == 0, printed[-4000:]
    assert len(scores) == 2
    figures = [
        dict(re.findall(r"timing_s/judgekit/([\w/]+):(?:np\.float64\()?([-\d.e]+)", line))
        for line in printed.splitlines()
        if "critic/score/mean" in line
    ]
    entries = read_ledger(tmp_path / "ledger.jsonl").entries
    for step, found in enumerate(figures):
        of_step = entries[32 * step : 32 * step + 32]
        gone = [entry for entry in of_step if entry.status == "excluded"]
        assert float(found["excluded_rate"]) == pytest.approx(len(gone) / 32)
        trained = trained_on(of_step, None)
        assert float(found["live_share"]) == pytest.approx(len(trained) / 32)
        assert scores[step] == pytest.approx(fmean(trained), abs=1e-5)  # verl's own curve
        assert float(found["judge/failure_rate"]) == pytest.approx(len(gone) / 32)
        assert 0 <= float(found["letters/mean"]) <= 1


PLEASED = """\
from judgekit import grader

@grader
def judge(response: str) -> float:
    return 1.0

@grader
def careful(response: str) -> float:
    return 0.0
"""


def test_audits_end_a_training_whose_judge_pays_what_is_wrong(tmp_path: Path) -> None:
    (tmp_path / "pleased_by_all.py").write_text(PLEASED)
    file = tmp_path / "reward.yaml"
    file.write_text(
        "graders:\n  judge: {use: 'pleased_by_all:judge'}\n  careful: {use: 'pleased_by_all:careful'}\n"
        "reward: {weighted: {judge: 1}}\naudit: {grader: careful, watch: judge, share: 0.5, on_alarm: stop}\n"
        f"ledger: {{path: {tmp_path / 'ledger.jsonl'}, texts: true}}\n"
    )
    status, scores, text = train(tmp_path / "run", file, steps=40, seed=0)
    assert status != 0
    assert "AuditAlarm: alarm at step" in text
    assert 2 <= len(scores) < 40
