"""reward.yaml: graders, judges, reward and runner in one file.

    graders:
      correct: {use: final_answer}
      brief:   {use: length, soft_max: 600, hard_max: 1200}
      judge:   {use: judge, judge: local}
      mine:    {use: "my_package.rewards:politeness"}
    judges:
      local: {engine: vllm, model: embedded, layers: {cache: {path: verdicts.sqlite}}}
    reward: {weighted: {correct: 0.6, judge: 0.3, brief: 0.1, mine: 0}}
    runner: {max_concurrency: 512, timeout_s: 30, missing_reward: neutral}

`use` names a grader that judgekit or a plug-in (entry-point group `judgekit.graders`) ships, or one of yours
as `package.module:object`. Its other keys are the grader's parameters; `fields` renames rollout fields for
graders that do not do so themselves. Unknown keys are errors that name the nearest right one.
"""

from __future__ import annotations

import importlib
import inspect
import os
import typing
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, Literal

import msgspec
import pydantic
import yaml
from pydantic import BaseModel, ConfigDict, Field

from judgekit.errors import ConfigError, did_you_mean
from judgekit.execution.limits import NO_RETRY, Retry
from judgekit.graders.function import Mapped
from judgekit.graders.protocol import AnyGrader, Grader, check_grader
from judgekit.graders.registry import GRADERS
from judgekit.judges.asking.verdict import VerdictFormat
from judgekit.judges.base import Judge, Sampling
from judgekit.judges.engines.reward_models import RewardModel
from judgekit.judges.layers.routes import JudgeRoutes
from judgekit.judges.layers.stack import LayerOptions, stacked
from judgekit.judges.registry import ENGINES, VERDICTS
from judgekit.ledger.writer import Ledger
from judgekit.reward.spec import parse
from judgekit.reward.transforms import TransformName
from judgekit.run.runner import GradingRunner
from judgekit.run.settings import MissingReward


class RunnerConfig(BaseModel):
    """The runner's settings; see GradingRunner."""

    model_config = ConfigDict(extra="forbid")

    max_concurrency: int = 32
    timeout_s: float = 60.0
    deadline_s: float | None = None
    transform: TransformName = "none"
    missing_reward: MissingReward = "exclude"
    max_failure_rate: float | None = None
    retry: dict[str, Any] | None = None


class LedgerConfig(BaseModel):
    """Where every grade is kept; see Ledger."""

    model_config = ConfigDict(extra="forbid")

    path: str
    texts: bool = False
    fsync: Literal["never", "run", "batch"] = "run"


class RewardConfig(BaseModel):
    """A whole reward.yaml."""

    model_config = ConfigDict(extra="forbid")

    graders: dict[str, dict[str, Any] | str] = Field(min_length=1)
    judges: dict[str, dict[str, Any]] = {}
    reward: Any = None
    runner: RunnerConfig = RunnerConfig()
    ledger: LedgerConfig | None = None

    def build(self, **overrides: Any) -> GradingRunner:
        """The runner that the file describes. *overrides*: arguments of GradingRunner in place of the file's.

        The runner owns the judges: `await runner.close()` ends them.
        """
        judges = {name: _judge(name, spec) for name, spec in self.judges.items()}
        graders = {name: _grader(name, spec, judges) for name, spec in self.graders.items()}
        settings = self.runner.model_dump()
        settings["retry"] = (
            _convert(settings["retry"], Retry, "runner.retry") if settings["retry"] else NO_RETRY
        )
        if self.ledger is not None:
            settings["ledger"] = Ledger(self.ledger.path, texts=self.ledger.texts, fsync=self.ledger.fsync)
        reward = None if self.reward is None else parse(self.reward)
        return GradingRunner(graders, reward, **{**settings, **overrides}, resources=tuple(judges.values()))


def load_config(path: str | os.PathLike[str]) -> RewardConfig:
    """Read a reward.yaml. Raises ConfigError that names the file, the place in it, and what is wrong."""
    try:
        text = Path(path).read_text("utf-8")
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from None
    try:
        data = yaml.safe_load(text)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f", line {mark.line + 1}" if mark else ""
        raise ConfigError(f"{path}{where}: not YAML ({getattr(error, 'problem', None) or error})") from None
    if not isinstance(data, dict):
        raise ConfigError(f"{path}: expected the sections graders, judges, reward and runner")
    try:
        return RewardConfig.model_validate(data)
    except pydantic.ValidationError as error:
        raise ConfigError(f"{path}: {_first_error(error, RewardConfig)}") from None


