"""Audits beside a training: figures and the alarm reach the trainer, nothing of it is waited for, and it ends with the trainer."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from judgekit import ConfigError
from judgekit.config import load_runner
from judgekit.errors import AuditAlarm
from judgekit.trainers import AuditBeside

from ..evidence.audited_runs import REWARD, asked, folder_of, step

WITH_LEDGER = REWARD + "ledger: {path: ledger.jsonl, texts: true}\n"


@pytest.fixture
def house(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Path]]:
    """Make a folder with a reward.yaml, whose modules are its own, and go there."""
    before = [*sys.path]

    def make(name: str, text: str = WITH_LEDGER) -> Path:
        (tmp_path / name).mkdir()
        monkeypatch.setattr(sys, "path", [*before])
        sys.modules.pop("audit_graders", None)
        monkeypatch.chdir(tmp_path / name)
        return folder_of(tmp_path / name, text)

    yield make
    sys.modules.pop("audit_graders", None)


def until(done: Callable[[], Any], within_s: float = 120.0) -> Any:
    end = time.monotonic() + within_s
    while not (found := done()):
        assert time.monotonic() < end
        time.sleep(0.05)
    return found


def train(
    folder: Path, steps: int, *, hacked_from: int = 1000, beside: AuditBeside | None = None
) -> list[Any]:
    """Grade the steps of a training as a host does; after each, wait for its figures if something audits."""
    runner = load_runner(folder / "reward.yaml")
    rewards = []
    for number in range(steps):
        rollouts = step(number, hacked=number >= hacked_from, prompts=16)
        results = runner.run_sync(rollouts, tags={"step": number})
        rewards.append([result.reward for result in results])
        assert runner.ledger is not None
        runner.ledger.flush()
        if beside is not None and number:
            until(lambda n=number: f'"step":{n - 1},"rollouts"' in _text(beside.curve))  # type: ignore[misc]
            beside.figures()
    return rewards


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


def test_a_hacked_training_is_stopped_and_a_healthy_one_is_not(house: Callable[..., Path]) -> None:
    for name, hacked_from in (("hacked", 3), ("healthy", 1000)):
        folder = house(name, WITH_LEDGER.replace("share: 0.5", "share: 0.5, on_alarm: stop"))
        beside = AuditBeside.of(folder / "reward.yaml")
        assert beside is not None
        try:
            if name == "hacked":
                with pytest.raises(AuditAlarm, match="alarm at step [3-9]: judge paid"):
                    train(folder, 12, hacked_from=hacked_from, beside=beside)
            else:
                train(folder, 8, beside=beside)
                figures = beside.figures()
                assert figures["judgekit/audit/alarm"] == 0
                assert figures["judgekit/audit/paid_wrong"] == 0
                assert figures["judgekit/audit/log_e"] < 0.1
        finally:
            beside.close()
        assert asked(folder)


def test_rewards_are_those_without_audits(house: Callable[..., Path]) -> None:
    found = []
    without = WITH_LEDGER.replace("audit:", "# audit:").replace("  careful:", "  # careful:")
    for name, text in (("with", WITH_LEDGER), ("without", without)):
        folder = house(name, text)
        beside = AuditBeside.of(folder / "reward.yaml")
        assert (beside is None) == (name == "without")
        found.append(train(folder, 4, hacked_from=2, beside=beside))
        if beside is not None:
            beside.close()
    assert found[0] == found[1]


def test_an_alarm_that_only_warns_is_told_once(
    house: Callable[..., Path], caplog: pytest.LogCaptureFixture
) -> None:
    folder = house("one")
    beside = AuditBeside(folder / "reward.yaml")
    try:
        train(folder, 9, hacked_from=2, beside=beside)
    finally:
        beside.close()
    assert sum(record.message.startswith("alarm at step") for record in caplog.records) == 1
    assert "nobody audits them" not in caplog.text


def test_audits_that_cannot_go_on_are_told_and_the_training_goes_on(
    house: Callable[..., Path], caplog: pytest.LogCaptureFixture
) -> None:
    folder = house("one")
    (folder / "ledger.audits.jsonl").write_text('{"type": "mark"}\n')
    beside = AuditBeside(folder / "reward.yaml")
    try:
        until(lambda: beside._process.poll() is not None)
        for _ in range(3):
            assert beside.figures() == {}
    finally:
        beside.close()
    (record,) = [record for record in caplog.records if "the audits have ended" in record.message]
    assert "ledger.audits.jsonl, line 1: not an audit" in record.message


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_they_end_with_the_trainer(house: Callable[..., Path], how: signal.Signals) -> None:
    folder = house("one")
    program = (
        "import time\nfrom judgekit.trainers import AuditBeside\nbeside = AuditBeside('reward.yaml')\n"
        "print(beside._process.pid, flush=True)\ntime.sleep(600)\n"
    )
    trainer = subprocess.Popen([sys.executable, "-c", program], cwd=folder, stdout=subprocess.PIPE, text=True)
    assert trainer.stdout is not None
    audits = int(trainer.stdout.readline())
    trainer.send_signal(how)
    trainer.wait()
    trainer.stdout.close()
    until(lambda: not _runs(audits))


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (REWARD, "add ledger: {path: ledger.jsonl, texts: true}"),
        (REWARD + "ledger: {path: ledger.jsonl}\n", "add ledger: {path: ledger.jsonl, texts: true}"),
        (WITH_LEDGER.replace("watch: judge", "watch: jugde"), "audit.watch: no grader is called 'jugde'"),
    ],
)
def test_what_cannot_be_audited_is_said_before_anything_starts(
    house: Callable[..., Path], text: str, says: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        AuditBeside.of(house("one", text) / "reward.yaml")
    assert says in str(caught.value)


def test_an_earlier_training_s_alarm_is_none_of_this_one(house: Callable[..., Path]) -> None:
    folder = house("one", WITH_LEDGER.replace("share: 0.5", "share: 0.5, on_alarm: stop"))
    (folder / "ledger.curve.json").write_text('{"steps": [{}], "alarm": {"step": 1}}')
    beside = AuditBeside(folder / "reward.yaml")
    assert beside.figures() == {}
    beside.close()
    assert AuditBeside.of(None) is None
    assert os.listdir(folder)
