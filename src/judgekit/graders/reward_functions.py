"""Makes graders of reward functions that were written for a trainer.

A trainer calls its users' functions in a way of its own. `from_function` tells from the parameters' names which one it
is, calls the function as that trainer does, and reads the result as that trainer does:

* TRL 1.16, trainer/grpo_trainer.py, `_calculate_rewards`.
* verl 0.9.1, experimental/reward_loop/reward_manager/naive.py; for batches verl 0.6, workers/reward_manager/batch.py.
* verifiers 0.3.1, legacy/rubrics/rubric.py.
* OpenRLHF 0.11, utils/agent.py, `SingleTurnAgentExecutor`.

One thing differs: a failure is never a number. verifiers pays 0 for an exception, verl's batch manager does, too.
"""

from __future__ import annotations

import functools
import inspect
import json
import math
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from typing import Any, Literal, get_args, get_origin

from msgspec import Struct

from judgekit.errors import ConfigError, closest
from judgekit.graders.function import FIELDS, FunctionGrader, GroupFunctionGrader, OfFunction
from judgekit.graders.protocol import Where, per_member
from judgekit.types import (
    _NOTHING,
    COLUMNS,
    QUERY,
    SOLUTION_STR,
    Abstained,
    Failed,
    Graded,
    Message,
    Rollout,
    look_up,
    plain,
    prompt_end,
    turn_texts,
)

Signature = Literal["trl", "verl", "verifiers", "openrlhf", "plain"]
"""The trainer that a reward function is written for. "plain": its parameters are fields of `Rollout`."""


def from_function(
    function: Callable[..., Any],
    /,
    *,
    signature: Signature | None = None,
    name: str | None = None,
    version: str = "1",
    score_range: tuple[float, float] = (-math.inf, math.inf),
    where: Where = "inline",
    timeout_s: float | None = None,
    max_concurrency: int | None = None,
    fields: Mapping[str, str] | None = None,
) -> FunctionGrader | GroupFunctionGrader | TrainerFunction:
    """Make a grader of a reward function that you have already, sync or async.

        from_function(accuracy_reward)    # TRL:       f(prompts, completions, **columns) -> list[float | None]
        from_function(compute_score)      # verl:      f(data_source, solution_str, ground_truth, extra_info) -> float | dict
        from_function(correct_answer)     # verifiers: f(completion, answer, state, …) -> float
        from_function(reward_func)        # OpenRLHF:  f(queries, prompts, labels) -> tensor | list | dict
        from_function(exact)              # plain:     f(response, ground_truth) -> float

    The score is the number that the function's own trainer would use. Its trainer is told from the parameters' names;
    *signature* says it where they do not. A function of batches (TRL's, verl's `solution_strs`, verifiers' `completions`
    and `states`) is called once for each group of rollouts, or with one rollout where they come alone. *fields* maps
    parameters to dotted paths of the rollout, as for `grader`: `fields={"completions": "response"}`. Other parameters
    keep their defaults: bind them with `functools.partial`, or in reward.yaml by name. The other options are those of
    `grader`; scores may be any finite numbers unless *score_range* says otherwise.

    An exception, a wrong length and an infinite score are failures. None and NaN are abstentions of TRL's functions
    ("not applicable"), and failures of others; a plain function abstains with None. What else a function says (the other
    keys of a dict, `log_extra`, `log_metric`) is in the grade's metadata. Raises ConfigError.
    """
    shown = getattr(function, "__name__", type(function).__name__)
    if inspect.isclass(function):
        raise ConfigError(f"{shown} is a class, and not a function; call it: {shown}()")
    if not callable(function):
        raise ConfigError(f"{function!r:.80} is not a function")
    if signature is not None and signature not in get_args(Signature):
        known = ", ".join(get_args(Signature))
        raise ConfigError(
            f"signature is one of {known}, not {signature!r}{closest(str(signature), get_args(Signature))}"
        )
    found = signature or signature_of(function, fields or {})
    if found is None:
        raise ConfigError(
            f"{described(function)} does not show which trainer it is written for: write signature: "
            f"{' | '.join(get_args(Signature))}, or name its parameters as a rollout's fields, such as (response, ground_truth)"
        )
    options: dict[str, Any] = {
        "name": name or _name(function),
        "version": version,
        "score_range": score_range,
        "where": where,
        "timeout_s": timeout_s,
        "max_concurrency": max_concurrency,
        "fields": fields,
    }
    if found != "plain":
        return TrainerFunction(function, signature=found, **options)
    groups = "rollouts" in _parameters(function)
    return GroupFunctionGrader(function, **options) if groups else FunctionGrader(function, **options)


