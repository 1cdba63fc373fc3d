"""How several verdicts become one: votes, rankings, rubrics, and whose failure a failure is."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from typing import Any

import pytest

from judgekit import Abstained, ConfigError, Failed, Graded, RolloutError, Usage
from judgekit.errors import JudgeRejected, JudgeUnavailable, VerdictError
from judgekit.graders.judged import listwise, voting
from judgekit.graders.judged.comparing import Comparisons, spend
from judgekit.graders.judged.rubric import Criterion, Rubric, criteria_of
from judgekit.graders.judged.voting import combined
from judgekit.judges.base import JudgeReply

ONE = Usage(1, 10, 2, 3)
DOWN = Failed("JudgeUnavailable", "down", retryable=True, usage=ONE)
REFUSED = Failed("JudgeRejected", "no", usage=ONE)
UNREAD = Failed("VerdictError", "odd", usage=ONE)


def vote(*scores: float) -> list[Any]:
    return [Graded(score, f"r{score:g}", usage=ONE) for score in scores]


def joined(grades: Sequence[Any], how: Any = "mean", **options: Any) -> Any:
    given = {"score_range": (0.0, 1.0), "quorum": None, "max_spread": None, "name": "n", **options}
    return combined(how, len(grades), **given)(grades)


def probs(**given: float) -> Graded:
    return Graded(sum(int(label[1:]) * p for label, p in given.items()), "", {"probs": given})


@pytest.mark.parametrize(
    ("grades", "how", "options", "expected"),
    [
        (vote(0.25, 0.5, 1.0), "mean", {}, (1.75 / 3, "r0.25", {"votes": [0.25, 0.5, 1.0], "agreement": 0.5})),
        (vote(0.25, 0.5, 1.0), "median", {}, (0.5, "r0.25", {"votes": [0.25, 0.5, 1.0], "agreement": 0.5})),
        (vote(0.0, 1.0, 1.0), "majority", {}, (1.0, "r0", {"votes": [0.0, 1.0, 1.0], "agreement": pytest.approx(1 / 3)})),
        (vote(0.25, 0.5), "mean", {"score_range": (0.0, 2.0)}, (0.375, "r0.25", {"votes": [0.25, 0.5], "agreement": 0.875})),
        (vote(0.5, 0.5, 1.0), "mean", {"score_range": (-math.inf, math.inf)}, (2 / 3, "r0.5", {"votes": [0.5, 0.5, 1.0], "agreement": pytest.approx(1 / 3)})),
        (vote(0.5), "mean", {}, (0.5, "r0.5", {"votes": [0.5], "agreement": 1.0})),
        (vote(0.1, 0.1, 0.1), "mean", {}, (0.1, "r0.1", {"votes": [0.1, 0.1, 0.1], "agreement": 1.0})),
        (vote(0.25, 0.75), "mean", {"max_spread": 0.5}, (0.5, "r0.25", {"votes": [0.25, 0.75], "agreement": 0.5})),
        ([Graded(0.5), Graded(0.5, "why")], "mean", {}, (0.5, "why", {"votes": [0.5, 0.5], "agreement": 1.0})),
        ([probs(l0=0.4, l1=0.6), probs(l0=0.3, l1=0.7), probs(l0=0.9, l1=0.1)], "majority", {"labels": {"l0": 0.0, "l1": 1.0}}, (1.0, "", {"votes": [0.6, 0.7, 0.1], "agreement": pytest.approx(0.6)})),
        ([Graded(1.0), Graded(1.0), probs(l0=0.9, l1=0.1)], "majority", {"labels": {"l0": 0.0, "l1": 1.0}}, (1.0, "", {"votes": [1.0, 1.0, 0.1], "agreement": pytest.approx(0.4)})),
        ([*vote(0.5, 1.0), DOWN], "mean", {}, (0.75, "r0.5", {"votes": [0.5, 1.0], "agreement": 0.5})),
        ([*vote(0.5), DOWN, DOWN], "mean", {"quorum": 1}, (0.5, "r0.5", {"votes": [0.5], "agreement": 1.0})),
    ],
)  # fmt: skip
def test_votes_are_one_grade(grades: Any, how: Any, options: Any, expected: Any) -> None:
    found = joined(grades, how, **options)
    assert isinstance(found, Graded)
    score, reason, metadata = expected
    assert (found.score, found.reason, found.metadata) == (pytest.approx(score), reason, metadata)
    assert found.usage == sum((grade.usage for grade in grades if grade.usage is not None), Usage())


THREE = Usage(3, 30, 6, 9)


@pytest.mark.parametrize(
    ("grades", "how", "options", "grade"),
    [
        (vote(0.25, 0.5, 1.0), "mean", {"max_spread": 0.7}, Abstained("the judges disagree: 0.25 to 1", {"votes": [0.25, 0.5, 1.0]}, THREE)),
        (vote(0.0, 1.0), "majority", {}, Abstained("a tie between 0 and 1", {"votes": [0.0, 1.0]}, Usage(2, 20, 4, 6))),
        ([*vote(0.5), DOWN, REFUSED], "mean", {}, Failed("JudgeUnavailable", "1 of 3 verdicts, 2 needed: down", retryable=True, usage=THREE)),
        ([*vote(0.5, 0.5), DOWN], "mean", {"quorum": 3}, Failed("JudgeUnavailable", "2 of 3 verdicts, 3 needed: down", retryable=True, usage=THREE)),
        ([REFUSED, REFUSED], "mean", {}, Failed("JudgeRejected", "0 of 2 verdicts, 2 needed: no", usage=Usage(2, 20, 4, 6))),
        ([Failed("X", "a", cause="rollout"), Failed("Y", "b", cause="rollout")], "mean", {}, Failed("X", "0 of 2 verdicts, 2 needed: a", cause="rollout", usage=Usage())),
        ([Failed("X", "a", cause="rollout"), Failed("Y", "b")], "mean", {}, Failed("X", "0 of 2 verdicts, 2 needed: a", usage=Usage())),
        ([*vote(0.5), Abstained("no"), Abstained("none")], "mean", {}, Abstained("no", usage=ONE)),
        ([*vote(0.5, 0.5), Failed("RolloutError", "its own", cause="rollout", usage=ONE)], "mean", {}, Failed("RolloutError", "its own", cause="rollout", usage=THREE)),
    ],
)  # fmt: skip
def test_votes_that_are_no_grade(grades: Any, how: Any, options: Any, grade: Any) -> None:
    assert joined(grades, how, **options) == grade


@pytest.mark.parametrize(
    ("how", "options", "says"),
    [
        ("mode", {}, "n: combine is 'mean', 'median' or 'majority', not 'mode'"),
        ("mean", {"quorum": 0}, "n: quorum is a number from 1 to 2, not 0"),
        ("mean", {"quorum": 3}, "n: quorum is a number from 1 to 2, not 3"),
        ("mean", {"max_spread": -0.1}, "n: max_spread is a difference of scores, at least 0, not -0.1"),
        ("mean", {"max_spread": math.nan}, "n: max_spread is a difference of scores, at least 0, not nan"),
    ],
)
def test_wrong_ways_of_combining_are_refused(how: Any, options: Any, says: str) -> None:
    with pytest.raises(ConfigError) as error:
        joined(vote(0.5, 0.5), how, **options)
    assert str(error.value) == says
    joined(vote(0.5, 0.5), "mean", quorum=2, max_spread=0)


async def test_calls_that_raise_are_failures_and_mistakes_of_the_user_are_not() -> None:
    async def fine() -> Any:
        return Graded(0.5)

    async def fails() -> Any:
        raise JudgeUnavailable("down")

    async def wrong() -> Any:
        raise ConfigError("no such label")

    assert await voting.ask_all([fine, fails]) == [
        Graded(0.5),
        Failed("JudgeUnavailable", "down", retryable=True),
    ]
    with pytest.raises(ConfigError, match="no such label"):
        await voting.ask_all([fine, wrong])


class Asked:
    """Gives each set of members its grade, by the members as text; others are graded."""

    def __init__(self, **grades: Any) -> None:
        self.grades = grades
        self.sets: list[str] = []

    async def __call__(self, members: Sequence[int]) -> Any:
        name = "m" + "_".join(map(str, members))
        self.sets.append(name)
        return self.grades.get(name, Graded(0.5, usage=ONE))


async def test_a_failure_of_several_is_nobody_s_own_and_its_cost_is_the_first_one_s() -> None:
    usage = [Usage()] * 3
    blamed = Failed("JudgeRejected", "no", cause="rollout", usage=ONE)
    found = await voting.ask_about([[1, 2], [0]], Asked(m1_2=blamed, m0=blamed), usage)
    assert [grade.cause for grade in found if isinstance(grade, Failed)] == ["infrastructure", "rollout"]
    assert usage == [ONE, ONE, Usage()]


@pytest.mark.parametrize(
    ("alone", "failing"),
    [
        ({}, {}),
        ({"m0": REFUSED}, {0: "rollout"}),
        ({"m0": UNREAD}, {0: "infrastructure"}),
        ({"m0": DOWN}, {}),
        ({"m0": REFUSED, "m1": UNREAD}, {0: "rollout", 1: "infrastructure"}),
        ({"m0": REFUSED, "m1": REFUSED, "m2": UNREAD}, {0: "rollout", 1: "rollout"}),
        ({"m0": UNREAD, "m1": UNREAD, "m2": UNREAD}, {}),
        ({"m0": REFUSED, "m1": REFUSED, "m2": REFUSED}, {}),
    ],
)
async def test_members_that_fail_alone_do_not_cost_the_others(alone: Any, failing: dict[int, str]) -> None:
    asked = Asked(**alone)
    usage = [Usage()] * 3
    found = await voting.failing_alone([[0, 1], [1, 2], [2]], [UNREAD, REFUSED, Graded(0.5)], asked, usage)
    assert asked.sets == ["m0", "m1", "m2"]
    assert {member: failed.cause for member, failed in found.items()} == failing
    assert usage == [ONE] * 3
    assert await voting.failing_alone([[0, 1], [1, 2]], [DOWN, Graded(0.5)], asked, usage) == {}
    assert len(asked.sets) == 3


@pytest.mark.parametrize(
    ("without", "low", "failed", "blocked"),
    [
        ({"m1_2": Graded(0.5), "m0_2": UNREAD, "m0_1": UNREAD}, False, UNREAD, {0: "infrastructure"}),
        ({"m1_2": Graded(0.5), "m0_2": UNREAD, "m0_1": UNREAD}, True, UNREAD, {0: "rollout"}),
        ({"m1_2": Graded(0.5), "m0_2": UNREAD, "m0_1": UNREAD}, False, REFUSED, {0: "rollout"}),
        ({"m1_2": Graded(0.5), "m0_2": Graded(0.5), "m0_1": UNREAD}, False, UNREAD, {}),
        ({"m1_2": UNREAD, "m0_2": UNREAD, "m0_1": UNREAD}, False, UNREAD, {}),
    ],
)
async def test_a_member_that_only_blocks_the_others_is_found(
    without: Any, low: bool, failed: Any, blocked: Any
) -> None:
    found = await voting.blocking([0, 1, 2], failed, Asked(**without), [Usage()] * 3, low=low)
    assert {member: one.cause for member, one in found.items()} == blocked


def test_what_is_suspicious_is_a_refusal_or_no_verdict() -> None:
    own = Failed("RolloutError")
    grades = [REFUSED, own, UNREAD, DOWN, Graded(0.5), Abstained("no")]
    assert [voting.refused(grade) for grade in grades] == [True, True, False, False, False, False]
    assert [voting.suspicious(grade) for grade in grades] == [True, True, True, False, False, False]


# ---- rankings


def ranked(*places: int, reason: str = "r") -> Graded:
    return Graded(0.0, reason, {"ranking": list(places)})


def test_standings_are_mean_ranks() -> None:
    usage = [ONE, Usage(), Usage(), Usage(), Usage()]
    found = listwise._standings(
        [[0, 1, 2], [2, 0], [3, 4]], [ranked(1, 0, 2), ranked(0, 1, reason="s"), DOWN], {}, usage
    )
    assert found == [
        Graded(0.25, "s", {"ranks": [0.5, 0.0]}, ONE),
        Graded(1.0, "r", {"ranks": [1.0]}, Usage()),
        Graded(0.5, "s", {"ranks": [0.0, 1.0]}, Usage()),
        Failed("JudgeUnavailable", "down", retryable=True, usage=Usage()),
        Failed("JudgeUnavailable", "down", retryable=True, usage=Usage()),
    ]


def test_who_is_not_ranked_has_its_own_failure_and_leaves_the_others_theirs() -> None:
    usage = [ONE, ONE, Usage()]
    found = listwise._standings([[0, 1], [1, 2]], [UNREAD, DOWN], {0: REFUSED}, usage)
    assert found == [
        Failed("JudgeRejected", "no", usage=ONE),
        Failed("JudgeUnavailable", "down", retryable=True, usage=ONE),
        Failed("JudgeUnavailable", "down", retryable=True, usage=Usage()),
    ]
    (_, alone) = listwise._standings([[0, 1]], [UNREAD], {0: REFUSED}, usage[:2])
    assert alone == Abstained("there is no other response to compare with", usage=ONE)


def test_equal_texts_share_a_grade_and_one_bill() -> None:
    grades = [Graded(1.0, usage=ONE), Graded(0.0, usage=ONE)]
    assert listwise._per_member([0, 1, 0], grades) == [grades[0], grades[1], Graded(1.0)]


@pytest.mark.parametrize(
    ("size", "chunk", "sizes"), [(2, 8, [2]), (8, 8, [8]), (9, 8, [4, 5]), (5, 2, [2, 3]), (3, 2, [3]), (7, 3, [2, 3, 2]), (16, 5, [4, 4, 4, 4])]
)  # fmt: skip
def test_chunks_are_almost_equal(size: int, chunk: int, sizes: list[int]) -> None:
    made = listwise._cut(size, chunk, random.Random(1))
    assert [len(part) for part in made] == sizes
    assert sorted(member for part in made for member in part) == list(range(size))
    assert made == listwise._cut(size, chunk, random.Random(1))


@pytest.mark.parametrize("nonce", [True, False])
def test_a_ranking_is_asked_for_and_read(nonce: bool) -> None:
    form = listwise._Ranking(2, nonce=nonce, max_tokens=9)
    code = '"code": "%s", ' if nonce else ""
    shown = '{%s"reason": "<why, briefly>", "ranking": ["<name>", "…"]}'
    assert form.words("k3") == {
        "HOW_TO_ANSWER": "Answer with one JSON object and nothing else:\n"
        + shown % (code and code % "CODE")
        + "\nwith the names of all responses, the best first"
        + (", where CODE is the code that you are given at the end." if nonce else "."),
        "REMINDER": f"Answer with the JSON object {shown % (code % 'k3')}"
        if nonce
        else "Answer with the JSON object.",
    }
    own = {"code": {"type": "string", "maxLength": 16}} if nonce else {}
    assert form.json_schema == {
        "type": "object",
        "properties": {
            **own,
            "reason": {"type": "string", "maxLength": 600},
            "ranking": {"type": "array", "items": {"enum": ["M1", "M2"]}, "minItems": 2, "maxItems": 2},
        },
        "required": [*own, "reason", "ranking"],
        "additionalProperties": False,
    }
    assert form.max_tokens == 9
    head = '{"code": "k3", ' if nonce else "{"
    found = form.read(JudgeReply(head + '"reason": "r", "ranking": ["M2", "M1"]}'), "k3")
    assert (found.score, found.reason, found.metadata) == (0.0, "r", {"ranking": [1, 0]})
    for wrong in ('["M1"]', '["M1", "M1"]', '"M1 M2"', '["M1", "M3"]', "[1, 2]"):
        with pytest.raises(VerdictError, match="the ranking does not name each of M1, M2 once"):
            form.read(JudgeReply(head + f'"reason": "r", "ranking": {wrong}}}'), "k3")


# ---- rubrics


def criterion(id_: str = "a", text: str = "t", weight: float = 1.0, must_have: bool = False) -> Criterion:
    return Criterion(id_, text, weight, must_have)


@pytest.mark.parametrize(
    ("criteria", "says"),
    [
        ([], "w: a rubric needs at least one criterion"),
        ([criterion(), criterion()], "w: two criteria have the same id among a, a"),
        ([criterion(weight=math.inf)], "w: every criterion needs a text and a finite weight"),
        ([criterion(text=" ")], "w: every criterion needs a text and a finite weight"),
        (
            [criterion(weight=0.0), criterion("b", weight=-1.0)],
            "w: at least one criterion needs a weight above 0",
        ),
        (
            [criterion(), criterion("b", weight=0.0, must_have=True)],
            "w: a must-have criterion needs a weight above 0",
        ),
        (
            [criterion(), criterion("b", weight=-1.0, must_have=True)],
            "w: a must-have criterion needs a weight above 0",
        ),
    ],
)
def test_a_rubric_that_cannot_be_met_is_refused(criteria: Any, says: str) -> None:
    with pytest.raises(ConfigError) as error:
        Rubric(name="n", criteria=tuple(criteria)).check("w")
    assert str(error.value) == says


def test_a_rubric_that_can_be_met_is_taken() -> None:
    Rubric(
        name="n",
        criteria=(criterion(must_have=True), criterion("b", weight=-1.0), criterion("c", weight=0.0)),
    ).check("w")


@pytest.mark.parametrize(
    ("value", "texts"),
    [
        ("t", [("0", "t", 1.0)]),
        (["t", "u"], [("0", "t", 1.0), ("1", "u", 1.0)]),
        ([{"text": "t", "weight": 2, "id": None}], [("0", "t", 2.0)]),
        ([{"text": "t", "id": "x"}, "u"], [("x", "t", 1.0), ("1", "u", 1.0)]),
        ([], []),
    ],
)
def test_criteria_of_a_row_are_read(value: Any, texts: Any) -> None:
    assert [(one.id, one.text, one.weight) for one in criteria_of(value)] == texts


@pytest.mark.parametrize(
    "value", [5, None, [5], [{"weight": 1}], [{"text": 5}], [{"text": "t", "weight": "x"}]]
)
def test_criteria_that_are_none_are_refused(value: Any) -> None:
    with pytest.raises(ConfigError):
        criteria_of(value)


# ---- whose fault a refusal is


class Judge:
    """Says one thing after another, to the refused text and to the harmless one."""

    def __init__(self, refused: list[Any], harmless: list[Any]) -> None:
        self.said = {"refused": refused, "harmless": harmless}
        self.order: list[str] = []

    def ask(self, which: str) -> Any:
        async def asked() -> Any:
            self.order.append(which)
            found = self.said[which].pop(0)
            if isinstance(found, BaseException):
                raise found
            return found

        return asked


def rejected() -> JudgeRejected:
    return JudgeRejected("too odd")


async def compared(comparisons: Comparisons, judge: Judge, error: Any) -> Any:
    return await comparisons.again(judge, judge.ask("refused"), judge.ask("harmless"), error)


async def test_a_text_that_is_refused_every_time_is_at_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("judgekit.graders.judged.comparing.about_prompt", lambda error: True)
    error = rejected()
    spend(error, ONE)
    judge = Judge([rejected() for _ in range(3)], [ONE] * 3)
    with pytest.raises(
        RolloutError, match="the judge refuses this text, and accepts others: too odd"
    ) as found:
        await compared(Comparisons("g"), judge, error)
    assert judge.order == ["harmless", "refused"] * 3
    assert found.value.usage == Usage(4, 40, 8, 12)  # type: ignore[attr-defined]


async def test_a_judge_that_accepts_what_it_refused_is_fickle_from_then_on(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("judgekit.graders.judged.comparing.about_prompt", lambda error: True)
    comparisons, error = Comparisons("g"), rejected()
    judge = Judge([rejected(), "yes", "yes", *[rejected() for _ in range(3)]], [ONE] * 6)
    assert await compared(comparisons, judge, error) == ("yes", Usage(2, 20, 4, 6))
    assert await compared(comparisons, judge, rejected()) == ("yes", ONE)
    assert (
        len([m for m in caplog.messages if "refuses requests that it accepts when they are sent again" in m])
        == 1
    )
    last = rejected()
    with pytest.raises(JudgeRejected) as found:
        await compared(comparisons, judge, last)
    assert found.value is last
    assert last.usage == Usage(3, 30, 6, 9)  # type: ignore[attr-defined]


async def test_a_judge_that_refuses_everything_is_at_fault_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("judgekit.graders.judged.comparing.about_prompt", lambda error: False)
    error = rejected()
    with pytest.raises(JudgeRejected) as found:
        await compared(Comparisons("g"), Judge([], [JudgeUnavailable("down")]), error)
    assert found.value is error
    assert error.usage == Usage()  # type: ignore[attr-defined]
    other = JudgeRejected("another matter")
    with pytest.raises(JudgeRejected) as second:
        await compared(Comparisons("g"), Judge([other], [ONE]), rejected())
    assert second.value is other
    with pytest.raises(JudgeRejected):
        await compared(Comparisons("g"), Judge([], [TimeoutError()]), rejected())


def test_what_was_spent_is_added_to_an_error() -> None:
    error = rejected()
    spend(error, None)
    assert error.usage == Usage()  # type: ignore[attr-defined]
    spend(error, ONE)
    spend(error, ONE)
    assert error.usage == Usage(2, 20, 4, 6)  # type: ignore[attr-defined]
