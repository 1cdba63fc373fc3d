"""Makes graders of functions, and maps graders to other rollout fields."""

from __future__ import annotations

import asyncio
import functools
import inspect
import logging
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, Self, overload

import msgspec

from judgekit.errors import ConfigError, did_you_mean, first_error
from judgekit.graders.protocol import (
    AnyGrader,
    Per,
    Where,
    check_grader,
    is_group_grader,
    of_turns,
    per_member,
)
from judgekit.types import _NOTHING, Abstained, Rollout, look_up, turn_texts

logger = logging.getLogger("judgekit")


class OfFunction:
    """What graders made of a function have in common. Checked at construction; raises ConfigError."""

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        name: str | None = None,
        version: str = "1",
        score_range: tuple[float, float] = (0.0, 1.0),
        where: Where = "inline",
        timeout_s: float | None = None,
        max_concurrency: int | None = None,
        fields: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name or str(getattr(function, "__name__", type(function).__name__))
        if inspect.isclass(function):
            raise ConfigError(f"grader {self.name!r}: a class is not a function; call it: {self.name}()")
        self.version = version
        self.score_range = score_range
        self.where = where
        self.timeout_s = timeout_s
        self.max_concurrency = max_concurrency
        self.function = function
        self._options: dict[str, Any] = {
            "name": name,
            "version": version,
            "score_range": score_range,
            "where": where,
            "timeout_s": timeout_s,
            "max_concurrency": max_concurrency,
            "fields": fields,
        }
        self.__module__ = function.__module__
        self.__doc__ = function.__doc__
        self._bind = self._binder(dict(fields or {}))
        self.reads = self._read(fields or {})
        """The rollout's fields that the function reads; empty if that is not known."""
        self._set_up(
            inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)
        )
        check_grader(self.name, self)

    def _binder(self, fields: dict[str, str]) -> Callable[[Rollout], Any]:
        """Return a function that finds the arguments in a rollout, or abstains."""
        return _binder(self.function, self.name, fields, self._whole)

    def _read(self, fields: Mapping[str, str]) -> frozenset[str]:
        names = [name for name in inspect.signature(self.function).parameters if name not in fields]
        if self._whole(names) in names:
            return frozenset()
        paths = {path.partition(".")[0] for path in fields.values()}
        return frozenset(paths | (FIELDS & {*names}))

    def _whole(self, parameters: Sequence[str]) -> str:
        """Return the name of the parameter that gets all fields at once."""
        return "rollout"

    def _set_up(self, is_async: bool) -> None:
        raise NotImplementedError

    def with_settings(self, settings: Mapping[str, Any]) -> Self:
        """Return this grader with other values of its function's settings: the parameters that no field fills."""
        return type(self)(
            functools.partial(self.function, **settings), **{**self._options, "name": self.name}
        )

    @property
    def breakable(self) -> bool:
        """Whether a rollout can be blamed for a failure: only for that of a worker process."""
        return self.where == "process"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The plain function."""
        return self.function(*args, **kwargs)

    def __reduce__(self) -> Any:
        # Pickled by qualified name; a script's functions cannot be imported elsewhere, so they go by value.
        name = getattr(self.function, "__qualname__", "")
        module = sys.modules.get(self.__module__)
        if self.__module__ not in ("__main__", "__mp_main__") and getattr(module, name, None) is self:
            return name
        return _of_function, (type(self), self.function, self._options)

    def __repr__(self) -> str:
        return f"<grader {self.name}>"


def _of_function(kind: type[OfFunction], function: Callable[..., Any], options: dict[str, Any]) -> OfFunction:
    return kind(function, **options)


class FunctionGrader(OfFunction):
    """A pointwise grader made of a function by `@grader`."""

    def __init__(self, function: Callable[..., Any], *, per: Per = "rollout", **options: Any) -> None:
        if per not in ("rollout", "turn"):
            raise ConfigError(f"grader: per is 'rollout' or 'turn', not {per!r}")
        self.per = per
        self.gives_turns = True if per == "turn" else None
        super().__init__(function, **options)
        self._options["per"] = per

    def _binder(self, fields: dict[str, str]) -> Callable[[Rollout], Any]:
        if self.per == "rollout":
            return super()._binder(fields)
        if "turn" in fields or "turn" not in inspect.signature(self.function).parameters:
            raise ConfigError(
                f"grader {self.name!r}: per='turn' gives the function each turn's text: take it as def f(turn)"
            )
        return _binder(functools.partial(self.function, turn=""), self.name, fields, self._whole)

    def _read(self, fields: Mapping[str, str]) -> frozenset[str]:
        read = super()._read(fields)
        return read | {"prompt", "messages", "response"} if read and self.per == "turn" else read

    def _set_up(self, is_async: bool) -> None:
        ways = {
            "rollout": (self._grade, self._grade_async),
            "turn": (self._grade_turns, self._grade_turns_async),
        }
        self.grade: Callable[[Rollout], Any] = ways[self.per][is_async]

    def _grade(self, rollout: Rollout, /) -> Any:
        bound = self._bind(rollout)
        return bound if isinstance(bound, Abstained) else self.function(**bound)

    async def _grade_async(self, rollout: Rollout, /) -> Any:
        bound = self._bind(rollout)
        return bound if isinstance(bound, Abstained) else await self.function(**bound)

    def _grade_turns(self, rollout: Rollout, /) -> Any:
        bound = self._bind(rollout)
        if isinstance(bound, Abstained):
            return bound
        return of_turns([self.function(turn=text, **bound) for text in turn_texts(rollout)], self.score_range)

    async def _grade_turns_async(self, rollout: Rollout, /) -> Any:
        bound = self._bind(rollout)
        if isinstance(bound, Abstained):
            return bound
        try:
            async with asyncio.TaskGroup() as tasks:
                asked = [tasks.create_task(self.function(turn=text, **bound)) for text in turn_texts(rollout)]
        except BaseExceptionGroup as errors:
            raise first_error(errors) from None
        return of_turns([task.result() for task in asked], self.score_range)


class GroupFunctionGrader(OfFunction):
    """A group grader made of a function by `@group_grader`."""

    def _whole(self, parameters: Sequence[str]) -> str:
        alone = len(parameters) == 1 and parameters[0] not in FIELDS
        return parameters[0] if alone else "rollouts"

    def _set_up(self, is_async: bool) -> None:
        self.grade_group: Callable[[Sequence[Rollout]], Any] = (
            self._grade_group_async if is_async else self._grade_group
        )

    def _grade_group(self, rollouts: Sequence[Rollout], /) -> Any:
        bound, rows = self._bound(rollouts)
        return self._spread(bound, self.function(**rows) if rows is not None else None)

    async def _grade_group_async(self, rollouts: Sequence[Rollout], /) -> Any:
        bound, rows = self._bound(rollouts)
        return self._spread(bound, await self.function(**rows) if rows is not None else None)

    def _bound(self, rollouts: Sequence[Rollout]) -> tuple[list[Any], dict[str, list[Any]] | None]:
        """Return what each member has of the parameters, and each parameter's values over those that have all."""
        bound = [self._bind(rollout) for rollout in rollouts]
        whole = [one for one in bound if not isinstance(one, Abstained)]
        if len(whole) < 2:
            return bound, None
        return bound, {name: [one[name] for one in whole] for name in whole[0]}

    def _spread(self, bound: Sequence[Any], grades: Any) -> Any:
        """Return a grade for each member, where some abstain for what they lack."""
        count = sum(not isinstance(one, Abstained) for one in bound)
        if count == len(bound):
            return grades
        left = iter([_ALONE] * count if count < 2 else per_member(grades, count))
        return [one if isinstance(one, Abstained) else next(left) for one in bound]


