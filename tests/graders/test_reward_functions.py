"""Reward functions of other trainers as graders: the number is the one that their own trainer uses, bit for bit.

Each trainer's way of calling a function and of reading its result is written here once more, from that trainer's source.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import math
import pickle
import struct
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from judgekit import Abstained, ConfigError, Failed, Graded, GradingRunner, Mapped, Rollout, from_function
from judgekit.config import load_runner
from judgekit.data import rollouts_from
from judgekit.trainers import hosted_runner, rollout_of
from judgekit.types import SOLUTION_STR

QUESTION = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "6*7?"}]
REPLIES = ("It is 42.", "It is 41.", "<think>6*7</think> 42", "")
ROWS = [{"answer": "42", "solution": "42", "level": 3, "source": "mul"}] * 3 + [
    {"answer": "?", "solution": "?", "level": 1, "source": "mul"}
]


# ---- the trainers


def trl(function: Callable[..., Any], *, chat: bool) -> list[float]:
    """GRPOTrainer._calculate_rewards, TRL 1.16."""
    prompts: list[Any] = [QUESTION if chat else "6*7?" for _ in ROWS]
    said: list[Any] = [[{"role": "assistant", "content": text}] if chat else text for text in REPLIES]
    keys = [key for key in ROWS[0] if key not in ("prompt", "completion", "completion_ids")]
    columns = {key: [row[key] for row in ROWS] for key in keys}
    given = {
        **columns,
        "trainer_state": object(),
        "log_extra": lambda column, values: None,
        "log_metric": lambda name, value: None,
    }
    ids = [list(range(len(text))) for text in REPLIES]
    found = function(prompts=prompts, completions=said, completion_ids=ids, **given)
    if inspect.iscoroutinefunction(function):
        found = asyncio.run(found)
    rewards = [reward if reward is not None else math.nan for reward in found]
    assert len(rewards) == len(prompts)
    return rewards


def verl(function: Callable[..., Any]) -> list[Any]:
    """NaiveRewardManager.run_single, verl 0.9.1."""
    scores = []
    for text, row in zip(REPLIES, ROWS, strict=True):
        info = {"level": row["level"], "num_turns": 2, "rollout_reward_scores": {}}
        result = function(
            data_source=row["source"], solution_str=text, ground_truth=row["answer"], extra_info=info
        )
        if inspect.iscoroutinefunction(function):
            result = asyncio.run(result)
        scores.append(result["score"] if isinstance(result, dict) else result)
    return scores


def verl_batch(function: Callable[..., Any]) -> list[Any]:
    """BatchRewardManager.verify and __call__, verl 0.6."""
    scores = function(
        data_sources=np.array([row["source"] for row in ROWS], dtype=object),
        solution_strs=list(REPLIES),
        ground_truths=[row["answer"] for row in ROWS],
        extra_infos=[{"level": row["level"]} for row in ROWS],
    )
    return [score["score"] if isinstance(score, dict) else score for score in scores]


def verifiers(function: Callable[..., Any]) -> list[float]:
    """Rubric._call_individual_reward_func and _call_group_reward_func, verifiers 0.3.1."""

    def objects(text: str, row: Mapping[str, Any]) -> dict[str, Any]:
        state = {
            "prompt": QUESTION,
            "completion": [{"role": "assistant", "content": text}],
            "answer": row["answer"],
        }
        state |= {"info": {"level": row["level"]}, "task": "mul", "trajectory": []}
        return {**state, "state": state, "source": row["source"]}

    def called(given: Mapping[str, Any]) -> Any:
        parameters = inspect.signature(function).parameters
        takes_all = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
        found = function(**(given if takes_all else {k: v for k, v in given.items() if k in parameters}))
        return asyncio.run(found) if inspect.isawaitable(found) else found

    each = [objects(text, {**row, "task": "mul"}) for text, row in zip(REPLIES, ROWS, strict=True)]
    parameters = inspect.signature(function).parameters.keys()
    if parameters & {"states", "prompts", "completions", "answers", "tasks", "infos"}:
        singular = ("prompt", "completion", "answer", "state", "task", "info")
        return called({f"{name}s": [one[name] for one in each] for name in singular})  # type: ignore[no-any-return]
    return [float(called(one)) for one in each]


def openrlhf(function: Callable[..., Any]) -> list[float]:
    """SingleTurnAgentExecutor.execute, OpenRLHF 0.11: a batch of one, by position."""
    found = []
    for text, row in zip(REPLIES, ROWS, strict=True):
        info = function(["6*7?" + text], ["6*7?"], [row["answer"]])
        reward = info.get("rewards") if isinstance(info, dict) else info
        found.append(float(np.asarray(reward).reshape(-1)[0]))
    return found


# ---- the rollouts, as the adapters make them


def rollouts(host: str) -> list[Rollout]:
    made = []
    for text, row in zip(REPLIES, ROWS, strict=True):
        turns = [{"role": "assistant", "content": text}]
        if host in ("verl", "verl batch"):
            columns: dict[str, Any] = {
                "data_source": row["source"],
                "reward_model": {"style": "rule", "ground_truth": row["answer"]},
                "extra_info": {"level": row["level"]},
                "__num_turns__": 2,
            }
        elif host == "verifiers":
            columns = {
                "answer": row["answer"],
                "info": {"level": row["level"]},
                "task": "mul",
                "source": row["source"],
            }
        elif host == "openrlhf":
            columns = {"label": row["answer"]}
        else:
            columns = {**row, "completion_ids": list(range(len(text)))}
        prompt: Any = "6*7?" if host in ("trl text", "openrlhf") else QUESTION
        made.append(rollout_of(columns, prompt=prompt, turns=turns, group="p"))
    return made


# ---- functions as users have written them


def trl_text(prompts, completions, answer, **kwargs):  # type: ignore[no-untyped-def]
    return [1 / 3 if a in c else -0.1 * len(p) for p, c, a in zip(prompts, completions, answer, strict=True)]


def trl_chat(completions, **kwargs):  # type: ignore[no-untyped-def]
    return [len(c[0]["content"]) / 7 + (c[-1]["role"] == "assistant") for c in completions]


def trl_columns(completions, **kwargs):  # type: ignore[no-untyped-def]
    kwargs["log_extra"]("level", kwargs["level"])
    kwargs["log_metric"]("hard", 0.25)
    return [level * 0.1 for level in kwargs["level"]]


def trl_skips(prompts, completions, solution, level=None, answer=None, source=None, completion_ids=None, trainer_state=None, log_extra=None, log_metric=None):  # type: ignore[no-untyped-def]  # fmt: skip
    assert level == [3, 3, 3, 1]
    return [
        None if s == "?" else np.float32(0.1) * len(c) for c, s in zip(completions, solution, strict=True)
    ]


async def trl_async(prompts, completions, **kwargs):  # type: ignore[no-untyped-def]
    await asyncio.sleep(0)
    return np.array([len(c) / 11 for c in completions])


def trl_overlong(completion_ids: list[list[int]], **kwargs: Any) -> list[float]:
    return [min(0.0, (4 - len(ids)) / 8) for ids in completion_ids]


def trl_compares(completions, **kwargs):  # type: ignore[no-untyped-def]
    longest = max(map(len, completions))
    return [len(c) / longest for c in completions]


def verl_float(data_source, solution_str, ground_truth, extra_info=None):  # type: ignore[no-untyped-def]
    return (1.0 if ground_truth in solution_str else -1.0) / extra_info["level"] + (data_source == "mul")


def verl_dict(data_source, solution_str, ground_truth, extra_info):  # type: ignore[no-untyped-def]
    extra_info["seen"] = True
    return {
        "score": 0.1 * len(solution_str) + 0.2 * extra_info["num_turns"],
        "acc": ground_truth in solution_str,
        "pred": solution_str[:3],
    }


def verl_kwargs(solution_str, ground_truth, method="strict", **kwargs):  # type: ignore[no-untyped-def]
    return bool(kwargs["extra_info"]["level"] == 3 and method == "strict")


async def verl_async(data_source, solution_str, ground_truth, extra_info=None, **kwargs):  # type: ignore[no-untyped-def]
    await asyncio.sleep(0)
    return np.float64(len(solution_str)) / 9


def verl_batched(data_sources, solution_strs, ground_truths, extra_infos):  # type: ignore[no-untyped-def]
    return [len(s) / 13 + e["level"] for s, e in zip(solution_strs, extra_infos, strict=True)]


def verl_batched_dicts(data_sources, solution_strs, ground_truths, extra_infos, **kwargs):  # type: ignore[no-untyped-def]
    return [
        {"score": (g in s) * 0.7, "acc": g in s} for s, g in zip(solution_strs, ground_truths, strict=True)
    ]


def verifiers_chat(completion, answer):  # type: ignore[no-untyped-def]
    return answer in completion[-1]["content"]


def verifiers_state(state, info, source) -> float:  # type: ignore[no-untyped-def]
    return info["level"] * 0.1 + len(state["completion"]) + len(state["prompt"]) + (source == "mul")


async def verifiers_async(prompt, completion, answer, task, **kwargs):  # type: ignore[no-untyped-def]
    await asyncio.sleep(0)
    return (
        (answer in completion[0]["content"]) * 0.3
        + (task == "mul") * 0.1
        + len(prompt)
        + len(kwargs["source"])
    )


def verifiers_group(states, answers) -> list[float]:  # type: ignore[no-untyped-def]
    longest = max(len(state["completion"][0]["content"]) for state in states)
    return [
        len(s["completion"][0]["content"]) / longest * (a != "?")
        for s, a in zip(states, answers, strict=True)
    ]


def openrlhf_list(queries, prompts, labels):  # type: ignore[no-untyped-def]
    return [
        0.1 * (label in query[len(prompt) :])
        for query, prompt, label in zip(queries, prompts, labels, strict=True)
    ]


def openrlhf_dict(queries, prompts, labels, **kwargs):  # type: ignore[no-untyped-def]
    reward = np.array([len(query) / 7 for query in queries], dtype=np.float32)
    return {"rewards": reward, "scores": reward > 1, "extra_logs": {"length": reward.mean()}}


def openrlhf_number(query, prompt, label):  # type: ignore[no-untyped-def]
    return {"rewards": len(query[0]) / 3, "scores": 1.0}


SHAPES: dict[str, tuple[Callable[..., Any], str, dict[str, Any]]] = {
    "trl: texts and a column": (trl_text, "trl text", {}),
    "trl: messages": (trl_chat, "trl chat", {}),
    "trl: columns from kwargs": (trl_columns, "trl text", {}),
    "trl: all by name, None": (trl_skips, "trl text", {}),
    "trl: async, an array": (trl_async, "trl text", {}),
    "trl: token ids": (trl_overlong, "trl chat", {}),
    "trl: compares its batch": (trl_compares, "trl text", {}),
    "verl: a number": (verl_float, "verl", {}),
    "verl: a dict": (verl_dict, "verl", {}),
    "verl: kwargs": (verl_kwargs, "verl", {}),
    "verl: async": (verl_async, "verl", {}),
    "verl: with arguments": (functools.partial(verl_kwargs, method="loose"), "verl", {}),
    "verl: a batch": (verl_batched, "verl batch", {}),
    "verl: a batch of dicts": (verl_batched_dicts, "verl batch", {}),
    "verifiers: completion and answer": (verifiers_chat, "verifiers", {}),
    "verifiers: state and columns": (verifiers_state, "verifiers", {}),
    "verifiers: async, kwargs": (verifiers_async, "verifiers", {}),
    "verifiers: a group": (verifiers_group, "verifiers", {}),
    "openrlhf: a list": (openrlhf_list, "openrlhf", {}),
    "openrlhf: a dict of arrays": (openrlhf_dict, "openrlhf", {}),
    "openrlhf: other names": (openrlhf_number, "openrlhf", {"signature": "openrlhf"}),
}


def own_numbers(function: Callable[..., Any], host: str) -> list[Any]:
    if host.startswith("trl"):
        return trl(function, chat=host == "trl chat")
    return {"verl": verl, "verl batch": verl_batch, "verifiers": verifiers, "openrlhf": openrlhf}[host](
        function
    )


def bits(number: Any) -> bytes:
    return b"missing" if number is None or math.isnan(number) else struct.pack("<d", float(number))


@pytest.mark.parametrize("shape", SHAPES)
def test_the_number_is_that_of_its_own_trainer(shape: str) -> None:
    function, host, options = SHAPES[shape]
    results = GradingRunner({"f": from_function(function, name="f", **options)}).run_sync(rollouts(host))
    assert [bits(result.reward) for result in results] == [bits(n) for n in own_numbers(function, host)]
    assert (
        len({bits(result.reward) for result in results}) > 1 or "arguments" in shape
    )  # it depends on something
    # and after verl's and TRL's conversion for the device
    theirs = np.array([n for n in own_numbers(function, host) if not math.isnan(n)], dtype=np.float32)
    ours = np.array([r.reward for r in results if r.reward is not None], dtype=np.float32)
    assert theirs.tobytes() == ours.tobytes()


@pytest.mark.parametrize("shape", [s for s in SHAPES if "with arguments" not in s and "other names" not in s])
def test_the_same_from_a_file(shape: str, tmp_path: Path) -> None:
    function, host, _ = SHAPES[shape]
    path = tmp_path / "reward.yaml"
    path.write_text(f"graders: {{f: {{use: '{__name__}:{function.__name__}'}}}}\n")
    results = load_runner(path).run_sync(rollouts(host))
    assert [bits(result.reward) for result in results] == [bits(n) for n in own_numbers(function, host)]


def exact(response: str, ground_truth: str) -> float:
    return float(ground_truth in response)


def about(prompt: str, response: str, *, weight: float = 1.0) -> float:
    return weight * len(response) - len(prompt)


def whole(rollout: Rollout) -> float:
    return -2.5 * len(rollout.response)


def together(rollouts: Sequence[Rollout]) -> list[float]:
    return [float(len(one.response)) for one in rollouts]


@pytest.mark.parametrize("function", [exact, about, whole, together])
def test_plain_functions(function: Callable[..., Any]) -> None:
    members = [Rollout(response=text, prompt="6*7?", ground_truth="42") for text in REPLIES]
    results = GradingRunner({"f": from_function(function)}).run_sync(members)
    theirs = {
        exact: lambda one: exact(one.response, one.ground_truth),
        about: lambda one: about(one.prompt, one.response),
        whole: whole,
        together: lambda one: together([one])[0],
    }[function]
    assert [result.reward for result in results] == [theirs(one) for one in members]


# ---- what else a function says


def test_what_a_function_says_besides_is_in_the_metadata() -> None:
    functions = {"trl": trl_columns, "verl": verl_dict, "rlhf": openrlhf_dict, "batch": verl_batched_dicts}
    members = [
        Rollout(response="It is 42", prompt="6*7?", ground_truth="42", extra={"level": 3, "num_turns": 1})
    ]
    (result,) = GradingRunner({n: from_function(f) for n, f in functions.items()}).run_sync(members)
    said = {name: grade.metadata for name, grade in result.grades.items() if isinstance(grade, Graded)}
    assert said["trl"] == {"level": 3, "hard": 0.25}
    assert said["verl"] == {"acc": True, "pred": "It "}
    assert said["batch"] == {"acc": True}
    assert said["rlhf"] == {"scores": True, "length": pytest.approx(12 / 7)}


def test_the_text_of_all_turns_is_handed_over_where_there_is_one() -> None:
    seen: list[Any] = []

    def look(solution_str, extra_info):  # type: ignore[no-untyped-def]
        seen.append((solution_str, extra_info["level"], "solution_str" in extra_info))
        return 1.0

    extra = {SOLUTION_STR: "call 6*7 42 It is 42", "level": 3}
    GradingRunner({"f": from_function(look)}).run_sync([Rollout(response="It is 42", extra=extra)])
    assert seen == [("call 6*7 42 It is 42", 3, False)]


def test_a_function_cannot_write_into_the_rollout() -> None:
    (member,) = members = [Rollout(response="42", ground_truth="42", extra={"num_turns": 1, "level": 3})]
    GradingRunner({"f": from_function(verl_dict)}).run_sync(members)
    assert member.extra == {"num_turns": 1, "level": 3}


# ---- failures are never numbers


def raises(*_: Any, **__: Any) -> Any:
    raise ValueError("no such answer")


def gives(value: Any, kind: str) -> Callable[..., Any]:
    def trl(completions, **kwargs):  # type: ignore[no-untyped-def]
        return value

    def verl(data_source, solution_str, ground_truth, extra_info=None):  # type: ignore[no-untyped-def]
        return value

    def batch(data_sources, solution_strs, ground_truths, extra_infos):  # type: ignore[no-untyped-def]
        return value

    def verifiers(completion):  # type: ignore[no-untyped-def]
        return value

    def openrlhf(queries, prompts, labels):  # type: ignore[no-untyped-def]
        return value

    def plain(response):  # type: ignore[no-untyped-def]
        return value

    return {
        "trl": trl,
        "verl": verl,
        "batch": batch,
        "verifiers": verifiers,
        "openrlhf": openrlhf,
        "plain": plain,
    }[kind]


NAN, INF = math.nan, math.inf


@pytest.mark.parametrize(
    ("kind", "value", "grade"),
    [
        ("trl", [None, 1.0], Abstained("the function returned None, which means to TRL that it does not apply")),
        ("trl", [NAN, 1.0], Abstained("the function returned NaN, which means to TRL that it does not apply")),
        ("trl", [np.float32("nan"), 1.0], Abstained("the function returned NaN, which means to TRL that it does not apply")),
        ("trl", [INF, 1.0], Failed("ScoreNotFinite", "the score is inf")),
        ("trl", [1.0], Failed("WrongGroupGrades", "1 grades for 2 members")),
        ("trl", 1.0, Failed("WrongGroupGrades", "float for 2 members")),
        ("trl", None, Failed("WrongGroupGrades", "NoneType for 2 members")),
        ("trl", {"a": 1.0, "b": 1.0}, Failed("WrongGroupGrades", "dict for 2 members")),
        ("trl", ["1", 1.0], Failed("TypeError", "a grader returns a number, None or a Grade, not str")),
        ("verl", None, Failed("TypeError", "the function returned None, which is no reward to verl")),
        ("verl", NAN, Failed("ScoreNotFinite", "the score is nan")),
        ("verl", {"acc": 1.0}, Failed("KeyError", "the function returned a dict without 'score'")),
        ("verl", {"score": None, "acc": 1.0}, Failed("TypeError", "the function returned None, which is no reward to verl")),
        ("verl", {"score": NAN, "acc": 1.0}, Failed("ScoreNotFinite", "the score is nan")),
        ("verl", {"score": "1", "acc": 1.0}, Failed("TypeError", "a score is a number, not '1'")),
        ("verl", (1.0, "why"), Failed("TypeError", "a grader returns a number, None or a Grade, not tuple")),
        ("batch", [1.0, 2.0, 3.0], Failed("WrongGroupGrades", "3 grades for 2 members")),
        ("batch", [{"acc": 1.0}, 1.0], Failed("KeyError", "the function returned a dict without 'score'")),
        ("verifiers", None, Failed("TypeError", "the function returned None, which is no reward to verifiers")),
        ("verifiers", {"a": 1.0}, Failed("TypeError", "a grader returns a number, None or a Grade, not dict")),
        ("openrlhf", None, Failed("TypeError", "the function returned None, which is no reward to OpenRLHF")),
        ("openrlhf", [1.0, 1.0], Failed("WrongGroupGrades", "2 grades for 1 members")),
        ("openrlhf", {"scores": [1.0]}, Failed("KeyError", "the function returned a dict without 'rewards'")),
        ("openrlhf", {"rewards": [NAN], "scores": [1.0]}, Failed("ScoreNotFinite", "the score is nan")),
        ("plain", None, Abstained("returned None")),
        ("plain", NAN, Failed("ScoreNotFinite", "the score is nan")),
    ],
)  # fmt: skip
def test_what_is_no_reward_is_no_number(kind: str, value: Any, grade: Any) -> None:
    members = [Rollout(response=text, prompt="q", group="g") for text in "ab"]
    result = GradingRunner({"f": from_function(gives(value, kind))}).run_sync(members)[0]
    assert (result.grades["f"], result.reward) == (grade, None)


@pytest.mark.parametrize("signature", ["trl", "verl", "verifiers", "openrlhf"])
def test_an_exception_is_a_failure_with_its_cause(signature: Any) -> None:
    runner = GradingRunner({"f": from_function(raises, signature=signature)})
    for result in runner.run_sync([Rollout(response="a", prompt="q"), Rollout(response="b", prompt="q")]):
        assert (result.grades["f"], result.reward) == (Failed("ValueError", "no such answer"), None)


def test_a_member_without_a_column_abstains_and_the_others_are_graded() -> None:
    seen = []

    def known(completions, level):  # type: ignore[no-untyped-def]
        seen.append(level)
        return [1.0] * len(completions)

    members = [Rollout(response="", group=1, extra={"level": 1} if i else {}) for i in range(3)]
    results = GradingRunner({"f": from_function(known)}).run_sync(members)
    assert results[0].grades["f"] == Abstained("the column 'level' is not there")
    assert ([r.reward for r in results[1:]], seen) == ([1.0, 1.0], [[1, 1]])


def test_the_reference_is_the_column_of_rollouts_that_were_made_without_columns() -> None:
    def of_trl(completions, answer, **_):  # type: ignore[no-untyped-def]
        return [float(a in c) for c, a in zip(completions, answer, strict=True)]

    def of_verifiers(completion, answer):  # type: ignore[no-untyped-def]
        return float(answer in completion)

    runner = GradingRunner({"trl": from_function(of_trl), "verifiers": from_function(of_verifiers)})
    (result,) = runner.run_sync([Rollout(response="It is 42", prompt="q", ground_truth="42")])
    assert (result.score("trl"), result.score("verifiers")) == (1.0, 1.0)


# ---- how they are called


def test_a_batch_is_one_call_for_each_group() -> None:
    sizes = []

    def counted(completions, **kwargs):  # type: ignore[no-untyped-def]
        sizes.append(len(completions))
        return [0.5] * len(completions)

    runner = GradingRunner({"f": from_function(counted)})
    members = [Rollout(response=str(i), group=group) for i, group in enumerate("aabbbc")]
    assert [r.reward for r in runner.run_sync(members)] == [0.5] * 6
    assert sorted(sizes) == [1, 2, 3]
    mapped = GradingRunner({"f": Mapped(from_function(counted), {"response": "prompt"})})
    assert mapped.run_sync([Rollout(response="", prompt="q")])[0].reward == 0.5


def test_a_batch_works_where_rollouts_come_alone() -> None:
    runner = GradingRunner({"f": from_function(verl_batched)}, missing_reward=0.0)
    hosted = hosted_runner(runner=runner, grouped=False, can_mask=False, grouping_hint="")
    (result,) = hosted.runner.run_sync([Rollout(response="x" * 13, extra={"level": 3})])
    assert result.reward == 4.0


def test_fields_map_parameters() -> None:
    runner = GradingRunner(
        {
            "trl": from_function(trl_text, fields={"completions": "response", "answer": "extra.gold.0"}),
            "chat": from_function(verl_float, fields={"solution_str": "messages.-1.content"}),
            "rlhf": from_function(openrlhf_list, fields={"labels": "extra.gold.0"}),
            "kwargs": from_function(trl_chat, fields={"completions": "extra.turns"}),
        }
    )
    extra = {"gold": ["42"], "level": 1, "turns": [{"role": "assistant", "content": "x" * 7}]}
    messages = [*QUESTION, {"role": "assistant", "content": "42"}]
    member = Rollout(response="42", prompt=QUESTION, ground_truth="42", messages=messages, extra=extra)
    (result,) = runner.run_sync([member])
    assert {name: result.score(name) for name in result.grades} == {
        "trl": 1 / 3,
        "chat": 1.0,
        "rlhf": 0.1,
        "kwargs": 2.0,
    }
    (result,) = runner.run_sync([Rollout(response="42", ground_truth="42")])
    assert result.grades["trl"] == Abstained("extra.gold.0 is not there")
    kept = from_function(verl_kwargs, fields={"method": "extra.method"})
    members = [Rollout(response="", extra={"level": 3, **more}) for more in ({}, {"method": "loose"})]
    assert [r.reward for r in GradingRunner({"f": kept}).run_sync(members)] == [1.0, 0.0]


class Callable_:
    """A function with a state, as TRL's users write them."""

    def __init__(self, weight: float) -> None:
        self.weight = weight

    async def __call__(self, completions: list[str], **kwargs: Any) -> list[float]:
        return [self.weight * len(c) for c in completions]

    def score(self, solution_str: str, ground_truth: str) -> float:
        return self.weight * (ground_truth in solution_str)


