"""GradingRunner: rollouts in, rewards out.

A runner holds configuration and counts, and nothing that belongs to an event loop: one runner serves a whole
training run and may be called from many loops, threads and Ray actors at once. The state of a single call is a
`judgekit.run.scheduler.Run`, and ends with it.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from types import TracebackType
from typing import Any, Self

import msgspec

from judgekit.errors import ConfigError, DataError
from judgekit.execution.background import run_blocking
from judgekit.execution.limits import NO_RETRY, Limit, Limiter, Retry, RetryBudget
from judgekit.execution.pool import ProcessPool, default_pool
from judgekit.execution.threads import in_own_thread
from judgekit.graders.protocol import AnyGrader, check_grader
from judgekit.ledger.schema import GraderSpec, Spec
from judgekit.ledger.writer import Ledger
from judgekit.metrics import SIGNAL_LIMITS, Metrics, SignalLimits
from judgekit.reward.conditions import Condition, finite
from judgekit.reward.explain import explain_result
from judgekit.reward.nodes import Node, as_node, equal_weights
from judgekit.reward.transforms import TransformName
from judgekit.reward.tree import RewardTree
from judgekit.run.bound_grader import OTHERS, BoundGrader, assign_queues, deciders
from judgekit.run.grouping import check_groups, group_by_prompt, not_a_rollout
from judgekit.run.scheduler import Run
from judgekit.run.settings import MissingReward, Plan, Settings, check_kind
from judgekit.run.starting import Starter
from judgekit.types import Grade, Price, RewardResult, Rollout, html_table

logger = logging.getLogger("judgekit")


class GradingRunner:
    """Grades rollouts with several graders and combines the grades into one reward.

        runner = GradingRunner(
            {"correct": FinalAnswer(), "brief": brevity},
            {"correct": 0.9, "brief": 0.1},
        )
        results = await runner.run(rollouts)          # or runner.run_sync(rollouts)

    *graders*: by the names that the reward and the results use. *reward*: a reward tree, a mapping of names
    to weights, or None for the mean of all. *ledger*: records every grade. *pool*: worker processes for graders
    with `where="process"`. *progress*: show a progress bar. *resources*: judges and other things that `start`
    starts and `close` closes. *fingerprints*: digests of the graders' settings, so that grades of others are not taken
    from a ledger (see `RewardConfig.fingerprints`). For the other arguments see `judgekit.run.settings.Settings`.

    Raises ConfigError for a wrong argument.
    """

    def __init__(
        self,
        graders: Mapping[str, AnyGrader] | Sequence[AnyGrader],
        reward: Node | Mapping[str, float] | str | None = None,
        *,
        max_concurrency: Limit = "auto",
        timeout_s: float = 60.0,
        deadline_s: float | None = None,
        start_timeout_s: float = 900.0,
        transform: TransformName = "none",
        missing_reward: MissingReward = "exclude",
        drop_if: Condition | str | None = None,
        max_failure_rate: float | None = None,
        retry: Retry = NO_RETRY,
        signals: SignalLimits = SIGNAL_LIMITS,
        ledger: Ledger | None = None,
        pool: ProcessPool | None = None,
        progress: bool = False,
        resources: Sequence[Any] = (),
        fingerprints: Mapping[str, str] = {},
    ) -> None:
        settings = Settings(
            max_concurrency=max_concurrency,
            timeout_s=timeout_s,
            deadline_s=deadline_s,
            start_timeout_s=start_timeout_s,
            transform=transform,
            missing_reward=missing_reward,
            drop_if=str(drop_if) if isinstance(drop_if, Condition) else drop_if,
            max_failure_rate=max_failure_rate,
            retry=retry,
            signals=signals,
        )
        self.graders = _named(graders)
        self._resources = tuple(resources)
        bound = [
            BoundGrader(name, grader, timeout_s, place=place)
            for place, (name, grader) in enumerate(self.graders.items())
        ]
        ranges = {key: grader.score_range for grader in bound for key in grader.keys}
        root = equal_weights(tuple(ranges)) if reward is None else as_node(reward)
        unbreakable = {key for grader in bound if not grader.breakable for key in grader.keys}
        turnless = {key for grader in bound if grader.turnless for key in grader.keys}
        tree = RewardTree(root, ranges, unbreakable, turnless)
        for problem in tree.warnings:
            logger.warning("reward: %s", problem)
        metrics = Metrics(tree.bounds(), signals)
        bound = _timed(bound, metrics)
        pool = default_pool() if pool is None else pool
        check_kind("pool", pool, ProcessPool, "ProcessPool(4)")
        check_kind("ledger", ledger, Ledger | None, 'Ledger("ledger.jsonl")')
        self._plan = Plan(
            settings=settings,
            **_arranged(bound),
            deciders=deciders(bound, tree),
            queues=assign_queues(bound, pool.workers),
            tree=tree,
            budget=RetryBudget(retry.budget),
            limits={},
            pool=pool,
            ledger=ledger,
            spec=_spec(bound, tree, settings, fingerprints),
            metrics=metrics,
            progress=progress,
        )
        self._starter = Starter(self._resources, bound, pool)

    async def run(
        self,
        rollouts: Iterable[Rollout],
        *,
        tags: Mapping[str, Any] | None = None,
        step: float | None = None,
        known: Sequence[Mapping[str, Grade]] = (),
        groups: Sequence[list[int]] | None = None,
    ) -> list[RewardResult]:
        """Grade *rollouts* and return one result each, in input order.

        *tags*: what the host knows (training step, policy version), for the ledger. *step*: the training step, which weights may
        depend on; None: that of the tags. *known*: for each rollout, grades
        that it already has (see `judgekit.replay.known_grades`) and no grader is asked for. *groups*: the places of
        each group's members; if None, rollouts with one `group`, or else one prompt, are a group. A grader that fails
        costs its own grades only, unless it raises ConfigError, which ends the run. Raises MissingRewardError under
        `missing_reward="raise"`, and under `max_failure_rate` FailureRateError, which carries the results.
        Cancelling leaves no task behind.
        """
        batch = _checked(rollouts)
        if known and len(known) != len(batch):
            raise DataError(f"{len(known)} mappings of known grades for {len(batch)} rollouts")
        groups = group_by_prompt(batch) if groups is None else check_groups(groups, len(batch))
        return await (await self._new_run(tags, step)).collect(batch, groups, known)

    async def run_groups(
        self,
        groups: Iterable[Iterable[Rollout]],
        *,
        tags: Mapping[str, Any] | None = None,
        step: float | None = None,
    ) -> list[list[RewardResult]]:
        """Grade rollouts that are already grouped: `results[p][g]` belongs to `groups[p][g]`. Otherwise as `run`."""
        batch: list[Rollout] = []
        members: list[range] = []
        for group in groups:
            start = len(batch)
            batch += group
            members.append(range(start, len(batch)))
        _check(batch)
        filled = members if all(members) else [m for m in members if m]
        results = await (await self._new_run(tags, step)).collect(batch, filled)
        return [results[m.start : m.stop] for m in members]

    async def stream(
        self,
        rollouts: Iterable[Rollout] | AsyncIterable[Rollout],
        *,
        tags: Mapping[str, Any] | None = None,
        step: float | None = None,
    ) -> AsyncGenerator[RewardResult, None]:
        """Grade *rollouts* and yield each result once it is final; its `index` is the rollout's place.

        A result waits for its group only if the transform, a neutral fill or `drop_if` needs it. Grading stays only slightly
        ahead of the consumer. Iterators, synchronous and asynchronous, are read as it goes and closed at the end; the
        members of a group must be adjacent in them, and `deadline_s` ends the reading. Leaving the iteration early
        cancels the rest (use `contextlib.aclosing` to do so at once).
        """
        source = _checked(rollouts) if isinstance(rollouts, Rollout | Sequence) else rollouts
        run = await self._new_run(tags, step)
        async with aclosing(run.stream(source)) as results:
            async for result in results:
                yield result

    async def follow(
        self,
        members: AsyncIterable[Rollout],
        emit: Callable[[RewardResult], None],
        *,
        tags: Mapping[str, Any] | None = None,
    ) -> None:
        """Grade one group whose members arrive one by one, until *members* ends.

        *emit*: called with each result once it is final. The deadline starts with the last member. See
        `judgekit.trainers.collector`.
        """
        await (await self._new_run(tags)).follow(members, emit)

    def run_sync(
        self,
        rollouts: Iterable[Rollout],
        *,
        tags: Mapping[str, Any] | None = None,
        step: float | None = None,
    ) -> list[RewardResult]:
        """Call `run` synchronously, from any thread, even while an event loop is running in it."""
        return run_blocking(self.run(rollouts, tags=tags, step=step))

    async def start(self) -> None:
        """Start the runner's resources and warm up its graders.

        The first run does this if nobody has, outside every rollout's time. Raises what starting raises, after closing
        what did start, and JudgeUnavailable after `start_timeout_s`.
        """
        await self._starter.start(self, self.settings.start_timeout_s)

    async def close(self) -> None:
        """Close what this runner has started, and its ledger. The process pool stays.

        Waits for a `start` in progress. Resources that another runner of the same graders has started, too, stay open
        until that one is closed. A later run starts them again, says so, and leaves them to another `close`.
        """
        ledger, last = self._plan.ledger, True
        try:
            last = await self._starter.close(self)
        finally:
            self._plan.metrics.tell(0, now=True)
            if ledger is not None:
                await in_own_thread(ledger.close if last else ledger.flush)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def with_settings(self, *, shared: bool = False, **changes: Any) -> GradingRunner:
        """Return this runner with other settings (see `Settings`) and the same graders, resources, ledger and metrics.

        *shared*: apply `max_concurrency` and each grader's limit to all its runs together, for hosts with thousands
        of runs at once, of a rollout or a group each. Time spent waiting for a place does not count.
        """
        plan = self._plan
        settings = msgspec.structs.replace(plan.settings, **changes)
        limits = plan.limits
        if shared or (limits and settings.max_concurrency != plan.settings.max_concurrency):
            limits = _shared_limits(plan.by_name, settings.max_concurrency)
        return self._with(
            settings=settings,
            **_arranged(
                grader.copy(timeout_s=grader.own_timeout_s(settings.timeout_s))
                for grader in plan.by_name.values()
            ),
            budget=plan.budget
            if settings.retry == plan.settings.retry
            else RetryBudget(settings.retry.budget),
            limits=limits,
            metrics=plan.metrics.with_limits(settings.signals),
            spec=Spec.of(
                plan.spec.graders,
                reward=plan.spec.reward,
                transform=settings.transform,
                missing_reward=settings.missing_reward,
                drop_if=settings.drop_if,
            ),
        )

    def with_calls(self, wrap: Callable[[BoundGrader], Callable[..., Any]]) -> GradingRunner:
        """Return this runner with each grader's call replaced by *wrap* of the grader, as for tracing."""
        return self._with(**_arranged(g.copy(call=wrap(g)) for g in self._plan.by_name.values()))

    def separate(self, ledger: Ledger | None) -> GradingRunner:
        """Return this runner with its own ledger and metrics, for one part of a larger job."""
        metrics = Metrics(self._plan.tree.bounds(), self.settings.signals)
        graders = _timed(self._plan.by_name.values(), metrics)
        return self._with(**_arranged(graders), ledger=ledger, metrics=metrics)

    def _with(self, **changes: Any) -> GradingRunner:
        made: GradingRunner = object.__new__(GradingRunner)
        made.__dict__.update(self.__dict__)
        made._plan = msgspec.structs.replace(self._plan, **changes)
        return made

    def explain(self, result: RewardResult) -> str:
        """Show how a result's reward was computed: the reward tree with its numbers, one line per node."""
        return explain_result(self.reward, result, self.settings.transform)

    @property
    def resources(self) -> tuple[Any, ...]:
        """The judges and other resources that the runner starts and closes."""
        return self._resources

    @property
    def settings(self) -> Settings:
        return self._plan.settings

    @property
    def reward(self) -> RewardTree:
        return self._plan.tree

    @property
    def metrics(self) -> Metrics:
        """Counts over all runs so far. Call `metrics.summary(reset=True)` once per training step."""
        return self._plan.metrics

    @property
    def ledger(self) -> Ledger | None:
        return self._plan.ledger

    @property
    def spec(self) -> Spec:
        """The description of this runner in the ledger."""
        return self._plan.spec

    @property
    def judged(self) -> tuple[str, ...]:
        """The names of the graders that ask judges or reward models."""
        return tuple(name for name, grader in self._plan.by_name.items() if grader.judges)

    @property
    def compares(self) -> bool:
        """Whether any grade, or what is graded, depends on the other rollouts of its prompt."""
        return bool(self.reward.functions) or any(grader.compares for grader in self._plan.graders)

    @property
    def needs_group(self) -> bool:
        """Whether any reward depends on the other rollouts of its prompt: by group graders, conditions, `drop_if`, transforms or neutral fills.

        Hosts that hand over one rollout at a time then need their group hook.
        """
        settings = self.settings
        relative = settings.transform != "none" or settings.missing_reward == "neutral"
        return self.compares or relative or settings.drop_if is not None

    def __repr__(self) -> str:
        graders = ", ".join(f"{name}: {type(grader).__name__}" for name, grader in self.graders.items())
        return f"<GradingRunner graders: {{{graders}}}, reward: {self.reward!r}>"

    def _repr_html_(self) -> str:
        rows = [
            (b.name, type(b.grader).__name__, "{:g} … {:g}".format(*b.score_range), b.where)
            for b in self._plan.by_name.values()
        ]
        return html_table(("grader", "", "scores", "runs"), rows, f"reward: {self.reward!r}")

    def __reduce__(self) -> Any:
        plan = self._plan
        options = {name: getattr(plan.settings, name) for name in Settings.__struct_fields__}
        options |= {"ledger": plan.ledger, "progress": plan.progress, "resources": self._resources}
        options["fingerprints"] = {
            key.partition(".")[0]: grader.fingerprint for key, grader in plan.spec.graders.items()
        }
        options["pool"] = None if plan.pool is default_pool() else plan.pool
        return _runner, (self.graders, plan.tree.root, options, bool(plan.limits))

    async def _new_run(self, tags: Mapping[str, Any] | None, step: float | None = None) -> Run:
        if not self._starter.done:
            await self._starter.start_for_run(self, self.settings.start_timeout_s)
        given = {} if step is None else {"step": finite(step, "step")}
        return Run(self._plan, {**(tags or {}), **given})


