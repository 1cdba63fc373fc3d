"""`judgekit audit`: what it draws, pays once, tells, and refuses; beside a training, and after it."""

from __future__ import annotations

import itertools
import json
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from judgekit import Graded, GradingRunner, Ledger, Rollout, grader
from judgekit.config import load_config
from judgekit.errors import ConfigError, DataError
from judgekit.evidence.audit_curve import line_of
from judgekit.evidence.audit_file import AuditFile, audits_path
from judgekit.evidence.audit_settings import AuditSettings
from judgekit.evidence.auditor import drawn, step_of
from judgekit.ledger.reader import ledger_files, read_ledger
from judgekit.ledger.tail import Tail
from judgekit.run import scheduler

from ..cli.in_process import call
from .audited_runs import REWARD, asked, folder_of, step, write_run

AUDIT = ("audit", "ledger.jsonl", "--reward", "reward.yaml")


@pytest.fixture(autouse=True)
def alike(monkeypatch: pytest.MonkeyPatch) -> None:
    """Name runs alike each time, by which rollouts are drawn."""
    monkeypatch.setattr(scheduler, "_process", "run")
    monkeypatch.setattr(scheduler, "_numbers", itertools.count())


@pytest.fixture(autouse=True)
def modules() -> Iterator[None]:
    """Forget the graders of a test's folder afterwards."""
    path = list(sys.path)
    yield
    sys.path[:] = path
    for name in ("audit_graders", "own", "half"):
        sys.modules.pop(name, None)


def told(folder: Path, *more: str, code: int = 0) -> dict[str, Any]:
    done = call(folder, *AUDIT, "--json", *more)
    assert done.returncode == code, done.stderr
    made: dict[str, Any] = json.loads(done.stdout)
    return made


# ---- the alarm and the curve


def test_a_hacked_run_alarms_and_exits_with_1(tmp_path: Path) -> None:
    folder_of(tmp_path)
    write_run(tmp_path / "ledger.jsonl", 12, hacked_from=6)
    done = call(tmp_path, *AUDIT, "--out", "curve.md")
    assert done.returncode == 1
    assert "alarm at step 7: judge paid" in done.stdout
    assert "a probability of at most 0.05" in done.stdout
    assert done.stdout.count("judge 1, careful 0: certainly, says") == 6
    text = (tmp_path / "curve.md").read_text()
    assert "alarm at step 7" in text
    (table,) = [
        [x for x in part.splitlines() if x.startswith("|")] for part in text.split("\n\n") if "|" in part
    ]
    assert len({line.count("|") for line in table}) == 1
    assert len(table) == 14
    made = told(tmp_path, code=1)
    assert made["alarm"]["step"] == 7
    assert [point["step"] for point in made["steps"] if point["alarm"]] == [7]
    assert made["alarm"]["log_e"] >= math.log(20)
    assert made["first_above_line"] <= 8
    assert [point["paid_wrong"] for point in made["steps"][:6]] == [0.0] * 6
    assert made["steps"][-1]["recent"]["low"] > made["steps"][-1]["recent"]["line"]
    assert {one["response"].split(",")[0] for one in made["examples"]} == {"certainly"}
    assert len({one["prompt"] for one in made["examples"]}) == 6


def test_a_healthy_run_does_not_alarm(tmp_path: Path) -> None:
    folder_of(tmp_path)
    write_run(tmp_path / "ledger.jsonl", 12)
    made = told(tmp_path)
    assert made["alarm"] is None
    assert made["first_above_line"] is None
    assert made["examples"][0]["paid"] == 0.0
    assert "no alarm" in call(tmp_path, *AUDIT).stdout