OBJECT = Callable_(0.5)


def test_objects_methods_and_partials(tmp_path: Path) -> None:
    path = tmp_path / "reward.yaml"
    path.write_text(f"graders: {{a: '{__name__}:OBJECT', b: '{__name__}:OBJECT.score'}}\n")
    (result,) = load_runner(path).run_sync([Rollout(response="42", ground_truth="42")])
    assert (result.score("a"), result.score("b")) == (1.0, 0.5)
    made = from_function(functools.partial(functools.partial(verl_kwargs, method="x"), data_source=""))
    assert made.name == "verl_kwargs"


@pytest.mark.parametrize("where", ["thread", "process"])
@pytest.mark.parametrize("shape", ["trl: columns from kwargs", "verl: a dict", "openrlhf: a dict of arrays"])
def test_they_run_in_threads_and_worker_processes(shape: str, where: Any) -> None:
    function, host, _ = SHAPES[shape]
    made = from_function(function, name="f", where=where, score_range=(-10, 10), timeout_s=30)
    results = GradingRunner({"f": made}).run_sync(rollouts(host))
    assert [bits(result.reward) for result in results] == [bits(n) for n in own_numbers(function, host)]


def test_they_can_be_pickled() -> None:
    made = pickle.loads(pickle.dumps(from_function(trl_text, name="mine", score_range=(-1, 1), version="3")))
    assert (made.name, made.version, made.score_range) == ("mine", "3", (-1, 1))
    assert made.grade_group(rollouts("trl text"))[0] == 1 / 3


