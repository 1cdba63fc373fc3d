"""Recordings of judges' replies: made by `judgekit grade --record` or pytest, and played in tests."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from judgekit.attack.tested import TestedReward
from judgekit.data import read_rollouts
from judgekit.errors import ConfigError

from ..cli.in_process import call

ENGINE = """
from judgekit import Usage
from judgekit.judges import JudgeReply

class Engine:
    asked = 0

    async def complete(self, request):
        Engine.asked += 1
        right = "it is 42" in "".join(turn.text for turn in request.turns).lower()
        if request.choices:
            high, low = request.choices[-1], request.choices[0]
            probs = {high: 0.75, low: 0.25} if right else {high: 0.25, low: 0.75}
            return JudgeReply(high if right else low, choice_probs=probs, label_mass=0.99, usage=Usage(calls=1))
        return JudgeReply(f"Fine.\\n### Final Score [{request.nonce}]: {int(right)}", usage=Usage(calls=1))

class Model:
    async def reward(self, turns):
        return (2.5 if "42" in turns[-1].text else -1.0), Usage(calls=1)
"""
REWARD = """
graders:
  correct: final_answer
  judge: {use: judge, judge: local}
  written: {use: judge, judge: local, verdict: line}
  liked: {use: reward_model, model: scorer}
judges:
  local: {engine: "mine:Engine"}
  scorer: {engine: "mine:Model"}
reward:
  weighted: {correct: 0.5, judge: 0.2, written: 0.2, liked: {weight: 0.1, of: {score: liked, if_broken: 0}}}
"""
ROWS = [
    {"prompt": "6 * 7?", "ground_truth": "42", "response": response}
    for response in ("It is 42.", "It is 41.", "")
]
TEST = """
def test_it(judgekit_reward):
    reward = judgekit_reward("reward.yaml", judges={"local": "recorded.jsonl", "scorer": "recorded.jsonl"})
    right, wrong, empty = reward.group("6 * 7?", "42", ["It is 42.", "It is 41.", ""])
    assert right > wrong + 0.3
    assert right.score("judge") == 0.75 and wrong.score("written") == 0 and right.score("liked") == 2.5