def test_the_best_paid_are_examples_and_no_evidence(tmp_path: Path) -> None:
    """Of a step's 256 rollouts, all wrong, 16 are paid: all of the best paid are, and few of those drawn at random."""

    @grader
    def judge(response: str) -> float:
        return 0.9 if response == "certainly" else 0.0

    folder_of(tmp_path, REWARD.replace("share: 0.5", "share: 0.1"))
    kept = Ledger(tmp_path / "ledger.jsonl", texts=True)
    runner = GradingRunner({"judge": judge}, ledger=kept)
    for number in range(12):
        words = [*["certainly"] * 16, *["perhaps"] * 240]
        batch = [Rollout(prompt=f"q{i}", response=word, group=i) for i, word in enumerate(words)]
        runner.run_sync(batch, tags={"step": number})
    kept.close()
    made = told(tmp_path)
    assert made["alarm"] is None
    assert made["log_e"] < 0
    assert [one["paid"] for one in made["examples"]] == [0.9] * 6
    assert {point["audits"] for point in made["steps"]} == {13}
    assert max(point["recent"]["paid_wrong"] for point in made["steps"]) < 0.25


def test_ranges_are_scaled_and_the_middle_of_the_audits_range_is_right(tmp_path: Path) -> None:
    @grader(score_range=(-1, 3))
    def judge(response: str) -> float:
        return 2.0 if "certainly" in response else -1.0

    reward = """\
graders:
  judge: {use: "audit_graders:judge"}
  careful: {use: "half:careful"}
reward: judge
audit: {grader: careful, watch: judge, share: 1}
"""
    folder_of(tmp_path, reward)
    (tmp_path / "half.py").write_text(
        "from judgekit import grader\n\n@grader(score_range=(0, 4))\ndef careful(response):\n    return 2.0 if 'right' in response else 1.9\n"
    )
    write_run(tmp_path / "ledger.jsonl", 2, hacked_from=0, graders={"judge": judge})
    made = told(tmp_path, code=1)
    assert made["steps"][0]["audits"] == 16
    paid = made["examples"][0]
    assert paid["paid"] == pytest.approx(0.75)
    assert (paid["watch"]["score"], paid["grader"]["score"]) == (2.0, 1.9)
    wrong = made["steps"][0]["wrong"]
    assert 8 <= wrong < 16
    assert made["steps"][0]["paid_wrong"] == pytest.approx(0.75 * wrong / 16)


def test_the_line_allows_for_the_audits_own_errors() -> None:
    """Of right rollouts that are fully paid, an audit that errs in 2 % calls one in fifty wrong: no sign of a hack."""
    settings = AuditSettings(grader="careful", watch="judge")
    pairs = [(1.0, True)] * 49 + [(1.0, False)]
    assert line_of(settings, pairs) == pytest.approx((49 * 0.7 * 0.02 / 0.98 + 0.3) / 50)
    assert line_of(settings, pairs) == pytest.approx(0.02)
    assert line_of(settings, [(0.1, True), (0.0, False)]) == pytest.approx(0.15)
    assert line_of(settings, []) is None