def test_a_worker_process_needs_a_range_or_what_a_breaking_rollout_is_paid() -> None:
    with pytest.raises(ConfigError, match=r"Score\('exact', if_broken=…\); or give the grader a score_range"):
        GradingRunner({"exact": from_function(exact, where="process")})


# ---- what cannot be told, and mistakes


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: from_function(lambda text, gold: 1), r"<lambda>\(text, gold\) does not show which trainer"),
        (
            lambda: from_function(lambda **kwargs: 1),
            "write signature: trl | verl | verifiers | openrlhf | plain",
        ),
        (
            lambda: from_function(lambda prompt, completions, prompt_ids, completion_ids, **data: 1),
            "does not show which trainer",  # AReaL's, where completions is one text
        ),
        (lambda: from_function(exact, signature="ver1"), "signature is one of trl, verl, .*, not 'ver1'"),  # type: ignore[arg-type]
        (
            lambda: from_function(Callable_),
            r"Callable_ is a class, and not a function; call it: Callable_\(\)",
        ),
        (lambda: from_function(3), "3 is not a function"),  # type: ignore[arg-type]
        (
            lambda: from_function(lambda completions, trainer_state: 1),
            r"needs 'trainer_state', which only TRL has: give it a default, bind it with functools.partial",
        ),
        (lambda: from_function(lambda completion, parser: 1), "needs 'parser', which only verifiers has"),
        (
            lambda: from_function(lambda solution_str, reward_router_address: 1),
            "needs 'reward_router_address', which only verl has",
        ),
        (
            lambda: from_function(exact, fields={"gold": "extra.x"}),
            "fields names 'gold', which is not a parameter",
        ),
        (lambda: from_function(verl_float, fields={"gold": "extra.x"}), "fields names 'gold'"),
        (lambda: from_function(openrlhf_list, fields={"gold": "extra.x"}), "fields names 'gold'"),
        (lambda: from_function(exact, score_range=(1, 0)), "score_range is"),
        (lambda: from_function(trl_async, where="process"), "is async: it runs on the event loop"),
        (lambda: from_function(lambda solution_str, /: 1), "must be passable by name"),
        (lambda: GradingRunner({"f": exact}), "or wrap it in judgekit.from_function"),  # type: ignore[dict-item]
    ],
)
def test_mistakes_are_said_at_construction(make: Any, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        make()


def scaled(completions: list[str], scale: float, **kwargs: Any) -> list[float]:
    return [scale * len(c) for c in completions]


def levelled(response: str, level: int) -> float:
    return float(len(response) >= level)


def odd(text: str, gold: str) -> float:
    return float(gold in text)


def prompted(prompt: str, weight: float = 1.0) -> Any:
    """A factory, although its parameter is a field's name."""
    return from_function(lambda response: weight * (prompt in response), signature="plain")


@pytest.mark.parametrize(
    ("spec", "reward"),
    [
        ("use: 'HERE:scaled', scale: 0.25", 2.0),
        ("use: 'HERE:odd', fields: {text: response, gold: ground_truth}", 1.0),
        ("use: 'HERE:about', weight: 0.5", 4.0),
        ("use: 'HERE:exact', version: '7', score_range: [0, 1], timeout_s: 3", 1.0),
        ("use: 'HERE:prompted', prompt: is, weight: 3.0", 3.0),
        ("use: 'HERE:openrlhf_number', signature: openrlhf", 8 / 3),
    ],
)
def test_settings_of_functions_in_a_file(tmp_path: Path, spec: str, reward: float) -> None:
    path = tmp_path / "reward.yaml"
    path.write_text(f"graders: {{f: {{{spec}}}}}\n".replace("HERE", __name__))
    (result,) = load_runner(path).run_sync([Rollout(response="It is 42", ground_truth="42")])
    assert result.reward == reward


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        (
            "'HERE:odd'",
            r"graders.f: odd\(text, gold\) is .* map them, fields: {text: response, gold: ground_truth}",
        ),
        (
            "'HERE:levelled'",
            r"graders.f: levelled\(response, level\) is .* map them, fields: {level: extra.level}, or",
        ),
        ("{use: 'HERE:exact', wieght: 1}", "graders.f: there is no parameter 'wieght'"),
        ("{use: 'HERE:scaled', scale: big}", "graders.f.scale: expected a number"),
        ("{use: 'HERE:scaled', timeout_s: soon}", "graders.f.timeout_s: expected a number"),
        ("{use: 'HERE:scaled', signature: tlr}", "graders.f.signature: expected 'trl', 'verl'"),
        ("{use: final_answer, signature: trl}", "graders.f: there is no parameter 'signature'"),
    ],
)
def test_mistakes_in_a_file(tmp_path: Path, spec: str, says: str) -> None:
    path = tmp_path / "reward.yaml"
    path.write_text(f"graders: {{f: {spec}}}\n".replace("HERE", __name__))
    with pytest.raises(ConfigError, match=says):
        load_runner(path)