"""
BOTH = {"local": "recorded.jsonl", "scorer": "recorded.jsonl"}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "mine.py").write_text(ENGINE)
    (tmp_path / "reward.yaml").write_text(REWARD)
    (tmp_path / "rollouts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    (tmp_path / "test_reward.py").write_text(TEST)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def record(folder: Path) -> None:
    done = call(folder, *["grade", "reward.yaml", "rollouts.jsonl", "--record", "recorded.jsonl", "--force"])
    assert done.returncode == 0, done.stderr


def run_tests(folder: Path, *more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *more, "test_reward.py"],
        cwd=folder, capture_output=True, text=True, timeout=120,
    )  # fmt: skip


def test_tests_replay_what_grade_has_recorded(folder: Path) -> None:
    record(folder)
    (folder / "mine.py").write_text(
        ENGINE.replace("class Engine:", "class Gone:\n    pass\n\nclass Engine_:")
    )
    # the module is part of the settings: with another one, what it would reply is not known
    with pytest.raises(
        ConfigError, match=r"recorded\.jsonl was recorded with other settings of 'judge'.* record it again"
    ):
        TestedReward("reward.yaml", judges=BOTH)
    (folder / "mine.py").write_text(ENGINE)
    done = run_tests(folder)
    assert "1 passed" in done.stdout, done.stdout


def test_no_engine_is_made_or_asked(folder: Path) -> None:
    record(folder)
    reward = TestedReward("reward.yaml", judges=BOTH)
    right, wrong, _ = reward.group("6 * 7?", "42", [row["response"] for row in ROWS])
    assert float(right) == pytest.approx(0.5 + 0.2 * 0.75 + 0.2 + 0.1 * 2.5)
    assert float(wrong) == pytest.approx(0.2 * 0.25 - 0.1)
    assert "mine" not in sys.modules
    reward.close()


def test_a_reply_that_is_not_recorded_is_an_error_whatever_missing_grades_do(folder: Path) -> None:
    text = REWARD.replace(
        "judge: 0.2, written", "judge: {weight: 0.2, of: {score: judge, if_missing: 0}}, written"
    )
    text = text.replace(
        "written: 0.2", "written: {weight: 0.2, of: {score: written, if_missing: renormalise}}"
    )
    (folder / "reward.yaml").write_text(text)
    record(folder)
    reward = TestedReward("reward.yaml", judges=BOTH)
    with pytest.raises(AssertionError, match=r"holds no reply to \d+ of the judge's requests.*It is 43"):
        reward.group("6 * 7?", "42", ["It is 43."])
    assert reward.group("6 * 7?", "42", ["It is 42."])[0] > 0.5  # what was missed before is told once


def test_pytest_records_and_replays(folder: Path) -> None:
    done = run_tests(folder)
    assert "cannot read recorded.jsonl" in done.stdout
    assert "--judgekit-record" in done.stdout
    done = run_tests(folder, "--judgekit-record")
    assert "1 passed" in done.stdout, done.stdout
    first = (folder / "recorded.jsonl").read_bytes()
    done = run_tests(folder)
    assert "1 passed" in done.stdout, done.stdout
    assert "1 passed" in run_tests(folder, "--judgekit-record").stdout
    assert (
        folder / "recorded.jsonl"
    ).read_bytes() == first  # nothing random, no times: it can be kept in git


def test_a_recording_tells_its_reader_what_it_holds(folder: Path) -> None:
    record(folder)
    head, *lines = [json.loads(line) for line in (folder / "recorded.jsonl").read_text().splitlines()]
    assert head["type"] == "recording"
    assert set(head["graders"]) == {"correct", "judge", "written", "liked"}
    assert {line["judge"] for line in lines} == {"local", "scorer"}
    assert len(lines) == 3 + 3 + 3
    assert all("It is 4" in line["about"] or "6 * 7?" in line["about"] for line in lines)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("", "is not a recording"),
        ("{}\n", "is not a recording"),
        ('{"type":"recording","graders":{}}\nnonsense\n', "is not a recording"),
        ('{"type":"recording","graders":{},"format":99}\n', "of a newer judgekit"),
        ('{"type":"recording","graders":{}}\n', "holds no replies of the judge 'local', but of none"),
    ],
)
def test_what_is_no_recording_is_said(folder: Path, content: str, why: str) -> None:
    (folder / "recorded.jsonl").write_text(content)
    with pytest.raises(ConfigError, match=why):
        TestedReward("reward.yaml", judges=BOTH)


def test_wrong_calls(folder: Path) -> None:
    for options, why in (
        ("--record -", "--record writes a file"),
        ("--record r.jsonl --ray --out o", "--record hears the judges of this process"),
        ("--record r.jsonl --resume --ledger l.jsonl", "--record needs a run of its own"),
        ("--record rollouts.jsonl", "rollouts.jsonl"),
    ):
        done = call(folder, *f"grade reward.yaml rollouts.jsonl {options}".split())
        assert done.returncode == 2, options
        assert why in done.stderr, options
    (folder / "rules.yaml").write_text("graders: {correct: final_answer}\n")
    done = call(folder, *["grade", "rules.yaml", "rollouts.jsonl", "--record", "r.jsonl"])
    assert done.returncode == 2
    assert "there are no judges whose replies" in done.stderr


def test_a_judge_that_the_file_does_not_have_is_named(folder: Path) -> None:
    with pytest.raises(ConfigError, match=r"the file has no judge 'locl'; did you mean 'local'"):
        TestedReward("reward.yaml", judges={"locl": "recorded.jsonl"}, record={})


def test_two_rewards_of_one_test_share_a_recording(folder: Path) -> None:
    text = (
        TEST
        + """
    other = judgekit_reward("reward.yaml", judges={"local": "recorded.jsonl", "scorer": "recorded.jsonl"})
    assert other.group("7 * 7?", "49", ["It is 49."])[0] > 0