def signature_of(function: Callable[..., Any], fields: Mapping[str, str] | None = None) -> Signature | None:
    """Return which trainer a function is written for, as its parameters' names tell; None if they do not.

    *fields*: parameters that are mapped to paths, and tell nothing.
    """
    names = _parameters(function)
    for signature, marks in _MARKS:
        if names.keys() & marks:
            return signature
    if names.keys() & _TRL_NAMES:
        # AReaL's functions have one prompt, and one text called completions
        return None if names.keys() & {"prompt", "prompt_ids"} else "trl"
    required = [name for name, one in names.items() if one.default is one.empty and one.kind not in _REST]
    named = required and all(
        name in FIELDS | {"rollout", "rollouts"} | {*(fields or ())} for name in required
    )
    return "plain" if named else None


_MARKS: tuple[tuple[Signature, frozenset[str]], ...] = (
    ("verl", frozenset(("solution_str", "solution_strs"))),
    ("openrlhf", frozenset(("queries",))),
    ("verifiers", frozenset(("completion", "state", "states", "answers", "infos", "tasks"))),
)
"""Names of parameters that only the functions of one trainer have, in the order in which they count."""
_TRL_NAMES = frozenset(
    ("prompts", "completions", "completion_ids", "trainer_state", "log_extra", "log_metric")
)
_REST = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)


class _Call(Struct, frozen=True, kw_only=True):
    """How a trainer calls a function."""

    trainer: str
    values: Mapping[str, Callable[[Rollout], Any]]
    """Each parameter's value for one rollout."""
    form: Literal["rollout", "batch of one", "batch"] = "rollout"
    """What one call gets."""
    columns: bool = False
    """Whether the columns of the data set are parameters, too."""
    logs: bool = False
    """Whether the function may log: TRL's `log_extra` and `log_metric`."""
    none: bool = False
    """Whether None and NaN mean that the function does not apply."""


def _prompt(rollout: Rollout) -> Any:
    return rollout.prompt if isinstance(rollout.prompt, str) else list(rollout.prompt)


def _completion(rollout: Rollout) -> str | list[Message]:
    """Return what the policy said: text if the prompt is text, otherwise the messages that follow the prompt.

    Messages that end in another text than the response are not the policy's: a data set may bring a conversation of its own.
    """
    if isinstance(rollout.prompt, str):
        return rollout.response
    end, messages = prompt_end(rollout), list(rollout.messages)
    if len(messages) > end and (end or not rollout.prompt):
        said, response = ("".join(text.split()) for text in (turn_texts(rollout)[-1], rollout.response))
        if said in response or response in said:
            return messages[end:]
    return [{"role": "assistant", "content": rollout.response}]


def _entries(rollout: Rollout) -> dict[str, Any]:
    """Return what `extra` has, without judgekit's own keys."""
    return {name: value for name, value in rollout.extra.items() if name not in _OWN}


def _columns(rollout: Rollout) -> dict[str, Any]:
    """Return a rollout's columns of the data set, as far as it has them."""
    found = _entries(rollout)
    hidden = rollout.extra.get(COLUMNS) or {}  # Arrow pads it with nulls
    found |= {name: value for name, value in hidden.items() if value is not None or name not in found}
    for name in ("ground_truth", "data_source"):
        if (value := getattr(rollout, name)) not in (None, ""):
            found.setdefault(name, value)
    return found


