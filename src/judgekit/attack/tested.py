"""A reward as tests use it: results that compare as numbers and explain themselves."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import lru_cache, total_ordering
from pathlib import Path
from typing import Any

from judgekit.attack.holes import Hole, find_holes
from judgekit.attack.targets import SHIPPED, Row, rows_of
from judgekit.config import RewardConfig, load_config
from judgekit.config.checks import placed
from judgekit.errors import ConfigError
from judgekit.execution.background import run_blocking
from judgekit.graders.reward_functions import from_function
from judgekit.judges.layers.recording import Recording
from judgekit.ledger.output_files import whole_file
from judgekit.run.runner import GradingRunner
from judgekit.types import Failed, Grade, Graded, RewardResult, Rollout, Skipped


class TestedReward:
    """A reward under test.

        reward = judgekit_reward("reward.yaml", judges={"local": ScriptedJudge("### Final Score: 1")})
        right, wrong, empty = reward.group("6 * 7?", "42", ["It is 42.", "It is 41.", ""])
        assert right > wrong + 0.3
        assert empty <= wrong

    *reward*: the path of a reward.yaml, a `GradingRunner`, or a reward function of any trainer (see `judgekit.from_function`).
    *judges*: judges that stand in for the file's, by their names there; a path: the recording of its replies, which
    `judgekit grade --record` makes. *record*: ask the file's judges instead, and keep their replies; holds the
    recordings that were begun, so that several rewards can share one. Raises ConfigError.
    """

    __test__ = False  # pytest looks for classes that begin with Test

    def __init__(
        self, reward: Any, *, judges: Mapping[str, Any] = {}, record: dict[Path, Recording] | None = None
    ) -> None:
        self._recordings: dict[Path, Recording] = {}
        self._record = record
        if isinstance(reward, GradingRunner):
            if judges:
                raise ConfigError("judges stand in for those of a reward.yaml: a runner has its own")
            self.runner = reward
        elif isinstance(reward, str | os.PathLike):
            self.runner = self._loaded(Path(reward), judges)
        elif callable(reward):
            self.runner = GradingRunner({"reward": from_function(reward)})
        else:
            raise ConfigError(
                f"a reward is a reward.yaml's path, a GradingRunner or a function, not {reward!r:.80}"
            )

    def _loaded(self, path: Path, judges: Mapping[str, Any]) -> GradingRunner:
        """Make the runner of a file, with recordings in the place of the paths among *judges*."""
        files = {name: Path(judge) for name, judge in judges.items() if isinstance(judge, str | os.PathLike)}
        loaded = _read(path)
        digests = loaded.fingerprints()
        begun = {} if self._record is None else self._record
        for file in files.values():
            if file.resolve() in begun:
                begun[file.resolve()].join(digests)
            else:
                begun[file.resolve()] = Recording(file, digests, new=self._record is not None)
        self._recordings = {file: begun[file.resolve()] for file in files.values()}
        kept = {name: self._recordings[file] for name, file in files.items()}
        others = {name: judge for name, judge in judges.items() if name not in files}
        records = self._record is not None
        played = {} if records else {name: one.of(name) for name, one in kept.items()}
        try:
            return loaded.build(
                judges={**others, **played}, recordings=kept if records else {}, fingerprints=digests
            )
        except ConfigError as error:
            raise placed(error, f"{path}") from None

    def group(
        self, prompt: Any, ground_truth: Any, responses: Sequence[str], **fields: Any
    ) -> list[TestedResult]:
        """Grade responses to one prompt together, and return a result each. *fields*: others of `Rollout`."""
        rollouts = [
            Rollout(prompt=prompt, ground_truth=ground_truth, response=response, **fields)
            for response in responses
        ]
        return self.grade(rollouts)

    def grade(self, rollouts: Sequence[Rollout]) -> list[TestedResult]:
        """Grade rollouts, and return a result each."""
        results = self.runner.run_sync(rollouts)
        self._check_recorded()
        return [TestedResult(self.runner, result) for result in results]

    def _check_recorded(self) -> None:
        """Raise AssertionError if a request had no recorded reply: a setting for missing grades could hide it."""
        for recording in self._recordings.values():
            if recording.missed:
                n, first, recording.missed = len(recording.missed), recording.missed[0], []
                raise AssertionError(
                    f"{recording.path} holds no reply to {n} of the judge's requests; the first is about {first!r}. "
                    "pytest --judgekit-record asks the judges and keeps their replies"
                )

    def attack(self, rollouts: Sequence[Rollout] | None = None, *, judges: bool = False) -> list[Hole]:
        """Return the certain holes that `judgekit attack` finds, but for right answers that are refused.

        *rollouts*: your own prompts and references; None: judgekit's rows. *judges*: ask them.
        """
        rows: Sequence[Row] = SHIPPED if rollouts is None else rows_of(rollouts)[0]
        report = run_blocking(find_holes(self.runner, rows, judges=judges))
        self._check_recorded()
        if not report.rows:
            raise ConfigError("no row could be used: give rollouts of your own data, with references")
        return [hole for hole in report.worst() if hole.certain and hole.what != "right refused"]

    def close(self) -> None:
        """Close the judges that were started, and write what was recorded."""
        run_blocking(self.runner.close())
        if self._record is not None:
            for path, recording in self._recordings.items():
                with whole_file(path) as file:
                    file.writelines(recording.lines())


def _read(path: Path) -> RewardConfig:
    """Read a reward.yaml as `load_config` does; once, if many tests read the same text."""
    try:
        text = path.read_bytes()
    except OSError:
        text = b""
    if not text or b"${" in text:  # the environment's, which a test may change
        return load_config(path)
    return _kept(path, os.getcwd(), text).model_copy(deep=True)


@lru_cache(maxsize=8)
def _kept(path: Path, cwd: str, text: bytes) -> RewardConfig:
    return load_config(path)  # not resolved: what a link's file names lies beside the link


@total_ordering
class TestedResult:
    """A rollout's reward: compares, adds and rounds as a number. One without a reward raises AssertionError instead."""

    __test__ = False

    def __init__(self, runner: GradingRunner, result: RewardResult) -> None:
        self.result = result
        self._runner = runner

    @property
    def grades(self) -> Mapping[str, Grade]:
        return self.result.grades

    def score(self, name: str) -> float:
        """Return a grader's score. Raises AssertionError, which says why there is none."""
        grade = self.grades.get(name)
        if isinstance(grade, Graded):
            return grade.score
        if grade is None:
            raise AssertionError(f"no grader is called {name!r}; there are {', '.join(self.grades)}")
        if isinstance(grade, Skipped):
            raise AssertionError(f"{name!r} was not asked: its gate was not passed ({grade.gate})")
        raise AssertionError(f"{name!r} has no score: {grade}")

    def __float__(self) -> float:
        if self.result.reward is None:
            failed = [
                f"{name}: {g.error}: {g.detail}" for name, g in self.grades.items() if isinstance(g, Failed)
            ]
            raise AssertionError("\n".join(["there is no reward:", self.__judgekit_explain__(), *failed]))
        return self.result.reward

    def __eq__(self, other: object) -> bool:
        return (
            float(self) == float(other) if isinstance(other, TestedResult | int | float) else NotImplemented
        )

    def __lt__(self, other: TestedResult | float) -> bool:
        return float(self) < float(other)

    def __hash__(self) -> int:
        return id(self)

    def __add__(self, other: TestedResult | float) -> float:
        return float(self) + float(other)

    __radd__ = __add__

    def __sub__(self, other: TestedResult | float) -> float:
        return float(self) - float(other)

    def __rsub__(self, other: float) -> float:
        return float(other) - float(self)

    def __round__(self, digits: int = 0) -> float:
        return round(float(self), digits)

    def __str__(self) -> str:
        reward = self.result.reward
        return self.result.status if reward is None else f"{reward:g}"

    def __repr__(self) -> str:
        return f"<reward {self}>"

    def __judgekit_explain__(self) -> str:
        """Return the reward tree with its numbers, for pytest."""
        return self._runner.explain(self.result)
