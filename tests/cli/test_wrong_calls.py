"""Wrong calls of every command: one sentence, code 2, nothing written."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import Any

import pytest

from judgekit.ledger import writer

from .command import CONFIG
from .in_process import call, contents, refused

G = "grade reward.yaml rollouts.jsonl"
JUDGE = "{engine: openai, url: 'http://127.0.0.1:1/v1', model: m}"
USAGE = " -h shows what it takes)"

# fmt: off
ARGUMENTS = [
    ("nope", "No such command 'nope' (judgekit -h shows what it takes)"),
    ("grad", "Did you mean 'grade'"),
    ("--nope", "No such option: --nope"),
    ("-x", "No such option: -x"),
    ("grade", "Missing argument 'config' (judgekit grade -h shows what it takes)"),
    ("grade reward.yaml", "Missing argument 'rollouts'"),
    (f"{G} extra", "Got unexpected extra argument(s) (extra)"),
    (f"{G} --nope", "No such option: --nope"),
    (f"{G} --limit 0", "Invalid value for '--limit': Input should be greater than or equal to 1"),
    (f"{G} --limit x", "Invalid value for '--limit'"),
    (f"{G} --limit", "Option '--limit' requires an argument"),
    (f"{G} --out", "Option '--out' requires an argument"),
    (f"{G} --json=3", "Option '--json' does not take a value"),
    (f"{G} --map response", "--map: 'response' is not field=column, such as response=completion"),
    (f"{G} --map ,", "--map: '' is not field=column"),
    (f"{G} --map =x", "--map: '=x' is not field=column"),
    (f"{G} --map response=", "--map: 'response=' is not field=column"),
    (f"{G} --map respons=x", "a rollout has no field 'respons'; did you mean 'response'?"),
    (f"{G} --map extra=x", "a rollout has no field 'extra'"),
    (f"{G} --map response=a,response=b", "--map: 'response' has two columns, a and b"),
    (f"{G} --map response=nothing", "rollouts.jsonl, line 1: there is no column 'nothing'"),
    (f"{G} --map response=response.x", "there is no column 'response.x'"),
    (f"{G} --resume", "--resume reads the ledger: give --ledger, too"),
    (f"{G} --report r.html", "--report reads the ledger: give --ledger, too"),
    (f"{G} --json --out -", "--json and --out - both write to standard output"),
    (f"{G} --json --report - --ledger l", "--json and --report - both write to standard output"),
    (f"{G} --out - --report - --ledger l", "only one output can be -, which is standard output"),
    (f"{G} --ledger -", "the ledger is a file or a folder: give its name, such as ledger.jsonl"),
    (f"{G} --ledger ", "the ledger is a file or a folder: give its name"),
    (f"{G} --out ", ". is a folder: give the name of a file"),
    (f"{G} --out g.parquet.gz", "Parquet compresses by itself: leave the ending .gz out"),
    (f"{G} --out g.xlsx", "g.xlsx: .xlsx is not written: end the name with .jsonl, .json, .csv, .tsv or .parquet"),
    ("grade none.yaml rollouts.jsonl", "cannot read none.yaml: No such file or directory"),
    ("grade folder rollouts.jsonl", "cannot read folder: Is a directory"),
    ("grade rollouts.jsonl rollouts.jsonl", "rollouts.jsonl, line 2: not YAML"),
    ("report", "Missing argument 'ledger' (judgekit report -h"),
    ("report none", "cannot read none: No such file or directory"),
    ("report none.yaml", "cannot read none.yaml: No such file or directory"),
    ("report rollouts.jsonl", "rollouts.jsonl, line 1: not a line of a judgekit ledger"),
    ("report reward.yaml", "reward.yaml is not a ledger: give the file that --ledger or the section ledger names"),
    ("replay reward.yaml", "reward.yaml is not a ledger: give the file that"),
    ("view reward.yaml --no-browser", "reward.yaml is not a ledger: give the file that"),
    ("compare l.jsonl reward.yaml", "reward.yaml is not a ledger: give the file that"),
    ("report folder", "folder holds no ledger: there is no file *.jsonl in it"),
    ("report empty", "the ledger empty holds no rollouts yet"),
    ("report torn", "the ledger torn holds no rollouts yet"),
    ("report foreign", "foreign, line 1: not a line of a judgekit ledger"),
    ("report l.jsonl --rows -1", "Invalid value for '--rows'"),
    ("report l.jsonl --rows x", "Invalid value for '--rows'"),
    ("report l.jsonl --json --out -", "--json and --out - both write to standard output"),
    ("report l.jsonl --limits none.yaml", "cannot read none.yaml: No such file"),
    ("report l.jsonl --limits limits.yaml", "limits.yaml: Object contains unknown field"),
    ("report l.jsonl --limits list.yaml", "list.yaml: runner: give a mapping"),
    ("view", "Missing argument 'ledgers' (judgekit view -h"),
    ("view none --no-browser", "cannot read none: there is no such file"),
    ("view l.jsonl none --no-browser", "cannot read none: there is no such file"),
    ("view rollouts.jsonl --no-browser", "rollouts.jsonl, line 1: not a line of a judgekit ledger"),
    ("view l.jsonl --port 70000", "Invalid value for '--port'"),
    ("compare", "Missing argument 'before' (judgekit compare -h"),
    ("compare l.jsonl", "compare: give a second ledger, or --reward, a reward.yaml"),
    ("compare l.jsonl l.jsonl --reward reward.yaml", "for the first one's grades: not both"),
    ("compare l.jsonl l.jsonl --grade", "compare: --grade asks the graders of a reward.yaml: give --reward"),
    ("compare l.jsonl --reward none.yaml", "none.yaml"),
    ("compare l.jsonl --reward reward.yaml --reward reward.yaml --out c.html", "give one --reward"),
    ("compare l.jsonl --reward reward.yaml --out reward.yaml --force", "would overwrite reward.yaml, which is read"),
    ("compare l.jsonl none", "cannot read none: No such file or directory"),
    ("compare l.jsonl empty", "the ledger empty holds no rollouts yet"),
    ("compare l.jsonl rollouts.jsonl", "rollouts.jsonl, line 1: not a line of a judgekit ledger"),
    ("compare l.jsonl l.jsonl --json --out -", "--json and --out - both write to standard output"),
    ("compare l.jsonl l.jsonl --out l.jsonl --force", "l.jsonl would overwrite l.jsonl, which is read"),
    ("compare l.jsonl l.jsonl --out old", "old exists: --force overwrites it"),
    ("report l.jsonl extra", "Got unexpected extra argument(s) (extra)"),
    ("export l.jsonl", "Missing argument 'to' (judgekit export -h"),
    ("export none g.jsonl", "cannot read none: No such file or directory"),
    ("export reward.yaml g.jsonl", "reward.yaml is not a ledger: give the file that"),
    ("export empty g.jsonl", "the ledger empty holds no rollouts yet"),
    ("export l.jsonl g.xlsx", "g.xlsx: .xlsx is not written: end the name with .jsonl, .json, .csv, .tsv or .parquet"),
    ("export l.jsonl old", "old exists: --force overwrites it"),
    ("export l.jsonl l.jsonl --force", "l.jsonl would overwrite l.jsonl, which is read"),
    ("replay", "Missing argument 'ledger' (judgekit replay -h"),
    ("replay none", "cannot read none: No such file or directory"),
    ("replay rollouts.jsonl --out n", "rollouts.jsonl, line 1: not a line of a judgekit ledger"),
    ("replay empty", "the ledger holds no rollouts"),
    ("replay no-spec", "its spec line is missing"),
    ("replay l.jsonl --reward none.yaml", "cannot read none.yaml: No such file or directory"),
    ("replay l.jsonl --reward l.jsonl --out n", "l.jsonl, line 2: not YAML"),
    ("replay l.jsonl --reward other.yaml --out n", "the reward names 'x', which the ledger holds no grades of; there is 'brief', 'correct'"),
    ("replay l.jsonl --reward weight.yaml", "weight.yaml: the weight of 'correct' is a finite number, not 'x'"),
    ("replay l.jsonl --reward key.yaml", "key.yaml: runner: there is no parameter 'transfrm'; did you mean 'transform'?"),
    ("replay l.jsonl --reward value.yaml", "value.yaml: runner.missing_reward: expected 'exclude'"),
    ("replay l.jsonl --out n.csv", "n.csv: JSON lines are written: end the name with .jsonl"),
    ("replay l.jsonl --json --out -", "--json and --out - both write to standard output"),
    ("replay l.jsonl --only all --reward reward.yaml", "--only is failed, not 'all'"),
    ("replay l.jsonl --only failed", "--only failed asks graders again: give --reward, a reward.yaml"),
    ("replay l.jsonl --only failed --reward other.yaml", "the ledger holds no grades of 'x', and only failed grades are asked again"),
    ("replay l.jsonl --only failed --reward range.yaml", "the ledger's grades of 'correct' are of version"),
    ("replay l.jsonl --only failed --reward reward.yaml --ledger l.jsonl", "the ledger l.jsonl is l.jsonl, which is read"),
    ("replay l.jsonl --only failed --reward none.yaml", "cannot read none.yaml"),
    ("lint", "Missing argument 'config' (judgekit lint -h"),
    ("lint none.yaml", "cannot read none.yaml: No such file or directory"),
    ("lint folder", "cannot read folder: Is a directory"),
    ("lint reward.yaml x", "cannot read x: No such file"),
    ("lint latin-template.yaml", "latin.txt: not UTF-8 text (byte 2); save it as UTF-8"),
    ("lint latin-rubric.yaml", "latin.toml: not UTF-8 text (byte 8); save it as UTF-8"),
    ("lint reward.yaml rollouts.jsonl x", "Got unexpected extra argument(s) (x)"),
    ("schema x", "Got unexpected extra argument(s) (x)"),
    ("graders nope", "there is no grader 'nope'; there is 'action_loop'"),
    ("graders final_anwser", "there is no grader 'final_anwser'; did you mean 'final_answer'?"),
    ("graders a b", "Got unexpected extra argument(s) (b)"),
    ("graders :", "cannot import the grader ':'"),
    ("graders nomodule:x", "cannot import the grader 'nomodule:x': ModuleNotFoundError: No module named 'nomodule'"),
    ("graders json:nothing", "module 'json' has no attribute 'nothing'"),
    ("graders unfinished:x", "SyntaxError: '(' was never closed"),
    ("graders raises:x", "ValueError: a fault of the user's own"),
    ("serve --engine x", "--engine is ray or http, not 'x'"),
    ("serve --engine-arg x", "--engine-arg is key=value, not 'x'"),
    ("serve --engine-arg =x", "--engine-arg is key=value, not '=x'"),
    ("serve --engine-arg x={", "--engine-arg x: '{' is neither YAML nor JSON"),
    ("serve --replicas 0", "--replicas and --tensor-parallel-size must be at least 1"),
    ("serve --replicas x", "Invalid value for '--replicas'"),
    ("serve --tensor-parallel-size 0", "--replicas and --tensor-parallel-size must be at least 1"),
    ("serve --port 99999", "Invalid value for '--port'"),
    ("serve --port x", "Invalid value for '--port'"),
    ("serve --hang-timeout -1", "Invalid value for '--hang-timeout'"),
    ("serve --host 0.0.0.0", "other machines can use the judge: set LLM_JUDGE_SERVER_API_KEY"),
    ("serve --name a/b", "--name is letters, digits, '.', '_' and '-', not 'a/b'"),
    ("serve --name ", "--name is letters, digits, '.', '_' and '-', not ''"),
    ("serve --model ", "--model is a folder, a Hugging Face name, or 'embedded', not ''"),
    ("serve --status --stop", "give --status or --stop, not both"),
    ("serve --gpus 1", "--gpus is a number above 0, for --engine ray"),
    ("serve --gpus -1 --engine ray", "--gpus is a number above 0, for --engine ray"),
    ("serve x", "Got unexpected extra argument(s) (x)"),
    ("check ", "give a Ray judge's name, or a server's URL"),
    ("check ftp://x", "'ftp://x' is not a server address such as http://127.0.0.1:8000/v1"),
    ("check http://", "'http://' is not a server address"),
    ("check http://h:99999", "'http://h:99999' is not a server address"),
    ("check http://127.0.0.1:1 --burst 0", "Invalid value for '--burst'"),
    ("check http://127.0.0.1:1 --burst x", "Invalid value for '--burst'"),
]
OUTPUTS = [
    (f"{G} --out reward.yaml --force", "reward.yaml would overwrite reward.yaml, which is read: choose another file"),
    (f"{G} --out rollouts.jsonl --force", "rollouts.jsonl would overwrite rollouts.jsonl"),
    (f"{G} --out folder/../rollouts.jsonl --force", "would overwrite rollouts.jsonl"),
    (f"{G} --out symlink --force", "symlink would overwrite rollouts.jsonl"),
    (f"{G} --out hardlink --force", "hardlink would overwrite rollouts.jsonl"),
    (f"{G} --out l.jsonl --force", "l.jsonl is a ledger, which is not overwritten: choose another file"),
    (f"{G} --out to-ledger --force", "to-ledger is a ledger, which is not overwritten"),
    (f"{G} --out g --report g --ledger l", "g would overwrite g"),
    (f"{G} --out g --ledger g", "g would overwrite g"),
    (f"{G} --out dangling --ledger not-there", "dangling would overwrite not-there"),
    (f"{G} --out ledgers/g.jsonl --ledger ledgers", "would be read as a part of ledgers"),
    (f"{G} --out folder", "folder is a folder: give the name of a file"),
    (f"{G} --report folder --ledger l", "folder is a folder: give the name of a file"),
    (f"{G} --out old", "old exists: --force overwrites it"),
    (f"{G} --report old --ledger l", "old exists: --force overwrites it"),
    (f"{G} --out new/g --report old --ledger l", "old exists: --force overwrites it"),
    (f"{G} --out old/x", "cannot write old/x: a part of its path is a file, not a folder"),
    (f"{G} --report old/x --ledger l", "cannot write old/x: a part of its path is a file, not a folder"),
    (f"{G} --ledger old/x", "cannot write old/x: a part of its path is a file, not a folder"),
    (f"{G} --out loop", "cannot write loop: Too many levels of symbolic links"),
    (f"{G} --ledger loop", "cannot write loop: Too many levels of symbolic links"),
    (f"{G} --out {'n' * 300}", "File name too long"),
    (f"{G} --ledger {'n' * 300}", "File name too long"),
    (f"{G} --ledger reward.yaml", "the ledger reward.yaml is reward.yaml, which is read"),
    (f"{G} --ledger rollouts.jsonl", "the ledger rollouts.jsonl is rollouts.jsonl, which is read"),
    (f"{G} --ledger symlink", "the ledger symlink is rollouts.jsonl, which is read"),
    (f"{G} --ledger hardlink", "the ledger hardlink is rollouts.jsonl, which is read"),
    (f"{G} --ledger old", "old is not a ledger, and nothing is appended to it: choose another file"),
    (f"{G} --ledger old --resume", "old is not a ledger"),
    (f"{G} --ledger foreign", "foreign is not a ledger"),
    (f"{G} --ledger fifo", "the ledger fifo is a device or a pipe, from which nothing can be read again"),
    (f"{G} --ledger /dev/null", "the ledger /dev/null is a device or a pipe"),
    ("grade its-own.yaml rollouts.jsonl", "its-own.yaml, which is read: choose another file"),
    ("grade the-input.yaml rollouts.jsonl", "rollouts.jsonl, which is read: choose another file"),
    ("grade kept.yaml rollouts.jsonl --out kept.jsonl --force", "kept.jsonl would overwrite"),
    ("grade kept.yaml rollouts.jsonl --report kept.jsonl --force", "kept.jsonl would overwrite"),
    ("report l.jsonl --out l.jsonl --force", "l.jsonl would overwrite l.jsonl, which is read"),
    ("report ledger.html", "ledger.html would overwrite ledger.html, which is read"),
    ("report l.jsonl --out to-ledger --force", "to-ledger would overwrite l.jsonl, which is read"),
    ("report l.jsonl --out other-ledger --force", "other-ledger is a ledger, which is not overwritten"),
    ("report l.jsonl --out folder", "folder is a folder: give the name of a file"),
    ("report l.jsonl --out old", "old exists: --force overwrites it"),
    ("report l.jsonl --out old/x", "cannot write old/x: a part of its path is a file, not a folder"),
    ("replay l.jsonl --out l.jsonl --force", "l.jsonl would overwrite l.jsonl, which is read"),
    ("replay l.jsonl --out to-ledger --force", "to-ledger would overwrite l.jsonl, which is read"),
    ("replay l.jsonl --out other-ledger --force", "other-ledger is a ledger, which is not overwritten"),
    ("replay l.jsonl --reward rewarded --out rewarded --force", "rewarded would overwrite rewarded, which is read"),
    ("replay l.jsonl --out folder", "folder is a folder: give the name of a file"),
    ("replay l.jsonl --out old", "old exists: --force overwrites it"),
    ("replay l.jsonl --out old/x", "cannot write old/x: a part of its path is a file, not a folder"),
]
# fmt: on


@pytest.fixture
def crowded(files: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a ledger, and all that stands in a command's way."""
    monkeypatch.setenv("JUDGEKIT_STATE", str(files / "state"))
    for name in ("LLM_JUDGE_SERVER_API_KEY", "VLLM_API_KEY", "LLM_JUDGE_SERVER_URL"):
        monkeypatch.delenv(name, raising=False)
    return crowd(files)