"""
    )
    (folder / "test_reward.py").write_text(text)
    assert "1 passed" in run_tests(folder, "--judgekit-record").stdout
    assert "1 passed" in run_tests(folder).stdout


def test_numbers_that_are_none_are_not_recorded(folder: Path) -> None:
    bad = ENGINE.replace("return (2.5 if", "return (float('nan') if")
    (folder / "mine.py").write_text(bad)
    record(folder)
    lines = [json.loads(line) for line in (folder / "recorded.jsonl").read_text().splitlines()][1:]
    assert [line["reward"] for line in lines if line["judge"] == "scorer"] == [-1.0, -1.0]
    with pytest.raises(AssertionError, match="holds no reply"):
        TestedReward("reward.yaml", judges=BOTH).group("6 * 7?", "42", ["It is 42."])


def test_an_attack_is_recorded_and_replayed(folder: Path) -> None:
    args = ("attack", "reward.yaml", "rollouts.jsonl", "--judges", "--calls", "2000")
    assert call(folder, *args, "--record", "attack.jsonl").returncode in (0, 1)
    both = {"local": "attack.jsonl", "scorer": "attack.jsonl"}
    found = TestedReward("reward.yaml", judges=both).attack(read_rollouts("rollouts.jsonl"), judges=True)
    assert {hole.term for hole in found} <= {"judge", "written", "liked", "correct"}
    for more, why in (
        ((), "--record keeps what judges reply: give --judges, too"),
        (("--judges",), "--record: attack.jsonl is there already: give another name"),
    ):
        done = call(folder, "attack", "reward.yaml", *more, "--record", "attack.jsonl")
        assert done.returncode == 2
        assert why in done.stderr
    done = call(folder, "attack", "json:dumps", "--judges", "--record", "other.jsonl")
    assert done.returncode == 2
    assert "a function has no judges" in done.stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_what_was_replied_until_a_signal_is_kept(folder: Path, number: signal.Signals) -> None:
    (folder / "mine.py").write_text(
        ENGINE.replace("        Engine.asked += 1\n", HANGS).replace(
            "class Engine", "import asyncio\n\nclass Engine"
        )
    )
    command = [
        sys.executable,
        "-m",
        "judgekit",
        "grade",
        "reward.yaml",
        "rollouts.jsonl",
        "--record",
        "new.jsonl",
    ]
    grading = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert grading.stdout is not None
    while "hangs" not in grading.stdout.readline():
        assert grading.poll() is None
    grading.send_signal(number)
    _, said = grading.communicate(timeout=30)
    assert grading.returncode == 128 + number
    assert "what the judges replied until then is in new.jsonl" in said
    _, *replies = map(json.loads, (folder / "new.jsonl").read_text().splitlines())
    assert sum(reply["judge"] == "local" for reply in replies) == 2


HANGS = """        Engine.asked += 1
        if Engine.asked > 2:
            await asyncio.sleep(1)  # the replies before it are on their way
            print("hangs", flush=True)
            await asyncio.sleep(100)
"""


def test_a_run_that_never_heard_a_judge_leaves_an_older_recording(folder: Path) -> None:
    (folder / "mine.py").write_text(
        ENGINE.replace(
            "class Engine:\n", "class Engine:\n    def start(self):\n        raise OSError('no engine')\n\n"
        )
    )
    (folder / "recorded.jsonl").write_text("older")
    with pytest.raises(OSError, match="no engine"):
        call(folder, "grade", "reward.yaml", "rollouts.jsonl", "--record", "recorded.jsonl", "--force")
    assert (folder / "recorded.jsonl").read_text() == "older"