def _runner(graders: Any, root: Node, options: dict[str, Any], shared: bool) -> GradingRunner:
    made = GradingRunner(graders, root, **options)
    return made.with_settings(shared=True) if shared else made


def _named(graders: Mapping[str, AnyGrader] | Sequence[AnyGrader]) -> dict[str, AnyGrader]:
    """Return the graders by name, checked."""
    if not isinstance(graders, Mapping):
        if not isinstance(graders, list | tuple):
            raise ConfigError(
                f"give graders in a mapping of names or in a list, not as {type(graders).__name__}: "
                '{"correct": FinalAnswer()}'
            )
        for i, grader in enumerate(graders):
            check_grader(str(i), grader)
        names = [grader.name for grader in graders]
        if len(set(names)) < len(names):
            raise ConfigError(f"two graders have one name among {names}; give them names in a mapping")
        graders = dict(zip(names, graders, strict=True))
    if not graders:
        raise ConfigError("give the runner at least one grader")
    for name, grader in graders.items():
        if not isinstance(name, str) or not name or "." in name:
            raise ConfigError(f"a grader's name is text without a dot, not {name!r}")
        check_grader(name, grader)
    return dict(graders)


def _timed(graders: Iterable[BoundGrader], metrics: Metrics) -> list[BoundGrader]:
    """Return the graders with their latencies counted by *metrics*."""
    return [grader.copy(timings=[metrics.timings(key) for key in grader.keys]) for grader in graders]