_OWN = (QUERY, SOLUTION_STR, COLUMNS)
_TRUTHS = ("answer", "solution", "expected_answer", "label")
"""Columns that are a rollout's `ground_truth`, where it was made without them."""


def _column(rollout: Rollout, name: str) -> Any:
    value = _columns(rollout).get(name, _NOTHING)
    if value is not _NOTHING:
        return value
    if name in _TRUTHS and rollout.ground_truth is not None:
        return rollout.ground_truth
    return _taken_apart(rollout).get(name, _NOTHING)


def _taken_apart(rollout: Rollout) -> dict[str, Any]:
    """Return columns of verl's format as they were before a rollout was made of their parts."""
    if rollout.ground_truth is None:
        return {"extra_info": _entries(rollout)}
    held = {"style": "rule", "ground_truth": rollout.ground_truth}
    return {"extra_info": _entries(rollout), "reward_model": held, "reward_spec": held}


def _extra_info(rollout: Rollout) -> dict[str, Any]:
    """Return verl's `extra_info`, a dict of the call's own: functions write into it."""
    info = {name: value for name, value in rollout.extra.items() if name not in (SOLUTION_STR, COLUMNS)}
    info.setdefault("num_turns", info.get("__num_turns__"))
    info.setdefault("rollout_reward_scores", info.get("reward_scores", {}))
    return info


def _answer(rollout: Rollout) -> Any:
    found = _column(rollout, "answer")
    return "" if found is _NOTHING else found


def _state(rollout: Rollout) -> dict[str, Any]:
    own = {name: read(rollout) for name, read in _VERIFIERS.items()}
    return {**_columns(rollout), **own, "trajectory": []}


def _info(rollout: Rollout) -> Any:
    """Return verifiers' `info`, which data sets may hold as JSON text."""
    found = rollout.extra.get("info", {})
    if isinstance(found, str):
        with suppress(ValueError):
            return json.loads(found)
    return found


_VERIFIERS: dict[str, Callable[[Rollout], Any]] = {
    "prompt": _prompt,
    "completion": _completion,
    "answer": _answer,
    "info": _info,
    "task": lambda rollout: rollout.extra.get("task"),
}
_VERL: dict[str, Callable[[Rollout], Any]] = {
    "data_source": lambda rollout: rollout.data_source,
    "solution_str": lambda rollout: rollout.extra.get(SOLUTION_STR, rollout.response),
    "ground_truth": lambda rollout: rollout.ground_truth,
    "extra_info": _extra_info,
}


def _plural(values: Mapping[str, Callable[[Rollout], Any]]) -> dict[str, Callable[[Rollout], Any]]:
    return {f"{name}s": read for name, read in values.items()}


_TRL_CALL = _Call(
    trainer="TRL",
    values={"prompts": _prompt, "completions": _completion},
    form="batch",
    columns=True,
    logs=True,
    none=True,
)
_VERL_CALL = _Call(trainer="verl", values=_VERL)
_VERL_BATCH = _Call(trainer="verl", values=_plural(_VERL), form="batch")
_VERIFIERS_CALL = _Call(trainer="verifiers", values={**_VERIFIERS, "state": _state}, columns=True)
_VERIFIERS_GROUP = _Call(trainer="verifiers", values=_plural({**_VERIFIERS, "state": _state}), form="batch")
_OPENRLHF_CALL = _Call(
    trainer="OpenRLHF",
    values={
        "queries": lambda rollout: rollout.extra.get(QUERY, rollout.prompt_text + rollout.response),
        "prompts": lambda rollout: rollout.prompt_text,
        "labels": lambda rollout: rollout.ground_truth,
    },
    form="batch of one",
)


