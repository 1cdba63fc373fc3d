"""The embedded judge on the real engine: what it is shipped for, on cases that it was not trained on."""

from __future__ import annotations

import random
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from embedded_judge.generator import Case, Recipe, label_of, sample
from embedded_judge.hard import RECIPES, hard_sets
from embedded_judge.lessons import Maker

from judgekit import Graded, GradingRunner, Rollout
from judgekit.data import read_rollouts
from judgekit.execution.background import run_blocking
from judgekit.graders import JudgeGrader
from judgekit.judges import ChoiceVerdict, JudgeReply, JudgeRequest, LineVerdict, VLLMJudge
from judgekit.judges.engines.vllm.judge import EMBEDDED, model_path

ROOT = Path(__file__).parents[2]
MANY = 24


@pytest.fixture(scope="module")
def judge() -> Iterator[VLLMJudge]:
    made = VLLMJudge(max_model_len=4096)
    run_blocking(made.start())
    yield made
    run_blocking(made.close())


@pytest.fixture(scope="module")
def cases() -> dict[str, list[Case]]:
    return hard_sets(11, size=MANY)


async def grades(grader: JudgeGrader, rollouts: list[Rollout]) -> list[object]:
    results = await GradingRunner({"judge": grader}, timeout_s=300).run(rollouts)
    return [result.grades["judge"] for result in results]


def share(found: list[object], labels: list[int]) -> float:
    hits = [
        isinstance(g, Graded) and int(g.score >= 0.5) == label for g, label in zip(found, labels, strict=True)
    ]
    return sum(hits) / len(hits)


def test_the_model_is_small_and_whole() -> None:
    folder = Path(model_path(EMBEDDED))
    names = {path.name for path in folder.iterdir()}
    assert {"config.json", "tokenizer.json", "model.safetensors", "MODEL_CARD.md"} <= names
    assert sum(path.stat().st_size for path in folder.iterdir()) < 8_000_000


async def test_lessons_are_what_the_engine_reads(judge: VLLMJudge, cases: dict[str, list[Case]]) -> None:
    """Training saw the very token ids that a grader's request becomes."""
    engine = judge._engine
    assert engine is not None
    read: list[list[int]] = []

    class Recorder:
        async def complete(self, request: JudgeRequest, /) -> JudgeReply:
            read.append(engine.encoder.encode(request.turns, reply_tokens=1).ids)
            return await judge.complete(request)

    rng = random.Random(21)
    made = [sample(rng, Recipe()) for _ in range(8)]
    await grades(JudgeGrader(Recorder()), [one.case.rollout() for one in made])
    maker = Maker(engine.tokenizer)
    lessons = [maker.lesson(rng, one, form="direct") for one in made]
    assert sorted(lesson.ids for lesson in lessons) == sorted(read)
    assert all(lesson.targets[0][0] == len(lesson.ids) - 1 for lesson in lessons)


def test_every_digit_is_a_token(judge: VLLMJudge) -> None:
    assert judge._engine is not None
    ids = judge._engine.encoder.token_ids("1,234.50 <<6*7=42>> 2026")
    shown = [judge._engine.tokenizer.decode([i]).strip() for i in ids]
    assert [s for s in shown if any(c.isdigit() for c in s)] == list("123450674" + "22026")


@pytest.mark.parametrize("kind", RECIPES)
async def test_hard_cases(kind: str, judge: VLLMJudge, cases: dict[str, list[Case]]) -> None:
    found = await grades(JudgeGrader(judge), [case.rollout() for case in cases[kind]])
    assert share(found, [case.label for case in cases[kind]]) >= 0.85
    masses = [g.metadata["label_mass"] for g in found if isinstance(g, Graded) and g.metadata]
    assert len(masses) == MANY
    assert min(masses) > 0.5


async def test_the_demo_rollouts(judge: VLLMJudge) -> None:
    rollouts = read_rollouts(ROOT / "examples/data/rollouts.jsonl")[:60]
    found = await grades(JudgeGrader(judge), rollouts)
    assert share(found, [label_of(r.ground_truth, r.response) for r in rollouts]) >= 0.9


def test_make_demo_is_quiet_and_ends_with_a_table(tmp_path: Path) -> None:
    (line,) = re.findall(
        r"^\t\$\(VLLM\) (-m judgekit grade examples/demo.*)$", (ROOT / "Makefile").read_text(), re.M
    )
    command = [sys.executable, *line.replace("demo-out", str(tmp_path)).split(), "--limit", "12"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert re.search(r"^judge +12 ", done.stdout, re.M)
    assert (tmp_path / "report.html").exists()
    words = ("warn", "triton", "leaked", "traceback", "error")
    rows = done.stderr.splitlines()
    if any("still waiting for VLLMJudge" in row for row in rows):
        # on a busy machine the engine takes its time, a line says so, and vLLM ends its processes by force
        rows = [
            row for row in rows if "still waiting for VLLMJudge" not in row and "resource_tracker" not in row
        ]
    assert not [row for row in rows if any(word in row.lower() for word in words)]


async def test_spare_labels_mean_the_same(judge: VLLMJudge, cases: dict[str, list[Case]]) -> None:
    some = [case for kind in ("one_digit", "second_thoughts", "empty_prediction") for case in cases[kind]]
    found = await grades(
        JudgeGrader(judge, verdict=ChoiceVerdict().spare()), [case.rollout() for case in some]
    )
    assert share(found, [case.label for case in some]) >= 0.85
    assert all(isinstance(g, Graded) and set((g.metadata or {})["probs"]) == {"A", "B"} for g in found)


async def test_a_rollout_that_begins_with_a_label_is_asked_the_same_question(judge: VLLMJudge) -> None:
    rollouts = [
        Rollout(prompt="How many eggs?", ground_truth="#### 12", response="12"),
        Rollout(prompt="How many eggs?", ground_truth="#### 12", response="1"),
        Rollout(prompt="How many eggs?", ground_truth="#### 12", response="0\n#### 12"),
        Rollout(prompt="How many eggs?", ground_truth="#### 12", response="It is 13."),
    ]
    found = await grades(JudgeGrader(judge), rollouts)
    assert all(isinstance(g, Graded) and set((g.metadata or {})["probs"]) == {"0", "1"} for g in found)
    assert share(found, [1, 0, 1, 0]) == 1


async def test_an_empty_response_is_judged_and_is_wrong(judge: VLLMJudge) -> None:
    rollouts = [
        Rollout(prompt="How many eggs?", ground_truth=f"#### {n}", response="") for n in (3, 12, 450, 7000)
    ]
    found = await grades(JudgeGrader(judge), rollouts)
    assert all(isinstance(g, Graded) and g.score < 0.5 for g in found)


@pytest.mark.parametrize("nonce", [False, True])
async def test_the_written_form(nonce: bool, judge: VLLMJudge, cases: dict[str, list[Case]]) -> None:
    """With a code it often fails to copy the code: that is a failed grade, and hardly ever a wrong one."""
    some = cases["one_digit"]
    found = await grades(
        JudgeGrader(judge, verdict=LineVerdict(nonce=nonce, max_tokens=64)), [c.rollout() for c in some]
    )
    read = [(g, case.label) for g, case in zip(found, some, strict=True) if isinstance(g, Graded)]
    assert len(read) >= (len(some) // 4 if nonce else len(some) - 1)
    assert share([g for g, _ in read], [label for _, label in read]) >= 0.85