def crowd(files: Path) -> Path:
    """Fill a folder with what stands in a command's way; `make bench-first-hour` calls there, too."""
    assert call(files, *f"{G} --ledger l.jsonl".split()).returncode == 0
    ledger = (files / "l.jsonl").read_text()
    texts = {
        "empty": "",
        "old": "something of the user's\n",
        "torn": '{"type":"rollo',
        "foreign": '{"response": "x"}\n',
        "other-ledger": ledger,
        "ledger.html": ledger,
        "no-spec": "".join(line + "\n" for line in ledger.splitlines() if '"type":"rollout"' in line),
        "unfinished.py": "x = (",
        "raises.py": "raise ValueError('a fault of the user\\'s own')",
        "other.yaml": "graders: {x: final_answer}\nreward: x\n",
        "weight.yaml": "graders: {correct: final_answer}\nreward: {weighted: {correct: x}}\n",
        "key.yaml": "graders: {correct: final_answer}\nrunner: {transfrm: zscore}\n",
        "value.yaml": "graders: {correct: final_answer}\nrunner: {missing_reward: yes}\n",
        "latin-template.yaml": f"graders: {{j: {{use: judge, judge: l, template: latin.txt}}}}\njudges: {{l: {JUDGE}}}\n",
        "latin-rubric.yaml": f"graders: {{j: {{use: rubric, judge: l, rubric: latin.toml}}}}\njudges: {{l: {JUDGE}}}\n",
        "range.yaml": "graders: {correct: {use: soft_overlong, max_length: 9, cache: 3}}\n",
        "its-own.yaml": f"{CONFIG}ledger: {{path: its-own.yaml}}\n",
        "the-input.yaml": f"{CONFIG}ledger: {{path: rollouts.jsonl}}\n",
        "list.yaml": "graders: {correct: final_answer}\nrunner: [1]\n",
        "limits.yaml": "lenght: 0.4\n",
        "kept.yaml": f"{CONFIG}ledger: {{path: kept.jsonl}}\n",
        "rewarded": CONFIG,
    }
    for name, text in texts.items():
        (files / name).write_text(text)
    (files / "latin.txt").write_bytes(b"a \xff {CANDIDATE_SOLUTION}")
    (files / "latin.toml").write_bytes(b'name = "\xff"')
    (files / "folder").mkdir()
    (files / "ledgers").mkdir()
    (files / "symlink").symlink_to("rollouts.jsonl")
    (files / "to-ledger").symlink_to("l.jsonl")
    (files / "dangling").symlink_to("not-there")
    (files / "loop").symlink_to("loop")
    os.link(files / "rollouts.jsonl", files / "hardlink")
    os.mkfifo(files / "fifo")
    return files


