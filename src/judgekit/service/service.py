"""The service behind the routes: one runner, its requests, and what became of them."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from judgekit.errors import ConfigError
from judgekit.execution.threads import in_own_thread
from judgekit.ledger.reader import Reading
from judgekit.ledger.schema import RESUMES, STEP_TAGS
from judgekit.replay import known_grades
from judgekit.run.grouping import group_id
from judgekit.run.runner import GradingRunner
from judgekit.service.lanes import Knows, Lane, Lanes
from judgekit.service.once import REQUEST, Answers, Job, Recall
from judgekit.service.reading import Refusal
from judgekit.service.wire import answer
from judgekit.trainers.audit_beside import AuditBeside
from judgekit.trainers.figures import why_missing
from judgekit.trainers.hosted import DEADLINE_S, without_fill
from judgekit.types import Grade, RewardResult, Rollout

logger = logging.getLogger("judgekit")

GROUP_WAIT_S = 60.0
"""For a group's missing members, where nothing else is said; below what clients wait for an answer."""

RESERVED = frozenset((REQUEST, RESUMES))
"""Tags that mean something to readers of a ledger."""
_AHEAD = 2048
"""Rollouts that may be graded before the ledger is waited for."""
_FLUSH_S = 10.0
"""How long: a disk that takes nothing holds up no reward."""


_STEP = 256
"""Rollouts of a step that is audited, where clients name none."""
_READ_S = 5.0
"""How often is read what the audits have found."""


class Known:
    """Grades that a ledger holds of a request's rollouts, and the tags of the run that takes them over."""

    def __init__(self, grades: Sequence[Mapping[str, Grade]], tags: dict[str, Any]) -> None:
        self.grades = grades
        self.tags = tags


class RewardService:
    """Grades what requests bring; knows nothing of HTTP.

    *group*: rollouts of a prompt that come together, where an address does not say. *group_wait_s*: for the missing
    members of a group. *audits*: of the ledger that the runner writes; the caller closes them. Belongs to the event loop that
    it is used on.
    """

    def __init__(
        self,
        runner: GradingRunner,
        *,
        group: int = 1,
        group_wait_s: float = GROUP_WAIT_S,
        audits: AuditBeside | None = None,
    ) -> None:
        settings = runner.settings
        self.runner = runner.with_settings(shared=True, deadline_s=settings.deadline_s or DEADLINE_S)
        self.group = group
        self.lanes = Lanes(self.runner, wait_s=group_wait_s)
        self.answers = Answers()
        self.requests: Counter[tuple[str, int]] = Counter()
        """Answers by route and HTTP status."""
        self.in_flight = 0
        self.audits = audits
        self._reader: asyncio.Task[None] | None = None
        self._began = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        self._audited = 0
        """Rollouts of requests that named no step."""
        self._unwritten = 0
        self._catching_up = asyncio.Lock()
        self._recall = Recall(msgspec.json.encode(runner.spec.graders, order="deterministic"))

    async def start(self) -> None:
        """Start the judges, and read what the ledger holds of requests that were not answered."""
        await self.runner.start()
        if self.runner.ledger is not None:
            found = await asyncio.to_thread(self._recall.read, self.runner.ledger.path)
            if found:
                logger.info(
                    "the ledger holds %d rollouts of the last minutes: they are not graded again", found
                )
        if self.audits is not None:
            self._reader = asyncio.create_task(_read(self.audits))

    async def close(self) -> None:
        """Cancel what runs, end the judges and close the ledger."""
        if self._reader is not None:
            self._reader.cancel()
        await self.lanes.close()
        await self.answers.finish(0)
        await self.runner.close()

    def lane(self, knows: Knows, group: str | None) -> Lane:
        """Return the lane of an address with `?group=`. Raises Refusal where reward.yaml has no answer for such clients."""
        try:
            size = self.group if group is None else int(group)
        except ValueError:
            raise Refusal(400, f"group is a whole number, not {group!r}") from None
        try:
            return self.lanes.lane(knows, size)
        except ConfigError as error:
            raise Refusal(409, str(error), kind="ConfigError") from None

    def tags(self, key: str, rollouts: int, tags: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Tags of a request's run. Where something audits, a client that names no step gets one for each few hundred rollouts."""
        made = dict(tags or {})
        if self.runner.ledger is not None:
            made[REQUEST] = self._recall.tag(key)
        if self.audits is not None and not made.keys() & set(STEP_TAGS):
            made["step"] = f"{self._began}, {self._audited // _STEP}"
            self._audited += rollouts
        return made

    def known(
        self, key: str, rollouts: Sequence[Rollout], *, unique: bool, tags: Mapping[str, Any] | None = None
    ) -> Known:
        """Take what the ledger holds of a request, and make the tags of its run."""
        made = self.tags(key, len(rollouts), tags)
        entries = self._recall.take(key, unique=unique)
        if not entries:
            return Known((), made)
        # the request's tag holds only where graders and settings are the same
        specs = dict.fromkeys((entry.spec for entry in entries), self.runner.spec)
        found = known_grades(Reading(specs, entries, []), self.runner, rollouts)
        if found.runs:
            made[RESUMES] = found.runs
        return Known(found.grades, made)

    async def grade_in(
        self, lane: Lane, rollouts: Sequence[Rollout], key: str, *, unique: bool
    ) -> list[RewardResult]:
        """Grade the rollouts of a trainer's request."""
        if lane.size > 1:  # a group is graded as its members come: the ledger's grades have no place there
            return await lane.grade(rollouts, tags=self.tags(key, len(rollouts)))
        known = self.known(key, rollouts, unique=unique)
        results = await lane.grade(rollouts, tags=known.tags, known=known.grades)
        await self._written(len(rollouts))
        return results

    async def grade_all(
        self, job: Job, rollouts: Sequence[Rollout], tags: Mapping[str, Any], *, unique: bool, stream: bool
    ) -> None:
        """Grade a request's rollouts; each result is a part of the answer."""
        known = self.known(job.key, rollouts, unique=unique, tags=tags)
        groups: Counter[Any] = Counter()
        if self.runner.settings.missing_reward == "neutral":
            groups.update(map(group_id, rollouts))

        def add(result: RewardResult) -> None:
            if groups[result.group] == 1:
                result = without_fill(result)
            job.add(result.index, answer(result, rollouts[result.index]))

        if stream and not known.grades:
            async for result in self.runner.stream(rollouts, tags=known.tags):
                add(result)
        else:
            for result in await self.runner.run(rollouts, tags=known.tags, known=known.grades):
                add(result)
        await self._written(len(rollouts))

    async def _written(self, count: int) -> None:
        """Let the ledger catch up now and then: rules can be faster than it, and what it has not written fills memory."""
        self._unwritten += count
        ledger = self.runner.ledger
        if ledger is None or self._unwritten < _AHEAD:
            return
        async with self._catching_up:
            if self._unwritten >= _AHEAD:
                self._unwritten = 0
                await in_own_thread(ledger.flush, _FLUSH_S)


async def _read(audits: AuditBeside) -> None:
    while True:
        await asyncio.sleep(_READ_S)
        audits.read()


def require_reward(result: RewardResult) -> float:
    """The reward, for clients that take any answer's number for one. Raises Refusal where there is none."""
    if result.reward is None:
        raise Refusal(500, f"no reward: {why_missing(result)}", kind="MissingReward")
    return result.reward
