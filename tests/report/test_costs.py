"""Costs in money: where the price of all tokens is known, and nowhere else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from judgekit import Graded, GradingRunner, Ledger, Rollout, Usage, read_ledger
from judgekit.graders.judged.panel import Panel
from judgekit.graders.judged.pointwise import JudgeGrader
from judgekit.judges.layers.routes import JudgeRoutes
from judgekit.judges.layers.stack import LayerOptions, stacked
from judgekit.ledger.jsonl import encoded
from judgekit.ledger.schema import GraderSpec, Spec
from judgekit.report.costs import costs
from judgekit.report.table import Table
from judgekit.testing import ScriptedJudge
from judgekit.types import Price

from .test_table import append, entry, unfinished


def spec(path: Path, **prices: Price | None) -> str:
    """Write a spec whose graders have these prices; returns its digest."""
    graders = {name: GraderSpec.of("1", (0.0, 1.0), price) for name, price in prices.items()}
    made = Spec.of(graders, reward="a", transform="none", missing_reward="mask")
    with open(path, "ab") as file:
        file.write(encoded(made))
    return made.digest


def used(prompt: int, completion: int, cached: int = 0) -> Graded:
    return Graded(0.5, usage=Usage(1, prompt, cached, completion))


def of(path: Path, price: Price | None = None) -> dict[str, Any]:
    table = Table(path)
    table.read()
    return costs(table, price)


def test_costs_are_by_grader_and_step_at_the_price_of_their_time(tmp_path: Path) -> None:
    path = tmp_path / "l.jsonl"
    first = spec(path, a=Price(1.0, 10.0), b=Price(2.0, 2.0, 0.5))
    append(
        path,
        entry(0, spec=first, tags={"step": 1}, grades={"a": used(1000, 100), "b": used(1000, 0, cached=800)}),
    )
    later = spec(path, a=Price(100.0, 0.0), b=Price(2.0, 2.0))
    append(path, entry(1, spec=later, tags={"step": 2}, grades={"a": used(1000, 100), "c": Graded(1.0)}))
    found = of(path)
    assert found["graders"]["a"] == {
        "calls": 2, "prompt_tokens": 2000, "cached_tokens": 0, "completion_tokens": 200, "usd": pytest.approx(0.102)
    }  # fmt: skip
    assert found["graders"]["b"]["usd"] == pytest.approx(0.0008)
    assert list(found["graders"]) == ["a", "b"]
    assert found["usd"] == pytest.approx(0.1028)
    assert [(s["step"], s["usd"], list(s["graders"])) for s in found["steps"]] == [
        (1, pytest.approx(0.0028), ["a", "b"]),
        (2, pytest.approx(0.1), ["a"]),
    ]


def test_what_is_not_known_is_no_money(tmp_path: Path) -> None:
    path = tmp_path / "l.jsonl"
    digest = spec(path, a=Price(1.0, 1.0), b=None)
    append(path, entry(0, spec=digest, grades={"a": used(1000, 0), "b": used(1000, 0)}))
    found = of(path)
    assert (found["graders"]["a"]["usd"], found["graders"]["b"]["usd"], found["usd"]) == (0.001, None, None)
    assert of(path, Price(5.0, 5.0))["usd"] == pytest.approx(0.006)  # only of the one without
    append(path, entry(1, spec=digest, grades={"a": Graded(0.5, usage=Usage(1))}))  # it tells no tokens
    assert of(path, Price(5.0, 5.0))["graders"]["a"]["usd"] is None
    append(other := tmp_path / "m.jsonl", entry(0, grades={"a": Graded(0.5)}))
    assert (of(other)["usd"], of(other)["graders"]) == (None, {})


def test_a_rollout_that_was_written_down_before_costs_once(tmp_path: Path) -> None:
    path = tmp_path / "l.jsonl"
    digest = spec(path, a=Price(1.0, 1.0), b=Price(1.0, 1.0))
    append(path, unfinished(0, spec=digest, grades={"a": used(1000, 0)}))
    append(path, entry(0, spec=digest, grades={"a": used(1000, 0), "b": used(500, 0)}))
    assert of(path)["usd"] == pytest.approx(0.0015)
    assert of(path)["calls"] == 2


def test_a_run_writes_down_what_its_judges_cost(tmp_path: Path) -> None:
    def judge(price: Price | None) -> Any:
        return stacked(ScriptedJudge("Score: 5"), LayerOptions(price=price))

    one, two = Price(0.15, 0.6), Price(1.0, 2.0)
    graders = {
        "one": JudgeGrader(judge(one)),
        "routed": JudgeGrader(JudgeRoutes({"a": judge(one), "b": judge(one)})),
        "mixed": JudgeGrader(JudgeRoutes({"a": judge(one)}, default=judge(two))),
        "panel": Panel([judge(two), judge(two)]),
        "quarrel": Panel([judge(one), judge(None)]),
        "free": JudgeGrader(judge(None)),
    }
    ledger = Ledger(tmp_path / "l.jsonl")
    GradingRunner(graders, ledger=ledger).run_sync([Rollout(prompt="p", response="r", data_source="a")])
    (written,) = read_ledger(tmp_path / "l.jsonl").specs.values()
    assert {name: grader.price for name, grader in written.graders.items()} == {
        "one": one, "routed": one, "mixed": None, "panel": two, "quarrel": None, "free": None,
    }  # fmt: skip