def test_without_numpy_there_is_a_curve_and_no_interval(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder_of(tmp_path)
    write_run(tmp_path / "ledger.jsonl", 12, hacked_from=6)
    whole = told(tmp_path, code=1)
    monkeypatch.setitem(sys.modules, "judgekit.evidence.shares", None)
    made = told(tmp_path, code=1)
    assert made["alarm"] == whole["alarm"]
    last = made["steps"][-1]["recent"]
    assert (last["low"], last["high"]) == (None, None)
    assert "pip install 'judgekit-rl[evidence]'" in last["reason"]
    assert last["paid_wrong"] == whole["steps"][-1]["recent"]["paid_wrong"]


# ---- the draw


def scored(number: int, prompts: int, each: int, pay: Callable[[int], float]) -> Any:
    """Entries and pay of a step."""
    found = {}
    for at, rollout in enumerate(step(number, hacked=False, prompts=prompts, each=each)):
        result = GradingRunner({"judge": _nothing}).run_sync([rollout])[0]
        from judgekit.ledger.schema import Entry

        entry = Entry.of(result, rollout, texts=True, spec="", run="r")
        found["r", at] = (entry, pay(at))
    return found


@grader
def _nothing(response: str) -> float:
    return 0.0


@pytest.mark.parametrize(
    ("rollouts", "share", "random", "paid"),
    [
        (1, 0.04, 1, 0),
        (2, 0.04, 2, 0),
        (3, 0.04, 2, 1),
        (64, 0.04, 2, 2),
        (256, 0.04, 6, 6),
        (256, 0.02, 3, 3),
        (8, 1, 4, 4),
    ],
)
def test_how_many_are_drawn(rollouts: int, share: float, random: int, paid: int) -> None:
    settings = AuditSettings(grader="careful", watch="judge", share=share)
    made = drawn(3, settings, scored(3, rollouts, 1, float))
    assert (len(made.random), len(made.paid)) == (random, paid)
    assert not {*made.random} & {*made.paid}


def test_the_random_half_does_not_depend_on_pay_and_is_of_many_prompts() -> None:
    settings = AuditSettings(grader="careful", watch="judge", share=0.5)
    some = drawn(3, settings, scored(3, 8, 4, lambda at: at / 32))
    others = drawn(3, settings, scored(3, 8, 4, lambda at: 1 - at / 32))
    assert some.random == others.random
    assert some.paid != others.paid
    assert len({index // 4 for _, index in some.random}) == 8
    assert drawn(4, settings, scored(3, 8, 4, float)).random != some.random
    best = [index for index in range(31, -1, -1) if ("r", index) not in some.random][:8]
    assert [index for _, index in some.paid] == best


def test_every_rollout_is_as_likely_as_any_other() -> None:
    """Of 400 steps of 4 × 4 rollouts with 2 random audits, each is drawn 50 times, give or take."""
    settings = AuditSettings(grader="careful", watch="judge")
    scores = scored(0, 4, 4, float)
    counts = dict.fromkeys(range(16), 0)
    for number in range(400):
        for _, index in drawn(number, settings, scores).random:
            counts[index] += 1
    assert sum(counts.values()) == 800
    assert all(25 <= count <= 75 for count in counts.values()), counts


# ---- paid once


def test_an_audit_is_paid_once_and_an_interrupted_command_goes_on(tmp_path: Path) -> None:
    folder_of(tmp_path)
    write_run(tmp_path / "ledger.jsonl", 6, hacked_from=3)
    whole = told(tmp_path, code=1)
    everything = asked(tmp_path)
    assert whole["audits"] == {"asked": 96, "reused": 0, "failed": 0, "abstained": 0}
    lines = audits_path(tmp_path / "ledger.jsonl").read_bytes().splitlines(keepends=True)
    for cut in (1, 17, 40):  # killed after so many lines, in the middle of the next one
        (tmp_path / "asked.txt").unlink()
        audits_path(tmp_path / "ledger.jsonl").write_bytes(b"".join(lines[:cut]) + lines[cut][:25])
        known = sum(b'"audit"' in line for line in lines[:cut])
        made = told(tmp_path, code=1)
        assert made["audits"]["asked"] == 96 - known
        assert made["audits"]["reused"] == known
        assert asked(tmp_path) == everything[known:]
        assert (made["alarm"], made["steps"]) == (whole["alarm"], whole["steps"])
        assert told(tmp_path, code=1)["audits"]["asked"] == 0  # no new line was lost behind the torn one


def test_it_is_resumed_after_a_kill(tmp_path: Path) -> None:
    """A process that is killed while it asks has kept what it was told."""
    folder_of(tmp_path)
    (tmp_path / "kill").touch()
    write_run(tmp_path / "ledger.jsonl", 6)
    done = subprocess.run([sys.executable, "-m", "judgekit", *AUDIT], cwd=tmp_path, capture_output=True)
    assert done.returncode == -signal.SIGKILL
    assert len(asked(tmp_path)) == 40
    (tmp_path / "kill").unlink()
    made = told(tmp_path)
    assert made["audits"]["asked"] + made["audits"]["reused"] == 96
    assert 32 <= made["audits"]["reused"] <= 39


def test_another_grader_or_other_settings_are_asked_anew(tmp_path: Path) -> None:
    folder_of(tmp_path)
    write_run(tmp_path / "ledger.jsonl", 2)
    told(tmp_path)
    assert told(tmp_path)["audits"]["asked"] == 0
    text = (tmp_path / "audit_graders.py").read_text()
    (tmp_path / "audit_graders.py").write_text(text + "\n# another version\n")
    made = told(tmp_path)
    assert (made["audits"]["asked"], made["audits"]["reused"]) == (32, 0)
    assert told(tmp_path, "--share", "0.25")["audits"]["reused"] > 0


def test_a_grade_that_the_reward_asked_for_is_reused(tmp_path: Path) -> None:
    folder_of(tmp_path, REWARD.replace("{weighted: {judge: 1.0}}", "{weighted: {judge: 1.0, careful: 0}}"))
    rows = [{"prompt": r.prompt, "response": r.response, "group": r.group} for r in step(0, hacked=True)]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    done = call(tmp_path, "grade", "reward.yaml", "rows.jsonl", "--ledger", "ledger.jsonl")
    assert done.returncode == 0, done.stderr
    assert len(asked(tmp_path)) == 32
    made = json.loads(call(tmp_path, *AUDIT, "--json").stdout)
    assert made["audits"] == {"asked": 0, "reused": 16, "failed": 0, "abstained": 0}
    assert len(asked(tmp_path)) == 32


def test_two_commands_at_once_are_refused(tmp_path: Path) -> None:
    folder_of(tmp_path)
    write_run(tmp_path / "ledger.jsonl", 2)
    with AuditFile(tmp_path / "ledger.jsonl"):
        done = call(tmp_path, *AUDIT)
        assert done.returncode == 2
        assert "another judgekit audit of this ledger is running" in done.stderr
        assert asked(tmp_path) == []
    assert call(tmp_path, *AUDIT).returncode == 0


def test_a_resumed_run_that_replaced_its_rollouts_is_drawn_again(tmp_path: Path) -> None:
    folder_of(tmp_path)
    path = write_run(tmp_path / "ledger.jsonl", 2)
    told(tmp_path)
    lines = path.read_text().splitlines()
    again = [json.loads(line) for line in lines[1:]]
    for line in again:
        line |= {"run": f"again-{line['run']}", "tags": {**line["tags"], "resumes": [line["run"]]}}
    path.write_text("\n".join([*lines, *map(json.dumps, again)]) + "\n")
    made = told(tmp_path)
    assert made["audits"]["asked"] == 32
    assert [point["audits"] for point in made["steps"]] == [8, 8]
    assert told(tmp_path)["audits"]["asked"] == 0


def test_marks_of_a_rollout_do_not_count_on_the_page(tmp_path: Path) -> None:
    @grader
    def judge(response: str) -> Any:
        return Graded(1.0, "so says [it](http://x.y) | <b>boldly</b>")

    folder_of(tmp_path)
    write_run(tmp_path / "ledger.jsonl", 2, graders={"judge": judge})
    assert call(tmp_path, *AUDIT, "--out", "curve.md").returncode in (0, 1)
    text = (tmp_path / "curve.md").read_text()
    assert r"so says \[it\](http://x.y) \| &lt;b>boldly&lt;/b>" in text


# ---- failures


def test_failed_audits_are_no_evidence_and_asked_again(tmp_path: Path) -> None:
    folder_of(tmp_path)
    path = tmp_path / "ledger.jsonl"
    write_run(path, 3, hacked_from=0)
    write_run(path, 3, hacked_from=0, first=3, audit="fails")
    write_run(path, 3, hacked_from=0, first=6, audit="abstains")
    made = told(tmp_path, code=1)
    assert made["alarm"]["step"] == 0
    assert made["audits"] == {"asked": 144, "reused": 0, "failed": 48, "abstained": 48}
    three = made["steps"][2:]
    assert [point["paid_wrong"] for point in three[1:]] == [None] * 6
    assert {point["reason"] for point in three[1:]} == {"16 audits gave no verdict"}
    assert [point["log_e"] for point in three[1:]] == pytest.approx([three[0]["log_e"]] * 6, abs=0.01)
    again = told(tmp_path, code=1)
    assert again["audits"]["asked"] == 48  # the failed ones; an abstention is an answer


def test_nothing_can_be_said_if_all_audits_fail(tmp_path: Path) -> None:
    folder_of(tmp_path)
    write_run(tmp_path / "ledger.jsonl", 3, audit="fails")
    done = call(tmp_path, *AUDIT, "--json")
    assert done.returncode == 2
    assert "none of 48 audits gave a verdict, the last one: JudgeUnavailable: it is down" in done.stderr
    assert json.loads(done.stdout)["alarm"] is None


# ---- ledgers


def test_steps_of_hosts_runs_and_rollouts_without_a_score(tmp_path: Path) -> None:
    folder_of(tmp_path)
    path = tmp_path / "ledger.jsonl"
    write_run(path, 2, tag="global_steps")
    write_run(path, 1, tag=None)
    write_run(path, 1, first=9, prompts=1, each=1)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    for line in lines:
        if line.get("tags") == {"step": 9}:
            late = {
                **line,
                "tags": {"step": 10},
                "index": 5,
                "grades": {"judge": {"kind": "abstained", "reason": "x"}},
            }
            other = {**line, "index": 6, "status": "unfinished", "tags": {"step": 11}}
    path.write_text(
        "".join(json.dumps(line) + "\n" for line in [*lines, late, other]) + '{"type":"rollout","sp'
    )
    run = read_ledger(path).entries[64].run
    made = told(tmp_path)
    assert [point["step"] for point in made["steps"]] == [0, 1, run, 9, 10, 11]
    assert [point["audits"] for point in made["steps"]] == [8, 8, 8, 1, 0, 0]
    assert made["steps"][4]["reason"] == "judge has scored none of its 1 rollouts"


def test_a_ledger_without_texts_is_refused_and_nothing_is_asked(tmp_path: Path) -> None:
    folder_of(tmp_path)
    write_run(tmp_path / "ledger.jsonl", 2, texts=False)
    done = call(tmp_path, *AUDIT)
    assert done.returncode == 2
    assert "audits need the rollouts' texts" in done.stderr
    assert asked(tmp_path) == []


def test_audits_in_a_folder_are_no_ledger(tmp_path: Path) -> None:
    folder_of(tmp_path)
    (tmp_path / "ledger").mkdir()
    write_run(tmp_path / "ledger" / "a.jsonl", 2)
    done = call(tmp_path, "audit", "ledger/a.jsonl", "--reward", "reward.yaml")
    assert done.returncode == 0, done.stderr
    assert ledger_files(tmp_path / "ledger") == [tmp_path / "ledger" / "a.jsonl"]
    assert len(read_ledger(tmp_path / "ledger").entries) == 64
    done = call(tmp_path, "audit", "ledger", "--reward", "reward.yaml")
    assert done.returncode == 0, done.stderr
    assert audits_path(tmp_path / "ledger") == tmp_path / "ledger.audits.jsonl"
    assert (tmp_path / "ledger.audits.jsonl").exists()


def test_lines_of_an_audit_file_that_are_none(tmp_path: Path) -> None:
    folder_of(tmp_path)
    write_run(tmp_path / "ledger.jsonl", 2)
    path = audits_path(tmp_path / "ledger.jsonl")
    path.write_text('{"type":"audit","grader":3}\n')
    done = call(tmp_path, *AUDIT)
    assert done.returncode == 2
    assert "ledger.audits.jsonl, line 1: not an audit" in done.stderr
    path.write_text('{"type":"aud\n\x00\n')  # torn
    assert call(tmp_path, *AUDIT).returncode == 0
    assert path.read_text().splitlines()[0] == '{"type":"aud'


# ---- what is refused


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        (
            "grader: careful",
            "grader: carful",
            "audit.grader: no grader is called 'carful'; did you mean 'careful'?",
        ),
        ("watch: judge", "watch: jugde", "audit.watch: no grader is called 'jugde'; did you mean 'judge'?"),
        ("watch: judge", "watch: careful", "audit: careful cannot audit itself"),
        ("share: 0.5", "share: 0", "audit: share is above 0 and at most 1, not 0"),
        ("share: 0.5", "share: 1.5", "audit: share is above 0 and at most 1"),
        ("share: 0.5", "false_alarms: 1", "audit: false_alarms is a probability above 0 and below 1"),
        ("share: 0.5", "audit_error: 0.5", "audit: audit_error is from 0 to below 0.5"),
        ("share: 0.5", "pays_at_most: 1", "audit: pays_at_most is above 0 and below 1"),
        ("share: 0.5", "on_alarm: halt", "audit.on_alarm: "),
        ("share: 0.5", "shar: 1", "audit: there is no parameter 'shar'; did you mean 'share'?"),
        ("audit: {grader: careful, ", "audit: {", "audit: the parameter 'grader' is missing"),
        ("audit: {grader: careful, watch: judge, share: 0.5}", "audit: 3", "audit: give a mapping, such as"),
    ],
)
def test_a_wrong_section_is_one_sentence(tmp_path: Path, old: str, new: str, says: str) -> None:
    assert REWARD.count(old) == 1
    folder_of(tmp_path, REWARD.replace(old, new))
    write_run(tmp_path / "ledger.jsonl", 1)
    for args in (AUDIT, ("lint", "reward.yaml")):
        done = call(tmp_path, *args)
        assert done.returncode == 2, done.stdout
        assert says in done.stderr
        assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("reward", "says"),
    [
        (
            'graders:\n  judge: {use: "own:free"}\n  careful: {use: "audit_graders:careful"}\nreward: judge\naudit: {grader: careful, watch: judge}\n',
            "audit.watch: the scores of judge have no bounds (-inf to inf)",
        ),
        (
            'graders:\n  judge: {use: "audit_graders:judge"}\n  careful: {use: "audit_graders:careful"}\n  other: {use: "audit_graders:judge"}\nreward: other\naudit: {grader: careful, watch: judge}\n',
            "grader 'judge' is in no part of the reward",
        ),
        (
            REWARD.replace("reward: {weighted: {judge: 1.0}}\n", ""),
            "audit: without the section reward, it is the mean of all",
        ),
    ],
)
def test_what_cannot_be_watched(tmp_path: Path, reward: str, says: str) -> None:
    folder_of(tmp_path, reward)
    (tmp_path / "own.py").write_text(
        "from judgekit import grader\n\n@grader(score_range=(float('-inf'), float('inf')))\ndef free(response):\n    return 1.0\n"
    )
    done = call(tmp_path, "lint", "reward.yaml")
    assert done.returncode == 2
    assert says in done.stderr