def _call_of(signature: Signature, function: Callable[..., Any]) -> _Call:
    names = _parameters(function).keys()
    if signature == "trl":
        return _TRL_CALL
    if signature == "verl":
        return _VERL_BATCH if names & _VERL_BATCH.values.keys() else _VERL_CALL
    if signature == "openrlhf":
        return _OPENRLHF_CALL
    returns = inspect.signature(function).return_annotation
    lists = returns is list or get_origin(returns) is list or str(returns).lower().startswith("list[")
    return _VERIFIERS_GROUP if names & _VERIFIERS_GROUP.values.keys() or lists else _VERIFIERS_CALL


class TrainerFunction(OfFunction):
    """A grader made of a trainer's reward function, which is called and read as that trainer does."""

    grades_alone = True

    def __init__(self, function: Callable[..., Any], *, signature: Signature, **options: Any) -> None:
        self._signature = signature
        self._call = _call_of(signature, function)
        super().__init__(function, **options)
        self._options["signature"] = signature

    def _binder(self, fields: dict[str, str]) -> Callable[[Rollout], Any]:
        return _arguments(self.function, self.name, self._call, fields)

    def _read(self, fields: Mapping[str, str]) -> frozenset[str]:
        names = {*_parameters(self.function), *fields.values()}
        return frozenset(("response", *(("ground_truth",) if names & _REFERENCES else ())))

    def _set_up(self, is_async: bool) -> None:
        names = _parameters(self.function)
        takes_all = any(one.kind is one.VAR_KEYWORD for one in names.values())
        self._logs = [name for name in _LOGGERS if self._call.logs and (takes_all or name in names)]
        self.reads_tokens = self._call is _TRL_CALL and (takes_all or "completion_ids" in names)
        """Whether it reads the column `completion_ids`, which TRL has."""
        if self._call.form == "batch":
            self.grade_group: Any = self._grade_group_async if is_async else self._grade_group
        else:
            self.grade: Any = self._grade_async if is_async else self._grade

    def _grade(self, rollout: Rollout, /) -> Any:
        bound = self._bind(rollout)
        return bound if isinstance(bound, Abstained) else _then(self._ask(bound), self._one)

    async def _grade_async(self, rollout: Rollout, /) -> Any:
        bound = self._bind(rollout)
        return bound if isinstance(bound, Abstained) else self._one(await self._ask(bound))

    def _ask(self, bound: Mapping[str, Any]) -> Any:
        if self._call.form == "batch of one":
            return self.function(*([value] for value in bound.values()))
        return self.function(**bound)

    def _grade_group(self, rollouts: Sequence[Rollout], /) -> Any:
        batch = _Batch([self._bind(rollout) for rollout in rollouts], self._logs)
        return _then(self.function(**batch.arguments), self._reader(batch)) if batch.rows else batch.bound

    async def _grade_group_async(self, rollouts: Sequence[Rollout], /) -> Any:
        batch = _Batch([self._bind(rollout) for rollout in rollouts], self._logs)
        return self._reader(batch)(await self.function(**batch.arguments)) if batch.rows else batch.bound

    def _reader(self, batch: _Batch) -> Callable[[Any], Any]:
        def read(value: Any) -> Any:
            values = [self._one(one) for one in per_member(value, len(batch.rows))]
            left = iter([_with(one, said) for one, said in zip(values, batch.said(), strict=True)])
            return [one if isinstance(one, Abstained) else next(left) for one in batch.bound]

        return read

    def _one(self, value: Any) -> Any:
        """Return the grade of one rollout."""
        if self._call.form == "batch of one":
            value = _of_openrlhf(value)
        elif isinstance(value, Mapping) and self._signature == "verl":
            value = _of_dict(value, "score")
        if value is not None and not _is_nan(value):
            return value
        said = "None" if value is None else "NaN"
        if self._call.none:
            return Abstained(f"the function returned {said}, which means to TRL that it does not apply")
        if value is None:
            return Failed(
                "TypeError", f"the function returned None, which is no reward to {self._call.trainer}"
            )
        return value


_LOGGERS = ("log_extra", "log_metric")