_ALONE = Abstained("no other member is left")


@overload
def grader(
    function: Callable[..., Any],
    /,
    *,
    name: str | None = None,
    version: str = "1",
    score_range: tuple[float, float] = (0.0, 1.0),
    where: Where = "inline",
    timeout_s: float | None = None,
    max_concurrency: int | None = None,
    fields: Mapping[str, str] | None = None,
    per: Per = "rollout",
) -> FunctionGrader: ...


@overload
def grader(
    *,
    name: str | None = None,
    version: str = "1",
    score_range: tuple[float, float] = (0.0, 1.0),
    where: Where = "inline",
    timeout_s: float | None = None,
    max_concurrency: int | None = None,
    fields: Mapping[str, str] | None = None,
    per: Per = "rollout",
) -> Callable[[Callable[..., Any]], FunctionGrader]: ...


def grader(function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Turn a function, sync or async, into a grader.

        @grader
        def brevity(response: str) -> float:
            return 1.0 if len(response) < 400 else 0.0

    Parameters are filled by name from the rollout's fields; `rollout` is the whole rollout. *fields* maps
    other parameters to dotted paths: `fields={"answer": "extra.answer", "first": "messages.0.content"}`.
    If a path leads nowhere and the parameter has no default, the grader abstains; so it does without a reference if it
    wants one, `ground_truth: str`. A parameter that no field fills keeps its default. Put it after `*`, and it is a
    setting: `{use: "my_rewards:brevity", limit: 300}` in reward.yaml sets it. The function returns a number,
    a bool, None (abstains) or a Grade. `grader(function, name="mine")` does the same without decorating.

    With `per="turn"`, the function is called for each of the policy's turns, with its text as `turn`: `def short(turn: str) -> float`.
    The score is the mean, and `{turns: short}` in the reward pays each turn for itself. A function that sees the whole trajectory
    says what it makes of each turn with `return Graded(score, turns=(0.2, None, 0.9))`.

    A method is a grader of its object, `Facts(index).known`. If the object has `start` and `close`, the runner calls them.
    """
    if function is None:
        return functools.partial(_made, FunctionGrader, **options)
    return _made(FunctionGrader, function, **options)


def group_grader(function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Turn a function, sync or async, into a group grader.

        @group_grader
        def shortest(response: list[str]) -> list[float]:
            least = min(map(len, response))
            return [float(len(text) == least) for text in response]

    Parameters and options are those of `grader`, but each parameter gets a list with the values of all members, and
    `rollouts` their whole rollouts. The function returns one grade per member, in order. A member that lacks what the
    function reads abstains, and the others are graded without it.
    """
    if function is None:
        return functools.partial(_made, GroupFunctionGrader, **options)
    return _made(GroupFunctionGrader, function, **options)


def _made(kind: type[OfFunction], function: Callable[..., Any], **options: Any) -> Any:
    """Return a function's grader; of a function in a class, what makes one for each object."""
    known = inspect.signature(OfFunction.__init__).parameters.keys() - {"self", "function"}
    if kind is FunctionGrader:
        known |= {"per"}
    for option in options:
        if option not in known:
            raise ConfigError(
                f"grader: there is no option {option!r}{did_you_mean(option, known)} (a parameter of the function itself is bound with "
                "functools.partial)"
            )
    named = getattr(function, "__qualname__", "").rpartition(".")[0]
    in_class = named and not named.endswith("<locals>") and inspect.isfunction(function)
    if in_class and next(iter(inspect.signature(function).parameters), "") == "self":
        return _Method(kind, function, options)
    return kind(function, **options)


class _Method:
    """A method under `@grader`: `Facts(index).known` is a grader, which may use what `Facts(index)` has."""

    def __init__(self, kind: type[OfFunction], function: Callable[..., Any], options: dict[str, Any]) -> None:
        self._kind = kind
        self._function = function
        self._options = options
        functools.update_wrapper(self, function)

    def __get__(self, instance: Any, owner: Any) -> Any:
        if instance is None:
            return self
        return self._kind(self._function.__get__(instance, owner), **self._options)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The plain function."""
        return self._function(*args, **kwargs)


class Wrapper:
    """A grader around another. It has all that the other has besides: where it runs, its limits, its warm_up, its judge."""

    def __init__(self, inner: AnyGrader) -> None:
        check_grader(getattr(inner, "name", type(inner).__name__), inner)
        self.inner: Any = inner
        self.name = inner.name
        self.version = inner.version
        self.score_range = inner.score_range

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or "inner" not in self.__dict__:  # while it is unpickled
            raise AttributeError(name)
        return getattr(self.inner, name)


class Mapped(Wrapper):
    """Wraps a grader so that it reads other fields of the rollout.

        Mapped(FinalAnswer(), {"response": "messages.-1.content", "ground_truth": "extra.answer"})

    *fields* maps Rollout fields to dotted paths, or is a function from rollout to rollout. If a path leads nowhere the
    grader abstains; a group grader abstains only for those members.
    """

    def __init__(self, inner: AnyGrader, fields: Mapping[str, str] | Callable[[Rollout], Rollout]) -> None:
        super().__init__(inner)
        if not callable(fields):
            for name in fields:
                if name not in Rollout.__struct_fields__:
                    raise ConfigError(
                        f"grader {inner.name!r}: a rollout has no field {name!r}{did_you_mean(name, Rollout.__struct_fields__)}"
                    )
        self.fields = fields
        if is_group_grader(inner):
            self.grade_group = self._grade_group
        elif inspect.iscoroutinefunction(getattr(inner, "grade", None)):
            self.grade = self._grade_async  # type: ignore[method-assign]

    def grade(self, rollout: Rollout, /) -> Any:
        mapped = self.map(rollout)
        return mapped if isinstance(mapped, Abstained) else self.inner.grade(mapped)

    async def _grade_async(self, rollout: Rollout, /) -> Any:
        mapped = self.map(rollout)
        return mapped if isinstance(mapped, Abstained) else await self.inner.grade(mapped)

    async def _grade_group(self, rollouts: Sequence[Rollout], /) -> Sequence[Any]:
        mapped = [self.map(rollout) for rollout in rollouts]
        members = [m for m in mapped if isinstance(m, Rollout)]
        if len(members) < (1 if getattr(self.inner, "grades_alone", False) else 2):
            return [m if isinstance(m, Abstained) else _ALONE for m in mapped]
        grades = self.inner.grade_group(members)
        left = iter(per_member(await grades if hasattr(grades, "__await__") else grades, len(members)))
        return [m if isinstance(m, Abstained) else next(left) for m in mapped]

    def map(self, rollout: Rollout) -> Rollout | Abstained:
        """Return the rollout that the wrapped grader sees; or that it abstains, because a field is not there."""
        if callable(self.fields):
            return self.fields(rollout)
        changed = {}
        for name, path in self.fields.items():
            value = look_up(rollout, path)
            if value is _NOTHING:
                return Abstained(f"{path} is not there")
            changed[name] = value
        return msgspec.structs.replace(rollout, **changed)


def lifetimes(grader: Any) -> list[Any]:
    """Return what of a grader is started before it grades, and closed: itself, and the object whose method it is."""
    if isinstance(grader, Wrapper):
        return lifetimes(grader.inner)
    found = [grader]
    if isinstance(grader, OfFunction):
        function = grader.function
        while isinstance(function, functools.partial):
            function = function.func
        found.append(getattr(function, "__self__", None))
    if hasattr(
        nested := getattr(grader, "correct", None), "score_range"
    ):  # the grader of a rule that asks another
        found += lifetimes(nested)
    return [
        one for one in found if callable(getattr(one, "start", None)) or callable(getattr(one, "close", None))
    ]


@functools.cache
def _warn_once(text: str) -> None:
    logger.warning(text)


FIELDS = frozenset({*Rollout.__struct_fields__, "prompt_text"})
"""Names that a function's parameters may have."""


def _is_reference(parameter: inspect.Parameter) -> bool:
    """Whether a parameter is the reference, and annotated as one that is there: `str`, and not `str | None`."""
    if parameter.name != "ground_truth" or parameter.default is not parameter.empty:
        return False
    annotation = parameter.annotation
    text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    return bool(re.fullmatch(r"(list\[)?(str|int|float|bool|dict|list)(\[.*\])?\]?", text))


def _is_one_value(parameter: inspect.Parameter) -> bool:
    """Whether a reference is annotated as a text or a number, so that an empty list is none."""
    annotation = parameter.annotation
    text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    return parameter.name == "ground_truth" and text in ("str", "int", "float", "bool")


def _named_parameters(function: Callable[..., Any], name: str) -> list[inspect.Parameter]:
    """Return a function's parameters. Raises ConfigError if one of them has no name to fill it by."""
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        raise ConfigError(
            f"grader {name!r}: cannot read the signature of {function!r}; wrap it in a def"
        ) from None
    for parameter in parameters:
        if parameter.kind in (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL):
            raise ConfigError(
                f"grader {name!r}: a function with {parameter} does not show what it reads: name the fields, such "
                "as def f(response, ground_truth), or take the whole rollout, def f(rollout); one that was written for a "
                "trainer goes to judgekit.from_function"
            )
        if parameter.kind is inspect.Parameter.POSITIONAL_ONLY:
            raise ConfigError(f"grader {name!r}: the parameter {parameter.name!r} must be passable by name")
    return parameters


def _binder(
    function: Callable[..., Any], name: str, fields: dict[str, str], whole_of: Callable[[Sequence[str]], str]
) -> Callable[[Rollout], Any]:
    """Return a function that finds *function*'s arguments in a rollout, or abstains.

    *whole_of*: returns, of the parameters' names, that of the one that is the rollout itself.
    """
    parameters = _named_parameters(function, name)
    plain: list[str] = []
    paths: list[tuple[str, str, bool]] = []
    whole: list[str] = []
    whole_is = whole_of([parameter.name for parameter in parameters if parameter.name not in fields])
    for parameter in parameters:
        optional = parameter.default is not inspect.Parameter.empty
        if parameter.name in fields:
            paths.append((parameter.name, fields.pop(parameter.name), optional))
        elif parameter.name == whole_is:
            whole.append(parameter.name)
        elif parameter.name in FIELDS:
            plain.append(parameter.name)
        elif not optional or get_close_matches(parameter.name, FIELDS, n=1, cutoff=0.82):
            raise ConfigError(
                f"grader {name!r}: a rollout has no field {parameter.name!r}{did_you_mean(parameter.name, FIELDS)} "
                f"(or set its path: fields={{{parameter.name!r}: 'extra.{parameter.name}'}})"
            )
        elif parameter.kind is not inspect.Parameter.KEYWORD_ONLY:
            _warn_once(
                f"grader {name!r}: no field of a rollout is called {parameter.name!r}, so it keeps its default. Set "
                f"its path, fields={{{parameter.name!r}: 'extra.{parameter.name}'}}, or put it after * if "
                "it is a setting"
            )
    if fields:
        raise ConfigError(
            f"grader {name!r}: fields names {next(iter(fields))!r}, which is not a parameter of the function"
        )

    needs_reference = "ground_truth" in plain and any(map(_is_reference, parameters))
    not_empty = needs_reference and any(map(_is_one_value, parameters))

    def bind(rollout: Rollout) -> dict[str, Any] | Abstained:
        if needs_reference:
            truth = rollout.ground_truth
            if truth is None or (not_empty and isinstance(truth, list | tuple | Mapping) and not truth):
                return Abstained("there is no reference")
        bound = {field: getattr(rollout, field) for field in plain}
        for field in whole:
            bound[field] = rollout
        for field, path, optional in paths:
            value = look_up(rollout, path)
            if value is not _NOTHING:
                bound[field] = value
            elif not optional:
                return Abstained(f"{path} is not there")
        return bound

    return bind