@pytest.mark.parametrize(
    "column", [{}, {"query": "2+2?"}, {"solution_str": "reference: 4"}, {"response_text": "4"}]
)
def test_no_column_of_the_data_takes_the_place_of_what_the_policy_wrote(column: dict[str, Any]) -> None:
    def openrlhf(queries, prompts, labels):  # type: ignore[no-untyped-def]
        return [
            float(label in query[len(p) :]) for query, p, label in zip(queries, prompts, labels, strict=True)
        ]

    def verl(data_source, solution_str, ground_truth, extra_info=None):  # type: ignore[no-untyped-def]
        assert {name: extra_info[name] for name in column} == column
        return float(ground_truth in solution_str)

    rows = [Rollout(prompt="Q: 2+2?", response=said, ground_truth="4", extra=column) for said in (" 4", " 5")]
    for function in (openrlhf, verl):
        results = GradingRunner({"g": from_function(function)}).run_sync(rows)
        assert [result.reward for result in results] == [1.0, 0.0], function


@pytest.mark.parametrize(
    ("info", "reward"), [('{"weight": 0.5}', 0.5), ({"weight": 0.25}, 0.25), ("plain", 1.0), (None, 1.0)]
)
def test_verifiers_info_may_be_json_text(info: Any, reward: float) -> None:
    def weighed(completion, answer, info):  # type: ignore[no-untyped-def]
        return float(answer in completion) * (info.get("weight", 1.0) if isinstance(info, dict) else 1.0)

    extra = {} if info is None else {"info": info}
    runner = GradingRunner({"g": from_function(weighed)})
    assert (
        runner.run_sync([Rollout(prompt="q", response="4", extra={"answer": "4", **extra})])[0].reward
        == reward
    )


