"""Makes graders, judges and settings of what a reward.yaml names."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import inspect
import logging
import os
import re
import sys
import typing
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import entry_points
from pathlib import Path, PurePath
from typing import Any, Final

from judgekit.config.checks import check_keys, checked, hints_of, parameters_of, placed, struct_of
from judgekit.errors import ConfigError, did_you_mean
from judgekit.graders.function import FIELDS, Mapped, OfFunction
from judgekit.graders.protocol import AnyGrader, Grader, check_grader
from judgekit.graders.registry import GRADERS
from judgekit.graders.reward_functions import described, from_function, signature_of
from judgekit.graders.trust import Trust, Trusted
from judgekit.judges.base import Judge, RewardModel
from judgekit.judges.layers.routes import JudgeRoutes
from judgekit.judges.layers.stack import (
    LayerOptions,
    RewardModelStack,
    Stack,
    stacked,
    stacked_reward_model,
)
from judgekit.judges.registry import ENGINES, VERDICTS
from judgekit.judges.verdicts.formats import VerdictFormat
from judgekit.types import field_meant

logger = logging.getLogger("judgekit")

OBJECT: Final = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")
"""`module:object`."""
_NAME_OR_PATH: Final = {"lora", "model", "rubric", "schema", "template", "tokenizer"}
"""Parameters that take a known name or a path."""


class Parts:
    """Makes graders, judges and settings from the sections of a reward.yaml in *folder*."""

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder
        self.judges: dict[str, Any] = {}
        self.asked: set[str] = set()
        """Names of the judges that any grader asks."""

    def trusted_grader(self, name: str, spec: Mapping[str, Any] | str, fingerprint: str) -> AnyGrader:
        """Make a grader, trusted as far as its certificate goes. *fingerprint*: digest of its settings."""
        if isinstance(spec, str) or "trust" not in spec:
            return self.grader(name, spec)
        where = f"graders.{name}"
        trust = self.trust(spec["trust"], f"{where}.trust")
        made = self.grader(name, {key: value for key, value in spec.items() if key != "trust"})
        try:
            return Trusted(made, trust, fingerprint=fingerprint)
        except ConfigError as error:
            raise placed(error, f"{where}.trust") from None

    def trust(self, spec: Any, where: str) -> Trust:
        made: Trust = self.argument("trust", spec, Trust, where)
        return made

    def grader(self, name: str, spec: Mapping[str, Any] | str) -> AnyGrader:
        where = f"graders.{name}"
        options = {"use": spec} if isinstance(spec, str) else dict(spec)
        if "use" not in options:
            raise ConfigError(f"{where}: say which grader it is with 'use', such as use: final_answer")
        found = self.find(options.pop("use"), GRADERS, "judgekit.graders", where)
        if _is_reward_function(found, options, where):
            return self._reward_function(name, found, options, where)
        fields: Any = None
        if inspect.isclass(found) or inspect.isfunction(found):
            parameters = parameters_of(found, where)
            if "fields" in options and "fields" not in parameters:
                fields = options.pop("fields")
            if "name" in parameters:
                options.setdefault("name", name)
            made = self.call(found, options, where)
        elif options and isinstance(found, OfFunction):
            made = self._with_settings(found, options, where)
        elif options:
            raise ConfigError(
                f"{where}: {found!r} is a finished grader and takes no parameters (got {next(iter(options))!r})"
            )
        else:
            made = found
        check_grader(name, made)
        return made if fields is None else Mapped(made, checked(fields, Mapping[str, str], f"{where}.fields"))

    def _reward_function(
        self, name: str, function: Callable[..., Any], options: Mapping[str, Any], where: str
    ) -> AnyGrader:
        """Make a grader of a reward function. Options that `from_function` does not have are the function's own."""
        ours, parameters = inspect.signature(from_function).parameters, parameters_of(function, where)
        own = {key: value for key, value in options.items() if key not in ours and key in parameters}
        rest = {key: value for key, value in options.items() if key not in own}
        arguments = self.arguments(from_function, {"name": name, **rest}, where)
        hints = hints_of(function)
        bound = {
            key: self.argument(key, value, hints.get(key, Any), f"{where}.{key}")
            for key, value in own.items()
        }
        try:
            return from_function(functools.partial(function, **bound) if bound else function, **arguments)
        except ConfigError as error:
            raise ConfigError(f"{where}: {error}") from None

    def _with_settings(self, found: OfFunction, options: Mapping[str, Any], where: str) -> Any:
        """Set the settings of a function that is a grader already: its parameters after `*`."""
        parameters = parameters_of(found.function, where).values()
        settings = [p.name for p in parameters if p.kind is p.KEYWORD_ONLY and p.name not in FIELDS]
        if not settings:
            raise ConfigError(
                f"{where}: {found!r} has no settings (got {next(iter(options))!r}): its parameters after * are settings"
            )
        check_keys(options, settings, where)
        hints = hints_of(found.function)
        return found.with_settings(
            {
                key: self.argument(key, value, hints.get(key, Any), f"{where}.{key}")
                for key, value in options.items()
            }
        )

    def judge(self, name: str, spec: Mapping[str, Any]) -> Stack | RewardModelStack:
        where = f"judges.{name}"
        options = dict(spec)
        if "engine" not in options:
            raise ConfigError(f"{where}: say which engine it is with 'engine', such as engine: vllm")
        layers = self.argument("layers", options.pop("layers", {}), LayerOptions, f"{where}.layers")
        engine = self.call(
            self.find(options.pop("engine"), ENGINES, "judgekit.engines", where), options, where
        )
        try:
            return (
                stacked(engine, layers)
                if hasattr(engine, "complete")
                else stacked_reward_model(engine, layers)
            )
        except ConfigError as error:
            raise ConfigError(f"{where}.layers: {error}") from None

    def find(self, name: Any, shipped: Mapping[str, str], group: str, where: str) -> Any:
        """Import the object that a name means: one of judgekit, of a plug-in, or `module:object`."""
        if not isinstance(name, str) or not name:
            raise ConfigError(f"{where}: give a name or module:object as text, not {name!r:.80}")
        target = shipped.get(name)
        if target is None and ":" in name and not OBJECT.fullmatch(name):
            raise ConfigError(f"{where}: {name!r} is not module:object, such as my_rewards:politeness")
        if target is None and ":" not in name:
            plugins = {entry.name: entry for entry in entry_points(group=group)}
            if name not in plugins:
                known = did_you_mean(name, [*shipped, *plugins])
                raise ConfigError(f"{where}: there is no {name!r}{known} (yours is module:object)")
            target = plugins[name].value
        elif target is None:
            self._import_from_folder(name.partition(":")[0], where)
        module, _, attribute = (target or name).partition(":")
        try:
            found: Any = importlib.import_module(module)
        except (Exception, SystemExit) as error:  # whatever the module does while it is imported
            what = " ".join(f"{type(error).__name__}: {error}".split())
            raise ConfigError(f"{where}: cannot import {module} ({what:.300})") from None
        try:
            for part in attribute.split("."):
                found = getattr(found, part)
        except AttributeError:
            known = did_you_mean(attribute, [n for n in vars(sys.modules[module]) if not n.startswith("_")])
            raise ConfigError(f"{where}: {module} has no {attribute!r}{known}") from None
        return found

    def _import_from_folder(self, module: str, where: str) -> None:
        """Make modules beside the file importable, and refuse another module of the same name."""
        if self.folder is None:
            return
        if str(self.folder) not in sys.path:
            sys.path.append(str(self.folder))
        top = module.partition(".")[0]
        own = [p for p in (self.folder / f"{top}.py", self.folder / top / "__init__.py") if p.is_file()]
        found = importlib.util.find_spec(top) if own and top != "__main__" else None
        if own and found is not None and found.origin and not own[0].samefile(found.origin):
            raise ConfigError(f"{where}: {top} is {found.origin} here, not {own[0]}: give yours another name")

    def call(self, make: Callable[..., Any], options: Mapping[str, Any], where: str) -> Any:
        """Call a class or factory with *options*, checked against its signature."""
        arguments = self.arguments(make, options, where)
        try:
            return make(**arguments)
        except ConfigError as error:
            raise placed(error, where) from None

    def arguments(self, make: Callable[..., Any], options: Mapping[str, Any], where: str) -> dict[str, Any]:
        """Convert *options* to arguments of *make*."""
        parameters = parameters_of(make, where).values()
        hints = hints_of(make)
        known = [p for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
        if not any(p.kind is p.VAR_KEYWORD for p in parameters):
            check_keys(options, [p.name for p in known], where)
        missing = [p.name for p in known if p.default is p.empty and p.name not in options]
        if missing:
            raise ConfigError(f"{where}: the parameter {missing[0]!r} is missing")
        return {
            key: self.argument(key, value, hints.get(key, Any), f"{where}.{key}")
            for key, value in options.items()
        }

    def argument(self, name: str, value: Any, hint: Any, where: str) -> Any:
        """Convert one parameter's value: a judge's name, a verdict format, or plain data, which is checked."""
        wanted = {hint, *typing.get_args(hint)}
        if JudgeRoutes in wanted and isinstance(value, Mapping):
            return self._routes(value, where)
        if Grader in wanted and isinstance(value, Mapping | str):
            return self.grader(where.removeprefix("graders."), value)
        if Judge in wanted or RewardModel in wanted:
            return self._named_judge(value, where, "reward" if RewardModel in wanted else "complete")
        if Sequence[Judge] in wanted:
            if not isinstance(value, list):
                raise ConfigError(f"{where}: give a list of judges")
            return {str(judge): self._named_judge(judge, where) for judge in value}
        if VerdictFormat in wanted:
            return self._verdict(value, where)
        if (settings := struct_of(hint)) is not None:
            if value is None and type(None) in wanted:
                return None
            return self.call(settings, checked(value, dict[str, Any], where), where)
        value = checked(value, hint, where)
        if isinstance(value, str) and name in _NAME_OR_PATH:
            return self._name_or_path(value)
        if isinstance(value, str | PurePath) and wanted & {Path, os.PathLike[str], os.PathLike}:
            return type(value)(self.beside(value))
        return value

    def _verdict(self, value: Any, where: str) -> VerdictFormat:
        """Make a verdict format of its name, or of {format: name, …}."""
        spec = {"format": value} if isinstance(value, str) else dict(checked(value, dict[str, Any], where))
        kind = spec.pop("format", None)
        if not isinstance(kind, str) or kind not in VERDICTS:
            known = did_you_mean(str(kind), VERDICTS)
            raise ConfigError(f"{where}: no verdict format is called {kind!r}{known}")
        made: VerdictFormat = self.call(VERDICTS[kind], spec, where)
        return made

    def _name_or_path(self, value: str) -> str:
        if "\n" in value:  # a template's text
            return value
        here = self.beside(value)
        named = value.startswith(".") or Path(value).suffix in (".json", ".toml", ".txt")
        return here if named or (os.sep in value and os.path.exists(here)) else value

    def beside(self, path: str | PurePath) -> str:
        """Resolve a path relative to the file, keeping a final "/", which marks a folder."""
        if self.folder is None or not str(path):
            return str(path)
        end = os.sep if str(path).endswith(os.sep) else ""
        return f"{self.folder / Path(path).expanduser()}{end}"

    def _named_judge(self, name: Any, where: str, method: str = "complete") -> Any:
        if not isinstance(name, str) or name not in self.judges:
            known = did_you_mean(str(name), self.judges)
            if not self.judges:
                known = f"; add the section judges: {{{name}: {{engine: …}}}}"
            raise ConfigError(f"{where}: there is no judge {name!r}{known}")
        judge = self.judges[name]
        if not hasattr(judge, method):
            what, use = ("judge", "judge") if method == "reward" else ("reward model", "reward_model")
            raise ConfigError(f"{where}: {name} is a {what}: ask it with a grader such as use: {use}")
        self.asked.add(name)
        return judge

    def _routes(self, spec: Mapping[str, Any], where: str) -> JudgeRoutes:
        """Make routes of judges from {by: data_source, routes: {"math*": a}, default: b}."""
        check_keys(spec, ("by", "routes", "default"), where)
        routes = spec.get("routes")
        if not isinstance(routes, Mapping):
            raise ConfigError(f"{where}: routes maps patterns to judges, such as {{'math*': maths}}")
        default = spec.get("default")
        try:
            return JudgeRoutes(
                {pattern: self._named_judge(name, where) for pattern, name in routes.items()},
                by=checked(spec.get("by", "data_source"), str, f"{where}.by"),
                default=None if default is None else self._named_judge(default, where),
            )
        except ConfigError as error:
            raise ConfigError(str(error) if where in str(error) else f"{where}: {error}") from None


def _mapped(names: Sequence[str]) -> str:
    """Return a mapping of parameters to a rollout's fields that could be meant."""
    others = [name for name in names if name not in FIELDS] or names[:1]
    meant = {name: field_meant(name) for name in others}
    if "response" not in names and "response" not in meant.values():
        meant[others[0]] = "response"
    return ", ".join(f"{name}: {field or f'extra.{name}'}" for name, field in meant.items())


def _is_reward_function(found: Any, options: Mapping[str, Any], where: str) -> bool:
    """Whether *found* is called with rollouts, and not, as a factory is, with the *options*. Raises ConfigError."""
    if (
        inspect.isclass(found)
        or not callable(found)
        or hasattr(found, "grade")
        or hasattr(found, "grade_group")
    ):
        return False
    parameters = parameters_of(found, where)
    if "signature" in options and "signature" not in parameters:
        return True
    needed = [
        p.name
        for p in parameters.values()
        if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
    ]
    fields = options.get("fields")
    if all(name in options for name in needed) and not any(
        p.kind is p.VAR_KEYWORD for p in parameters.values()
    ):
        return False  # a factory that has all that it needs
    if signature_of(found, fields if isinstance(fields, Mapping) else {}) is not None:
        return True
    if needed and not any(name in options for name in needed):
        raise ConfigError(
            f"{where}: {described(found)} is a reward function of no known kind: name its parameters as a rollout's fields, "
            f"such as (response, ground_truth), map them, fields: {{{_mapped(needed)}}}, or write "
            "signature: trl | verl | verifiers | openrlhf | plain (if it makes a grader, its parameters go here)"
        )
    return False