def load_runner(path: str | os.PathLike[str], **overrides: Any) -> GradingRunner:
    """The runner that a reward.yaml describes; see RewardConfig.build."""
    config = load_config(path)
    try:
        return config.build(**overrides)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None


def _grader(name: str, spec: dict[str, Any] | str, judges: Mapping[str, Judge]) -> AnyGrader:
    where = f"graders.{name}"
    options = {"use": spec} if isinstance(spec, str) else dict(spec)
    if "use" not in options:
        raise ConfigError(f"{where}: say which grader it is with 'use', such as use: final_answer")
    found = _find(str(options.pop("use")), GRADERS, "judgekit.graders", where)
    fields: Any = None
    if inspect.isclass(found) or inspect.isfunction(found):
        if "fields" in options and "fields" not in inspect.signature(found).parameters:
            fields = options.pop("fields")
        if "name" in inspect.signature(found).parameters:
            options.setdefault("name", name)
        made = _call(found, options, where, judges)
    elif options:
        raise ConfigError(
            f"{where}: {found!r} is a finished grader and takes no parameters (got {next(iter(options))!r})"
        )
    else:
        made = found
    check_grader(name, made)
    return Mapped(made, fields) if fields else made


def _judge(name: str, spec: dict[str, Any]) -> Judge:
    where = f"judges.{name}"
    options = dict(spec)
    if "engine" not in options:
        raise ConfigError(f"{where}: say which engine it is with 'engine', such as engine: vllm")
    layers = _convert(options.pop("layers", {}), LayerOptions, f"{where}.layers")
    engine = _call(_find(str(options.pop("engine")), ENGINES, "judgekit.engines", where), options, where, {})
    if not hasattr(engine, "complete"):  # a reward model
        return engine  # type: ignore[no-any-return]
    try:
        return stacked(engine, layers)
    except ConfigError as error:
        raise ConfigError(f"{where}.layers: {error}") from None


def _find(name: str, shipped: Mapping[str, str], group: str, where: str) -> Any:
    """The object that a name means: shipped, of a plug-in, or `package.module:object`."""
    target = shipped.get(name)
    if target is None and ":" not in name:
        plugins = {entry.name: entry for entry in entry_points(group=group)}
        if name in plugins:
            return plugins[name].load()
        raise ConfigError(
            f"{where}: there is no {name!r}{did_you_mean(name, [*shipped, *plugins])} (yours is package.module:object)"
        )
    module, _, attribute = (target or name).partition(":")
    try:
        found: Any = importlib.import_module(module)
        for part in attribute.split("."):
            found = getattr(found, part)
    except ImportError as error:
        raise ConfigError(f"{where}: cannot import {module} ({error})") from None
    except AttributeError:
        raise ConfigError(
            f"{where}: {module} has no {attribute!r}{did_you_mean(attribute, vars(importlib.import_module(module)))}"
        ) from None
    return found