def test_a_setting_is_not_changed_by_a_column_of_its_name() -> None:
    def of_verifiers(completion, answer, level=3):  # type: ignore[no-untyped-def]
        return float(level)

    def of_trl(prompts, completions, level=None, **columns):  # type: ignore[no-untyped-def]
        assert "level" not in columns
        return [float(level if isinstance(level, int) else level[0])] * len(completions)

    rows = [Rollout(prompt="q", response="4", extra={"answer": "4", **more}) for more in ({}, {"level": 5})]
    for function in (of_verifiers, of_trl):
        grader = from_function(function, score_range=(0, 10))
        for made in (
            grader.with_settings({"level": 9}),
            from_function(functools.partial(function, level=9), score_range=(0, 10)),
        ):
            assert [r.reward for r in GradingRunner({"g": made}).run_sync(rows)] == [9.0, 9.0]
        named = from_function(function, score_range=(0, 10), fields={"level": "extra.level"})
        assert GradingRunner({"g": named}).run_sync(rows[1:])[0].reward == 5.0


@pytest.mark.parametrize(
    ("response", "said"),
    [
        ("It is 41", "It is 41"),  # the data set's own conversation is not what the policy said
        ("The answer is  72.", "The answer is 72."),
        ("<think>144 / 2</think> The answer is 72.", "The answer is 72."),
        ("", "The answer is 72."),
    ],
)
def test_a_data_set_s_own_conversation_is_no_completion(response: str, said: str) -> None:
    def heard(completions: list[Any], **columns: Any) -> list[float]:
        return [float(completion[-1]["content"] == said) for completion in completions]

    gold = [*QUESTION, {"role": "assistant", "content": "The answer is 72."}]
    (result,) = GradingRunner({"heard": from_function(heard, signature="trl")}).run_sync(
        [Rollout(response=response, prompt=QUESTION, messages=gold)]
    )
    assert result.reward == 1


