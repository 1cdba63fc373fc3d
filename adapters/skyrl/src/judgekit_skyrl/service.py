"""A judge under the name and with the method that SkyRL's example llm_as_a_judge_local gives its own.

    start_reward_service("judge")                                # the judge that `judgekit serve --engine ray` runs

    service = ray.get_actor("reward_inference_service")          # in an environment
    text = ray.get(service.score.remote(messages, temperature=0.0, max_tokens=512))

For environments that exist already and read the reply themselves. Environments of judgekit ask their judges without it,
and know failures; here a failure is an exception of `ray.get`, and what it does to the reward is the environment's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import ray

from judgekit import ConfigError
from judgekit.errors import first_error
from judgekit.judges import JudgeRequest, Piece, RayJudge, Sampling, Turn, stacked

NAME = "reward_inference_service"


class RewardInferenceService:
    """The actor: it has no engine of its own, and asks the judge actors named *judge*."""

    def __init__(self, judge: str = "judge") -> None:
        self._judge = stacked(RayJudge(judge))

    async def start(self) -> None:
        """Wait until the judge's model is loaded."""
        await self._judge.start()

    async def score(
        self, messages: Sequence[Mapping[str, Any]], temperature: float = 0.0, max_tokens: int = 512
    ) -> str:
        """Return the judge's reply to a chat.

        *messages*: with `role` ("system", "user", "assistant") and `content`, text. Control tokens in them stay text.
        Raises JudgeError, and ConfigError for messages of another form.
        """
        request = JudgeRequest(
            turns=tuple(_turn(message) for message in messages),
            max_tokens=max_tokens,
            sampling=Sampling(temperature=temperature),
        )
        return (await self._judge.complete(request)).text

    async def score_batch(
        self,
        messages_list: Sequence[Sequence[Mapping[str, Any]]],
        temperature: float = 0.0,
        max_tokens: int = 512,
    ) -> list[str]:
        """Return the replies to several chats, asked at once. Raises the first failure, which ends the others."""
        try:
            async with asyncio.TaskGroup() as tasks:
                asked = [
                    tasks.create_task(self.score(messages, temperature, max_tokens))
                    for messages in messages_list
                ]
        except BaseExceptionGroup as errors:
            raise first_error(errors) from None
        return [task.result() for task in asked]

    async def health_check(self) -> bool:
        """Whether the judge would answer now."""
        return bool(await self._judge.engine.ready())


def _turn(message: Mapping[str, Any]) -> Turn:
    role: Literal["system", "user", "assistant"] | Any = message.get("role")
    content = message.get("content")
    if role not in ("system", "user", "assistant") or not isinstance(content, str):
        raise ConfigError(
            f"score: a message has a role (system, user or assistant) and text as content, not {message!r:.200}"
        )
    return Turn(role, (Piece(content, trusted=False),))


def start_reward_service(judge: str = "judge", *, name: str = NAME, namespace: str | None = None) -> Any:
    """Start the actor, once the judge's model is loaded, and return its handle: keep it as long as it is asked.

    *namespace*: by default the job's own, where `ray.get_actor(name)` looks. An actor of this name that runs already is
    returned as it is. Raises JudgeUnavailable if no judge of this name runs.
    """
    actor = ray.remote(RewardInferenceService).options(
        name=name, namespace=namespace, get_if_exists=True, num_cpus=0, max_concurrency=1000
    )
    handle = actor.remote(judge)
    try:
        ray.get(handle.start.remote())
    except ray.exceptions.RayTaskError as error:
        ray.kill(handle)
        raise error.cause if isinstance(error.cause, Exception) else error from None
    return handle
