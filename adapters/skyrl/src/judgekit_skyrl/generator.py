"""Grades each group inside SkyRL's generator, while others are still being generated."""

from __future__ import annotations

import asyncio
import inspect
import itertools
import logging
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from contextvars import ContextVar
from typing import Any

from judgekit import ConfigError, RewardResult, Rollout
from judgekit.trainers import Counts, GroupCollector, StepCounts, background_loop, placed
from judgekit_skyrl.entrypoints import class_of
from judgekit_skyrl.env import PREFIX, SLOT, Transcript, hosted, metrics_of

logger = logging.getLogger("judgekit")

EXCLUDED = "judgekit_excluded"
"""The stop reason of a training rollout without a reward, for the trainer of `make_trainer`."""

_numbers = itertools.count()
_session: ContextVar[_Session | None] = ContextVar("judgekit_session", default=None)


class _Members:
    """The rollouts of one prompt that are graded, on SkyRL's loop."""

    def __init__(self, size: int) -> None:
        self.expected = size
        self.results: list[RewardResult] = []
        self.rollouts: list[Rollout] = []
        self.whole = asyncio.Event()

    def add(self, result: RewardResult, rollout: Rollout) -> int:
        """Add a rollout; returns its place."""
        self.results.append(result)
        self.rollouts.append(rollout)
        self.look()
        return len(self.results) - 1

    def look(self) -> None:
        """Wake who waits for the others, if nobody else is expected."""
        if len(self.results) >= self.expected:
            self.whole.set()


class _Session:
    """The groups of one `generate()` call.

    They are collected and graded on judgekit's background loop: SkyRL's loop blocks for seconds while it
    tokenises, and judges would time out.
    """

    def __init__(
        self, sizes: Mapping[tuple[str, Hashable], int], tags: Mapping[str, Any], *, excludes: bool
    ) -> None:
        self.sizes = sizes
        self.tags = tags
        self.excludes = excludes
        """Whether rollouts are left out; else they are masked, and their group's mean counts."""
        self.number = next(_numbers)
        self.counts: dict[str, Counts] = {}
        self.excluded: set[tuple[Hashable, Any]] = set()
        """Rollouts to leave out of the training, by prompt and repetition."""
        self._members = {key: _Members(size) for key, size in sizes.items()}
        self._collectors: dict[str, GroupCollector] = {}
        self._loop = background_loop()
        self._closed = False

    def _collector(self, env_id: str) -> GroupCollector:
        if env_id not in self._collectors:
            found = hosted(env_id)
            assert found is not None
            runner = found.runner
            if found.exclude and not self.excludes:
                runner = runner.with_settings(missing_reward="mask")
            self._collectors[env_id] = GroupCollector(runner)
        return self._collectors[env_id]

    async def arrive(self, env_id: str, instance: Hashable, rollout: Rollout) -> tuple[RewardResult, float]:
        """Return the rollout's result, and the number for SkyRL's tensor."""
        if self._closed:  # if a rollout fails, SkyRL leaves the rest of its group running
            raise asyncio.CancelledError
        size = self.sizes[env_id, instance]

        async def meet() -> RewardResult:
            return await self._collector(env_id).arrive(
                (self.number, instance), rollout, size=size, tags=self.tags
            )

        result = await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(meet(), self._loop))
        runner = self._collector(env_id).runner
        counts = self.counts.setdefault(env_id, Counts(runner.settings.signals, runner.reward.bounds()))
        counts.add(result, rollout)
        members = self._members[env_id, instance]
        place = members.add(result, rollout)
        if len(members.results) == size:
            counts.add_group(members.results, members.rollouts)
        if result.reward is not None:
            return result, result.reward
        await members.whole.wait()
        if self._closed:
            raise asyncio.CancelledError
        found = hosted(env_id)
        assert found is not None
        return result, found.numbers(members.results)[place]

    def leave(self, env_id: str, instance: Hashable) -> None:
        """Take one rollout off the group, so that the others stop waiting for it."""
        size = self.sizes[env_id, instance]
        members = self._members[env_id, instance]
        members.expected -= 1
        members.look()

        def gone() -> None:
            self._collector(env_id).leave((self.number, instance), size=size)

        self._loop.call_soon_threadsafe(gone)

    def close(self) -> None:
        """Cancel all grading, after a failed generate()."""
        self._closed = True
        for members in self._members.values():
            members.whole.set()

        async def end() -> None:
            for meeting in self._collectors.values():
                await meeting.close()

        asyncio.run_coroutine_threadsafe(end(), self._loop)