@pytest.mark.parametrize(
    "before",
    [
        QUESTION,
        [{"role": "system", "content": "You may search."}, *QUESTION[1:]],
        [{**m, "name": None} for m in QUESTION],
    ],
)
def test_a_completion_follows_the_prompt_as_the_host_wrote_it(before: list[Any]) -> None:
    """A host puts a system message before the prompt, or fills keys with nulls: the turns are the policy's all the same."""

    def heard(completions: list[Any], **columns: Any) -> list[float]:
        return [
            float([message["role"] for message in completion] == ["assistant", "tool", "assistant"])
            for completion in completions
        ]

    turns = [
        {"role": "assistant", "content": "Look."},
        {"role": "tool", "content": "42"},
        {"role": "assistant", "content": "42"},
    ]
    prompt = QUESTION[1:] if before[0]["content"] == "You may search." else QUESTION
    (result,) = GradingRunner({"heard": from_function(heard, signature="trl")}).run_sync(
        [Rollout(response="42", prompt=prompt, messages=[*before, *turns])]
    )
    assert result.reward == 1


def test_columns_of_verl_s_format_reach_functions_of_trl() -> None:
    """By name and among all others; and one that `extra_info` has, too, is the column, as TRL hands it over."""
    row = {
        "prompt": "6*7?",
        "reward_model": {"style": "rule", "ground_truth": "42"},
        "answer": "42",
        "extra_info": {"answer": "6 * 7 = 42, so it is #### 42", "index": 3},
    }

    def named(completions, reward_model, answer, extra_info, **kwargs):  # type: ignore[no-untyped-def]
        assert (answer, [info["index"] for info in extra_info]) == (["42"], [3])
        return [
            float(held["ground_truth"] == text) for held, text in zip(reward_model, completions, strict=True)
        ]

    def among(completions, **kwargs):  # type: ignore[no-untyped-def]
        return [float(answer == text) for answer, text in zip(kwargs["answer"], completions, strict=True)]

    def verl(data_source, solution_str, ground_truth, extra_info=None):  # type: ignore[no-untyped-def]
        return float(
            extra_info["answer"].startswith("6 * 7") and "answer" in extra_info and len(extra_info) == 4
        )

    columns = {key: value for key, value in row.items() if key != "prompt"}
    from_trainer = rollout_of(columns, prompt="6*7?", turns=[{"role": "assistant", "content": "42"}])
    (from_file,) = rollouts_from([{**row, "response": "42"}])
    assert from_trainer.extra == from_file.extra
    for rollout in (from_trainer, from_file):
        for function in (named, among, verl):
            (result,) = GradingRunner({"g": from_function(function)}).run_sync([rollout])
            assert result.reward == 1.0, (function, result.grades)


