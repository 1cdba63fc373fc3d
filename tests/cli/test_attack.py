"""`judgekit attack` as it is called."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from .in_process import call

RULES = "graders:\n  correct: {use: final_answer}\n  brief: {use: length, soft_max: 700, hard_max: 1400}\n"
OPEN = f"{RULES}reward:\n  weighted: {{correct: 0.7, brief: 0.3}}\n"
GATED = f"{RULES}reward:\n  gate: {{if: correct >= 1, then: {{weighted: {{correct: 0.7, brief: 0.3}}}}, otherwise: 0}}\n"
JUDGED = (
    "graders:\n  correct: final_answer\n  judge: {use: judge, judge: far}\n"
    "judges:\n  far: {engine: openai, url: 'http://127.0.0.1:9/v1', model: m}\n"
    "reward:\n  weighted: {correct: 0.6, judge: 0.4}\n"
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "open.yaml").write_text(OPEN)
    (tmp_path / "gated.yaml").write_text(GATED)
    (tmp_path / "judged.yaml").write_text(JUDGED)
    rows = [
        {"prompt": "1+1?", "response": "", "ground_truth": "2"},
        {"prompt": "2+2?", "response": "x", "ground_truth": "4"},
    ]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return tmp_path  # fmt: skip


def test_a_hole_is_said_with_what_pays_it_and_what_closes_it(folder: Path) -> None:
    done = call(folder, "attack", "open.yaml")
    assert done.returncode == 1
    assert "holds no answer, and earns as much as an honest attempt" in done.stdout
    assert "'brief' pays responses that are wrong or empty" in done.stdout
    assert "a right answer earns 1, an honest wrong one 0.3, no answer at all 0.3" in done.stdout
    assert done.stderr == ""


def test_a_sound_reward_ends_well(folder: Path) -> None:
    done = call(folder, "attack", "gated.yaml", "rows.jsonl")
    assert (done.returncode, done.stderr) == (0, "")
    assert "686 completions on 2 rows (2 number)" in done.stdout
    assert "no hole found" in done.stdout


def test_json_is_one_document(folder: Path) -> None:
    done = call(folder, "attack", "open.yaml", "rows.jsonl", "--json", "--at-most", "100")
    told = json.loads(done.stdout)
    assert done.returncode == 0
    assert {hole["term"] for hole in told["holes"]} == {"brief"}
    prompt = "half \ud835 a pair, :boom:\x85\u2028"
    (folder / "odd.jsonl").write_text(json.dumps({"prompt": prompt, "response": "", "ground_truth": "2"}))
    told = json.loads(call(folder, "attack", "open.yaml", "odd.jsonl", "--json").stdout)
    assert {hole["prompt"] for hole in told["holes"]} == {prompt.replace("\ud835", "\\ud835")}


def test_one_completion_is_shown_with_its_tree(folder: Path) -> None:
    done = call(folder, "attack", "open.yaml", "rows.jsonl", "--show", "nothing/0")
    assert "brief = 1" in done.stdout
    assert "response: \n" in done.stdout
    assert "no hole" in call(folder, "attack", "gated.yaml", "--show", "nothing/0").stdout


def test_what_is_shown_does_not_control_a_terminal(folder: Path) -> None:
    row = {"prompt": "two\nlines\x1b[2J\x9b2J\u202e", "response": "", "ground_truth": "2"}
    (folder / "odd.jsonl").write_text(json.dumps(row))
    done = call(folder, "attack", "open.yaml", "odd.jsonl", "--show", "nothing/0")
    assert "prompt: two\nlines\\x1b[2J\\x9b2J\\u202e\n" in done.stdout


def test_a_judge_is_not_asked(folder: Path) -> None:
    done = call(folder, "attack", "judged.yaml", "rows.jsonl")
    assert done.returncode == 0
    assert "not asked: judge (--judges asks)" in done.stdout


def test_functions_of_other_trainers_are_attacked(folder: Path) -> None:
    (folder / "theirs.py").write_text(
        "def trl(prompts, completions, ground_truth, **kwargs):\n"
        "    return [float(t in c) for c, t in zip(completions, ground_truth)]\n"
        "def verl(data_source, solution_str, ground_truth, extra_info=None):\n"
        "    return {'score': float(ground_truth in solution_str)}\n"
    )
    for name in ("trl", "verl"):
        done = call(folder, "attack", f"theirs:{name}", "rows.jsonl")
        assert done.returncode == 1, done.stderr
        assert "denied/0" in done.stdout


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["none.yaml"], "none.yaml"),
        (["reward"], "no such file; a function is written module:function"),
        (["nowhere:f"], "No module named 'nowhere'"),
        (["json:f"], "has no attribute 'f'"),
        (["open.yaml", "none.jsonl"], "none.jsonl"),
        (["open.yaml", "bare.jsonl"], "no prompt has a reference that an attack could be made from"),
        (["flat.yaml"], "no row could be used: give rows of your own data"),
    ],
)
def test_wrong_calls_are_answered_in_a_sentence(folder: Path, args: list[str], says: str) -> None:
    (folder / "bare.jsonl").write_text('{"prompt": "x", "response": "y"}\n')
    (folder / "flat.yaml").write_text("graders: {fenced: code_block}\nreward: {max: [fenced, 1.0]}\n")
    done = call(folder, "attack", *args)
    assert done.returncode == 2
    assert says in done.stderr
    assert done.stderr.count("\n") == 1