class _Batch:
    """The arguments of one call for several rollouts. Members that lack a column are left out, and abstain."""

    def __init__(self, bound: Sequence[Any], logs: Sequence[str]) -> None:
        self.bound = bound
        self.rows = [one for one in bound if not isinstance(one, Abstained)]
        self._extra: dict[str, Any] = {}
        self._metrics: dict[str, Any] = {}
        names = dict.fromkeys(name for row in self.rows for name in row)
        self.arguments: dict[str, Any] = {name: [row.get(name) for row in self.rows] for name in names}
        loggers = {"log_extra": self._extra.__setitem__, "log_metric": self._metrics.__setitem__}
        self.arguments |= {name: loggers[name] for name in logs}

    def said(self) -> list[dict[str, Any]]:
        """Return what the function logged about each rollout, and about all."""
        count = len(self.rows)
        columns = {
            name: values
            for name, values in self._extra.items()
            if isinstance(values, list | tuple) and len(values) == count
        }
        return [
            {**self._metrics, **{name: plain(values[i]) for name, values in columns.items()}}
            for i in range(count)
        ]


def _arguments(
    function: Callable[..., Any], name: str, call: _Call, fields: dict[str, str]
) -> Callable[[Rollout], Any]:
    """Return a function that makes a rollout's arguments, or abstains. Raises ConfigError for what it cannot fill."""
    parameters = _parameters(function)
    by_place = call.form == "batch of one"
    takes_all = any(one.kind is one.VAR_KEYWORD for one in parameters.values()) and not by_place
    for field in fields:
        if not takes_all and field not in (call.values if by_place else parameters):
            raise ConfigError(
                f"grader {name!r}: fields names {field!r}, which is not a parameter of the function"
            )
    own = {field: functools.partial(_at, path=path) for field, path in fields.items()}
    if by_place:
        return lambda rollout: _filled(rollout, {**call.values, **own}, frozenset())
    reads: dict[str, Callable[[Rollout], Any]] = {**own, **_readers(function, name, call, own)}
    if takes_all:
        reads = {**call.values, **reads}
    optional = frozenset(key for key, one in parameters.items() if one.default is not one.empty)
    rest = takes_all and call.columns
    not_columns = _NOT_COLUMNS | _bound(function)

    def bind(rollout: Rollout) -> dict[str, Any] | Abstained:
        filled = _filled(rollout, reads, optional)
        if rest and isinstance(filled, dict):
            columns = _columns(rollout)
            return {key: columns[key] for key in columns if key not in not_columns} | filled
        return filled

    return bind


def _bound(function: Callable[..., Any]) -> frozenset[str]:
    """The parameters that its user has set, which no column of that name changes."""
    return frozenset(function.keywords) if isinstance(function, functools.partial) else frozenset()


def _readers(
    function: Callable[..., Any], name: str, call: _Call, fields: Collection[str]
) -> dict[str, Callable[[Rollout], Any]]:
    """Return what reads each parameter that the user's *fields* do not name. One that is not in it keeps its default."""
    reads: dict[str, Callable[[Rollout], Any]] = {}
    for key, parameter in _parameters(function).items():
        if parameter.kind is parameter.POSITIONAL_ONLY:
            raise ConfigError(f"grader {name!r}: the parameter {key!r} must be passable by name")
        if parameter.kind in _REST or key in fields or key in _bound(function):
            continue
        if call.logs and key in _LOGGERS:
            continue
        if key in call.values:
            reads[key] = call.values[key]
        elif call.columns and key not in _OF_TRAINER:
            reads[key] = functools.partial(_column, name=key)
        elif parameter.default is parameter.empty:
            raise ConfigError(
                f"grader {name!r}: {described(function)} needs {key!r}, which only {call.trainer} has: give it a default, bind "
                f"it with functools.partial, or set its path: fields={{{key!r}: 'extra.…'}}"
            )
    return reads


_REFERENCES = frozenset(("ground_truth", "ground_truths", "answers", "labels", *_TRUTHS))
_OF_TRAINER = frozenset(("trainer_state", "environments", "parser"))
"""Parameters that only a running trainer fills."""
_NOT_COLUMNS = frozenset(("prompt", "completion", *_LOGGERS))


