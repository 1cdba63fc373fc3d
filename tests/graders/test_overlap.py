"""Overlap, GLEU, METEOR, and the similarities of difflib and fuzz."""

from __future__ import annotations

import difflib
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nltk.translate.gleu_score import sentence_gleu

from judgekit import ConfigError, Graded, Rollout
from judgekit.graders import EditSimilarity, Gleu, Meteor, Overlap, TextMatch


def score(grader: Any, response: str, truth: Any) -> float | None:
    grade = grader.grade(Rollout(response=response, ground_truth=truth))
    return grade.score if isinstance(grade, Graded) else None


@pytest.mark.parametrize(
    ("of", "response", "truth", "expected"),
    [
        ("jaccard", "a b c", "b c d", 0.5),
        ("jaccard", "a b b b", "a b", 1),
        ("jaccard", "A b", "a B", 1),
        ("jaccard", "a", "b", 0),
        ("jaccard", "", "b", 0),
        ("jaccard", "a, b", "a b", 1 / 3),
        ("dice", "a b c", "b c d", 2 / 3),
        ("dice", "a", "a", 1),
        ("dice", "a b c d", "a", 0.4),
        ("smaller", "a b c d", "a", 1),
        ("smaller", "a b", "b c d", 0.5),
        ("smaller", "a", "b c", 0),
        ("reference", "a b c d", "a x", 0.5),
        ("reference", "a", "a b c d", 0.25),
        ("reference", "so a and b it is", "a b", 1),
        ("cosine", "a b", "a b", 1),
        ("cosine", "a a b", "a b b", 0.8),
        ("cosine", "a", "a b", 1 / math.sqrt(2)),
        ("cosine", "a", "b", 0),
        ("cosine", "a a a a", "a", 1),
        ("jaccard", "x", None, None),
        ("jaccard", "<think>a b</think>c", "c", 1),
        ("jaccard", "a b", ["x", "a b c"], 2 / 3),
    ],
)
def test_overlap(of: Any, response: str, truth: Any, expected: float | None) -> None:
    found = score(Overlap(of=of), response, truth)
    assert found == (None if expected is None else pytest.approx(expected))


def test_overlap_of_characters_and_runs() -> None:
    assert score(Overlap(unit="characters"), "ab c", "cb d") == 0.5
    assert score(Overlap(unit="characters"), "東京都", "京都") == pytest.approx(2 / 3)
    assert score(Overlap(ngram=2), "a b c", "a b d") == pytest.approx(1 / 3)
    assert score(Overlap(ngram=2), "a", "a") == 1
    assert score(Overlap(ngram=3), "a b", "b a") == 0
    assert score(Overlap(normalise=True), "The cat!", "cat") == 1
    assert score(Overlap(ignore_case=False), "A", "a") == 0
    assert score(Overlap(normalise=True), "a", "the") == 0  # articles only: they are kept
    assert score(Overlap(normalise=True), "The", "the") == 1
    assert score(Overlap(several="all"), "a b", ["a b", "c"]) == 0


@pytest.mark.parametrize(
    ("response", "truth", "expected"),
    [
        ("the cat is here", "the cat is here", 1),
        ("the cat", "the dog", 1 / 3),
        ("a b c d", "a b c e", 6 / 10),
        ("a", "a b c d", 1 / 10),
        ("a b c d", "a", 1 / 10),
        ("d c b a", "a b c d", 4 / 10),
        ("a a a a", "a", 1 / 10),
        ("", "a", 0),
        ("x", "a", 0),
        ("The cat", "the cat", 1 / 3),
        ("<think>x</think>a b", "a b", 1),
        ("a b", ["x y", "a b"], 1),
    ],
)
def test_gleu(response: str, truth: Any, expected: float) -> None:
    assert score(Gleu(), response, truth) == pytest.approx(expected)


def test_gleu_settings() -> None:
    assert score(Gleu(lowercase=True), "The cat", "the cat") == 1
    assert score(Gleu(max_order=1), "d c b a", "a b c d") == 1
    assert score(Gleu(), "a", None) is None


texts = st.lists(st.sampled_from("the cat cats sat sits on a mat".split()), max_size=12).map(" ".join)  # noqa: SIM905


@given(texts, texts.filter(bool))
def test_gleu_is_nltk_s(answer: str, reference: str) -> None:
    wanted = sentence_gleu([reference.split()], answer.split())
    assert score(Gleu(), answer, reference) == pytest.approx(wanted)


@pytest.mark.parametrize(
    ("response", "truth", "expected"),
    [
        ("the cat sat", "the cat sat", 1 - 0.5 / 27),
        ("The Cat, sat!", "the cat sat", 1 - 0.5 / 27),
        ("cats", "cat", 0.5),
        ("running dogs", "run dog", 1 - 0.5 / 8),
        ("sat cat", "cat sat", 0.5),
        ("x", "cat", 0),
        ("", "cat", 0),
        ("a cat", "the cat", 0.5 * 0.5),
        # half of the answer, all of the reference: P = 0.5, R = 1
        ("the cat sat here", "the cat", (1 - 0.5 / 8) * 0.5 / (0.45 + 0.1)),
        ("the cat", "the cat sat here", (1 - 0.5 / 8) * 0.5 / (0.9 + 0.05)),
        # two chunks of two
        ("c d a b", "a b c d", 1 - 0.5 / 8),
        ("a x b", "a b", (1 - 0.5) * (2 / 3) / (0.6 + 0.1)),
    ],
)
def test_meteor(response: str, truth: str, expected: float) -> None:
    assert score(Meteor(), response, truth) == pytest.approx(expected)


