"""How requests are handed to vLLM, with a stand-in for its AsyncLLM; with the real one: tests/vllm/test_engine.py."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest

from judgekit.judges.engines.vllm.fast_requests import Requests


class Dead(Exception):
    pass


class LLM:
    """Answers with the tokens it was given; *refuses*: what process_inputs raises."""

    def __init__(self, *, refuses: Exception | None = None, **limits: int) -> None:
        self.vllm_config = SimpleNamespace(scheduler_config=SimpleNamespace(**limits))
        self.model_config = SimpleNamespace(max_model_len=8)
        self.errored = False
        self.refuses = refuses
        self.made = 0
        self.sent: list[Any] = []
        self.aborted: list[str] = []
        self.input_processor = self.engine_core = self.output_processor = self

    async def get_supported_tasks(self) -> tuple[str, ...]:
        return ("generate",)

    async def generate(
        self, prompt: Any, params: Any, name: str, *, lora_request: Any, priority: int
    ) -> AsyncIterator[Any]:
        self.made += 1
        yield prompt["prompt_token_ids"]

    def process_inputs(self, name: str, prompt: Any, params: Any, **more: Any) -> Any:
        if self.refuses is not None:
            raise self.refuses
        return SimpleNamespace(params=params, **more)

    def add_request(self, request: Any, prompt: str | None, queue: Any) -> None:
        self.sent.append((request, queue))

    async def add_request_async(self, request: Any) -> None:
        if self.errored:
            raise Dead

    async def abort(self, name: str, internal: bool = False) -> None:
        self.aborted.append(name)


def ids(*numbers: int) -> dict[str, Any]:
    return {"prompt_token_ids": list(numbers)}


async def asked(requests: Requests, kind: str, *numbers: int) -> Any:
    return await requests.generate(kind, ids(*numbers), lambda: f"params of {kind}")


async def test_a_kind_is_made_once_and_copied_then() -> None:
    llm = LLM()
    requests = Requests(llm, Dead)
    assert await asked(requests, "a", 1) == [1]
    assert await asked(requests, "b", 2) == [2]
    calls = [asyncio.create_task(asked(requests, kind, n)) for kind, n in (("a", 3), ("b", 4), ("a", 5))]
    await asyncio.sleep(0)
    assert llm.made == 2
    found = [(request.params, request.prompt_token_ids) for request, _ in llm.sent]
    assert found == [("params of a", [3]), ("params of b", [4]), ("params of a", [5])]
    assert len({request.request_id for request, _ in llm.sent}) == 3
    for request, queue in reversed(llm.sent):
        queue.put(request.prompt_token_ids)
    assert await asyncio.gather(*calls) == [[3], [4], [5]]


@pytest.mark.parametrize(
    "llm",
    [LLM(refuses=TypeError("no such argument")), LLM(max_num_queued_reqs=9), LLM(max_num_queued_tokens=9)],
)
async def test_where_nothing_can_be_copied_vllm_makes_all(llm: LLM) -> None:
    requests = Requests(llm, Dead)
    for number in range(4):
        assert await asked(requests, "a", number) == [number]
    assert (llm.made, llm.sent) == (4, [])


async def test_a_version_with_another_way_to_add_requests_makes_all() -> None:
    llm = LLM()
    llm.output_processor = SimpleNamespace(add_request=lambda request: None)  # type: ignore[assignment]
    requests = Requests(llm, Dead)
    assert [await asked(requests, "a", number) for number in range(3)] == [[0], [1], [2]]


@pytest.mark.parametrize("length", [0, 8, 9])
async def test_what_vllm_would_refuse_is_no_copy(length: int) -> None:
    """Its engine, which gets the copies, does not look at their length."""
    llm = LLM()
    requests = Requests(llm, Dead)
    await asked(requests, "a", 1)
    await asked(requests, "a", *range(length))
    assert (llm.made, llm.sent) == (2, [])


async def test_who_leaves_has_the_copy_aborted_and_its_late_output_is_nobodys() -> None:
    llm = LLM()
    requests = Requests(llm, Dead)
    await asked(requests, "a", 1)
    call = asyncio.create_task(asked(requests, "a", 2))
    await asyncio.sleep(0)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    ((request, queue),) = llm.sent
    assert llm.aborted == [request.request_id]
    queue.put("late")


@pytest.mark.parametrize("error", [Dead("gone"), ValueError("a reply that vLLM could not read")])
async def test_what_ends_vllms_reading_of_outputs_is_the_engines_death(error: Exception) -> None:
    """Not a refusal of this request, which a ValueError would be."""
    llm = LLM()
    requests = Requests(llm, Dead)
    await asked(requests, "a", 1)
    call = asyncio.create_task(asked(requests, "a", 2))
    await asyncio.sleep(0)
    llm.sent[0][1].put(error)
    with pytest.raises(Dead, match=str(error)):
        await call


async def test_a_dead_engine_is_told_by_vllm_itself() -> None:
    llm = LLM()
    requests = Requests(llm, Dead)
    await asked(requests, "a", 1)
    llm.errored = True
    await asked(requests, "a", 2)
    assert (llm.made, llm.sent) == (2, [])


async def test_the_kinds_remembered_are_bounded() -> None:
    llm = LLM()
    requests = Requests(llm, Dead)
    for number in range(300):
        await asked(requests, str(number), number)
    assert len(requests._kinds) == 256
    await asked(requests, "0", 0)
    assert llm.made == 301


async def test_an_engine_that_is_ended_leaves_nobody_waiting() -> None:
    """vLLM forgets its requests when it is shut down."""

    class Waits(LLM):
        async def generate(self, prompt: Any, *args: Any, **options: Any) -> AsyncIterator[Any]:
            if prompt["prompt_token_ids"] == [7]:
                await asyncio.sleep(600)
            yield prompt["prompt_token_ids"]

    requests = Requests(Waits(), Dead)
    assert await asked(requests, "a", 1) == [1]
    calls = [asyncio.create_task(asked(requests, kind, 7)) for kind in ("a", "b")]
    await asyncio.sleep(0.01)
    requests.give_up()
    found = await asyncio.wait_for(asyncio.gather(*calls, return_exceptions=True), 10)
    assert [type(error) for error in found] == [Dead, Dead]


async def test_a_caller_that_leaves_ends_vllm_s_own_request() -> None:
    ended = asyncio.Event()

    class Waits(LLM):
        async def generate(self, prompt: Any, *args: Any, **options: Any) -> AsyncIterator[Any]:
            try:
                await asyncio.sleep(600)
            finally:
                ended.set()
            yield prompt

    call = asyncio.create_task(asked(Requests(Waits(), Dead), "a", 1))
    await asyncio.sleep(0.01)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    await asyncio.wait_for(ended.wait(), 10)
