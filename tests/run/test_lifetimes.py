"""Graders that need something: `start` and `close` are honoured, methods are graders, notebooks show tables."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from judgekit import ConfigError, GradingRunner, Mapped, Rollout, grader, group_grader
from judgekit.graders import FinalAnswer


class Index:
    """What a grader needs: it must be opened and closed."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    async def start(self) -> None:
        self.calls.append("start")

    async def close(self) -> None:
        self.calls.append("close")

    async def lookup(self, text: str) -> str:
        await asyncio.sleep(0)
        assert self.calls[-1:] == ["start"]
        return {"6 * 7?": "42"}.get(text, "?")


class Facts(Index):
    @grader
    async def known(self, prompt: str, response: str) -> float:
        """What the index knows."""
        return float(await self.lookup(prompt) in response)

    @grader(name="long", timeout_s=5)
    def lengthy(self, response: str, *, least: int = 3) -> bool:
        return len(response) > least

    @group_grader
    def shortest(self, response: list[str]) -> list[float]:
        return [float(len(text) == min(map(len, response))) for text in response]


class OfClass(Index):
    name, version, score_range = "facts", "1", (0.0, 1.0)

    async def grade(self, rollout: Rollout) -> float:
        return float(await self.lookup(rollout.prompt_text) in rollout.response)


ROWS = [Rollout(prompt="6 * 7?", response="It is 42"), Rollout(prompt="6 * 7?", response="41")]


async def used(runner: GradingRunner, rows: list[Rollout] = ROWS) -> list[float | None]:
    async with runner:
        return [result.reward for result in await runner.run(rows)]


@pytest.mark.parametrize("wrap", [lambda it: it, lambda it: Mapped(it, {"response": "response"})])
def test_a_grader_with_a_lifetime_is_started_and_closed_once(wrap: Any) -> None:
    facts = OfClass()
    assert asyncio.run(used(GradingRunner({"a": wrap(facts)}))) == [1.0, 0.0]
    assert facts.calls == ["start", "close"]


def test_a_run_without_start_starts_it_too() -> None:
    facts = OfClass()
    runner = GradingRunner({"a": facts, "b": facts}, {"a": 0.5, "b": 0.5})
    assert [result.reward for result in runner.run_sync(ROWS)] == [1.0, 0.0]
    assert facts.calls == ["start"]


def test_methods_are_graders_of_their_object() -> None:
    facts = Facts()
    runner = GradingRunner([facts.known, facts.lengthy, facts.shortest])
    assert list(runner.graders) == ["known", "long", "shortest"]
    assert asyncio.run(used(runner)) == pytest.approx([2 / 3, 1 / 3])
    assert facts.calls == ["start", "close"]
    assert facts.known.__doc__ == "What the index knows."
    other = Facts()
    assert asyncio.run(used(GradingRunner({"f": other.known}))) == [1.0, 0.0]
    assert facts.calls == ["start", "close"]
    assert facts.lengthy.with_settings({"least": 100}).grade(ROWS[0]) is False


def test_settings_and_wrappers_leave_the_lifetime() -> None:
    facts = Facts()
    runner = GradingRunner({"long": facts.lengthy.with_settings({"least": 1})})
    assert asyncio.run(used(runner)) == [1.0, 1.0]
    assert facts.calls == ["start", "close"]

    class Wrapper(OfClass):
        inner = FinalAnswer()

    wrapper = Wrapper()
    assert asyncio.run(used(GradingRunner({"a": wrapper}))) == [1.0, 0.0]
    assert wrapper.calls == ["start", "close"]


def test_a_bound_method_is_one_too() -> None:
    class Plain(Index):
        async def known(self, prompt: str, response: str) -> float:
            return float(await self.lookup(prompt) in response)

    plain = Plain()
    assert asyncio.run(used(GradingRunner({"k": grader(plain.known)}))) == [1.0, 0.0]
    assert plain.calls == ["start", "close"]


def test_a_class_that_only_closes_and_a_plain_start() -> None:
    class Closes(OfClass):
        def start(self) -> None:  # type: ignore[override]
            self.calls.append("start")

        def close(self) -> None:  # type: ignore[override]
            self.calls.append("closed")

    closes = Closes()
    assert asyncio.run(used(GradingRunner({"a": closes}))) == [1.0, 0.0]
    assert closes.calls == ["start", "closed"]


def test_what_cannot_be_is_said() -> None:
    with pytest.raises(
        ConfigError, match=r"Facts\.known is a method: give that of an object, Facts\(…\)\.known"
    ):
        GradingRunner({"k": Facts.known})

    class InProcess(Index):
        @grader(where="process")
        def known(self, response: str) -> float:
            return 1.0

    with pytest.raises(ConfigError, match=r"has a start\(\), which its worker process would not see"):
        GradingRunner({"k": InProcess().known})


def test_an_option_that_is_none_is_said() -> None:
    with pytest.raises(ConfigError, match=r"no option 'index'.* bound with functools\.partial"):
        grader(lambda response: 1.0, index=3)  # type: ignore[call-overload]


def test_notebooks_show_tables() -> None:
    runner = GradingRunner({"correct": FinalAnswer()})
    hostile = "<script>alert(1)</script>"
    results = runner.run_sync(
        [Rollout(prompt=hostile, group=hostile, response="42", ground_truth="42"), Rollout(response=hostile)]
        * 15
    )
    assert isinstance(results, list)
    for shown in (results, results[0], results[1], runner, runner.metrics):
        html = shown._repr_html_()  # type: ignore[attr-defined]
        assert html.startswith("<table>")
        assert "<script>" not in html
    assert "… and 10 more" in results._repr_html_()  # type: ignore[attr-defined]
    # asyncio.run writes its task's result as a text: all of a list's subclass
    assert repr(results).endswith(", … and 10 more]")
    assert repr(results).count("RewardResult(") == 20
    assert "reward (scored)" in results[0]._repr_html_()
    assert "the reference has no number" in results[1]._repr_html_()
    assert repr(runner.metrics) == "<Metrics of 30 rollouts: 15 scored, 15 excluded>"
    assert repr(GradingRunner({"a": FinalAnswer()}).metrics) == "<Metrics of 0 rollouts>"