@pytest.mark.parametrize(("args", "says"), ARGUMENTS, ids=range(len(ARGUMENTS)))
def test_wrong_arguments(crowded: Path, args: str, says: str) -> None:
    refused(crowded, args, says)


@pytest.mark.parametrize(("args", "says"), OUTPUTS, ids=range(len(OUTPUTS)))
def test_outputs_that_would_destroy_something(crowded: Path, args: str, says: str) -> None:
    refused(crowded, args, says)


def test_what_is_forced_is_overwritten(crowded: Path) -> None:
    (crowded / "g").write_text("old")
    called = call(crowded, *f"{G} --out g --force".split())
    assert (called.returncode, called.stderr) == (0, "")
    assert len((crowded / "g").read_text().splitlines()) == 3


def test_a_symbolic_link_is_written_through(crowded: Path) -> None:
    assert call(crowded, *f"{G} --out dangling".split()).returncode == 0
    assert (crowded / "dangling").is_symlink()
    assert len((crowded / "not-there").read_text().splitlines()) == 3


def test_a_full_disk_is_one_sentence_and_code_1(crowded: Path) -> None:
    before = contents(crowded)
    for args in (f"{G} --out /dev/full", "replay l.jsonl --out /dev/full", "report l.jsonl --out /dev/full"):
        called = call(crowded, *args.split())
        assert (called.returncode, called.stderr) == (
            1,
            "judgekit: cannot write /dev/full: No space left on device\n",
        )
    assert contents(crowded) == before


