"""Length rewards, repetition, and rules over a group."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from judgekit import Abstained, ConfigError, Failed, Graded, GradingRunner, Rollout, grader
from judgekit.graders import (
    Compression,
    CosineLength,
    Diversity,
    FinalAnswer,
    Length,
    MajorityAgreement,
    MathEquivalence,
    Repetition,
    ShortestCorrect,
    SoftOverlong,
)


def score(rule: Any, response: str, **fields: Any) -> float | None:
    grade = rule.grade(Rollout(response=response, **fields))
    assert isinstance(grade, Graded | Abstained)
    return grade.score if isinstance(grade, Graded) else None


@pytest.mark.parametrize(
    ("tokens", "max_length", "cache", "expected"),
    [
        (0, 100, 20, 0),
        (80, 100, 20, 0),
        (81, 100, 20, -0.05),
        (90, 100, 20, -0.5),
        (100, 100, 20, -1),
        (101, 100, 20, -1),
        (10**9, 100, 20, -1),
        (100, 100, 0, 0),
        (101, 100, 0, -1),
        (50, 100, 100, -0.5),
        (16384 + 2048, 20480, 4096, -0.5),
        (None, 100, 20, None),
        (1, 1, 0, 0),
        (2, 1, 0, -1),
        (79, 100, 20, 0),
        (85, 100, 20, -0.25),
        (95, 100, 20, -0.75),
        (99, 100, 20, -0.95),
        (0, 100, 100, 0),
        (1, 100, 100, -0.01),
        (16384, 20480, 4096, 0),
    ],
)
def test_soft_overlong(tokens: int | None, max_length: int, cache: int, expected: float | None) -> None:
    found = score(SoftOverlong(max_length=max_length, cache=cache), "", response_tokens=tokens)
    assert found == (expected if expected is None else pytest.approx(expected))


def test_lengths_in_words() -> None:
    assert score(SoftOverlong(max_length=4, cache=2, unit="words"), "a b c") == -0.5
    assert score(Length(soft_max=2, hard_max=4, unit="words"), "a b  c\n") == 0.5
    assert score(SoftOverlong(max_length=4, cache=2, count_tokens=len), "abc") == -0.5


@pytest.mark.parametrize(
    ("right", "size", "options", "expected"),
    [
        (True, 0, {}, 1.0),
        (True, 500, {}, 0.75),
        (True, 250, {}, 0.75 + 0.25 * math.cos(math.pi / 4)),
        (True, 1000, {}, 0.5),
        (True, 5000, {}, 0.5),
        (False, 0, {}, -1.0),
        (False, 500, {}, -0.75),
        (False, 1000, {}, -0.5),
        (False, 5000, {}, -0.5),
        (True, 1000, {"exceeded": -10.0}, -10.0),
        (False, 999, {"exceeded": -10.0}, -0.5),
        (True, 0, {"right": (2.0, 1.0)}, 2.0),
        (False, 0, {"wrong": (-10.0, 0.0)}, -10.0),
        (False, 500, {"wrong": (-10.0, 0.0)}, -5.0),
        (True, 1, {}, 1.0),
        (True, 999, {}, 0.5),
        (False, 250, {}, -0.75 - 0.25 * math.cos(math.pi / 4)),
        (False, 750, {}, -0.75 + 0.25 * math.cos(math.pi / 4)),
        (True, 10**6, {"exceeded": 0.0}, 0.0),
        (False, 10**6, {"exceeded": -2.0}, -2.0),
        (True, 500, {"right": (0.0, 1.0)}, 0.5),
    ],
)
def test_cosine_length(right: bool, size: int, options: Any, expected: float) -> None:
    rule = CosineLength(correct=FinalAnswer(), max_length=1000, **options)
    text = ("7" if right else "8").rjust(size) if size else ""
    if not size:  # an empty response is wrong: ask with a judge of our own
        rule = CosineLength(correct=grader(name="ok")(lambda response: float(right)), **options)
    assert score(rule, text, ground_truth="7") == pytest.approx(expected, abs=1e-4)


async def test_cosine_length_asks_any_grader() -> None:
    @grader
    async def awaited(response: str) -> float:
        return 1.0

    @grader
    def broken(response: str) -> float:
        raise ValueError("no")

    graders = {
        "a": CosineLength(correct=awaited),
        "b": CosineLength(correct=broken),
        "c": CosineLength(correct=FinalAnswer()),
        "d": CosineLength(correct=MathEquivalence()),
        "e": CosineLength(correct=FinalAnswer(), unit="tokens"),
    }
    (result,) = await GradingRunner(graders).run([Rollout(response="it is 7", ground_truth="7")])
    assert result.score("a") == pytest.approx(1.0, abs=1e-3)
    assert isinstance(result.grades["b"], Failed)
    assert result.score("c") == result.score("d") == result.score("a")
    assert result.grades["e"] == Abstained("the number of tokens is not known")
    (result,) = await GradingRunner(graders).run([Rollout(response="it is 7")])
    assert isinstance(result.grades["c"], Abstained)


@pytest.mark.parametrize(
    ("text", "options", "expected"),
    [
        ("", {}, 0),
        ("a b", {}, 0),
        ("a b c", {}, 0),
        ("a b c d e", {}, 0),
        ("a a a a", {}, -0.5),
        ("a b a b a b", {}, -0.5),
        ("a " * 1000, {}, -(1 - 1 / 998)),
        ("A b c a B c", {}, -0.25),
        ("a b c a b c", {"n": 1}, -0.5),
        ("a a a a", {"n": 1, "max_penalty": -2.0}, -1.5),
        ("a a", {"n": 2}, 0),
        ("abababab", {}, 0),
        ("abababab", {"unit": "characters", "n": 2}, -5 / 7),
        ("犬犬犬犬", {"unit": "characters", "n": 2}, -2 / 3),
        ("a\nb\tc", {"n": 1}, 0),
        ("🐕 " * 4, {"n": 2}, -2 / 3),
        ("x", {"n": 1}, 0),
        ("x x", {"n": 1}, -0.5),
        (" ".join(map(str, range(5000))), {}, 0),
        ("the cat sat. the cat sat. the dog", {}, -1 / 3),
    ],
)
def test_repetition(text: str, options: Any, expected: float) -> None:
    assert score(Repetition(**options), text) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", None),
        ("x", 1),
        (" ", 1),
        ("abc" * 3, 1),
        ("The quick brown fox jumps over the lazy dog.", 1),
        ("x" * 100_000, 0),
        ("ab" * 50_000, 0),
        ("\n" * 10_000, 0),
        ("\0" * 10_000, 0),
        ("犬" * 10_000, 0),
        ("🐕🐈" * 5_000, 0),
        ("no no " * 5_000, 0),
        ("\ud800", 1),
        ("\ud800" * 10_000, 0),
        ("".join(map(str, range(2000))), 1),
        ("".join(map(chr, range(0x4E00, 0x5E00))), 1),
        (" ".join(str(i * i) for i in range(3000)), 1),
        ("The same sentence again. " * 400, 0),
        ("def f(x):\n    return x\n", 1),
        ("x" * 10**6, 0),
    ],
)
def test_compression_of(text: str, expected: float | None) -> None:
    assert score(Compression(), text) == expected


def test_compression() -> None:
    rule = Compression()
    assert score(rule, "") is None
    assert score(rule, "x") == 1
    assert score(rule, "x" * 100_000) == 0
    assert score(rule, "The quick brown fox jumps over the lazy dog.") == 1
    assert score(rule, "犬🐕" * 10_000) == 0
    assert score(rule, "\ud800") == 1
    noise = "".join(random.Random(0).choices("abcdefghijklmnopqrstuvwxyz ", k=5000))
    assert score(rule, noise) == 1
    assert 0 < score(Compression(soft_max=1, hard_max=100), "ab" * 500) < 1  # type: ignore[operator]


async def group(rule: Any, *responses: str, truth: Any = "7", **fields: Any) -> list[float | None]:
    rollouts = [Rollout(response=r, ground_truth=truth, group=0, **fields) for r in responses]
    results = await GradingRunner([rule]).run(rollouts)
    assert not any(isinstance(result.grades[rule.name], Failed) for result in results)
    return [result.score(rule.name) for result in results]


@pytest.mark.parametrize(
    ("responses", "expected"),
    [
        (["a b c", "a b c"], [0, 0]),
        (["a b c", "d e f"], [1, 1]),
        (["a b c", "a b d"], [1 - 1 / 3] * 2),
        (["a b", "a b", "c d"], [0.5, 0.5, 1]),
        (["", ""], [0, 0]),
        (["", "a b"], [1, 1]),
        (["A, b!", "a b"], [0, 0]),
        (["a", "a"], [0, 0]),
        (["a", "b"], [1, 1]),
        (["犬 猫", "犬 猫"], [0, 0]),
        (["a"], [None]),
        (["x y " * 100_000, "x y"], [0.5, 0.5]),
        (["a b c", "c b a"], [1, 1]),
        (["a b c d", "a b c d", "a b c d"], [0, 0, 0]),
        (["a b", "b c", "c d"], [1, 1, 1]),
        (["a b c", "a b c d"], [1 / 3, 1 / 3]),
        (["", "", "a b"], [0.5, 0.5, 1]),
        (["🐕", "🐈"], [0, 0]),
        (["Ä ö", "ä Ö"], [0, 0]),
        (["1 2 3", "1 2 4", "5 6 7"], [5 / 6, 5 / 6, 1]),
    ],
)
async def test_diversity(responses: list[str], expected: list[float | None]) -> None:
    assert await group(Diversity(), *responses) == [e if e is None else pytest.approx(e) for e in expected]


@pytest.mark.parametrize(
    ("responses", "options", "expected"),
    [
        (["7", "it is 7", "8"], {}, [1, 0, 0]),
        (["7", "is 7", "so 7!"], {}, [1, 0.25, 0]),
        (["7", "7"], {}, [1, 1]),
        (["long 7", "8"], {}, [1, 0]),
        (["8", "9"], {}, [0, 0]),
        (["7", "is 7", "so 7!"], {"share": "winner"}, [1, 0, 0]),
        (["", "7"], {}, [0, 1]),
        (["7"], {}, [None]),
        (["7", "a b 7", "a 7"], {"unit": "words"}, [1, 0, 0.5]),
        (["7", "7 7"], {"unit": "tokens"}, [None, None]),
        (["", ""], {}, [0, 0]),
        (["7", "7", "it is 7"], {}, [1, 1, 0]),
        (["7", "7", "it is 7"], {"share": "winner"}, [1, 1, 0]),
        (["the answer: 7", "7", "7.0"], {}, [0, 1, 1 - 2 / 12]),
        (["犬 7", "7"], {}, [0, 1]),
        (["7" + " " * 10**5, "7"], {}, [0, 1]),
        (["8", "it is 7"], {}, [0, 1]),
        (["8", "9", "it is 7", "well, it is 7"], {}, [0, 0, 1, 0]),
        (["<think>8</think>7", "7"], {}, [0, 1]),
        (["7", "is 7", "so 7!"], {"threshold": 0.0}, [1, 0.25, 0]),
    ],
)
async def test_shortest_correct(responses: list[str], options: Any, expected: list[float | None]) -> None:
    assert await group(ShortestCorrect(correct=FinalAnswer(), **options), *responses) == expected


async def test_shortest_correct_with_a_grader_that_needs_a_process_or_a_reference() -> None:
    assert await group(ShortestCorrect(correct=MathEquivalence()), r"\boxed{7}", r"so \boxed{7}") == [1, 0]
    assert await group(ShortestCorrect(correct=FinalAnswer()), "7", "8", truth=None) == [None, None]


@pytest.mark.parametrize(
    ("responses", "options", "expected"),
    [
        (["7", "it is 7", "8"], {}, [1, 1, 0]),
        (["7", "7.0", "14/2"], {}, [1, 1, 1]),
        (["7", "8"], {}, [1, 1]),
        (["7", "8"], {"ties": "none"}, [None, None]),
        (["7", "", "none"], {}, [1, 0, 0]),
        (["", "none"], {}, [None, None]),
        (["7", "7", "8", ""], {"soft": True}, [0.5, 0.5, 0.25, 0]),
        (["The Cat", "cat!", "dog"], {"answer": "whole"}, [1, 1, 0]),
        ([r"\boxed{a}", r"so \boxed{a}", r"\boxed{b}"], {"answer": "boxed"}, [1, 1, 0]),
        (["<answer>犬</answer>", "<answer>犬</answer>", "猫"], {"answer": "answer"}, [1, 1, 0]),
        (["7"], {}, [None]),
        (["7 " * 100_000, "7", "8"], {}, [1, 1, 0]),
        (["7", "7", "8", "8", "9"], {}, [1, 1, 1, 1, 0]),
        (["7", "7", "8", "8", "9"], {"ties": "none"}, [None] * 5),
        (["7", "7", "8"], {"ties": "none"}, [1, 1, 0]),
        (["½", "0.5", "2"], {}, [1, 1, 0]),
        (["<think>8</think>7", "7", "8"], {}, [1, 1, 0]),
        (["a\nyes", "b\nYes.", "no"], {"answer": "last_line"}, [1, 1, 0]),
        (["...", "...", "a"], {"answer": "whole"}, [1, 1, 0]),
        (["-5", "-5", "5"], {"answer": "whole"}, [1, 1, 0]),
        (["1.5", "15", "15"], {"answer": "whole"}, [0, 1, 1]),
        (["\u5df4\u9ece\u3002", "\u5df4\u9ece", "\u4f26\u6566"], {"answer": "whole"}, [1, 1, 0]),
        (["1,000", "1000", "1e3"], {"soft": True}, [1, 1, 1]),
        (["(A)", "B", "B", "A", "A."], {"answer": "whole"}, [1, 0, 0, 1, 1]),
        ([r"\frac{1}{12}", r"\frac{11}{2}", r"\frac{1}{12}", "5", "5"], {"answer": "whole"}, [1, 0, 1, 1, 1]),
        (["(1,23)", "(12,3)", "(1, 23)", "5"], {"answer": "whole", "soft": True}, [0.25] * 4),
    ],
)
async def test_majority(responses: list[str], options: Any, expected: list[float | None]) -> None:
    assert await group(MajorityAgreement(**options), *responses) == expected


@given(st.lists(st.text(max_size=30), min_size=2, max_size=6), st.randoms())
async def test_group_rules_do_not_depend_on_the_order(texts: list[str], rnd: random.Random) -> None:
    order = list(range(len(texts)))
    rnd.shuffle(order)
    for rule in (Diversity(), MajorityAgreement(answer="whole"), ShortestCorrect(correct=FinalAnswer())):
        straight = await rule.grade_group([Rollout(response=t, ground_truth="7") for t in texts])
        mixed = await rule.grade_group([Rollout(response=texts[i], ground_truth="7") for i in order])
        for place, i in enumerate(order):
            a, b = straight[i], mixed[place]
            assert type(a) is type(b)
            if isinstance(a, Graded) and isinstance(b, Graded):
                assert a.score == pytest.approx(b.score)
                assert 0 <= a.score <= 1


@pytest.mark.parametrize(
    ("build", "says"),
    [
        (lambda: SoftOverlong(max_length=10, cache=20), "cache is part of max_length"),
        (lambda: SoftOverlong(max_length=0, cache=0), "max_length is a number of at least 1"),
        (lambda: CosineLength(correct=FinalAnswer(), right=(1, math.nan)), "pairs of numbers"),
        (lambda: CosineLength(correct=FinalAnswer(), right=(0, 0), wrong=(0, 0)), "nothing to learn"),
        (lambda: CosineLength(correct=len), "neither grade"),  # type: ignore[arg-type]
        (lambda: CosineLength(correct=Diversity()), "single rollouts"),  # type: ignore[arg-type]
        (lambda: Repetition(n=0), "n is a whole number of at least 1"),
        (lambda: Repetition(max_penalty=1), "max_penalty is a number below 0"),
        (lambda: Repetition(unit="word"), "did you mean 'words'"),  # type: ignore[arg-type]
        (lambda: Compression(soft_max=5, hard_max=2), "soft_max is below hard_max"),
        (lambda: Diversity(n=0), "n is a whole number"),
        (lambda: Diversity(part="box"), "part is one of"),  # type: ignore[arg-type]
        (lambda: ShortestCorrect(correct=FinalAnswer(), share="win"), "share is one of"),  # type: ignore[arg-type]
        (lambda: MajorityAgreement(ties="no"), "ties is one of"),  # type: ignore[arg-type]
        (lambda: MajorityAgreement(answer="numbr"), "did you mean 'number'"),  # type: ignore[arg-type]
    ],
)
def test_wrong_settings_are_said(build: Any, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        build()
