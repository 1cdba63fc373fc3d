"""Switch: the tree by a field of the rollout."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
import yaml

from judgekit import (
    ConfigError,
    Failed,
    Fallback,
    Gate,
    Grade,
    Graded,
    GradingRunner,
    Rollout,
    Score,
    Skipped,
    Switch,
    Weighted,
    grader,
)
from judgekit.reward.explain import explain, why_missing
from judgekit.reward.nodes import Node
from judgekit.reward.spec import parse
from judgekit.reward.tree import RewardTree

UNIT = (0.0, 1.0)
ROOT = Switch({"math*": "correct", "code": Weighted({"tests": 0.9, "style": 0.1})}, otherwise="judge")


def tree(root: Node, *names: str) -> RewardTree:
    return RewardTree(root, dict.fromkeys(names or ("correct", "tests", "style", "judge"), UNIT))


def of(source: Any = "", **extra: Any) -> Rollout:
    return Rollout(response="", data_source=source, extra=extra)


@pytest.mark.parametrize(
    ("source", "wanted"),
    [("math500", ["correct"]), ("code", ["tests", "style"]), ("codex", ["judge"]), ("", ["judge"])],
)
def test_the_first_case_that_fits_counts_and_only_its_graders_are_asked(
    source: str, wanted: list[str]
) -> None:
    bound = tree(ROOT)
    assert bound.wanted({}, of(source)) == wanted
    grades: dict[str, Grade] = {name: Graded(0.5) for name in wanted}
    assert bound.wanted(grades, of(source)) == []
    assert bound.evaluate(grades, of(source)).value == pytest.approx(0.5)


def test_skipped_graders_say_which_case_they_stand_in() -> None:
    root = Switch({"math*": Gate(if_="correct >= 1", then="judge", otherwise=0), "code": "tests"})
    assert tree(root, "correct", "judge", "tests").gate_of == {
        "correct": "data_source is math*",
        "judge": "data_source is math* and correct >= 1",
        "tests": "data_source is code",
    }
    assert tree(ROOT).gate_of["judge"] == "data_source is none of math*, code"


@pytest.mark.parametrize("value", ["poetry", None, 3, object(), ["math"], [10**5000]], ids=range(6))
def test_no_case_is_a_missing_reward_that_says_why_never_zero(value: Any) -> None:
    bound = tree(Switch({"math*": "correct"}, by="extra.kind"), "correct")
    for rollout in (of(kind=value), of()):
        assert bound.wanted({}, rollout) == []
        ev = bound.evaluate({"correct": Skipped("")}, rollout)
        assert (ev.value, ev.missing) == (None, ())
        assert why_missing(ev).startswith("no case of the switch fits extra.kind")


def test_a_fallback_stands_in_for_a_case_that_is_not_there() -> None:
    bound = tree(Fallback(Switch({"math": "correct"}), "judge"), "correct", "judge")
    assert bound.wanted({}, of("x")) == ["judge"]
    ev = bound.evaluate({"judge": Graded(1.0)}, of("x"))
    assert ev.value == 1.0
    assert ev.policies[-1] == "switch by data_source: missing, fallback to judge"


def test_values_that_are_not_text_are_compared_as_text() -> None:
    bound = tree(Switch({"3": "correct", "*": "judge"}, by="extra.level"), "correct", "judge")
    assert bound.wanted({}, of(level=3)) == ["correct"]
    assert bound.wanted({}, of(level=None)) == ["judge"]


@pytest.mark.parametrize(
    ("build", "says"),
    [
        (lambda: Switch({}), "give at least one case"),
        (lambda: Switch({1: "a"}), "give at least one case"),  # type: ignore[dict-item]
        (lambda: Switch({"a": "a"}, by="datasource"), "did you mean 'data_source'"),
        (lambda: Switch({"a": "a"}, by=3), "by is a field of the rollout"),  # type: ignore[arg-type]
        (lambda: tree(Switch({"m": "corect"}), "correct"), "did you mean 'correct'"),
        (lambda: tree(Switch({"m": Score("a", if_missing="renormalise")}), "a"), "only has a meaning inside"),
        (lambda: parse({"switch": {"by": "data_source"}}), "a switch is"),
        (lambda: parse({"switch": {"cases": {"a": 1}, "else": 1}}), "takes no 'else'"),
        (lambda: parse({"switch": {"cases": {"a": 1}, "otherwize": 1}}), "did you mean 'otherwise'"),
    ],
)
def test_what_is_wrong_is_said_at_construction(build: Any, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        build()


@pytest.mark.parametrize(
    ("cases", "hidden"),
    [
        ({"math*": 1, "math500": 0}, True),
        ({"m*": 1, "math?": 0}, True),
        ({"*": 1, "code": 0}, True),
        ({"math500": 1, "math*": 0}, False),
        ({"math?": 1, "math*": 0}, False),
        ({"[mc]*": 1, "math": 0}, False),
    ],
)
def test_a_case_behind_one_that_takes_all_of_it_is_a_warning(cases: Mapping[str, Any], hidden: bool) -> None:
    warnings = tree(Weighted({"a": 1, "s": (1, Switch(cases))}), "a").warnings
    assert bool(warnings) is hidden
    assert not hidden or "is never taken" in warnings[0]


@pytest.mark.parametrize("root", [ROOT, Switch({"a": 1}, by="extra.kind"), Switch({"a": "x", "b": ROOT})])
def test_yaml_form_and_bounds(root: Switch) -> None:
    again = parse(yaml.safe_load(yaml.safe_dump(root.spec())))
    assert again.spec() == root.spec()
    ranges = {"correct": (0.0, 1.0), "tests": (-2.0, 1.0), "style": UNIT, "judge": (0.0, 5.0), "x": UNIT}
    assert again.bounds(ranges) == root.bounds(ranges)
    assert ROOT.bounds(ranges) == (pytest.approx(-1.8), 5.0)


def test_explain_shows_the_case_also_without_the_rollout() -> None:
    bound = tree(ROOT)
    skipped = Skipped("")
    grades: dict[str, Grade] = {"correct": Graded(0.5), "tests": skipped, "style": skipped, "judge": skipped}
    expected = "switch by data_source = 0.5\n  data_source is math*: correct = 0.5"
    assert explain(bound, grades, of("math")) == expected
    assert explain(bound, grades) == expected
    assert bound.evaluate(grades).value == 0.5
    # cases of constants cannot be told apart by grades
    constants = tree(Weighted({"correct": 0, "s": (1, Switch({"a": 1, "b": 0}))}), "correct")
    both = explain(constants, {"correct": Graded(1.0)})
    assert "data_source is a: 1 = 1" in both
    assert "data_source is b: 0 = 0" in both


@pytest.mark.parametrize("kind", ["math500", "code", "other"])
@pytest.mark.parametrize("by", ["data_source", "extra.kind"])
def test_explain_of_a_result_shows_the_case_that_gave_its_reward(by: str, kind: str) -> None:
    """The cases share their grader, and the grades alone fit all of them."""
    cases = {"math*": Weighted({"correct": 1.0}), "c?de": Weighted({"correct": 2.0})}
    inner = Switch(cases, by=by, otherwise=Weighted({"correct": 3.0}))
    runner = GradingRunner({"correct": grader(lambda response: 0.5)}, Weighted({"all": (0.5, inner)}))
    (result,) = runner.run_sync([of(kind, kind=kind)])
    shown = {
        "math500": "math*: weighted = 0.5",
        "code": "c?de: weighted = 1",
        "other": "none of math*, c?de: weighted = 1.5",
    }
    lines = runner.explain(result).splitlines()
    assert [line.strip() for line in lines if " is " in line] == [f"{by} is {shown[kind]}"]


def test_a_mixture_of_data_sources_in_one_run() -> None:
    asked: list[str] = []

    @grader
    def correct(response: str) -> float:
        asked.append(f"correct {response}")
        return 1.0

    @grader
    def tests(response: str) -> Failed:
        asked.append(f"tests {response}")
        return Failed("Down")

    runner = GradingRunner([correct, tests], Switch({"math*": "correct", "code": "tests"}))
    results = runner.run_sync(
        [Rollout(response=source, data_source=source) for source in ("math1", "code", "chat")]
    )
    assert asked == ["correct math1", "tests code"]
    assert [r.reward for r in results] == [1.0, None, None]
    assert [r.missing for r in results] == [(), ("tests",), ()]
    assert results[2].policies == ("no case of the switch fits data_source 'chat'",)
    assert results[0].grades["tests"] == Skipped("data_source is code")