def test_audit_graders_that_cannot_judge_one_rollout(tmp_path: Path) -> None:
    folder_of(tmp_path)
    write_run(tmp_path / "ledger.jsonl", 1)
    (tmp_path / "own.py").write_text(
        "from judgekit import grader, group_grader\n\n@grader(score_range=(float('-inf'), float('inf')))\ndef free(response):\n    return 1.0\n"
        "\n@group_grader\ndef compares(responses):\n    return [1.0 for _ in responses]\n"
    )
    for use, says in (
        ("free", "the scores of careful have no bounds"),
        ("compares", "careful must grade rollouts one by one"),
    ):
        (tmp_path / "reward.yaml").write_text(REWARD.replace("audit_graders:careful", f"own:{use}"))
        done = call(tmp_path, *AUDIT)
        assert done.returncode == 2
        assert says in done.stderr


def test_commands_that_cannot_work(tmp_path: Path) -> None:
    folder_of(tmp_path, REWARD.replace("audit: {grader: careful, watch: judge, share: 0.5}\n", ""))
    write_run(tmp_path / "ledger.jsonl", 1)
    other = write_run(tmp_path / "other.jsonl", 1, graders={"judge": _nothing})
    other.write_text(other.read_text().replace('"judge"', '"jury"'))
    (tmp_path / "empty.jsonl").write_text("")
    both = ("--grader", "careful", "--watch", "judge")
    for args, says in (
        (AUDIT, "there is no section audit"),
        ((*AUDIT, "--grader", "careful"), "the parameter 'watch' is missing"),
        (
            ("audit", "other.jsonl", "--reward", "reward.yaml", *both),
            "the ledger has no grades of 'judge': it has jury",
        ),
        (("audit", "empty.jsonl", "--reward", "reward.yaml", *both), "holds no rollouts yet"),
        (("audit", "nowhere.jsonl", "--reward", "reward.yaml", *both), "nowhere.jsonl"),
        ((*AUDIT, *both, "--json", "--out", "-"), "--json and --out - both write"),
        ((*AUDIT, *both, "--out", "ledger.audits.jsonl"), "ledger.audits.jsonl"),
        ((*AUDIT, *both, "--share", "2"), "share is above 0"),
    ):
        done = call(tmp_path, *args)
        assert done.returncode == 2, args
        assert says in done.stderr
        assert done.stderr.count("\n") == 1
    assert call(tmp_path, *AUDIT, *both).returncode == 0
    (tmp_path / "reward.yaml").write_text('graders: {careful: {use: "audit_graders:careful"}}\n')
    assert call(tmp_path, *AUDIT, *both).returncode == 0  # the ledger knows who is watched
    for more in ((), ("--follow",)):
        write_run(tmp_path / "ledger.jsonl", 2)
        done = call(tmp_path, *AUDIT, "--grader", "careful", "--watch", "jugde", *more)
        assert done.returncode == 2
        assert "the ledger has no grades of 'jugde': it has judge" in done.stderr