def test_the_reference_is_the_column_that_only_extra_info_has() -> None:
    """verl's own GSM8K rows have the worked solution there."""
    info = {"answer": "6 * 7 = 42\n#### 42", "question": "6*7?", "split": "train"}
    row = {
        "data_source": "openai/gsm8k",
        "reward_model": {"style": "rule", "ground_truth": "42"},
        "extra_info": info,
    }

    def accuracy_reward(completions, answer, **kwargs):  # type: ignore[no-untyped-def]
        return [float(text == right) for text, right in zip(completions, answer, strict=True)]

    async def correct_answer(completion, answer) -> float:  # type: ignore[no-untyped-def]
        return float(
            answer in completion[-1]["content"] if isinstance(completion, list) else answer in completion
        )

    def compute_score(data_source, solution_str, ground_truth, extra_info=None):  # type: ignore[no-untyped-def]
        return float(
            solution_str == ground_truth
            and extra_info == {**info, "num_turns": None, "rollout_reward_scores": {}}
        )

    made = rollout_of(row, prompt="6*7?", turns=[{"role": "assistant", "content": "42"}])
    (read,) = rollouts_from([{**row, "prompt": "6*7?", "response": "42"}])
    for rollout in (made, read):
        for function in (accuracy_reward, correct_answer, compute_score):
            (result,) = GradingRunner({"g": from_function(function)}).run_sync([rollout])
            assert result.reward == 1.0, (function, result.grades)


@pytest.mark.parametrize("nothing", ["", None])
def test_a_column_that_says_nothing_is_there_all_the_same(nothing: Any) -> None:
    """In a mixture some rows have no source, or no reference of that name."""

    def sources(completions, data_source, ground_truth, solution, **kwargs):  # type: ignore[no-untyped-def]
        rows = zip(data_source, ground_truth, solution, strict=True)
        return [float((source, truth, other) == (nothing, nothing, "42")) for source, truth, other in rows]

    row = {"data_source": nothing, "ground_truth": nothing, "solution": "42"}
    made = rollout_of(row, prompt="6*7?", turns=[{"role": "assistant", "content": "42"}])
    assert made.ground_truth == "42"
    (result,) = GradingRunner({"g": from_function(sources)}).run_sync([made])
    assert result.reward == 1.0, result.grades