def _at(rollout: Rollout, path: str) -> Any:
    return look_up(rollout, path)


def _filled(
    rollout: Rollout, reads: Mapping[str, Callable[[Rollout], Any]], optional: Collection[str]
) -> dict[str, Any] | Abstained:
    """Return each parameter's value. One that is not there keeps its default, if it is *optional*."""
    bound = {}
    for name, read in reads.items():
        value = read(rollout)
        if value is not _NOTHING:
            bound[name] = value
        elif name not in optional:
            path = read.keywords.get("path") if isinstance(read, functools.partial) else None
            return Abstained(f"{path or f'the column {name!r}'} is not there")
    return bound


def _of_dict(value: Mapping[Any, Any], key: str) -> Any:
    """Return a dict's score, with its other entries as metadata."""
    if key not in value:
        return Failed("KeyError", f"the function returned a dict without {key!r}")
    return _with(value[key], {str(name): plain(entry) for name, entry in value.items() if name != key})


def _of_openrlhf(value: Any) -> Any:
    """Return what OpenRLHF reads: a number or a batch of one, alone or as a dict's `rewards`."""
    if not isinstance(value, Mapping) or "rewards" not in value:
        return _of_dict(value, "rewards") if isinstance(value, Mapping) else _single(value)
    logs = value.get("extra_logs")
    rest = {name: entry for name, entry in value.items() if name not in ("rewards", "extra_logs")}
    rest |= logs if isinstance(logs, Mapping) else {}
    said = {str(name): _unwrapped(plain(entry)) for name, entry in rest.items()}
    return _with(_single(value["rewards"]), said)


def _unwrapped(value: Any) -> Any:
    return value[0] if isinstance(value, list) and len(value) == 1 else value


def _single(value: Any) -> Any:
    """Return the only entry of a list, an array or a tensor; anything else as it is."""
    if isinstance(value, str | bytes | Mapping) or value is None or getattr(value, "ndim", None) == 0:
        return value
    if isinstance(value, Sequence) or hasattr(value, "tolist"):
        return per_member(value, 1)[0]
    return value


def _is_nan(value: Any) -> bool:
    if getattr(value, "ndim", None) == 0 and hasattr(value, "item"):  # a numpy or torch scalar
        value = value.item()
    return isinstance(value, float) and math.isnan(value)


def _with(value: Any, said: Mapping[str, Any]) -> Any:
    """Return a grade with what the function logged as metadata."""
    if not said or isinstance(value, Failed):
        return value
    if isinstance(value, Graded | Abstained):
        kept = {**(value.metadata or {}), **said}
        if isinstance(value, Abstained):
            return Abstained(value.reason, metadata=kept)
        return Graded(value.score, value.reason, kept, value.usage, value.turns)
    return value if value is None else Graded(value, metadata=dict(said))


def _then(value: Any, read: Callable[[Any], Any]) -> Any:
    """Return `read(value)`, or a coroutine of it where a plain function returned something to await."""
    if not hasattr(value, "__await__"):
        return read(value)

    async def later(given: Awaitable[Any]) -> Any:
        return read(await given)

    return later(value)


def described(function: Callable[..., Any]) -> str:
    """Return a function with the parameters that it needs, such as `score(text, gold, …)`."""
    parameters = _parameters(function).values()
    needed = [one for one in parameters if one.default is one.empty]
    shown = [str(one.replace(annotation=one.empty)) for one in needed]
    return f"{_name(function)}({', '.join([*shown, *['…'] * (len(needed) < len(parameters))])})"


def _name(function: Any) -> str:
    while isinstance(function, functools.partial):
        function = function.func
    return str(getattr(function, "__name__", type(function).__name__))


def _parameters(function: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    try:
        return inspect.signature(function).parameters
    except (TypeError, ValueError):
        raise ConfigError(f"cannot read the signature of {function!r:.80}; wrap it in a def") from None