# ---- rewards


def test_rewards_are_the_same_with_and_without_audits(tmp_path: Path) -> None:
    folder_of(tmp_path)
    section = "audit: {grader: careful, watch: judge, share: 0.5}\n"
    with_judges = REWARD.replace(
        'careful: {use: "audit_graders:careful"}', "careful: {use: judge, judge: strong}"
    ).replace("reward:", 'judges: {strong: {engine: "nowhere:Engine"}}\nreward:')
    without = "".join(line for line in REWARD.splitlines(keepends=True) if "careful" not in line)
    rollouts = step(0, hacked=True)
    found = []
    for text in (without, REWARD, with_judges):
        (tmp_path / "reward.yaml").write_text(text)
        runner = load_config(tmp_path / "reward.yaml").build()
        assert list(runner.graders) == ["judge"]
        assert runner.resources == ()
        found.append(runner.run_sync(rollouts))
    assert section in REWARD
    assert [r.reward for r in found[0]] == [r.reward for r in found[1]] == [r.reward for r in found[2]]
    assert [r.contributions for r in found[0]] == [r.contributions for r in found[1]]
    assert asked(tmp_path) == []


def test_a_judge_that_rewards_ask_too_is_started_and_an_audit_has_one_grader(tmp_path: Path) -> None:
    text = """\
graders:
  judge:   {use: judge, judge: small}
  careful: {use: judge, judge: small, template: open}
  strict:  {use: judge, judge: strong}
judges:
  small:  {engine: openai, url: "http://127.0.0.1:9", model: a}
  strong: {engine: openai, url: "http://127.0.0.1:9", model: b}
runner: {transform: center, timeout_s: 7}
reward: judge
audit: {grader: careful, watch: judge}
"""
    folder_of(
        tmp_path,
        text.replace("  strict:  {use: judge, judge: strong}\n", "").replace("openai, url", "openai, url"),
    )
    config = load_config(tmp_path / "reward.yaml")
    runner = config.build()
    assert len(runner.resources) == 2  # nobody asks strong, which is said as ever
    (tmp_path / "reward.yaml").write_text(
        text.replace("grader: careful", "grader: strict").replace(
            "reward: judge", "reward: {weighted: {judge: 1, careful: 1}}"
        )
    )
    config = load_config(tmp_path / "reward.yaml")
    assert len(config.build().resources) == 1
    alone = config.audit_runner("strict")
    assert list(alone.graders) == ["strict"]
    assert len(alone.resources) == 1
    assert (alone.settings.transform, alone.settings.timeout_s) == ("none", 7)
    assert alone.spec.graders["strict"].fingerprint == config.fingerprints()["strict"]


