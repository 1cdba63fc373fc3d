"""Audits beside a training: figures and the alarm reach the trainer, nothing of it is waited for, and it ends with the trainer."""

from __future__ import annotations

import json
import logging
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
from judgekit.trainers import AuditBeside, audit_beside

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
    assert str(caught.value).startswith(f"{Path.cwd() / 'reward.yaml'}: ")


def test_an_earlier_training_s_alarm_is_none_of_this_one(house: Callable[..., Path]) -> None:
    folder = house("one", WITH_LEDGER.replace("share: 0.5", "share: 0.5, on_alarm: stop"))
    (folder / "ledger.curve.json").write_text('{"steps": [{}], "alarm": {"step": 1}}')
    beside = AuditBeside(folder / "reward.yaml")
    assert beside.figures() == {}
    beside.close()
    assert AuditBeside.of(None) is None
    assert os.listdir(folder)


# ---- what a trainer reads of them


STEP: dict[str, Any] = {
    "step": 4,
    "recent": {"paid_wrong": 0.25, "low": 0.125, "high": 0.5, "line": 0.0625},
    "log_e": 1.5,
}
TOLD: dict[str, Any] = {"last": STEP, "alarm": None, "in_words": "", "late": 0, "steps": ["not read"]}


@pytest.fixture
def beside(
    house: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., AuditBeside]]:
    """Begin audits whose process only waits for its end; what it would find is written by the test."""
    monkeypatch.setattr(audit_beside, "_PROGRAM", "import os\nos.read(0, 1)")
    made: list[AuditBeside] = []

    def begin(more: str = "", **options: Any) -> AuditBeside:
        folder = house("one", WITH_LEDGER.replace("share: 0.5", f"share: 0.5{more}"))
        made.append(AuditBeside(folder / "reward.yaml", **options))
        return made[-1]

    yield begin
    for one in made:
        one.close()


def tell(one: AuditBeside, **changes: Any) -> None:
    new = one.curve.with_suffix(".new")
    new.write_text(json.dumps(TOLD | changes))
    new.replace(one.curve)


def test_the_last_audited_step_is_told_once_with_its_figures(
    beside: Callable[..., AuditBeside], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "judgekit")
    one = beside()
    assert one.figures() == one.latest == {}
    for text in ("", "{", '{"last": 3}'):  # just being written
        one.curve.write_text(text)
        assert one.figures() == {}
    tell(one, last=None)
    assert (one.figures(), caplog.messages) == ({}, [])
    tell(one)
    figures = {
        "paid_wrong": 0.25,
        "paid_wrong_low": 0.125,
        "paid_wrong_high": 0.5,
        "line": 0.0625,
        "log_e": 1.5,
        "alarm": 0.0,
    }
    for _ in range(3):
        assert one.figures() == {f"judgekit/audit/{name}": value for name, value in figures.items()}
    assert caplog.messages == [
        "audited step 4: judge pays 0.25 of what it may pay on rollouts that careful calls wrong (it may: 0.06)"
    ]
    tell(one, last=STEP | {"step": 5, "recent": dict.fromkeys(STEP["recent"])})
    assert one.figures() == {"judgekit/audit/log_e": 1.5, "judgekit/audit/alarm": 0.0}
    assert len(caplog.messages) == 1
    one.figures()["other"] = 1.0  # the trainer's copy
    assert "other" not in one.figures()


@pytest.mark.parametrize("on_alarm", ["warn", "stop"])
def test_an_alarm_is_told_once_and_stops_where_it_is_to(
    on_alarm: str, beside: Callable[..., AuditBeside], caplog: pytest.LogCaptureFixture
) -> None:
    one = beside(f", on_alarm: {on_alarm}")
    tell(one, alarm={"step": 4}, in_words="alarm at step 4: judge paid")
    for _ in range(3):
        if on_alarm == "stop":
            with pytest.raises(AuditAlarm, match="^alarm at step 4: judge paid$"):
                one.figures()
        else:
            assert one.figures()["judgekit/audit/alarm"] == 1.0
    tell(one, alarm={"step": 4}, in_words="alarm at step 4: judge paid more")
    one.read()
    assert caplog.messages == ["alarm at step 4: judge paid"]
    one._process.kill()  # ended after its alarm, which was said
    one._process.wait()
    one.read()
    assert caplog.messages == ["alarm at step 4: judge paid"]


