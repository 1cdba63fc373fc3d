"""Tags, patterns and lengths."""

from __future__ import annotations

from typing import Any

import pytest

from judgekit import Abstained, ConfigError, Failed, GradingRunner, Rollout
from judgekit.execution.pool import ProcessPool
from judgekit.graders import Length, RegexFormat, TagFormat


@pytest.mark.parametrize(
    ("text", "score"),
    [
        ("<think>a</think><answer>b</answer>", 1),
        (" <think>a\n</think>\n\n<answer>b</answer>\n", 1),
        ("<think>a</think>b", 0),
        ("<answer>b</answer><think>a</think>", 0),
        ("<think>a</think><answer></answer>", 0),
        ("<think>a</think>so<answer>b</answer>", 0),
        ("hm <think>a</think><answer>b</answer>", 0),
        ("<think>a</think><answer>b</answer> done", 0),
        ("<think>a</think><answer>b</answer><answer>c</answer>", 0),
        ("<think>a<think>b</think></think><answer>c</answer>", 0),
        ("</think>a<think><answer>c</answer>", 0),
        ("<think>a<answer>b</answer></think>", 0),
        ("<THINK>a</THINK><answer>b</answer>", 0),
        ("", 0),
        ("<think> </think><answer>b</answer>", 0),
        ("<think>犬</think><answer>🐕</answer>", 1),
        ("<think>a</think>\n" * 2 + "<answer>b</answer>", 0),
        ("<think>a</think><answer>b", 0),
        ("<think>a <b>x</b></think><answer><c/></answer>", 1),
        ("<think>" + "x" * 10**6 + "</think><answer>b</answer>", 1),
        ("<think>" * 10_000, 0),
    ],
)
def test_tags_in_order_once_and_nothing_else(text: str, score: float) -> None:
    assert TagFormat().grade(Rollout(response=text)).score == score  # type: ignore[union-attr]
    assert TagFormat().grade(Rollout(response=f"{text}<|im_end|>")).score == score  # type: ignore[union-attr]


def test_a_tag_that_the_prompt_opened() -> None:
    assert TagFormat(opened=True).grade(Rollout(response="a</think><answer>b</answer>")).score == 1  # type: ignore[union-attr]


def test_regex_runs_where_it_can_be_killed() -> None:
    pool = ProcessPool(1)
    try:
        evil = RegexFormat(r"(a+)+$", timeout_s=0.5)
        runner = GradingRunner([evil], pool=pool)
        causes = set()
        while (
            "rollout" not in causes
        ):  # a busy machine, which gives the worker too little time, is to blame instead
            good, bad, bomb = runner.run_sync([Rollout(response=r) for r in ("aaa", "b", "a" * 40 + "!")])
            assert (good.reward, bad.reward) == (1.0, 0.0)
            grade = bomb.grades["regex"]
            assert isinstance(grade, Failed)
            causes.add(grade.cause)
        assert bomb.reward == 0.0
    finally:
        pool.close()


@pytest.mark.parametrize(
    ("pattern", "text", "full", "search", "start"),
    [
        ("", "", 1, 1, 1),
        ("", "x", 0, 1, 1),
        ("x", "", 0, 0, 0),
        ("x", "x", 1, 1, 1),
        ("x", "ax", 0, 1, 0),
        ("x", "xa", 0, 1, 1),
        ("x", "X", 0, 0, 0),
        ("x|y", "y", 1, 1, 1),
        (r"\d+", "12", 1, 1, 1),
        (r"\d+", "a1", 0, 1, 0),
        ("^a$", "b\na", 0, 0, 0),
        ("(?m)^a$", "b\na", 0, 1, 0),
        (".", "\n", 0, 0, 0),
        ("(?s).", "\n", 1, 1, 1),
        ("犬+", "犬犬", 1, 1, 1),
        ("🐕", "a 🐕", 0, 1, 0),
        (r"<think>.*</think>\d", "<think>x</think>5", 1, 1, 1),
        (r"\bcat\b", "category", 0, 0, 0),
        ("a{2,3}", "aaaa", 0, 1, 1),
        ("x*", "x" * 10**6, 1, 1, 1),
    ],
)
def test_regex(pattern: str, text: str, full: float, search: float, start: float) -> None:
    for match, score in (("full", full), ("search", search), ("start", start)):
        grader = RegexFormat(pattern, match=match, where="inline")  # type: ignore[arg-type]
        assert grader.grade(Rollout(response=text)).score == score  # type: ignore[union-attr]


def test_regex_modes_and_flags() -> None:
    def score(text: str, **options: Any) -> float:
        grader = RegexFormat("b.c", where="inline", **options)
        return grader.grade(Rollout(response=text)).score  # type: ignore[union-attr]

    assert (score("b c"), score("a b c"), score("a b c", match="search")) == (1, 0, 1)
    assert (score("B\nC", flags="is"), score("b cd", match="start")) == (1, 1)


@pytest.mark.parametrize(
    ("size", "score"),
    [
        *(
            (0, 0),
            (1, 0),
            (9, 0),
            (10, 0),
            (11, 0.1),
            (12, 0.2),
            (15, 0.5),
            (19, 0.9),
            (20, 1),
            (21, 1),
            (50, 1),
        ),
        *(
            (99, 1),
            (100, 1),
            (101, 0.99),
            (125, 0.75),
            (150, 0.5),
            (199, 0.01),
            (200, 0),
            (201, 0),
            (10**6, 0),
        ),
    ],
)
def test_length_ramps(size: int, score: float) -> None:
    grader = Length(hard_min=10, soft_min=20, soft_max=100, hard_max=200)
    assert grader.grade(Rollout(response="x" * size)).score == pytest.approx(score)  # type: ignore[union-attr]


def test_length_in_tokens() -> None:
    grader = Length(soft_max=5, hard_max=10, unit="tokens")
    assert grader.grade(Rollout(response="", response_tokens=10)).score == 0  # type: ignore[union-attr]
    assert grader.grade(Rollout(response="")) == Abstained("the number of tokens is not known")
    counted = Length(soft_max=5, hard_max=10, unit="tokens", count_tokens=lambda text: len(text.split()))
    assert counted.grade(Rollout(response="a b c")).score == 1  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("build", "says"),
    [
        (lambda: Length(), "give soft_max and hard_max"),
        (lambda: Length(soft_max=5), "soft_max with hard_max"),
        (lambda: Length(soft_max=5, hard_max=1), "must hold"),
        (lambda: Length(soft_max=5, hard_max=9, unit="pages"), "'characters', 'words' or 'tokens'"),  # type: ignore[arg-type]
        (lambda: RegexFormat("("), "is not a valid pattern"),
        (lambda: RegexFormat("a", match="any"), "'full', 'search' or 'start'"),  # type: ignore[arg-type]
        (lambda: TagFormat("think"), "a list of tag names"),
        (lambda: TagFormat(["a", "a"]), "twice"),
    ],
)
def test_wrong_parameters_are_said(build: Any, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        build()