def test_meteor_settings() -> None:
    assert score(Meteor(stem=False), "cats", "cat") == 0
    assert score(Meteor(gamma=0), "sat cat", "cat sat") == 1
    assert score(Meteor(gamma=0, alpha=0.5), "a b", "a") == pytest.approx(2 / 3)
    assert score(Meteor(), "a", None) is None


@pytest.mark.parametrize(
    "grader", [Overlap(), Overlap(of="cosine"), Overlap(ngram=2), Gleu(), Meteor(gamma=0), EditSimilarity(distance="difflib"), EditSimilarity(distance="partial"), EditSimilarity(distance="token_sort"), EditSimilarity(distance="token_set")]
)  # fmt: skip
@given(text=texts.filter(bool))
def test_gold_against_itself_is_1_and_another_text_is_not(grader: Any, text: str) -> None:
    assert score(grader, text, text) == pytest.approx(1)
    assert score(grader, "zzz", text) == pytest.approx(0)


@given(texts, texts.filter(bool))
def test_scores_stay_in_their_range(answer: str, reference: str) -> None:
    for grader in (Overlap(), Overlap(of="cosine"), Overlap(of="dice"), Gleu(), Meteor(), Meteor(stem=False)):
        found = score(grader, answer, reference)
        assert found is not None
        assert 0 <= found <= 1
    mirrored = score(Overlap(), reference, answer or "x")
    assert mirrored == score(Overlap(), answer or "x", reference)


@pytest.mark.parametrize(
    ("distance", "response", "truth", "expected"),
    [
        ("difflib", "abcd", "bcde", 0.75),
        ("difflib", "private Thread currentThread;", "private volatile Thread currentThread;", 2 * 29 / 67),
        ("difflib", "tide", "diet", 0.25),
        ("difflib", "diet", "tide", 0.5),
        ("indel", "tide", "diet", 0.5),
        ("partial", "New York", "New York Mets", 1),
        ("partial", "the Mets of New York", "New York", 1),
        ("partial", "abc", "xyz", 0),
        ("token_sort", "New York Mets", "Mets New York", 1),
        ("token_sort", "a b", "a c", 2 / 3),
        ("token_set", "a b b a", "b a", 1),
        ("token_set", "Mets", "New York Mets", 1),
        ("difflib", "", "a", 0),
        ("partial", "", "a", 0),
        ("token_sort", "", "a", 0),
    ],
)
def test_other_similarities(distance: Any, response: str, truth: str, expected: float) -> None:
    assert score(EditSimilarity(distance=distance), response, truth) == pytest.approx(expected)


@given(texts, texts.filter(bool))
def test_difflib_is_difflib(answer: str, reference: str) -> None:
    wanted = difflib.SequenceMatcher(None, answer, reference, autojunk=False).ratio()
    assert score(EditSimilarity(distance="difflib"), answer, reference) == wanted


@pytest.mark.parametrize(
    ("how", "response", "truth", "expected"),
    [
        ("exact", "f( x )", "f(x)", 1),
        ("exact", "f (y)", "f(x)", 0),
        ("contains", "so a b c it is", "ab c", 1),
        ("prefix", "a\tb c", "ab", 1),
        ("suffix", "a b\nc", "bc", 1),
        ("normalised", "new york", "New York!", 1),
    ],
)
def test_space_can_be_ignored(how: Any, response: str, truth: str, expected: float) -> None:
    assert score(TextMatch(how=how, ignore_space=True), response, truth) == expected


def test_edit_similarity_without_space() -> None:
    assert score(EditSimilarity(ignore_space=True), "a b c", "abc") == 1
    assert score(EditSimilarity(), "a b c", "abc") == pytest.approx(0.6)


@pytest.mark.parametrize(
    ("build", "says"),
    [
        (lambda: Overlap(of="jacard"), "did you mean 'jaccard'"),  # type: ignore[arg-type]
        (lambda: Overlap(unit="word"), "unit is one of"),  # type: ignore[arg-type]
        (lambda: Overlap(ngram=0), "ngram is a whole number"),
        (lambda: Gleu(max_order=0), "max_order is a whole number"),
        (lambda: Meteor(alpha=2), "alpha is a number from 0 to 1"),
        (lambda: Meteor(beta=-1), "beta is a number"),
        (lambda: EditSimilarity(distance="token_sort", ignore_space=True), "there are no words"),
        (lambda: TextMatch(how="regex", ignore_space=True), "leave out ignore_space"),
        (lambda: TextMatch(how="contains", whole_words=True, ignore_space=True), "leave out ignore_space"),
    ],
)
def test_wrong_settings_are_said(build: Any, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        build()