def test_rollouts_that_come_too_late_are_told_once(
    beside: Callable[..., AuditBeside], caplog: pytest.LogCaptureFixture
) -> None:
    one = beside()
    for late in (0, 3, 5):
        tell(one, late=late)
        one.read()
        assert len(caplog.messages) == (late > 0)
    assert caplog.messages[0].startswith(
        "3 rollouts of the ledger are of steps that had ended, and nobody audits them"
    )


def test_a_ledger_of_which_nothing_is_audited_for_ten_steps_is_asked_about(
    beside: Callable[..., AuditBeside], caplog: pytest.LogCaptureFixture
) -> None:
    one = beside()
    for step_ in range(1, 13):
        one.figures()
        assert len(caplog.messages) == (step_ >= 10)
    assert caplog.messages[0].startswith(
        f"after 10 steps none has been audited: is the ledger {one.ledger}, "
    )


def test_nobody_is_asked_where_something_was_audited(
    beside: Callable[..., AuditBeside], caplog: pytest.LogCaptureFixture
) -> None:
    one = beside()
    tell(one, last=None)
    for _ in range(12):
        one.figures()
    assert caplog.messages == []


def test_audits_that_end_without_a_word_are_told_with_their_code(
    beside: Callable[..., AuditBeside], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = beside().ledger.parent
    for program, says in (("raise SystemExit(3)", "code 3"), ("raise SystemExit('one\\ntwo\\n')", "two")):
        caplog.clear()
        monkeypatch.setattr(audit_beside, "_PROGRAM", program)
        one = AuditBeside(folder / "reward.yaml")
        one._process.wait()
        for _ in range(12):  # after ten steps, too: it was said why nothing is audited
            one.figures()
        assert caplog.messages == [f"the audits have ended, and the training goes on without them: {says}"]
        one.close()


def test_the_process_is_asked_to_follow_the_ledger_in_a_session_of_its_own(
    beside: Callable[..., AuditBeside],
) -> None:
    one = beside()
    assert one.ledger == Path.cwd() / "ledger.jsonl"
    assert one.curve == Path.cwd() / "ledger.curve.json"
    assert one._process.args[3:] == [  # type: ignore[index]
        "audit", str(one.ledger), "--reward", str(Path.cwd() / "reward.yaml"), "--follow",
    ]  # fmt: skip
    assert os.getsid(one._process.pid) == one._process.pid  # Ctrl-C is the trainer's


def test_closing_ends_the_process_and_may_be_repeated(beside: Callable[..., AuditBeside]) -> None:
    one = beside()
    before = one._process
    assert before.poll() is None
    one.close()
    assert before.returncode == -signal.SIGTERM
    assert before.stdin is not None
    assert before.stdin.closed
    assert one._errors.closed
    one.close()


def test_a_process_that_does_not_end_is_killed(
    beside: Callable[..., AuditBeside], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit_beside, "_WAIT_S", 0.01)
    deaf = "import os, signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nprint(flush=True, file=open('deaf', 'w'))\n"
    monkeypatch.setattr(audit_beside, "_PROGRAM", deaf + "while True: signal.pause()")
    one = beside()
    until(Path("deaf").exists)
    one.close()
    assert one._process.returncode == -signal.SIGKILL


def test_another_ledger_may_be_audited_than_the_file_s(
    house: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The host writes it, with the texts, whatever the file says of one."""
    monkeypatch.setattr(audit_beside, "_PROGRAM", "pass")
    folder = house("one", REWARD)
    one = AuditBeside(folder / "reward.yaml", ledger=tmp_path / "other.jsonl")
    one.close()
    assert (one.ledger, one.curve) == (tmp_path / "other.jsonl", tmp_path / "other.curve.json")
    with pytest.raises(ConfigError, match="reward.yaml: there is no section audit"):
        AuditBeside(
            house("two", WITH_LEDGER.replace("audit:", "# audit:").replace("  careful:", "  # careful:"))
            / "reward.yaml"
        )