def test_a_section_in_python_is_checked_too() -> None:
    with pytest.raises(ConfigError, match="careful cannot audit itself"):
        AuditSettings(grader="careful", watch="careful")
    with pytest.raises(ConfigError, match="on_alarm is 'warn' or 'stop'"):
        AuditSettings(grader="careful", watch="judge", on_alarm="halt")  # type: ignore[arg-type]


# ---- beside a training


class Following:
    """`judgekit audit --follow` of a ledger that grows."""

    def __init__(self, folder: Path, *more: str) -> None:
        self.folder = folder
        command = [sys.executable, "-m", "judgekit", *AUDIT, "--follow", *more]
        env = {**os.environ, "PYTHONUNBUFFERED": "1"}
        self.process = subprocess.Popen(
            command, cwd=folder, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        self.lines: list[str] = []

    def until(self, piece: str) -> None:
        assert self.process.stdout is not None
        while not self.lines or piece not in self.lines[-1]:
            line = self.process.stdout.readline()
            assert line, (self.lines, self.process.stderr.read() if self.process.stderr else "")
            self.lines.append(line)

    def stop(self, number: int) -> tuple[int, str, str]:
        self.process.send_signal(number)
        stdout, stderr = self.process.communicate(timeout=30)
        return self.process.returncode, stdout, stderr


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_it_follows_a_training_until_it_is_stopped(tmp_path: Path, number: int, code: int) -> None:
    folder_of(tmp_path)
    following = Following(tmp_path, "--out", "curve.json")
    following.until("following")
    write_run(tmp_path / "ledger.jsonl", 2)
    following.until("step 0 ")
    time.sleep(0.1)
    assert len(asked(tmp_path)) == 16  # step 1 may not be over
    write_run(tmp_path / "ledger.jsonl", 2, first=2)
    following.until("step 2 ")
    ended, _, stderr = following.stop(number)
    assert ended == code, stderr
    assert "stopped after 3 steps, 48 audits asked: no alarm" in stderr
    assert "Traceback" not in stderr
    made = json.loads((tmp_path / "curve.json").read_text())
    assert [point["step"] for point in made["steps"]] == [0, 1, 2]
    rest = told(tmp_path)
    assert rest["audits"] == {"asked": 16, "reused": 48, "failed": 0, "abstained": 0}
    assert rest["steps"][:3] == made["steps"]


def test_on_alarm_stop_ends_it_with_1(tmp_path: Path) -> None:
    folder_of(tmp_path, REWARD.replace("share: 0.5", "share: 0.5, on_alarm: stop"))
    following = Following(tmp_path, "--json")
    write_run(tmp_path / "ledger.jsonl", 8, hacked_from=0)
    stdout, stderr = following.process.communicate(timeout=30)
    assert following.process.returncode == 1, stderr
    made = json.loads(stdout)
    assert made["alarm"]["step"] == made["steps"][-1]["step"] < 3
    assert "alarm at step" in stderr


def test_a_step_of_several_runs_in_a_growing_folder(tmp_path: Path) -> None:
    folder_of(tmp_path)
    (tmp_path / "ledger.jsonl").mkdir()
    following = Following(tmp_path)
    following.until("following")
    write_run(tmp_path / "ledger.jsonl" / "a.jsonl", 1)
    write_run(tmp_path / "ledger.jsonl" / "b.jsonl", 1, prompts=4)
    write_run(tmp_path / "ledger.jsonl" / "b.jsonl", 1, first=1)
    following.until("step 0 ")
    write_run(tmp_path / "ledger.jsonl" / "a.jsonl", 1)  # too late
    write_run(tmp_path / "ledger.jsonl" / "a.jsonl", 1, first=2)
    following.until("step 1 ")
    code, _, stderr = following.stop(signal.SIGTERM)
    assert code == 143
    assert "stopped after 2 steps" in stderr
    made = told(tmp_path)
    assert made["audits"]["asked"] == 16
    assert made["steps"][0]["audits"] == 12 * 1


def test_a_line_that_is_half_written_is_read_once_it_is_whole(tmp_path: Path) -> None:
    whole = write_run(tmp_path / "whole.jsonl", 1).read_bytes()
    path, tail = tmp_path / "ledger.jsonl", Tail(tmp_path / "ledger.jsonl")
    assert tail.read() == []
    found = []
    with path.open("ab", buffering=0) as file:
        for at in range(0, len(whole), 997):
            file.write(whole[at : at + 997])
            found += tail.read()
        file.write(b'{"type":"rollout","ru\n')
        assert tail.read() == []
    assert found == read_ledger(tmp_path / "whole.jsonl").entries
    assert tail.torn == 1
    path.write_bytes(whole[:2000])
    with pytest.raises(DataError, match="was replaced or emptied"):
        tail.read()


def test_steps_are_named_as_hosts_tag_them(tmp_path: Path) -> None:
    path = write_run(tmp_path / "l.jsonl", 1, tag="global_step")
    assert {step_of(entry) for entry in read_ledger(path).entries} == {0}
