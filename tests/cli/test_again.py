"""`judgekit replay --only failed`: failed grades are asked again, all others come from the ledger."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from judgekit.ledger.reader import read_ledger

from .in_process import Called, call, contents

MODULE = """
import os
from judgekit import Abstained, RolloutError, grader, group_grader

def asked(name, response):
    with open("asked.txt", "a") as file:
        file.write(f"{name} {response}\\n")

@grader
def judge(response: str, ground_truth: object, messages: object) -> float:
    asked("judge", response)
    if response == "bomb":
        raise RolloutError("too long")
    if response.startswith("b") and os.path.exists("down"):
        raise ConnectionError("the judge is down")
    return 0.5 + 0.25 * (ground_truth == "4") + 0.25 * bool(messages)

@grader
def rule(response: str) -> float:
    asked("rule", response)
    return 1.0

@group_grader
def ranked(rollouts) -> list[float]:
    asked("ranked", " ".join(r.response for r in rollouts))
    if os.path.exists("down") and any(r.response == "b1" for r in rollouts):
        raise ConnectionError("the judge is down")
    return [i / len(rollouts) for i in range(len(rollouts))]
"""
CONFIG = "graders: {judge: 'mine:judge', rule: 'mine:rule'}\nreward: {weighted: {judge: 0.5, rule: 0.5}}\n"
GATED = "graders: {judge: 'mine:judge', rule: 'mine:rule'}\nreward: {gate: {if: judge > 0.6, then: rule, otherwise: 0}}\n"
ROWS = [
    {"response": "a1", "group": "a", "ground_truth": "4", "messages": [{"role": "user", "content": "hi"}]},
    {"response": "b1", "group": "a", "ground_truth": "4", "messages": [{"role": "user", "content": "hi"}]},
    {"response": "b2", "group": ["b", ["c"]]},
    {"response": "bomb", "group": ["b", ["c"]]},
    {"response": "a2", "group": "d"},
]
ONLY = "replay l.jsonl --only failed --reward reward.yaml --out n.jsonl"


def grade(folder: Path, config: str, *more: str) -> None:
    """Grade while the judge is down, and bring it back."""
    (folder / "mine.py").write_text(MODULE)
    (folder / "reward.yaml").write_text(config)
    (folder / "rollouts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    (folder / "down").write_text("")
    graded = call(folder, "grade", "reward.yaml", "rollouts.jsonl", *(more or ("--ledger", "l.jsonl")))
    assert graded.returncode == 0, graded.stderr
    (folder / "down").unlink()
    (folder / "asked.txt").unlink()


def asked(folder: Path) -> list[str]:
    path = folder / "asked.txt"
    return sorted(path.read_text().splitlines()) if path.exists() else []


def rewards(folder: Path) -> dict[int, float | None]:
    rows = map(json.loads, (folder / "n.jsonl").read_text().splitlines())
    return {row["index"]: row["reward"] for row in rows}


def succeeded(called: Called) -> Called:
    assert called.returncode == 0, called.stderr
    return called


def test_only_failed_grades_are_asked_again_with_whole_rollouts(files: Path) -> None:
    grade(files, CONFIG)
    ledger = (files / "l.jsonl").read_bytes()
    done = succeeded(call(files, *ONLY.split()))
    assert asked(files) == ["judge b1", "judge b2"]
    assert rewards(files) == {0: 1.0, 1: 1.0, 2: 0.75, 3: 0.5, 4: 0.75}
    assert "2 rollouts asked about again, 0 still with a failed grade" in done.stdout
    assert "5 rewards recomputed, 2 changed" in done.stdout
    assert (files / "l.jsonl").read_bytes() == ledger


def test_what_fails_again_is_no_number(files: Path) -> None:
    grade(files, CONFIG)
    (files / "down").write_text("")
    done = call(files, *ONLY.split(), "--json")
    told = json.loads(done.stdout)
    assert (told["asked_again"], told["still_failed"], told["changed"]) == (2, 2, 0)
    assert told["problems"] == [
        "judge failed with ConnectionError on 2 rollouts, the first time with: the judge is down",
        "judge failed with RolloutError on 1 rollouts, the first time with: too long",
    ]
    assert rewards(files) == {0: 1.0, 1: None, 2: None, 3: 0.5, 4: 0.75}


def test_a_gate_that_passes_now_asks_what_it_skipped(files: Path) -> None:
    grade(files, GATED)
    succeeded(call(files, *ONLY.split()))
    assert asked(files) == ["judge b1", "judge b2", "rule b1"]
    assert rewards(files) == {0: 1.0, 1: 1.0, 2: 0.0, 3: 0.0, 4: 0.0}


def test_a_group_grader_is_asked_about_the_whole_group(files: Path) -> None:
    grade(files, "graders: {ranked: 'mine:ranked'}\n")
    succeeded(call(files, *ONLY.split()))
    assert asked(files) == ["ranked a1 b1"]
    assert rewards(files) == {0: 0.0, 1: 0.5, 2: 0.0, 3: 0.5, 4: None}


def test_without_texts_it_says_what_is_missing(files: Path) -> None:
    grade(files, CONFIG + "ledger: {path: l.jsonl}\n", "--json")
    before = contents(files)
    done = call(files, *ONLY.split())
    assert (done.returncode, asked(files)) == (2, [])
    assert "grading again needs the rollouts' texts, which this ledger does not hold" in done.stderr
    assert contents(files) == before


def test_without_failures_nothing_is_asked_and_no_texts_are_needed(files: Path) -> None:
    (files / "reward.yaml").write_text(
        (files / "reward.yaml").read_text() + "ledger: {path: l.jsonl}\nrunner: {transform: center}\n"
    )
    succeeded(call(files, "grade", "reward.yaml", "rollouts.jsonl"))
    done = succeeded(call(files, *ONLY.split()))
    assert "the ledger holds no failed grades: nothing to ask again" in done.stdout
    assert "3 rewards recomputed, 0 changed" in done.stdout


def test_the_new_grades_are_kept_in_a_ledger_of_their_own(files: Path) -> None:
    grade(files, CONFIG)
    succeeded(call(files, *ONLY.split(), "--ledger", "again.jsonl"))
    entries = {entry.index: entry for entry in read_ledger(files / "again.jsonl").entries}
    assert {i: entry.reward for i, entry in entries.items()} == {0: 1.0, 1: 1.0, 2: 0.75, 3: 0.5, 4: 0.75}
    assert entries[1].response == "b1"


def test_too_many_failures_exit_with_1_and_keep_the_rewards(files: Path) -> None:
    (files / "mine.py").write_text(MODULE)
    (files / "reward.yaml").write_text(CONFIG)
    (files / "rollouts.jsonl").write_text((json.dumps(ROWS[1]) + "\n") * 20 + json.dumps(ROWS[0]) + "\n")
    (files / "down").write_text("")
    assert call(files, "grade", "reward.yaml", "rollouts.jsonl", "--ledger", "l.jsonl").returncode == 0
    (files / "reward.yaml").write_text(CONFIG + "runner: {max_failure_rate: 0.1}\n")
    done = call(files, *ONLY.split())
    assert done.returncode == 1
    assert "ConnectionError × 20" in done.stderr
    assert len((files / "n.jsonl").read_text().splitlines()) == 21


@pytest.mark.parametrize("more", [(), ("--json",)])
def test_replay_without_out_tells_and_writes_nothing(files: Path, more: tuple[str, ...]) -> None:
    succeeded(call(files, "grade", "reward.yaml", "rollouts.jsonl", "--ledger", "l.jsonl"))
    before = contents(files)
    done = succeeded(call(files, "replay", "l.jsonl", *more))
    assert contents(files) == before
    if more:
        told = json.loads(done.stdout)
        assert (told["rollouts"], told["changed"], told["reward_mean"]) == (3, 0, 0.5)
        assert told["statuses"] == {"scored": 2, "excluded": 1}
    else:
        assert "3 rewards recomputed, 0 changed" in done.stdout


def test_report_as_json(files: Path) -> None:
    succeeded(call(files, "grade", "reward.yaml", "rollouts.jsonl", "--ledger", "l.jsonl"))
    with (files / "l.jsonl").open("a") as file:
        file.write('{"type":"rollo')
    done = succeeded(call(files, "report", "l.jsonl", "--json"))
    told = json.loads(done.stdout)
    assert {signal["name"] for signal in told.pop("signals")} == {"missing"}
    assert told.pop("costs")["calls"] == 0
    assert told == {
        "report": "l.html",
        "rollouts": 3,
        "statuses": {"scored": 2, "excluded": 1},
        "skipped_lines": 1,
    }
    assert "skipped 1 line(s), the first is line 5" in done.stderr
    assert (files / "l.html").exists()


def test_resume_asks_the_failed_grades_of_a_rollout_and_no_others(files: Path) -> None:
    grade(files, CONFIG)
    succeeded(
        call(
            files,
            *[
                "grade",
                "reward.yaml",
                "rollouts.jsonl",
                "--ledger",
                "l.jsonl",
                "--resume",
                "--out",
                "n.jsonl",
            ],
        )
    )
    assert asked(files) == ["judge b1", "judge b2"]
    made = [json.loads(line)["reward"] for line in (files / "n.jsonl").read_text().splitlines()]
    assert made == [1.0, 1.0, 0.75, 0.5, 0.75]


@pytest.mark.parametrize("changed", [False, True])
def test_settings_that_changed_since_are_said(files: Path, changed: bool) -> None:
    grade(files, CONFIG)
    if changed:
        (files / "mine.py").write_text(MODULE.replace("0.5 + 0.25 *", "0.4 + 0.25 *"))
    done = call(files, *ONLY.split())
    assert done.returncode == 0
    assert ("judge, rule: the ledger's grades are of other settings" in done.stdout) is changed


def test_resuming_after_a_grader_was_edited_asks_it_again(files: Path) -> None:
    grade(files, CONFIG)
    resume = ("grade", "reward.yaml", "rollouts.jsonl", "--ledger", "l.jsonl", "--resume")
    assert call(files, *resume).returncode == 0
    assert asked(files) == ["judge b1", "judge b2"]  # it was down for these
    (files / "mine.py").write_text(MODULE.replace("0.5 + 0.25 *", "0.4 + 0.25 *"))
    done = call(files, *resume)
    assert "judge, rule: other settings than in the ledger, and so graded again" in done.stdout
    assert len(asked(files)) == 2 + 2 * len(ROWS)


def test_resuming_after_a_rule_was_set_differently_asks_no_judge(files: Path) -> None:
    grade(files, CONFIG)
    resume = ("grade", "reward.yaml", "rollouts.jsonl", "--ledger", "l.jsonl", "--resume")
    assert call(files, *resume).returncode == 0
    before = asked(files)
    (files / "reward.yaml").write_text(
        CONFIG.replace("'mine:rule'", "{use: length, soft_max: 1, hard_max: 2}")
    )
    done = call(files, *resume)
    assert (done.returncode, asked(files)) == (0, before)
    assert "rule: other settings than in the ledger, and so graded again" in done.stdout


def test_a_gate_that_passes_now_has_its_grader_asked(files: Path) -> None:
    """Also where nothing has failed; and a ledger that holds all that is needed starts nobody."""
    grade(files, GATED)
    ready = succeeded(call(files, *ONLY.split(), "--ledger", "whole.jsonl", "--force"))
    assert "asking again about" in ready.stdout
    (files / "asked.txt").unlink()
    only = [part if part != "l.jsonl" else "whole.jsonl" for part in ONLY.split()]
    assert "nothing to ask again" in succeeded(call(files, *only, "--force")).stdout
    assert asked(files) == []
    (files / "reward.yaml").write_text(GATED.replace("> 0.6", "> 0.4"))
    passes = succeeded(call(files, *only, "--force"))
    assert "asking for the grades that the reward needs now" in passes.stdout
    assert asked(files) == ["rule a2", "rule b2"]
    assert rewards(files)[4] == 1.0


def test_what_the_file_leaves_out_stays_as_the_ledger_has_it(files: Path) -> None:
    """With and without asking, and it is said."""
    grade(files, CONFIG + "runner: {missing_reward: -1}\n")
    (files / "down").write_text("")
    (files / "reward.yaml").write_text(CONFIG)
    told = "missing_reward: -1.0, as the ledger has it: reward.yaml does not say"
    found = []
    for more in ((), ("--only", "failed")):
        done = succeeded(
            call(files, "replay", "l.jsonl", "--reward", "reward.yaml", *more, "--out", "n.jsonl", "--force")
        )
        assert told in done.stdout
        found.append(rewards(files))
    assert found[0] == found[1]
    assert found[0][1] == -1
    (files / "reward.yaml").write_text(CONFIG + "runner: {missing_reward: exclude}\n")
    done = succeeded(
        call(files, "replay", "l.jsonl", "--reward", "reward.yaml", "--out", "n.jsonl", "--force")
    )
    assert "as the ledger has it" not in done.stdout
    assert rewards(files)[1] is None