def _call(make: Callable[..., Any], options: dict[str, Any], where: str, judges: Mapping[str, Judge]) -> Any:
    """Call a class or factory with *options*, which are checked against its signature first."""
    signature = inspect.signature(make)
    target: Any = make.__init__ if inspect.isclass(make) else make
    hints = typing.get_type_hints(target)
    known = [p for p in signature.parameters.values() if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    names = [p.name for p in known]
    takes_any = any(p.kind is p.VAR_KEYWORD for p in signature.parameters.values())
    for key in options:
        if key not in names and not takes_any:
            raise ConfigError(f"{where}: there is no parameter {key!r}{did_you_mean(key, names)}")
    arguments: dict[str, Any] = {}
    for parameter in known:
        if parameter.name not in options:
            if parameter.default is inspect.Parameter.empty:
                raise ConfigError(f"{where}: the parameter {parameter.name!r} is missing")
            continue
        arguments[parameter.name] = _argument(
            options[parameter.name], hints.get(parameter.name, Any), f"{where}.{parameter.name}", judges
        )
    arguments |= {key: value for key, value in options.items() if key not in names}
    try:
        return make(**arguments)
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from None


def _argument(value: Any, hint: Any, where: str, judges: Mapping[str, Judge]) -> Any:
    """One parameter's value: a judge by its name, a verdict format by its `format`, or plain data, checked."""
    wanted = {hint, *typing.get_args(hint)}
    if JudgeRoutes in wanted and isinstance(value, Mapping):
        return _routes(value, where, judges)
    if Grader in wanted and isinstance(value, Mapping | str):
        return _grader(where.removeprefix("graders."), value, judges)  # type: ignore[arg-type]
    if Judge in wanted or RewardModel in wanted:
        return _named_judge(value, where, judges)
    if Sequence[Judge] in wanted:
        if not isinstance(value, list):
            raise ConfigError(f"{where}: give a list of judges")
        return {str(name): _named_judge(name, where, judges) for name in value}
    if VerdictFormat in wanted:
        spec = (
            {"format": value} if isinstance(value, str) else dict(value) if isinstance(value, Mapping) else {}
        )
        kind = spec.pop("format", None)
        if kind not in VERDICTS:
            raise ConfigError(
                f"{where}: no verdict format is called {kind!r}{did_you_mean(str(kind), VERDICTS)}"
            )
        return _call(VERDICTS[kind], spec, where, {})
    if Sampling in wanted:
        return _convert(value, Sampling, where)
    try:
        adapter: pydantic.TypeAdapter[Any] = pydantic.TypeAdapter(
            hint, config=ConfigDict(arbitrary_types_allowed=True)
        )
    except (pydantic.PydanticSchemaGenerationError, pydantic.PydanticUserError):
        return value
    try:
        return adapter.validate_python(value)
    except pydantic.ValidationError as error:
        problem = error.errors()[0]
        raise ConfigError(f"{where}: {problem['msg']} (got {value!r})") from None


def _named_judge(name: Any, where: str, judges: Mapping[str, Judge]) -> Judge:
    if not isinstance(name, str) or name not in judges:
        raise ConfigError(f"{where}: there is no judge {name!r}{did_you_mean(str(name), judges)}")
    return judges[name]


def _routes(spec: Mapping[str, Any], where: str, judges: Mapping[str, Judge]) -> JudgeRoutes:
    """Judges by a field of the rollout: {by: data_source, routes: {"math*": a}, default: b}."""
    if extra := set(spec) - {"by", "routes", "default"}:
        raise ConfigError(
            f"{where}: there is no key {sorted(extra)[0]!r}{did_you_mean(sorted(extra)[0], ('by', 'routes', 'default'))}"
        )
    routes = spec.get("routes")
    if not isinstance(routes, Mapping):
        raise ConfigError(f"{where}: routes maps patterns to judges, such as {{'math*': maths}}")
    default = spec.get("default")
    return JudgeRoutes(
        {str(pattern): _named_judge(name, where, judges) for pattern, name in routes.items()},
        by=str(spec.get("by", "data_source")),
        default=None if default is None else _named_judge(default, where, judges),
    )


def _convert(value: Any, kind: type[Any], where: str) -> Any:
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{where}: {error}") from None


def _first_error(error: pydantic.ValidationError, model: type[BaseModel]) -> str:
    """The first fault of a validation, with its place and the nearest right name."""
    problem = error.errors()[0]
    place = [str(part) for part in problem["loc"]]
    if problem["type"] == "extra_forbidden":
        for part in place[:-1]:
            field = model.model_fields.get(part)
            kind = (
                next(
                    (
                        t
                        for t in (field.annotation, *typing.get_args(field.annotation))
                        if inspect.isclass(t) and issubclass(t, BaseModel)
                    ),
                    None,
                )
                if field
                else None
            )
            model = kind or model
        return f"{'.'.join(place)}: there is no such key{did_you_mean(place[-1], model.model_fields)}"
    got = problem.get("input")
    shown = f" (got {got!r})" if isinstance(got, str | int | float | bool) else ""
    return f"{'.'.join(place)}: {problem['msg']}{shown}"
