"""What the embedded judge is trained and measured on: deterministic, labelled by judgekit's own rule, and our own."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path

import pytest
from embedded_judge import demo, words
from embedded_judge.garbage import HELD_OUT, KINDS, SCRIPTS, garbage, garbage_sets
from embedded_judge.generator import NUMBER, Recipe, canonical, drill, label_of, near_miss, sample
from embedded_judge.hard import RECIPES, hard_sets

from judgekit.data import read_rollouts
from judgekit.graders import FinalAnswer
from judgekit.types import Graded

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def sets() -> dict[str, list[object]]:
    return hard_sets(3, size=40)  # type: ignore[return-value]


def test_the_same_seed_gives_the_same_samples_and_another_seed_others() -> None:
    def many(seed: int) -> list[object]:
        rng = random.Random(seed)
        return [sample(rng, Recipe()) for _ in range(50)] + [drill(rng) for _ in range(20)]

    assert many(1) == many(1)
    assert not set(many(1)) & set(many(2))


def test_labels_are_those_of_the_final_answer_rule() -> None:
    rng = random.Random(4)
    made = [sample(rng, Recipe()) for _ in range(400)]
    for one in made:
        case = one.case
        grade = FinalAnswer().grade(case.rollout())
        assert isinstance(grade, Graded)
        assert case.label == grade.score
        said = canonical(case.response[slice(*one.candidate)]) if one.candidate else None
        assert case.label == (said == canonical(case.ground_truth[slice(*one.reference)]))
    assert 0.35 < sum(one.case.label for one in made) / len(made) < 0.6


def test_every_wrong_answer_is_another_number() -> None:
    rng = random.Random(5)
    for number in ["0", "7", "72", "1000", "77777", "12.5", "-3", "1234567"]:
        for _ in range(100):
            missed = near_miss(rng, number, ["7", "72"])
            assert missed != number
            assert canonical(missed) == missed
            assert NUMBER.fullmatch(missed)


@pytest.mark.parametrize("kind", RECIPES)
def test_hard_sets_have_their_size_and_their_labels(kind: str, sets: dict[str, list[object]]) -> None:
    cases = sets[kind]
    assert len(cases) == 40
    labels = [case.label for case in cases]  # type: ignore[attr-defined]
    assert labels == [label_of(case.ground_truth, case.response) for case in cases]  # type: ignore[attr-defined]
    only = {
        "empty_prediction": 0,
        "no_number": 0,
        "right_number_elsewhere": 0,
        "wrong_number_elsewhere": 1,
    }.get(kind)
    assert set(labels) == ({0, 1} if only is None else {only})
    if only is None:
        assert sum(labels) == 20


def test_hard_sets_are_what_they_are_called(sets: dict[str, list[object]]) -> None:
    def of(kind: str) -> list[tuple[str, str, int]]:
        return [(c.ground_truth, c.response, c.label) for c in sets[kind]]  # type: ignore[attr-defined]

    assert all(not response for _, response, _ in of("empty_prediction"))
    assert sum(len(c.prompt + c.ground_truth + c.response) > 1400 for c in sets["long_prompts"]) > 30  # type: ignore[attr-defined]
    for truth, response, _ in of("right_number_elsewhere"):
        numbers = [canonical(m[0]) for m in NUMBER.finditer(truth)]
        assert numbers[-1] in {canonical(m[0]) for m in NUMBER.finditer(response)}
    assert hard_sets(3, size=5) == {kind: cases[:5] for kind, cases in sets.items()}
    assert hard_sets(4, size=5) != hard_sets(3, size=5)


def test_problems_hold_only_words_of_our_own_vocabularies() -> None:
    """Whatever the generator writes is put together from its lists and templates: no sentence is anyone's."""
    source = (ROOT / "tools/embedded_judge/generator.py").read_text().replace("\\n", " ")
    known = set(re.findall(r"[a-z]+", source.lower()))
    for listed in vars(words).values():
        if isinstance(listed, list):
            known |= {word.lower() for word in listed}
    syllables = "|".join(sorted(map(re.escape, words.SYLLABLES)))
    rng = random.Random(6)
    for _ in range(200):
        case = sample(rng, Recipe()).case
        text = f"{case.prompt} {case.ground_truth} {case.response}".lower()
        strange = {word for word in re.findall(r"[a-z]+", text) if word not in known}
        assert all(re.fullmatch(f"(?:{syllables}){{1,4}}s?", word) for word in strange), strange


def test_the_demo_file_is_what_its_program_writes() -> None:
    path = ROOT / "examples/data/rollouts.jsonl"
    assert path.read_text("utf-8") == demo.written()
    rollouts = read_rollouts(path)
    assert len(rollouts) == 200
    groups = {rollout.group for rollout in rollouts}
    assert len(groups) == 50
    labels = [label_of(r.ground_truth, r.response) for r in rollouts]
    assert 60 < sum(labels) < 140
    assert any(len(r.response) > 1400 for r in rollouts)
    assert json.loads(path.read_text("utf-8").splitlines()[0])["id"] == "00-0"


def test_garbage_is_labelled_by_what_stands_behind_it() -> None:
    rng = random.Random(6)
    made = [garbage(rng).case for _ in range(300)]
    rng = random.Random(6)
    assert made == [garbage(rng).case for _ in range(300)]
    assert [case.label for case in made] == [label_of(case.ground_truth, case.response) for case in made]
    assert 0.05 < sum(case.label for case in made) / len(made) < 0.25
    assert max(len(case.response) for case in made) > 5_000


def test_held_out_garbage_has_scripts_that_training_never_sees() -> None:
    seen = {code for low, high in SCRIPTS for code in range(low, high + 1)}
    assert not seen & {code for low, high in HELD_OUT for code in range(low, high + 1)}
    sets = garbage_sets(1, size=10)
    assert set(sets) == set(KINDS)
    assert all(case.label == 0 for cases in sets.values() for case in cases)
    assert "\ufdfa" * 9_000 in [case.response for case in sets["one_character"]]