@pytest.mark.parametrize(
    ("args", "advice"),
    [
        (f"{G} --ledger full.jsonl", "--resume asks only for what is missing"),
        ("replay l.jsonl --ledger full.jsonl", "replay again into another ledger"),
        (
            "replay l.jsonl --reward reward.yaml --only failed --ledger full.jsonl",
            "replay again into another ledger",
        ),
    ],
)
def test_lines_that_a_full_disk_costs_are_no_success(
    args: str, advice: str, crowded: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.write

    def write(fd: int, data: Any) -> int:
        if os.readlink(f"/proc/self/fd/{fd}").endswith("full.jsonl"):
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(fd, data)

    monkeypatch.setattr(os, "write", write)
    monkeypatch.setattr(writer, "_EXIT_S", 0.2)
    monkeypatch.setattr(writer, "_RETRY_S", 0.02)
    called = call(crowded, *args.split())
    assert called.returncode == 1
    last = called.stderr.splitlines()[-1]
    assert last.startswith("judgekit: 4 lines are not in the ledger full.jsonl, whose disk took no more")
    assert advice in last


def test_devices_and_pipes_stay_what_they_are(crowded: Path) -> None:
    assert call(crowded, *f"{G} --out /dev/null".split()).returncode == 0
    assert Path("/dev/null").is_char_device()
    reader = os.open(crowded / "fifo", os.O_RDONLY | os.O_NONBLOCK)
    try:
        assert call(crowded, *f"{G} --out fifo".split()).returncode == 0
        lines = os.read(reader, 1 << 16).splitlines()
    finally:
        os.close(reader)
    assert [json.loads(line)["reward"] for line in lines] == [1.0, 0.0, None]
    assert (crowded / "fifo").is_fifo()


def test_a_message_cannot_steer_the_terminal(files: Path) -> None:
    """A file's name or a row's words are shown without their control characters."""
    called = call(files, "grade", "reward.yaml", "\x1b[31mred\nred.jsonl")
    assert called.returncode == 2
    assert called.stderr == "judgekit: cannot read [31mred red.jsonl: No such file or directory\n"