def _arranged(graders: Iterable[BoundGrader]) -> dict[str, Any]:
    """Return the fields of a Plan that hold *graders*, given in the user's order."""
    bound = list(graders)
    return {
        "graders": tuple(sorted(bound, key=lambda grader: grader.rank)),
        "by_key": {key: grader for grader in bound for key in grader.keys},
        "by_name": {grader.name: grader for grader in bound},
    }


def _spec(
    graders: Sequence[BoundGrader], tree: RewardTree, settings: Settings, fingerprints: Mapping[str, str]
) -> Spec:
    described = {
        key: GraderSpec.of(
            grader.grader.version,
            grader.score_range,
            _price(grader),
            fingerprints.get(grader.name, ""),
            getattr(grader.grader, "trusted", None),
        )
        for grader in graders
        for key in grader.keys
    }
    return Spec.of(
        described,
        reward=tree.root.spec(),
        transform=settings.transform,
        missing_reward=settings.missing_reward,
        drop_if=settings.drop_if,
    )


def _shared_limits(graders: Mapping[str, BoundGrader], limit: Limit) -> dict[str, tuple[Limiter, ...]]:
    """Return the limits that all runs share: of each grader that has one, and of all together.

    With "auto", judges have their own, which hold for all runs anyway.
    """
    common = Limiter(OTHERS if limit == "auto" else limit)
    return {
        name: (
            *(() if grader.limit is None else (Limiter(grader.limit),)),
            *(() if limit == "auto" and grader.follows else (common,)),
        )
        for name, grader in graders.items()
    }


def _price(grader: BoundGrader) -> Price | None:
    """Return the price of a grader's judges, if they all have the same; routes and panels have several judges."""
    prices = {getattr(judge, "price", None) for judge in grader.judges}
    price = prices.pop() if len(prices) == 1 else None
    return price if isinstance(price, Price) else None


def _checked(rollouts: Iterable[Rollout]) -> list[Rollout]:
    if isinstance(rollouts, Rollout):
        raise DataError("give a list of rollouts, such as [rollout], not one rollout")
    batch = list(rollouts)
    _check(batch)
    return batch


def _check(batch: Sequence[Rollout]) -> None:
    for index, rollout in enumerate(batch):
        if not isinstance(rollout, Rollout):
            raise not_a_rollout(rollout, index)