class JudgeKitGeneratorMixin:
    """Grades the rollouts of JudgeKitEnv environments, each prompt's together.

    Mixed into a SkyRL generator by `make_generator`. The reward is set before SkyRL computes its metrics and
    applies zero_reward_on_non_stop and overlong filtering. Rollouts of other environments are left alone, and
    named in the log once.
    """

    trainer_ends_steps = False
    """Set by the trainer of `make_trainer`, which calls `end_step`."""

    async def generate(self, input_batch: Mapping[str, Any], *args: Any, **kwargs: Any) -> Any:
        """SkyRL's `generate`, with grades.

        Raises ConfigError for generator.batched=true, and, where no trainer of `make_trainer` ends the steps,
        FailureRateError of the step before.
        """
        env_ids = [env if hosted(env) else None for env in input_batch["env_classes"]]
        self._name_others(input_batch["env_classes"])
        if not any(env_ids):
            return await super().generate(input_batch, *args, **kwargs)  # type: ignore[misc]
        if getattr(self, "batched", False):
            raise ConfigError(
                "generator.batched=true steps the environments one after another, so that the judge is asked one "
                "question at a time: set generator.batched=false"
            )
        ids = input_batch.get("trajectory_ids")
        if ids is None:
            raise ConfigError(
                "the generator's input has no trajectory_ids, so rollouts cannot be grouped by prompt; this SkyRL "
                "is too old for grouped grading: register with grouped=False"
            )
        sizes = Counter(
            (env_id, trajectory.instance_id)
            for env_id, trajectory in zip(env_ids, ids, strict=True)
            if env_id is not None
        )
        metadata = input_batch.get("batch_metadata")
        tags = {
            "global_step": getattr(metadata, "global_step", None),
            "phase": str(getattr(metadata, "training_phase", "")) or None,
        }
        phase = "eval" if tags["phase"] == "eval" else "train"
        session = _Session(
            sizes,
            {key: value for key, value in tags.items() if value is not None},
            excludes=self.trainer_ends_steps or phase == "eval",
        )
        token = _session.set(session)
        try:
            out = await super().generate(input_batch, *args, **kwargs)  # type: ignore[misc]
        except BaseException:
            session.close()
            raise
        finally:
            _session.reset(token)
        self._count(session, phase)
        if phase == "train" and session.excluded:
            self._exclude(out, session.excluded, ids)
        return out

    def end_step(self, phase: str = "train") -> dict[str, float]:
        """Report what was graded since the last step, and return its figures: means, shares missing, judge tokens.

        *phase*: "train" or "eval". Raises FailureRateError where more of a grader's evaluations failed than
        reward.yaml's max_failure_rate allows.
        """
        figures: dict[str, float] = {}
        for (env_id, of), steps in self._steps.items():
            if of == phase:
                found = steps.end()
                figures |= {f"{env_id}/{key.removeprefix(PREFIX)}": value for key, value in found.items()}
        return figures

    @property
    def _steps(self) -> dict[tuple[str, str], StepCounts]:
        """By environment and phase."""
        found: dict[tuple[str, str], StepCounts] = self.__dict__.setdefault("_judgekit_steps", {})
        return found

    def _count(self, session: _Session, phase: str) -> None:
        step = session.tags.get("global_step", session.number)
        for env_id, counts in session.counts.items():
            found = hosted(env_id)
            steps = self._steps.setdefault(
                (env_id, phase), StepCounts(found.max_failure_rate if found is not None else None)
            )
            # calls of a fully asynchronous trainer end in any order: none takes a step back
            if not self.trainer_ends_steps and (steps.step is None or step > steps.step):
                steps.begin(step)
            steps.add(counts)

    def _exclude(self, out: Any, excluded: set[tuple[Hashable, Any]], ids: Any) -> None:
        """Mark what was left without a reward, after SkyRL has read the stop reasons."""
        rows = out.get("trajectory_ids") or ids
        out["stop_reasons"] = [
            EXCLUDED if (row.instance_id, row.repetition_id) in excluded else reason
            for row, reason in zip(rows, out["stop_reasons"], strict=True)
        ]
        if not self.trainer_ends_steps and not self.__dict__.setdefault("_judgekit_told_trainer", False):
            self._judgekit_told_trainer = True
            logger.warning(
                "rewards are missing, and the trainer is not one of judgekit_skyrl.make_trainer(): the rollouts have "
                "no loss, but change the advantages of their prompts' other rollouts"
            )

    def _name_others(self, env_classes: Any) -> None:
        told: set[str] = self.__dict__.setdefault("_judgekit_told_others", set())
        if others := {env for env in env_classes if hosted(env) is None} - told:
            told |= others
            logger.warning(
                "judgekit does not grade the rollouts of %s: a row's column env_class decides, before "
                "environment.env_class; without the column, or with env_class=judgekit, a row is graded",
                ", ".join(f"env_class={env}" for env in sorted(others)),
            )

    def _tell_blind_trainer(self, steps: int) -> None:
        """Say once that SkyRL's own trainer reads the last step's rewards only."""
        if (
            steps > 1
            and not self.trainer_ends_steps
            and not self.__dict__.setdefault("_judgekit_told_turns", False)
        ):
            self._judgekit_told_turns = True
            logger.warning(
                "turns are paid in steps of their own, and the trainer is not one of judgekit_skyrl.make_trainer(): SkyRL's "
                "own reads the last step's rewards only"
            )

    async def agent_loop(self, *args: Any, **kwargs: Any) -> Any:
        """SkyRL's `agent_loop`, with the grade added to the last token's (or the scalar) reward, and to those of paid turns."""
        inner = super().agent_loop  # type: ignore[misc]
        bound = inspect.signature(inner).bind(*args, **kwargs)  # the parameters depend on SkyRL's version
        env_id, trajectory = bound.arguments["env_class"], bound.arguments.get("trajectory_id")
        session, found = _session.get(), hosted(env_id)
        if session is None or found is None or trajectory is None:
            return await inner(*args, **kwargs)
        slot = Transcript()
        bound.arguments["env_extras"] = {**bound.arguments["env_extras"], SLOT: slot}
        try:
            out = await inner(*bound.args, **bound.kwargs)
        except BaseException:
            session.leave(env_id, trajectory.instance_id)
            raise
        steps = getattr(out, "step_outputs", [out])
        if not steps:  # too long before its first turn: SkyRL drops it
            session.leave(env_id, trajectory.instance_id)
            return out
        last = steps[-1]
        rollout = slot.rollout(
            group=str(trajectory.instance_id),
            id=f"{trajectory.instance_id}_{trajectory.repetition_id}",
            response_tokens=sum(sum(step.loss_mask) for step in steps),
            finish_reason=getattr(last, "stop_reason", None),
        )
        result, number = await session.arrive(env_id, trajectory.instance_id, rollout)
        found_places = _pay(steps, number, result.turns)
        last.env_metrics = {**(last.env_metrics or {}), **metrics_of(result)}
        if found.runner.reward.has_turns:
            last.env_metrics[f"{PREFIX}unplaced_mean"] = float(not found_places)
            self._tell_blind_trainer(len(steps))
        if found.mask and result.status != "scored":
            for step in steps:
                step.loss_mask = [0] * len(step.loss_mask)
            last.env_metrics[f"{PREFIX}masked_mean"] = 1.0
        if found.exclude and result.status != "scored":
            session.excluded.add((trajectory.instance_id, trajectory.repetition_id))
        return out


def _pay(steps: Sequence[Any], reward: float, turns: Sequence[float]) -> bool:
    """Add a rollout's reward to those of its steps. Returns whether each turn's part lies on this turn's tokens."""
    if turns and all(isinstance(step.reward, list) for step in steps):
        rewards, found = placed(reward, turns, [step.loss_mask for step in steps])
        if found:
            for step, earned in zip(steps, rewards, strict=True):
                step.reward = [own + more for own, more in zip(step.reward, earned, strict=True)]
            return True
    last = steps[-1]
    if isinstance(last.reward, list):
        own = list(last.reward) or [0.0]
        own[-1] += reward
        last.reward = own
    else:
        last.reward = float(last.reward or 0.0) + reward
    return not turns


def make_generator(base: type | None = None) -> type:
    """Return *base* (default: SkyRLGymGenerator) with the mixin; construct it like *base*. Raises ConfigError."""
    if base is None:
        base = class_of("generators.skyrl_gym_generator", "SkyRLGymGenerator")
    return type(f"JudgeKit{base.__name__}", (JudgeKitGeneratorMixin, base), {})
