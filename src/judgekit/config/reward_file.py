"""The contents of a reward.yaml, and the runner that they describe."""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import math
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pydantic
from pydantic import BaseModel, ConfigDict, Field, PrivateAttr

from judgekit.config.checks import checked, placed
from judgekit.config.parts import OBJECT, Parts
from judgekit.errors import ConfigError, MissingExtra, did_you_mean
from judgekit.evidence.audit_settings import AuditSettings
from judgekit.graders.protocol import AnyGrader
from judgekit.graders.trust import Thresholds
from judgekit.judges.layers.recording import Recording
from judgekit.judges.prompts.images import images_of
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
            if OBJECT.fullmatch(text):
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
        return Parts(self._folder).arguments(Settings, self.runner, "runner")

    def trusts(self, graders: Mapping[str, GraderSpec]) -> dict[str, Thresholds | None]:
        """Return how far the file trusts *graders*, which a ledger names: between which scores they abstain, if anywhere.

        Graders that the file does not have are left out. Raises ConfigError, as `build` does.
        """
        parts, digests = Parts(self._folder), self.fingerprints()
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
        made: AuditSettings = Parts(self._folder).call(
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
        return Path(Parts(self._folder).beside(checked(path, str, "ledger.path")))

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
        parts = Parts(self._folder)
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
