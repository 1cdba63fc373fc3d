"""The helpers for tests: the scripted judge, made-up groups, results that compare as numbers, and the plug-in's output."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from judgekit import GradingRunner, JudgeUnavailable, Rollout, Usage
from judgekit.attack.tested import TestedReward
from judgekit.errors import JudgekitError
from judgekit.graders import FinalAnswer
from judgekit.judges import JudgeReply, JudgeRequest, Piece, Turn
from judgekit.testing import ScriptedJudge, make_groups, prompt_text
from judgekit.testing.pytest_plugin import pytest_assertrepr_compare

pytest_plugins = "pytester"


def request(text: str = "good answer", choices: tuple[str, ...] = ()) -> JudgeRequest:
    turns = (Turn("system", (Piece("Be fair."),)), Turn("user", (Piece(text),)))
    return JudgeRequest(turns=turns, asker="judge@1", choices=choices, nonce="n0nce")


async def test_a_script_is_one_answer_or_one_for_each_call() -> None:
    judge = ScriptedJudge("### Final Score [{nonce}]: 1")
    for _ in range(2):
        assert (await judge.complete(request())).text == "### Final Score [n0nce]: 1"
    judge = ScriptedJudge(["a", "b", JudgeUnavailable("down")])
    assert [(await judge.complete(request())).text for _ in range(2)] == ["a", "b"]
    for _ in range(2):  # the last one stays
        with pytest.raises(JudgeUnavailable, match="down"):
            await judge.complete(request())
    assert len(judge.requests) == 4


async def test_a_script_goes_by_the_text_or_is_a_function() -> None:
    judge = ScriptedJudge({"good": "1", "Be fair": "0"})
    assert [(await judge.complete(request(text))).text for text in ("good answer", "other")] == ["1", "0"]
    with pytest.raises(
        AssertionError, match=r"no answer for this prompt:\n\[system\]\nBe fair\.\n\[user\]\nother"
    ):
        await ScriptedJudge({"good": "1"}).complete(request("other"))
    assert (await ScriptedJudge({"good": "1"}, default="2").complete(request("other"))).text == "2"
    with pytest.raises(JudgeUnavailable):
        await ScriptedJudge({"good": JudgeUnavailable("down")}).complete(request())
    seen = ScriptedJudge(lambda asked: f"{asked.asker} {len(asked.turns)}")
    assert (await seen.complete(request())).text == "judge@1 2"


async def test_what_a_scripted_reply_holds() -> None:
    reply = await ScriptedJudge("fine").complete(request())
    length = len(prompt_text(request()))
    assert reply.usage == Usage(calls=1, prompt_tokens=length // 4, completion_tokens=1)
    assert (reply.text, reply.model, reply.choice_probs) == ("fine", "scripted", None)
    whole = JudgeReply("whole", usage=Usage(calls=7))
    assert await ScriptedJudge(whole).complete(request()) is whole


@pytest.mark.parametrize(
    ("script", "choices", "text", "probs"),
    [
        ({"A": 0.25, "B": 0.75}, ("A", "B"), "B", {"A": 0.25, "B": 0.75}),
        ({"0": 0.25, "1": 0.75}, ("A", "B"), "B", {"A": 0.25, "B": 0.75}),  # other labels, worst first
        ({"1": 0.75, "0": 0.25}, ("A", "B"), "B", {"A": 0.25, "B": 0.75}),
        ({"0": 0.5, "1": 0.2, "2": 0.3}, ("A", "B"), "0", {"0": 0.5, "1": 0.2, "2": 0.3}),
        ("B", ("A", "B"), "B", {"A": 0.0, "B": 1.0}),
        ("1", ("A", "B"), "B", {"A": 0.0, "B": 1.0}),
        ("0", ("A", "B"), "A", {"A": 1.0, "B": 0.0}),
        ("1", ("1", "2"), "1", {"1": 1.0, "2": 0.0}),
        ("1", ("A", "B", "C"), "1", None),
        ("2", ("A", "B"), "2", None),
    ],
)
async def test_probabilities_of_labels(
    script: Any, choices: tuple[str, ...], text: str, probs: dict[str, float] | None
) -> None:
    reply = await ScriptedJudge(script, label_mass=0.875).complete(request(choices=choices))
    assert (reply.text, reply.choice_probs) == (text, probs)
    if probs is not None:
        assert (reply.label_mass, reply.model, reply.usage.calls) == (0.875, "scripted", 1)
    default = await ScriptedJudge(script).complete(request(choices=choices))
    assert probs is None or default.label_mass == 1.0


async def test_calls_in_flight_are_counted() -> None:
    judge = ScriptedJudge("x", latency_s=0.001)
    assert (judge.in_flight, judge.peak_in_flight) == (0, 0)
    await asyncio.gather(*(judge.complete(request()) for _ in range(3)))
    await judge.complete(request())
    assert (judge.in_flight, judge.peak_in_flight, len(judge.requests)) == (0, 3, 4)
    down = ScriptedJudge(JudgeUnavailable("down"))
    with pytest.raises(JudgekitError):
        await down.complete(request())
    assert (down.in_flight, down.peak_in_flight) == (0, 1)


def test_groups_of_rollouts() -> None:
    made = make_groups(2, 3)
    assert [one.id for one in made] == ["0-0", "0-1", "0-2", "1-0", "1-1", "1-2"]
    assert made[5] == Rollout(
        prompt="prompt 1", response="response 2 to prompt 1", group=1, ground_truth="1", id="1-2"
    )
    assert [one.response for one in make_groups(2, 2, response=lambda p, g: f"{p}{g}")] == [
        "00",
        "01",
        "10",
        "11",
    ]


# ---- results as numbers


def half(response: str) -> float:
    return len(response) / 8


def results(*responses: str) -> list[Any]:
    return list(TestedReward(half).group("p", None, responses))


def test_results_compare_add_and_round_as_numbers() -> None:
    quarter, same, most = results("xx", "yy", "x" * 5)
    assert quarter == same == 0.25
    assert quarter != most
    assert quarter != "0.25"
    assert quarter < most > 0.5
    assert not quarter < same
    assert quarter <= same <= most >= 0.625
    assert not quarter > same
    assert (quarter + most, 1 + quarter, quarter + 1, sum([quarter, most])) == (0.875, 1.25, 1.25, 0.875)
    assert (most - quarter, most - 0.5, 1 - quarter) == (0.375, 0.125, 0.75)
    assert (round(most), round(most, 1), round(most, 2)) == (1, 0.6, 0.62)
    assert (float(most), str(most), repr(most)) == (0.625, "0.625", "<reward 0.625>")
    assert {quarter: 1}[quarter] == 1
    assert len({quarter, same}) == 2


def test_fields_of_rollouts_are_given_to_all_of_a_group() -> None:
    def source(response: str, data_source: str) -> float:
        return float(data_source == "math" and response == "x")

    assert TestedReward(source).group("p", None, ["x", "y"], data_source="math") == [1.0, 0.0]
    assert TestedReward(source).grade([Rollout(response="x", data_source="code")]) == [0.0]


def test_a_missing_reward_is_shown_by_its_status() -> None:
    def broken(response: str) -> float:
        raise OSError("down")

    (missing,) = TestedReward(broken).group("p", None, ["x"])
    assert (str(missing), repr(missing)) == (missing.result.status, f"<reward {missing.result.status}>")
    assert missing.result.status in ("excluded", "masked", "neutral")

    for use in (lambda: missing == 1, lambda: missing + 1, lambda: round(missing), lambda: missing < 1):
        with pytest.raises(AssertionError, match="there is no reward"):
            use()


def test_a_comparison_that_fails_shows_both_trees() -> None:
    low, high = results("x", "xx")
    shown = pytest_assertrepr_compare(">", low, high)
    assert shown is not None
    assert shown[0] == "0.125 > 0.25"
    tree = low.__judgekit_explain__().split("\n")
    assert shown[1:] == [*tree, *high.__judgekit_explain__().split("\n")]
    assert pytest_assertrepr_compare("==", low, "text") == ["0.125 == 'text'", *tree]
    assert pytest_assertrepr_compare("==", "text", low) == ["'text' == 0.125", *tree]
    assert pytest_assertrepr_compare("==", 1, 2) is None


def test_the_fixture_makes_rewards(judgekit_reward: Callable[..., TestedReward]) -> None:
    reward = judgekit_reward(GradingRunner({"correct": FinalAnswer()}))
    assert reward.group("p", "42", ["It is 42.", "It is 41."]) == [1, 0]


def test_the_fixture_closes_and_records(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    """In this process: several rewards of a session share what they record, and it is written after each test."""
    from judgekit.attack import tested

    made: list[tuple[Any, dict[Path, Any]]] = []
    closed: list[Any] = []

    class Fake:
        def __init__(self, reward: Any, *, record: Any = None, **options: Any) -> None:
            made.append((reward, record))
            self.options = options

        def close(self) -> None:
            closed.append(self)

    monkeypatch.setattr(tested, "TestedReward", Fake)
    pytester.makeini("[pytest]\nasyncio_default_fixture_loop_scope = function\n")
    pytester.makepyfile(
        """
        def test_a(judgekit_reward):
            first, second = judgekit_reward("a", judges={"j": 1}), judgekit_reward("b")
            assert (first.options, second.options) == ({"judges": {"j": 1}}, {})

        def test_b(judgekit_reward):
            judgekit_reward("c")
        """
    )
    options = ("-p", "no:cacheprovider", "-p", "no:randomly")
    pytester.runpytest_inprocess(*options).assert_outcomes(passed=2)
    assert made == [("a", None), ("b", None), ("c", None)]
    assert len(closed) == 3
    made.clear()
    pytester.runpytest_inprocess(*options, "--judgekit-record").assert_outcomes(passed=2)
    assert [reward for reward, _ in made] == ["a", "b", "c"]
    assert made[0][1] == {}
    assert made[0][1] is made[1][1] is made[2][1]
    assert len(closed) == 6
