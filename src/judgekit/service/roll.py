"""ROLL's remote reward system: a task is submitted, and asked for until it has a score.

Its client knows numbers only, and pays 0 after its last try: write a number for missing rewards, or have the group's mean.
`missing_reward: raise` is refused, because nothing that the service can say ends ROLL's run.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

from aiohttp import web

from judgekit.errors import JudgekitError
from judgekit.ledger.jsonl import encoded
from judgekit.service.once import Job, digest
from judgekit.service.reading import Refusal, decoded_object, field, rollout_at
from judgekit.service.service import RewardService, require_reward
from judgekit.service.wire import JSON
from judgekit.trainers.rollouts import fields_of_row
from judgekit.types import RewardResult, Rollout

_HOLD_S = 10.0
"""How long a question waits for the answer; its client allows 20 s."""
_DONE, _RUNNING, _FAILED = 0, 1, 2
_FAILURES = 1024


class RollTasks:
    """The two routes of ROLL's client."""

    def __init__(self, service: RewardService) -> None:
        self._service = service
        self._failed: OrderedDict[str, str] = OrderedDict()
        """Why the latest tasks failed, for a client that asks later."""

    async def submit(self, request: web.Request) -> web.StreamResponse:
        """Begin a task. A task that is submitted again, with the id of its rollout, is the same task."""
        if self._service.runner.settings.missing_reward == "raise":
            raise Refusal(
                409,
                "ROLL asks again for minutes after an error, and then pays 0: write missing_reward: <number>, or send groups (?group=N)",
                kind="ConfigError",
            )
        lane = self._service.lane("numbers", request.query.get("group"))
        body = await request.read()
        rollout = _rollout(decoded_object(body))

        async def work(job: Job) -> None:
            try:
                (result,) = await self._service.grade_in(lane, [rollout], job.key, unique=True)
                job.add(0, _answer(result))
            except (Refusal, JudgekitError) as error:
                self._failed[job.key] = error.message if isinstance(error, Refusal) else str(error)
                if len(self._failed) > _FAILURES:
                    self._failed.popitem(last=False)
                raise

        text = digest(body)
        # without an id, an equal text may be another sample's: the task is new each time
        key = f"roll:{rollout.id or secrets.token_hex(8)}:{text}"
        self._failed.pop(key, None)
        with self._service.answers.job(key, text, work, unique=True):
            return _reply({"errcode": _DONE, "errmsg": "", "reward_request_id": key})

    async def result(self, request: web.Request) -> web.StreamResponse:
        """Tell a task's score, or that it runs."""
        row = decoded_object(await request.read())
        key = field(row, "reward_request_id", str, "the id that submitting gave")
        job = self._service.answers.named(key) if key.startswith("roll:") else None
        if job is None:
            return self._lost(key)
        with self._service.answers.waiting(job, unique=True):
            await asyncio.wait([job.task], timeout=_HOLD_S)
            if not job.task.done():
                return _reply({"errcode": _RUNNING, "errmsg": "running"})
            if job.task.cancelled() or job.task.exception() is not None:
                return self._lost(key)
            (answer,) = await job.whole()
            job.delivered = True
            return web.Response(body=answer, content_type=JSON)

    def _lost(self, key: str) -> web.Response:
        told = self._failed.get(key, "there is no such task (any more): submit it again")
        return _reply({"errcode": _FAILED, "errmsg": told})


def _rollout(row: Mapping[str, Any]) -> Rollout:
    info = field(row, "reward_info", dict, "an object") if row.get("reward_info") is not None else {}
    made = {
        "prompt": field(row, "prompt", (str, list), "text or a list of messages"),
        "response": field(row, "response", str, "text"),
        "group": str(row["data_id"]) if row.get("data_id") is not None else None,
        "id": str(row.get("rollout_id", "")),
        **fields_of_row(info),
    }
    return rollout_at(made, "the task")


def _answer(result: RewardResult) -> bytes:
    scores = {
        name: {"score": score, "debug_info": {}}
        for name in result.grades
        if (score := result.score(name)) is not None
    }
    told = {
        "errcode": _DONE,
        "errmsg": "",
        "reward_score": require_reward(result),
        "dimention_reward_score": scores,  # so it is spelt there
    }
    return encoded(told)


def _reply(told: Mapping[str, Any]) -> web.Response:
    return web.Response(body=encoded(told), content_type=JSON)
