"""reward.yaml: graders, judges, reward and runner in one file.

    graders:
      correct: {use: final_answer}
      brief:   {use: length, soft_max: 600, hard_max: 1200}
      judge:   {use: judge, judge: local}
      mine:    {use: "my_rewards:politeness"}
    judges:
      local: {engine: openai, url: "${JUDGE_URL:-http://127.0.0.1:8000}", layers: {cache: {path: verdicts.sqlite}}}
    reward: {weighted: {correct: 0.6, judge: 0.3, brief: 0.1, mine: 0}}
    runner: {timeout_s: 30, missing_reward: neutral}

`use` names a grader of judgekit or of a plug-in (entry-point group `judgekit.graders`), or one of yours as
`module:object`; modules beside the file can be imported. Its other keys are the grader's parameters. A reward function
that was written for TRL, verl, verifiers or OpenRLHF is a grader as it stands: see `from_function`, whose options are its
keys, with the function's own parameters beside them. `fields`
renames rollout fields for graders that cannot do so themselves; `trust` lets any grader abstain where a certificate does
not trust it (see `judgekit.graders.trust`). The keys of `runner` and `ledger` are the
parameters of `GradingRunner` and `Ledger`, with the same defaults.

Nothing is converted or guessed: a number is not text, `yes` is not a boolean (YAML 1.2), keys are unique, and an
unknown name is an error that suggests the nearest known one. Paths are relative to the file. `${NAME}` and
`${NAME:-default}` are environment variables, `$${` is a literal `${`.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib
import importlib.util
import inspect
import json
import logging
import math
import os
import re
import sys
import typing
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from importlib.metadata import entry_points
from pathlib import Path, PurePath
from typing import Any, Final

import msgspec
import pydantic
from pydantic import BaseModel, ConfigDict, Field, PrivateAttr

from judgekit.errors import ConfigError, MissingExtra, did_you_mean
from judgekit.evidence.audit_settings import AuditSettings
from judgekit.graders.function import FIELDS, Mapped, OfFunction
from judgekit.graders.protocol import AnyGrader, Grader, check_grader
from judgekit.graders.registry import GRADERS
from judgekit.graders.reward_functions import described, from_function, signature_of
from judgekit.graders.trust import Thresholds, Trust, Trusted
from judgekit.judges.base import Judge, RewardModel, Sampling
from judgekit.judges.layers.recording import Recording
from judgekit.judges.layers.routes import JudgeRoutes
from judgekit.judges.layers.stack import (
    LayerOptions,
    RewardModelStack,
    Stack,
    stacked,
    stacked_reward_model,
)
from judgekit.judges.prompts.images import images_of
from judgekit.judges.registry import ENGINES, VERDICTS
from judgekit.judges.verdicts.formats import VerdictFormat
from judgekit.ledger.schema import GraderSpec
from judgekit.ledger.writer import Ledger
from judgekit.metrics import SignalLimits
from judgekit.reward.nodes import score_names
from judgekit.reward.spec import parse
from judgekit.run.runner import GradingRunner
from judgekit.run.settings import Settings
from judgekit.strict_yaml import read_yaml

logger = logging.getLogger("judgekit")

_LARGE: Final = 1 << 24
"""Of a file of more bytes, such as a model's, samples are read."""
_SAMPLES: Final = 65
_SAMPLE: Final = 4096
_OF_MODEL: Final = ("config.json", "adapter_config.json")
"""What the folder of a model, or of an adapter of one, holds."""
_OBJECT: Final = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")
_NAME_OR_PATH: Final = {"lora", "model", "rubric", "schema", "template", "tokenizer"}
"""Parameters that take a known name or a path."""


