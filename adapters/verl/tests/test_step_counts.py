"""What the driver is told of each step, the last one included."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from judgekit import AuditAlarm, Failed, FailureRateError, Graded
from judgekit.trainers import Counts
from judgekit.types import RewardResult
from judgekit_verl import step_counts
from judgekit_verl.step_counts import StepWatch, _StepCounts


def counts(failed: int, of: int) -> Counts:
    made = Counts()
    for i in range(of):
        grade: Any = (
            Failed(error="JudgeTimeout", detail="", cause="infrastructure")
            if i < failed
            else Graded(score=1.0)
        )
        made.add(
            RewardResult(
                index=i,
                group="g",
                reward=1.0,
                status="neutral" if i < failed else "scored",
                raw_reward=None,
                contributions={},
                grades={"judge": grade},
                missing=(),
                policies=(),
                wall_s=0.0,
            )
        )
    return made


@pytest.fixture
def actor(monkeypatch: Any) -> Any:
    state = _StepCounts()
    monkeypatch.setattr(step_counts.ray, "get", lambda value: value)
    state_as_actor = SimpleNamespace(state=state, take=SimpleNamespace(remote=state.take))
    monkeypatch.setattr(StepWatch, "_follow", lambda self: None)  # the tests poll by themselves
    return state_as_actor


def test_a_step_counts_as_a_whole(actor: Any) -> None:
    """One failed of each prompt's four is 25 %; two of each are 50 %, in one batch or in eight."""
    watch = StepWatch(actor, 0.3)
    for _ in range(8):
        watch.begin(1, 4)
        actor.state.add(counts(1, 4))
        watch.poll()
    for _ in range(8):
        watch.begin(2, 4)
        actor.state.add(counts(2, 4))
        watch.poll()
    with pytest.raises(FailureRateError, match="judge 50.0 %"):
        watch.begin(3, 4)


def test_the_last_step_is_told(actor: Any, caplog: Any) -> None:
    watch = StepWatch(actor, 0.2)
    watch.begin(1, 32)
    actor.state.add(counts(16, 31))
    watch.poll()
    watch.poll()
    assert not caplog.text
    actor.state.add(counts(0, 1))
    watch.poll()
    watch.poll()
    assert "failed on 16 of 32" in caplog.text
    assert "max_failure_rate=0.2" in caplog.text
    with pytest.raises(FailureRateError):
        watch.begin(2, 32)


def test_a_worker_that_cannot_go_on_is_told_at_once(actor: Any, caplog: Any) -> None:
    watch = StepWatch(actor, None)
    watch.begin(1, 32)
    actor.state.fatal("ConfigError: the column reference is missing")
    watch.poll()
    assert "the column reference is missing" in caplog.text
    with pytest.raises(RuntimeError, match="the column reference is missing"):
        watch.begin(1, 32)


def test_an_alarm_of_the_audits_ends_it_at_the_next_step(actor: Any) -> None:
    told: list[Any] = [{}, {"judgekit/audit/log_e": 0.5}, AuditAlarm("alarm at step 2")]

    def figures() -> dict[str, float]:
        found = told.pop(0)
        if isinstance(found, Exception):
            raise found
        return found  # type: ignore[no-any-return]

    watch = StepWatch(actor, None, audits=SimpleNamespace(figures=figures))  # type: ignore[arg-type]
    watch.begin(1, 4)
    watch.begin(1, 4)  # of one step, they are asked once
    watch.begin(2, 8)
    assert watch.figures()["judgekit/audit/log_e"] == 0.5
    with pytest.raises(AuditAlarm, match="alarm at step 2"):
        watch.begin(3, 8)
