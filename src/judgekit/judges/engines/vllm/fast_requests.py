"""Hands requests to an AsyncLLM, without what its `generate` does again for each of thousands that are alike.

`generate` checks and copies the sampling parameters of every request, and brings its output through a queue and a generator:
half of what a one-token verdict costs this process. Here vLLM makes the first request of a kind itself; those that follow are
copies of what it made, with tokens of their own. This uses parts of vLLM that are not public: where a version has others,
`generate` is called for all.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Hashable
from copy import copy
from inspect import signature
from typing import Any

from judgekit.execution.crossing import give_way

logger = logging.getLogger("judgekit")

_KINDS = 256
"""Kinds of requests remembered, the latest used: with a seed, each vote is one."""


class Requests:
    """Generates replies with an AsyncLLM, on its event loop.

    *dead*: vLLM's error for an engine that has died.
    """

    def __init__(self, llm: Any, dead: type[Exception]) -> None:
        self._llm = llm
        self._dead = dead
        self.lora: Any = None
        """vLLM's LoRARequest of the adapter that answers."""
        self._context = int(llm.model_config.max_model_len)
        self._numbers = itertools.count()
        self._unanswered: set[asyncio.Future[Any]] = set()
        self._kinds: OrderedDict[Hashable, Any] = OrderedDict()
        """What vLLM made of a request of each kind, without its tokens."""
        queue = llm.vllm_config.scheduler_config
        self._copies = not any(
            getattr(queue, limit, None) for limit in ("max_num_queued_reqs", "max_num_queued_tokens")
        )
        """Whether copies are made: with these limits, `generate` looks at the queue first."""

    async def generate(
        self, kind: Hashable, prompt: Any, params: Callable[[], Any], priority: int = 0
    ) -> Any:
        """Return vLLM's final RequestOutput for *prompt*, an input of token ids, maybe with images.

        *kind*: equal for requests whose *params* (SamplingParams) and *priority* are. Raises what AsyncLLM.generate raises.
        """
        plain = "multi_modal_data" not in prompt
        pattern, ids = self._kinds.get(kind) if plain else None, prompt["prompt_token_ids"]
        # what cannot be answered is refused by `generate`: vLLM's engine does not check it again
        if pattern is not None and not self._llm.errored and 0 < len(ids) < self._context:
            self._kinds.move_to_end(kind)
            return await self._copied(pattern, ids)
        made = params()
        out = await self.last(
            self._llm.generate(prompt, made, self.name(), lora_request=self.lora, priority=priority)
        )
        if plain and self._copies and kind not in self._kinds:
            await self._remember(kind, prompt, made, priority)
        return out

    async def last(self, items: AsyncIterator[Any]) -> Any:
        """Return the last item that vLLM makes for a request."""
        answer = self._asked()

        async def read() -> None:
            found = None
            try:
                async for item in items:
                    found = item
            except Exception as error:
                if not answer.done():
                    answer.set_exception(error)
            else:
                if not answer.done():
                    answer.set_result(found)

        reading = asyncio.ensure_future(read())
        try:
            return await answer
        finally:
            reading.cancel()

    def _asked(self) -> asyncio.Future[Any]:
        """Return the future of a request's output."""
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._unanswered.add(answer)
        answer.add_done_callback(self._unanswered.discard)
        return answer

    def give_up(self) -> None:
        """Fail all requests that have no output yet: the engine is being ended, and then vLLM tells nobody."""
        for answer in list(self._unanswered):
            if not answer.done():
                answer.set_exception(self._dead("the engine was ended"))

    def close(self) -> None:
        """Let go of the engine."""
        self._llm = None

    def name(self) -> str:
        """A name that no other request of this engine has."""
        return f"judgekit-{next(self._numbers)}"

    async def _remember(self, kind: Hashable, prompt: Any, params: Any, priority: int) -> None:
        try:
            tasks = await self._llm.get_supported_tasks()
            pattern = self._llm.input_processor.process_inputs(
                "judgekit", prompt, params, supported_tasks=tasks, lora_request=self.lora, priority=priority
            )
            pattern.prompt_token_ids, pattern.external_req_id = [], "judgekit"
            signature(self._llm.output_processor.add_request).bind(pattern, None, queue=None)
            signature(self._llm.abort).bind("judgekit", internal=True)
            signature(self._llm.engine_core.add_request_async).bind(pattern)
        except Exception as error:  # a version with other parts
            logger.info(
                "vLLM makes every request whole: %s cannot be copied (%s: %s)",
                kind,
                type(error).__name__,
                error,
            )
            self._copies = False
            return
        self._kinds[kind] = pattern
        if len(self._kinds) > _KINDS:
            self._kinds.popitem(last=False)

    async def _copied(self, pattern: Any, ids: list[int]) -> Any:
        llm, name = self._llm, self.name()
        request = copy(pattern)
        request.request_id = request.external_req_id = name
        request.prompt_token_ids = ids
        request.arrival_time = time.time()
        output = self._asked()
        try:
            llm.output_processor.add_request(request, None, queue=_Output(output, name, self._dead))
            await llm.engine_core.add_request_async(request)
            give_way()
            return await output
        except BaseException:
            with contextlib.suppress(Exception):  # a dead engine has nothing to abort
                await llm.abort(name, internal=True)
            raise


class _Output:
    """Takes the output of one request; it stands where vLLM has a queue."""

    __slots__ = ("_dead", "_future", "request_id")

    def __init__(self, future: asyncio.Future[Any], request_id: str, dead: type[Exception]) -> None:
        self._future = future
        self.request_id = request_id
        self._dead = dead

    def put(self, output: Any) -> None:
        if self._future.done():  # aborted: its caller is gone
            return
        if isinstance(output, Exception):  # what ended vLLM's task that reads all outputs
            self._future.set_exception(output if isinstance(output, self._dead) else self._dead(str(output)))
        else:
            self._future.set_result(output)
