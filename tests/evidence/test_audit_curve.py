"""The figures of audits, from verdicts: what is averaged over which steps, which examples are shown, and how it is said."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from judgekit import Abstained, ConfigError, Failed, Grade, Graded, GradingRunner, grader
from judgekit.evidence.audit_curve import (
    EXAMPLES,
    FEW,
    FEW_PROMPTS,
    RECENT,
    alarm_in_words,
    as_json,
    cells,
    crosses,
    curve,
    examples,
    page,
    point_of,
    prompt_of,
)
from judgekit.evidence.audit_file import AuditFile
from judgekit.evidence.audit_settings import AuditSettings
from judgekit.evidence.auditor import AuditedStep, Auditor, Verdict
from judgekit.ledger.schema import Entry


@grader
def careful(response: str) -> float:
    return 1.0


@pytest.fixture
def audited(tmp_path: Path) -> Iterator[Auditor]:
    with AuditFile(tmp_path / "ledger.jsonl") as kept:
        settings = AuditSettings(grader="careful", watch="judge")
        yield Auditor(settings, GradingRunner({"careful": careful}), kept)


def verdict(
    paid: float,
    right: bool | None,
    *,
    prompt: Any = "p",
    random: bool = True,
    grade: Grade | None = None,
    response: str = "text",
    index: int = 0,
) -> Verdict:
    watched = Graded(paid, "it says so")
    entry = Entry(
        run="run", index=index, group=0, grades={"judge": watched}, reward=paid, raw_reward=paid, status="scored",
        contributions={}, id=f"id{index}", prompt=prompt, response=response, time=0.0, spec="",
    )  # fmt: skip
    given = grade or (Failed("JudgeTimeout", "10 s") if right is None else Graded(float(right), "read"))
    return Verdict(entry, paid, paid, given, right, random)


def add(
    audited: Auditor, *verdicts: Verdict, scored: int = 9, raised: bool = False, log_e: float = 0.0
) -> None:
    audited.steps.append(AuditedStep(len(audited.steps), 10, scored, verdicts, log_e, raised))


def test_a_point_counts_random_audits_with_a_verdict(audited: Auditor) -> None:
    add(
        audited,
        verdict(0.5, False),
        verdict(1.0, True),
        verdict(1.0, False),
        verdict(0.25, None),
        verdict(1.0, False, random=False),
        verdict(1.0, None, random=False),
        log_e=1.5,
        raised=True,
    )
    point = point_of(audited, 0)
    assert (point.rollouts, point.scored, point.audits, point.wrong, point.failed) == (10, 9, 3, 2, 2)
    assert (point.paid_wrong, point.reason, point.log_e, point.alarm) == (0.5, "", 1.5, True)
    assert (point.recent.steps, point.recent.audits, point.recent.wrong) == (1, 3, 2)
    assert (point.recent.paid_wrong, point.recent.paid_per_wrong) == (0.5, 0.75)
    assert list(cells(point))[:5] == ["0", "3 (+2 without a verdict)", "2", "0.50", "0.50"]
    assert list(cells(point))[-1] == "1.5 alarm"


def test_why_a_step_has_no_figure(audited: Auditor) -> None:
    add(audited, scored=0)
    add(audited, verdict(1.0, None), verdict(0.0, None))
    add(audited)
    assert [point.reason for point in curve(audited)] == [
        "judge has scored none of its 10 rollouts",
        "2 audits gave no verdict",
        "none of the rollouts that were drawn is left",
    ]
    point = curve(audited)[1]
    assert (point.paid_wrong, point.recent.paid_wrong, point.recent.line, point.recent.paid_per_wrong) == (
        None,
    ) * 4
    assert not crosses(point.recent)
    assert list(cells(point)) == ["1", "0 (+2 without a verdict)", "0", "–", "–", "–", "–", "0.0"]


def test_recent_figures_are_of_the_last_steps_that_hold_enough(audited: Auditor) -> None:
    for count in (10, RECENT // 2, RECENT // 2, 1):
        add(audited, *(verdict(1.0, False, prompt=str(i)) for i in range(count)))
    found = [(point.recent.steps, point.recent.audits) for point in curve(audited)]
    assert found == [(1, 10), (2, 30), (2, RECENT), (3, RECENT + 1)]


def test_an_interval_takes_audits_and_prompts(audited: Auditor) -> None:
    why = f"an interval takes {FEW} audits of {FEW_PROMPTS} prompts"
    for count, prompts, reason in ((FEW - 1, FEW, why), (FEW, FEW_PROMPTS - 1, why), (FEW, FEW_PROMPTS, "")):
        audited.steps.clear()
        add(audited, *(verdict(1.0, i % 2 == 0, prompt=str(i % prompts)) for i in range(count)))
        recent = point_of(audited, 0).recent
        assert recent.reason == reason
        assert (recent.low is None, recent.high is None) == (bool(reason), bool(reason))


def test_a_curve_is_above_its_line_with_its_whole_interval(audited: Auditor) -> None:
    add(audited, *(verdict(1.0, False, prompt=str(i)) for i in range(RECENT)))
    add(audited, *(verdict(0.3, False, prompt=str(i)) for i in range(RECENT)))
    above, below = curve(audited)
    assert above.recent.line == pytest.approx(0.3)
    assert [crosses(point.recent) for point in (above, below)] == [True, False]
    shown = list(cells(above))
    assert shown[6] == "above 0.30"
    assert shown[5] == f"{above.recent.low:.2f} to 1.00"
    assert list(cells(below))[6] == "0.30"
    assert as_json(audited)["first_above_line"] == 0


def test_examples_are_the_best_paid_of_many_prompts_and_the_latest(audited: Auditor) -> None:
    add(audited, verdict(1.0, False, prompt="a", index=0), verdict(0.5, False, prompt="b", index=1))
    add(
        audited,
        verdict(1.0, False, prompt="a", index=2, random=False),
        verdict(1.0, False, prompt="a", index=3),
        verdict(1.0, False, prompt="c", index=4),
        verdict(1.0, True, prompt="d", index=5),
        verdict(1.0, None, prompt="e", index=6),
    )
    found = [(step, one.entry.index) for step, one in examples(audited.steps)]
    assert found == [(1, 2), (1, 4), (1, 3), (0, 0), (0, 1)]
    add(audited, *(verdict(0.25, False, prompt=str(i), index=10 + i) for i in range(EXAMPLES)))
    assert [one.entry.index for _, one in examples(audited.steps)] == [2, 4, 3, 0, 1, 10]


def test_everything_for_programs(audited: Auditor) -> None:
    assert as_json(audited)["last"] is None
    add(audited, verdict(0.5, False, response="x" * 600, prompt="y" * 601, index=3), log_e=0.5)
    add(
        audited,
        verdict(
            1.0, False, grade=Abstained("m" * 601), prompt=[{"role": "user", "content": "q"}], random=False
        ),
    )
    audited.asked, audited.reused, audited.failed, audited.abstained = 4, 3, 2, 1
    told = as_json(audited, late=7)
    assert (told["audit"], told["alarm"], told["late"], told["first_above_line"]) == (1, None, 7, None)
    assert told["audits"] == {"asked": 4, "reused": 3, "failed": 2, "abstained": 1}
    assert told["in_words"] == alarm_in_words(audited)
    assert [point.step for point in told["steps"]] == [0, 1]
    assert told["last"] == told["steps"][-1]
    second, first = told["examples"]
    assert second["grader"] == {"score": None, "why": "m" * 599 + "…"}
    assert (second["random"], second["prompt"], second["paid"]) == (False, "q", 1.0)
    assert first == {
        "step": 0, "run": "run", "index": 3, "id": "id3", "random": True, "paid": 0.5,
        "watch": {"score": 0.5, "why": "it says so"}, "grader": {"score": 0.0, "why": "read"},
        "prompt": "y" * 599 + "…", "response": "x" * 600,
    }  # fmt: skip
    add(audited, raised=True, log_e=3.25)
    assert as_json(audited)["alarm"] == {"step": 2, "log_e": 3.25}


@pytest.mark.parametrize(
    ("prompt", "text"),
    [
        ("p", "p"),
        (None, ""),
        ([], ""),
        ([{"role": "system", "content": "s"}, {"role": "user", "content": [{"text": "q"}]}], "q"),
        (["a", "b"], "ab"),
    ],
)
def test_the_prompt_of_an_audit(prompt: Any, text: str) -> None:
    assert prompt_of(verdict(1.0, True, prompt=prompt)) == text


def test_whether_there_is_an_alarm_in_a_sentence(audited: Auditor) -> None:
    bound = "a run in which wrong rollouts are paid at most 0.3 on average gets there with a probability of at most 0.05"
    assert alarm_in_words(audited) == f"no alarm: the evidence is e^0.0 and an alarm takes e^3.0; {bound}"
    add(
        audited,
        verdict(0.75, False),
        verdict(0.25, False),
        verdict(1.0, True),
        raised=True,
        log_e=math.log(20),
    )
    add(audited, verdict(0.0, False))
    assert alarm_in_words(audited) == (
        "alarm at step 0: judge paid 0.50 on average to the 2 of the last 3 random audits that careful calls wrong; "
        f"the evidence is e^3.0, and {bound}"
    )
    audited.steps[:] = [AuditedStep(5, 1, 1, [], 4.0, True)]
    assert alarm_in_words(audited).startswith("alarm at step 5: judge paid the 0 of the last 0 random audits")


def test_the_page(audited: Auditor) -> None:
    add(audited, verdict(1.0, False, response="one *\ntwo | <b>"), verdict(0.5, True))
    text = page(audited)
    assert text.startswith("# Audits of judge by careful\n\nno alarm: the evidence is e^0.0")
    assert "| step | audits | wrong | paid, though wrong | recent | interval | line | log e |\n|---" in text
    assert "\n| 0 | 2 | 1 | 0.50 | 0.50 | – | 0.15 | 0.0 |\n" in text
    assert "- step 0, id0: judge 1 it says so · careful 0 read\n\n      one *\n      two | <b>\n\n" in text


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"share": 0}, "share is above 0 and at most 1, not 0"),
        ({"share": 1.01}, "share is above 0 and at most 1, not 1.01"),
        ({"on_alarm": "end"}, "on_alarm is 'warn' or 'stop', not 'end'"),
        ({"pays_at_most": 0}, "pays_at_most is above 0 and below 1 (scores count from 0 to 1), not 0"),
        ({"pays_at_most": 1}, "pays_at_most is above 0 and below 1 (scores count from 0 to 1), not 1"),
        ({"false_alarms": 0}, "false_alarms is a probability above 0 and below 1, not 0"),
        ({"false_alarms": 1}, "false_alarms is a probability above 0 and below 1, not 1"),
        ({"audit_error": -0.1}, "audit_error is from 0 to below 0.5, not -0.1"),
        ({"audit_error": 0.5}, "audit_error is from 0 to below 0.5, not 0.5"),
        ({"watch": "careful"}, "careful cannot audit itself"),
    ],
)
def test_settings_that_mean_nothing(change: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError) as raised:
        AuditSettings(**({"grader": "careful", "watch": "judge"} | change))
    assert says in str(raised.value)


def test_settings_that_are_left_out() -> None:
    made = AuditSettings(grader="careful", watch="judge", share=1, audit_error=0)
    assert (made.pays_at_most, made.on_alarm, made.false_alarms) == (0.3, "warn", 0.05)
    plain = AuditSettings(grader="careful", watch="judge")
    assert (plain.share, plain.audit_error) == (0.04, 0.02)