_EXPECTED: Final = {
    "graders": "give at least one grader, such as graders: {correct: final_answer}",
    "graders.*": "give a grader's name, or {use: its name, …}",
    "judges": "give a mapping of names to judges, such as judges: {local: {engine: vllm}}",
    "judges.*": "give {engine: …}, such as {engine: vllm}",
    "runner": "give a mapping, such as runner: {timeout_s: 30}",
    "ledger": "give a mapping, such as ledger: {path: ledger.jsonl}",
    "audit": "give a mapping, such as audit: {grader: careful, watch: judge}",
}
"""What a section must contain, for error messages."""


_SILENT: Final = {name: 1.0 for name in SignalLimits.__struct_fields__ if name != "missing"} | {
    "disagreement": -1.0
}
"""Limits that no signal passes, for audits: they are no sample of what is paid. That many fail is still told."""


class RewardConfig(BaseModel):
    """The contents of a reward.yaml."""

    model_config = ConfigDict(extra="forbid", strict=True)

    graders: dict[str, dict[str, Any] | str] = Field(min_length=1)
    judges: dict[str, dict[str, Any]] = {}
    reward: Any = None
    runner: dict[str, Any] = {}
    """Parameters of GradingRunner; the others keep the runner's defaults."""
    ledger: dict[str, Any] | None = None
    audit: dict[str, Any] | None = None
    """How the graders are audited, see `AuditSettings`. No reward depends on it."""
    _folder: Path | None = PrivateAttr(None)

    def fingerprints(self) -> dict[str, str]:
        """Return, for each grader, a digest of what its grades depend on: its settings, and those of the judges it names.

        Addresses, keys, layers and `trust` are left out; the contents of files that the settings name are not: rubrics,
        templates, models' folders, modules beside the file.
        """
        judges = {
            name: {key: value for key, value in judge.items() if key not in ("url", "api_key", "layers")}
            for name, judge in self.judges.items()
        }
        found = {}
        for name, grader in self.graders.items():
            own = {k: v for k, v in grader.items() if k != "trust"} if isinstance(grader, dict) else grader
            if isinstance(own, dict) and own.keys() == {"use"}:
                own = own["use"]  # both ways of writing it are one
            asked = {text: judges[text] for text in _texts(own) if text in judges}
            found[name] = self._fingerprint([own, asked])
        return found

    def _fingerprint(self, settings: Any) -> str:
        digest = hashlib.blake2b(digest_size=6)
        digest.update(json.dumps(settings, sort_keys=True, default=str).encode("utf-8", "surrogatepass"))
        for path in sorted({path for text in _texts(settings) for path in self._named_files(text)}):
            with contextlib.suppress(OSError):  # one that cannot be read: whoever needs it says so
                digest.update(_contents(path))
        return digest.hexdigest()

    def _named_files(self, text: str) -> Iterator[Path]:
        """Yield the files that a text in the settings names: a path, a model's folder, or the module of module:object beside the file.

        A module of a package is named with the whole package, which it may import.
        """
        if self._folder is None:
            return
        name = text
        with contextlib.suppress(OSError, ValueError, RuntimeError):  # not a path
            if _OBJECT.fullmatch(text):
                module = text.partition(":")[0].replace(".", "/")
                for parent in [*reversed(Path(module).parents), Path(module)][1:]:
                    if (self._folder / parent / "__init__.py").is_file():
                        yield from filter(Path.is_file, (self._folder / parent).rglob("*.py"))
                        return
                name = f"{module}.py"
            path = self._folder / Path(name).expanduser()
            if path.is_file():
                yield path
            elif any((path / name).is_file() for name in _OF_MODEL):
                yield from filter(Path.is_file, path.iterdir())

    def runner_settings(self) -> dict[str, Any]:
        """Return the section `runner`, checked, as arguments of GradingRunner."""
        return _Parts(self._folder).arguments(Settings, self.runner, "runner")

    def trusts(self, graders: Mapping[str, GraderSpec]) -> dict[str, Thresholds | None]:
        """Return how far the file trusts *graders*, which a ledger names: between which scores they abstain, if anywhere.

        Graders that the file does not have are left out. Raises ConfigError, as `build` does.
        """
        parts, digests = _Parts(self._folder), self.fingerprints()
        found: dict[str, Thresholds | None] = {}
        for name in self.graders.keys() & graders.keys():
            spec, known = self.graders[name], graders[name]
            if isinstance(spec, str) or "trust" not in spec:
                found[name] = None
                continue
            where = f"graders.{name}.trust"
            try:
                found[name] = parts.trust(spec["trust"], where).thresholds(
                    version=known.version, score_range=known.bounds(), fingerprint=digests[name]
                )
            except ConfigError as error:
                raise placed(error, where) from None
        return found

    def audit_settings(self, **given: Any) -> AuditSettings | None:
        """Return the section `audit`, checked, with what is *given* in the place of its keys; None if there is neither."""
        if self.audit is None and not given:
            return None
        made: AuditSettings = _Parts(self._folder).call(
            AuditSettings, {**(self.audit or {}), **given}, "audit"
        )
        for key, name in (("grader", made.grader), ("watch", made.watch.partition(".")[0])):
            if name not in self.graders and not (
                key == "watch" and "watch" in given
            ):  # the ledger may have it
                raise ConfigError(
                    f"audit.{key}: no grader is called {name!r}{did_you_mean(name, self.graders)}"
                )
        return made

    def ledger_path(self) -> Path | None:
        """Return where the file's ledger is; None without one. Raises ConfigError."""
        path = (self.ledger or {}).get("path")
        if path is None:
            return None
        return Path(_Parts(self._folder).beside(_checked(path, str, "ledger.path")))

    def audit_runner(self, grader: str, **overrides: Any) -> GradingRunner:
        """Make a runner of one grader and its judges alone, as audits ask it. *overrides*: see `build`."""
        spec = self.graders[grader]
        kept = ("max_concurrency", "timeout_s", "start_timeout_s", "retry")
        changes = {
            "graders": {grader: spec},
            "judges": {name: self.judges[name] for name in _texts(spec) if name in self.judges},
            "runner": {key: value for key, value in self.runner.items() if key in kept}
            | {"signals": _SILENT},
            "reward": None,
            "ledger": None,
            "audit": None,
        }
        return self.model_copy(update=changes).build(**overrides)

    def _without_audits(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the graders and judges of rewards: not a grader that only `audit` names, nor judges that it alone asks."""
        audit = self.audit_settings()
        if audit is None:
            return self.graders, self.judges
        if self.reward is None:
            raise ConfigError(
                f"audit: without the section reward, it is the mean of all graders, {audit.grader} among them: write the reward"
            )
        if audit.grader in {name.partition(".")[0] for name in score_names(parse(self.reward))}:
            return self.graders, self.judges
        graders = {name: spec for name, spec in self.graders.items() if name != audit.grader}
        alone = {*_texts(self.graders[audit.grader])} - {*_texts(graders)}
        return graders, {name: spec for name, spec in self.judges.items() if name not in alone}

    def build(
        self, judges: Mapping[str, Any] = {}, recordings: Mapping[str, Recording] = {}, **overrides: Any
    ) -> GradingRunner:
        """Make the runner that the file describes.

        *judges*: judges or reward models that stand in for the file's, by their names there, such as a `ScriptedJudge` in
        a test; the file's are then not made. *recordings*: by judge, what keeps its replies. *overrides*: arguments of GradingRunner that replace the file's. The runner
        owns the judges: `await runner.close()` closes them. Raises ConfigError.
        """
        parts = _Parts(self._folder)
        for name in (*judges, *recordings):
            if name not in self.judges:
                raise ConfigError(f"judges: the file has no judge {name!r}{did_you_mean(name, self.judges)}")
        for name, judge in judges.items():
            if not (hasattr(judge, "complete") or hasattr(judge, "reward")):
                raise ConfigError(f"judges: {name}: {judge!r:.80} is no judge: it has no complete()")
        graders_of_rewards, judges_of_rewards = self._without_audits()
        parts.judges = {
            name: judges[name] if name in judges else parts.judge(name, spec)
            for name, spec in judges_of_rewards.items()
        }
        for name, recording in recordings.items():
            if name in parts.judges:
                parts.judges[name].heard = recording.listen(name, images_of(parts.judges[name]))
        settings = self.runner_settings()
        settings["fingerprints"] = overrides.get("fingerprints") or self.fingerprints()
        graders: dict[str, AnyGrader] = {}
        lacking: list[MissingExtra] = []
        for name, spec in graders_of_rewards.items():
            try:
                graders[name] = parts.trusted_grader(name, spec, settings["fingerprints"].get(name, ""))
            except MissingExtra as error:
                lacking.append(error)
        if lacking:
            raise MissingExtra.all_of(lacking)
        if self.ledger is not None and "ledger" not in overrides:
            settings["ledger"] = parts.call(Ledger, self.ledger, "ledger")
        for name in sorted(judges_of_rewards.keys() - parts.asked):
            logger.warning("judges.%s: no grader asks it, and it is started all the same; take it out", name)
        reward = None if self.reward is None else parse(self.reward)
        runner = GradingRunner(
            graders, reward, **{**settings, **overrides}, resources=tuple(parts.judges.values())
        )
        if (audit := self.audit_settings()) is not None:
            _check_watched(audit.watch, runner)
        return runner


def _check_watched(name: str, runner: GradingRunner) -> None:
    """Raise ConfigError if a runner's rewards do not ask the grader that audits watch, or its pay has no bounds."""
    found = runner.spec.graders.get(name)
    if found is None or name not in runner.reward.names:
        raise ConfigError(
            f"audit.watch: the reward does not ask {name!r}; it asks {', '.join(runner.reward.names)}"
        )
    low, high = found.bounds()
    if not (math.isfinite(low) and math.isfinite(high)):
        raise ConfigError(
            f"audit.watch: the scores of {name} have no bounds ({low:g} to {high:g}): what it pays cannot be said as a share"
        )


def _contents(path: Path) -> bytes:
    """Return a file's contents, or samples of those of a large one: any change of a 64th of it is in one of them."""
    size = path.stat().st_size
    if size <= _LARGE:
        return path.read_bytes()
    with path.open("rb") as file:
        parts = [str(size).encode()]
        for i in range(_SAMPLES):
            file.seek(size * i // _SAMPLES)
            parts.append(file.read(_SAMPLE))
    return b"".join(parts)


def _texts(value: Any) -> Iterator[str]:
    """Yield all texts in settings, keys of mappings left out."""
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            yield from _texts(item)
    elif isinstance(value, str):
        yield value


def load_config(path: str | os.PathLike[str]) -> RewardConfig:
    """Read a reward.yaml. Raises ConfigError, which says what is wrong and where."""
    data = read_yaml(path)
    if not isinstance(data, dict):
        raise ConfigError(f"{path}: expected the sections graders, judges, reward and runner")
    try:
        config = RewardConfig.model_validate(data)
    except pydantic.ValidationError as error:
        problem = min(error.errors(), key=lambda found: found["type"] != "extra_forbidden")
        place, names = [str(part) for part in problem["loc"]][:2], RewardConfig.model_fields
        if problem["type"] == "extra_forbidden":
            raise ConfigError(
                f"{path}: there is no section {place[0]!r}{did_you_mean(place[0], names)}"
            ) from None
        what = _EXPECTED.get(place[0] if len(place) == 1 else f"{place[0]}.*", problem["msg"])
        got = "" if problem["type"] in ("missing", "too_short") else f", not {problem['input']!r:.80}"
        raise ConfigError(f"{path}: {'.'.join(place)}: {what}{got}") from None
    config._folder = Path(os.path.abspath(path)).parent
    return config


def load_runner(
    path: str | os.PathLike[str],
    prepare: Callable[[RewardConfig], None] = lambda config: None,
    **overrides: Any,
) -> GradingRunner:
    """Make the runner that a reward.yaml describes.

        load_runner("reward.yaml", judges={"local": ScriptedJudge("1")})    # in a test

    *prepare*: edits the contents first. For the other arguments see `RewardConfig.build`. Raises ConfigError.
    """
    config = load_config(path)
    try:
        prepare(config)
        return config.build(**overrides)
    except ConfigError as error:
        raise placed(error, f"{path}") from None


def placed(error: ConfigError, where: str) -> ConfigError:
    """Return an error with its place in front."""
    if isinstance(error, MissingExtra):
        return MissingExtra(f"{where}: {error.reason}", error.extra)
    return ConfigError(f"{where}: {error}")


class _Parts:
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
            parameters = _parameters(found, where)
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
        return (
            made if fields is None else Mapped(made, _checked(fields, Mapping[str, str], f"{where}.fields"))
        )

    def _reward_function(
        self, name: str, function: Callable[..., Any], options: Mapping[str, Any], where: str
    ) -> AnyGrader:
        """Make a grader of a reward function. Options that `from_function` does not have are the function's own."""
        ours, parameters = inspect.signature(from_function).parameters, _parameters(function, where)
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
        parameters = _parameters(found.function, where).values()
        settings = [p.name for p in parameters if p.kind is p.KEYWORD_ONLY and p.name not in FIELDS]
        if not settings:
            raise ConfigError(
                f"{where}: {found!r} has no settings (got {next(iter(options))!r}): its parameters after * are settings"
            )
        _check_keys(options, settings, where)
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
        if target is None and ":" in name and not _OBJECT.fullmatch(name):
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
        parameters = _parameters(make, where).values()
        hints = hints_of(make)
        known = [p for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
        if not any(p.kind is p.VAR_KEYWORD for p in parameters):
            _check_keys(options, [p.name for p in known], where)
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
            return self.call(settings, _checked(value, dict[str, Any], where), where)
        value = _checked(value, hint, where)
        if isinstance(value, str) and name in _NAME_OR_PATH:
            return self._name_or_path(value)
        if isinstance(value, str | PurePath) and wanted & {Path, os.PathLike[str], os.PathLike}:
            return type(value)(self.beside(value))
        return value

    def _verdict(self, value: Any, where: str) -> VerdictFormat:
        """Make a verdict format of its name, or of {format: name, …}."""
        spec = {"format": value} if isinstance(value, str) else dict(_checked(value, dict[str, Any], where))
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
        _check_keys(spec, ("by", "routes", "default"), where)
        routes = spec.get("routes")
        if not isinstance(routes, Mapping):
            raise ConfigError(f"{where}: routes maps patterns to judges, such as {{'math*': maths}}")
        default = spec.get("default")
        try:
            return JudgeRoutes(
                {pattern: self._named_judge(name, where) for pattern, name in routes.items()},
                by=_checked(spec.get("by", "data_source"), str, f"{where}.by"),
                default=None if default is None else self._named_judge(default, where),
            )
        except ConfigError as error:
            raise ConfigError(str(error) if where in str(error) else f"{where}: {error}") from None


def _is_reward_function(found: Any, options: Mapping[str, Any], where: str) -> bool:
    """Whether *found* is called with rollouts, and not, as a factory is, with the *options*. Raises ConfigError."""
    if (
        inspect.isclass(found)
        or not callable(found)
        or hasattr(found, "grade")
        or hasattr(found, "grade_group")
    ):
        return False
    parameters = _parameters(found, where)
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
            f"such as (response, ground_truth), map them, fields: {{{needed[0]}: response}}, or write signature: trl | verl | "
            "verifiers | openrlhf (if it makes a grader, its parameters go here)"
        )
    return False


def _parameters(make: Any, where: str) -> Mapping[str, inspect.Parameter]:
    try:
        return inspect.signature(make).parameters
    except (TypeError, ValueError):  # a number, a built-in class
        raise ConfigError(f"{where}: {make!r:.80} is no class or function with parameters to set") from None


def hints_of(make: Callable[..., Any]) -> Mapping[str, Any]:
    """Return the types of a callable's parameters; Any for those that cannot be resolved at run time."""
    kept = inspect.isclass(make) or inspect.isfunction(make)
    return _hints(make) if kept else _hints.__wrapped__(make)


@functools.lru_cache(maxsize=256)
def _hints(make: Callable[..., Any]) -> Mapping[str, Any]:
    is_class = inspect.isclass(make) and not issubclass(make, msgspec.Struct)
    target: Any = make.__init__ if is_class else make
    try:
        return typing.get_type_hints(target)
    except Exception:  # names that are imported for type checkers only
        names = {"Judge": Judge, "JudgeRoutes": JudgeRoutes, "VerdictFormat": VerdictFormat, "Grader": Grader}
        names |= {"RewardModel": RewardModel, "Sampling": Sampling, **getattr(target, "__globals__", {})}
        hints: dict[str, Any] = {}
        for name, text in inspect.get_annotations(target).items():
            try:
                hints[name] = eval(text, names) if isinstance(text, str) else text
            except Exception:
                hints[name] = Any
        return hints


def struct_of(hint: Any) -> type[msgspec.Struct] | None:
    """Return the Struct that a parameter of this type takes, written as a mapping in YAML; or None."""
    kinds = {*(typing.get_args(hint) or (hint,))} - {type(None)}
    kind = kinds.pop() if len(kinds) == 1 else None
    return kind if inspect.isclass(kind) and issubclass(kind, msgspec.Struct) else None


def _checked(value: Any, hint: Any, where: str) -> Any:
    """Return *value* if it has the type *hint*. Converts nothing but a list to a tuple. Raises ConfigError."""
    if isinstance(value, float) and math.isnan(value):
        raise ConfigError(f"{where}: expected a number (got {value!r})")
    try:
        adapter = pydantic.TypeAdapter(hint, config=ConfigDict(arbitrary_types_allowed=True, strict=True))
    except (pydantic.PydanticSchemaGenerationError, pydantic.PydanticUserError):
        return value
    try:
        data = json.dumps(value)
    except (TypeError, ValueError):  # objects, from a RewardConfig that was made in Python
        data = None
    try:
        return adapter.validate_python(value) if data is None else adapter.validate_json(data)
    except pydantic.ValidationError as error:
        said = dict.fromkeys(p["msg"] for p in error.errors() if p["type"] not in _OF_PYTHON)
        text = " or ".join(m.removeprefix("Input should be ") for m in said) or "something else"
        text = _WORDS.sub(lambda match: _IN_YAML[match[0]], text)
        expected = "expected " if next(iter(said), "Input").startswith("Input") else ""
        raise ConfigError(f"{where}: {expected}{text} (got {value!r:.80})") from None


_OF_PYTHON: Final = ("is_instance_of", "needs_python_object")
"""Kinds of values that only Python has: nothing that a file could say instead."""
_IN_YAML: Final = {
    "an object": "a mapping",
    "a valid dictionary": "a mapping",
    "a valid array": "a list",
    "a valid string": "text",
    "a valid integer": "a whole number",
    "a valid number": "a number",
    "a valid boolean": "true or false",
}
"""Pydantic's words in those of YAML."""
_WORDS: Final = re.compile("|".join(_IN_YAML))


def _check_keys(given: Iterable[str], known: Collection[str], where: str) -> None:
    for key in given:
        if key not in known:
            raise ConfigError(f"{where}: there is no parameter {key!r}{did_you_mean(str(key), known)}")
