"""Frozen vLLM engines in this process: a judge model, and a reward model.

The engine runs on judgekit's background loop, so that one judge can serve changing event loops, threads and
synchronous callers. vLLM starts its own processes for the model; a script that makes a judge must therefore
guard its main part with `if __name__ == "__main__":`.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import logging
import os
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextvars import Context
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from judgekit.errors import ConfigError, JudgeError, JudgeLoading, JudgeUnavailable
from judgekit.execution.background import background_loop
from judgekit.execution.crossing import Crossing
from judgekit.execution.flight import Flights
from judgekit.execution.state_folder import state_folder
from judgekit.execution.stopwatch import off_the_clock
from judgekit.execution.threads import in_own_thread
from judgekit.fork import in_child, leave_to_parent
from judgekit.judges.base import JudgeReply, JudgeRequest, Piece, Turn
from judgekit.judges.prompts.images import ImageData, checked_data
from judgekit.types import Usage

if TYPE_CHECKING:
    from judgekit.judges.engines.vllm.engine import Engine

logger = logging.getLogger("judgekit")

_PAUSE_S, _MAX_PAUSE_S = 2.0, 120.0
"""A model that could not be loaded is not tried again for so long; the pause doubles with every failure."""
_WARM_UP = (
    Turn(
        "user",
        (Piece("Does the text name a number? Answer with 0 or 1.\n"), Piece("It is 24.", trusted=False)),
    ),
)

_ANSWER_S = 5.0
"""An engine is not ready if its process takes longer than this to answer; a step of its work may take so long."""
_DRAIN_S = 0.01
"""Pause between two looks at whether the running requests are done."""
_LOOK_S = 5.0
"""Time between two looks at the processes of an engine that has requests."""
_STILL = 2
"""An engine whose process does not answer hangs if its processes do nothing at all for so many looks; it is ended and loaded again."""
_HANGS = 24
"""So does one that has not answered for so many looks, whatever its processes do: a long step of its work may keep them busy."""
_LARGE = 1 << 20
"""Digests of files of at least so many bytes are kept."""
_SAME_NUMBERS = frozenset(
    (
        "model",
        "revision",
        "disable_log_stats",
        "use_tqdm_on_load",
        "gpu_memory_utilization",
        "enable_prefix_caching",
        "enable_sleep_mode",
        "scheduling_policy",
    )
)
"""Engine arguments that change no verdict, or are named by the identity of the weights."""

EMBEDDED = "embedded"
"""Name of the tiny judge that ships with judgekit, for offline runs; it cannot judge quality."""


class _InProcess:
    """An engine that starts on first use and is restarted if it dies."""

    def __init__(
        self,
        model: str | os.PathLike[str],
        *,
        max_model_len: int | None,
        dtype: str | None,
        tensor_parallel_size: int,
        gpu_memory_utilization: float | None,
        chat_template_kwargs: Mapping[str, Any] | None,
        engine_args: Mapping[str, Any] | None,
        sleep: bool,
        lora: str | os.PathLike[str] | None = None,
        **fixed: Any,
    ) -> None:
        self.model = str(model)
        self.path = model_path(self.model)
        if max_model_len is not None and max_model_len < 64:
            raise ConfigError(
                f"vllm: max_model_len is the context length in tokens, at least 64, not {max_model_len}"
            )
        if tensor_parallel_size < 1:
            raise ConfigError(f"vllm: tensor_parallel_size is at least 1, not {tensor_parallel_size}")
        if gpu_memory_utilization is not None and not 0 < gpu_memory_utilization <= 1:
            raise ConfigError(
                f"vllm: gpu_memory_utilization is a share from 0 to 1, not {gpu_memory_utilization}"
            )
        optional = {
            "max_model_len": max_model_len,
            "dtype": dtype,
            "gpu_memory_utilization": gpu_memory_utilization,
            "enable_sleep_mode": sleep or None,
        }
        self.lora = os.fspath(lora) if lora is not None else None
        if self.lora is not None:
            fixed |= {"enable_lora": True, "max_loras": 1, **_rank_of(self.lora)}
        self.can_sleep = sleep
        self._args: dict[str, Any] = {
            "model": self.path,
            "tensor_parallel_size": tensor_parallel_size,
            "disable_log_stats": True,
            "use_tqdm_on_load": False,
            **fixed,
            **{key: value for key, value in optional.items() if value is not None},
            **(engine_args or {}),
        }
        self._template_kwargs = dict(chat_template_kwargs or {})
        self._engine: Engine | None = None
        self._loading: asyncio.Task[Engine] | None = None
        self._home: asyncio.AbstractEventLoop | None = None
        """The event loop that the engine runs on; None: judgekit's background loop."""
        self._crossing: Crossing | None = None
        self._identity: str | None = None
        self._identities: Flights[str] = Flights(lasting=True)
        self._failure: JudgeError | ConfigError | None = None
        """Why the model could not be loaded; all who ask get this, until it is tried again."""
        self._not_before = 0.0
        self._pause_s = _PAUSE_S
        self._ping: asyncio.Task[None] | None = None
        """A question to the engine's process."""
        self._watch: asyncio.Task[None] | None = None
        self._tending: asyncio.Task[None] | None = None
        """Looks after an engine that has requests."""
        self._asleep = False
        self._at_work = 0
        """Requests in the engine."""
        self.sequences: int | None = None
        """Requests that the engine runs at once, once it was loaded."""
        self._turning = asyncio.Lock()
        """Held while the engine falls asleep or wakes up."""
        in_child(self._forked)

    def _forked(self) -> None:
        """The engine of a parent answers only there, and its GPU has no room for a second one."""
        if self._engine is not None or self._loading is not None:
            leave_to_parent(self._engine, self._loading, self._crossing)
            self._engine = self._loading = self._crossing = None
            self._failure = ConfigError(
                f"{self!r} runs in the process that this one was forked from, and answers only there: ask it through a server "
                "(judgekit serve) or Ray, or start processes with 'spawn'"
            )

    async def start(self) -> None:
        """Load the model and warm the engine up; otherwise the first request does.

        Raises JudgeUnavailable, and ConfigError for what no second try can mend. A failure is remembered for a
        while: 2 s at first, up to 2 minutes.
        """
        await self._on_loop(self._ensure())

    @property
    def running(self) -> bool:
        """Whether the engine is loaded and has not died."""
        return self._engine is not None and not self._engine.dead and not self._asleep

    async def sleep(self) -> None:
        """Give the GPU's memory back once the running requests are done; calls wait from now on until `wake_up`.

        Raises ConfigError unless the judge was made with `sleep=True`.
        """
        if not self.can_sleep:
            raise ConfigError(f"{self!r} cannot sleep: make it with sleep=True")
        await self._on_loop(self._sleep())

    async def wake_up(self) -> None:
        """Take the GPU's memory again; loads the model if its engine has died meanwhile. Raises what `start` raises."""
        await self._on_loop(self._wake_up())

    async def _sleep(self) -> None:
        async with self._turning:
            if self._asleep:
                return
            if self._loading is not None:
                await asyncio.wait([self._loading])
            self._asleep = True
            try:
                while self._at_work:
                    await asyncio.sleep(_DRAIN_S)
            except BaseException:  # whoever waited for it has given up
                self._asleep = False
                raise
            if self._engine is not None and not self._engine.dead:
                await asyncio.shield(asyncio.ensure_future(self._turned(self._engine.sleep)))

    async def _wake_up(self) -> None:
        async with self._turning:
            if self._asleep and self._engine is not None and not self._engine.dead:
                await asyncio.shield(asyncio.ensure_future(self._turned(self._engine.wake_up)))
            self._asleep = False
        await self._ensure()

    async def _turned(self, turn: Callable[[], Awaitable[None]]) -> None:
        """Let the engine sleep or wake; one that fails to is ended, which frees its memory, too."""
        try:
            await turn()
        except Exception as error:
            logger.warning("%r could not %s, and is ended: %s", self, turn.__name__, error)
            await self._end()

    def _begin(self) -> None:
        """Count a request that goes to the engine, and have that looked after. Raises JudgeLoading while it sleeps."""
        if self._asleep:
            raise JudgeLoading(f"{self!r} sleeps: wake it up for a grading phase with judgekit.judges.awake")
        self._at_work += 1
        if self._engine is not None and (self._tending is None or self._tending.done()):
            tending = self._tend(self._engine)
            self._tending = asyncio.get_running_loop().create_task(tending, context=Context())

    async def _tend(self, engine: Engine) -> None:
        """Ask the engine's process for a sign of life where it has requests and does nothing."""
        while engine is self._engine and not engine.dead:
            idle = not self._at_work
            pulse = await in_own_thread(engine.pulse)
            await asyncio.sleep(_LOOK_S)
            if idle and not self._at_work:
                return
            if self._at_work and await in_own_thread(pulse.stood_still):
                await self._answers(engine)

    async def ready(self) -> bool:
        """Whether the engine runs and its process answers; if it does not run, begin to load it. Raises ConfigError.

        An engine whose process does not answer is ended and loaded again: soon if it does nothing, after two minutes otherwise.
        """
        return await self._on_loop(self._ready())  # type: ignore[no-any-return]

    async def _ready(self) -> bool:
        if self._asleep:
            return False
        if self._engine is not None and not self._engine.dead:
            return await self._answers(self._engine)
        if isinstance(self._failure, ConfigError):
            raise self._failure
        if self._loading is None and not self._rests():
            self._begin_loading()
        return False

    async def _answers(self, engine: Engine) -> bool:
        """Whether the engine's process answers. One question is asked at a time, until it is answered."""
        if self._ping is None or self._ping.done():
            loop = asyncio.get_running_loop()
            self._ping = loop.create_task(engine.ping(), context=Context())
            self._watch = loop.create_task(self._end_if_it_hangs(engine, self._ping), context=Context())
        ping = self._ping
        await asyncio.wait([ping], timeout=_ANSWER_S)
        return ping.done() and not ping.cancelled() and ping.exception() is None and not engine.dead

    async def _end_if_it_hangs(self, engine: Engine, ping: asyncio.Task[None]) -> None:
        """End an engine that does not answer, and load another, whether or not anybody asks for it by then."""
        looks = still = 0
        while (
            looks < _HANGS and still < _STILL
        ):  # looks, not seconds: this process may have stood still itself
            pulse = await in_own_thread(engine.pulse)
            await asyncio.wait([ping], timeout=_LOOK_S)
            if ping.done() or engine is not self._engine or engine.dead:
                return
            looks, still = looks + 1, still + 1 if await in_own_thread(pulse.stood_still) else 0
        what = "do nothing" if still == _STILL else "are busy"
        logger.warning(
            "the engine of %r hangs: its processes %s and answer nothing; they are ended", self, what
        )
        engine.kill()
        if self._loading is None and not self._asleep:
            self._begin_loading()

    async def close(self) -> None:
        """Stop the engine and its processes."""
        await self._on_loop(self._close())

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.model!r})"

    def live_here(self) -> None:
        """Run the engine on the running event loop.

        Call it before any use; the loop must live as long as the engine.
        """
        self._home = asyncio.get_running_loop()

    async def identity(self) -> str:
        """Return what determines the verdicts: the weights, and the arguments that change numbers.

        The weights are a digest of all bytes of the model's folder, or the hub name with its revision.
        """
        if self._identity is not None:
            return self._identity
        return await self._identities.join(None, self._find_identity)

    async def _find_identity(self) -> str:
        identity = await in_own_thread(
            engine_identity, self.path, self._args, self._template_kwargs, self.lora
        )
        if self._engine is not None:  # before that, the hub may not have been asked for its revision yet
            self._identity = identity
        return identity

    async def _on_loop(self, coroutine: Any) -> Any:
        loop = self._home or background_loop()
        if asyncio.get_running_loop() is loop:
            return await coroutine
        if self._crossing is None or self._crossing.home is not loop:
            self._crossing = Crossing(loop)
        return await self._crossing.run(coroutine)

    async def _ensure(self) -> Engine:
        engine = self._engine
        if engine is not None and not engine.dead:
            return engine
        if self._asleep:
            self._begin()
        if self._loading is None:
            if self._failure is not None and self._rests():
                raise type(self._failure)(str(self._failure))  # a new one: callers add to it
            self._begin_loading()
        assert self._loading is not None
        # a caller that times out must not stop the engine from loading for the others
        with off_the_clock():
            return await asyncio.shield(self._loading)

    def _rests(self) -> bool:
        """Whether it is too early for another try after one that failed."""
        return isinstance(self._failure, ConfigError) or time.monotonic() < self._not_before

    def _begin_loading(self) -> None:
        self._loading = asyncio.get_running_loop().create_task(self._load())
        self._loading.add_done_callback(self._loaded)

    async def _load(self) -> Engine:
        from judgekit.judges.engines.vllm.engine import load_engine

        if self._engine is not None:
            logger.warning("the engine of %r has died and is restarted", self)
            await self._end()
        self._identity = None  # the folder may have other weights by now
        loop = asyncio.get_running_loop()
        self._engine = engine = await in_own_thread(
            load_engine, self._args, self._template_kwargs, self.path, loop
        )
        if self.lora is not None:
            engine.use_lora(self.lora)
        engine.model = await self._find_identity()
        self.sequences = engine.sequences
        await self._warm_up(engine)
        return engine

    async def _warm_up(self, engine: Engine) -> None:
        """Ask for one verdict, so that no rollout waits for what the engine makes on its first request.

        Raises JudgeUnavailable if the engine dies of it.
        """
        raise NotImplementedError

    def _loaded(self, task: asyncio.Task[Engine]) -> None:
        self._loading = None
        error = None if task.cancelled() else task.exception()  # retrieved, even if no caller waits any more
        if isinstance(error, JudgeError | ConfigError):
            self._failure = error
            self._not_before = time.monotonic() + self._pause_s
            self._pause_s = min(2 * self._pause_s, _MAX_PAUSE_S)
        elif error is None:
            self._forget_failure()

    def _forget_failure(self) -> None:
        self._failure, self._not_before, self._pause_s = None, 0.0, _PAUSE_S

    async def _close(self) -> None:
        if self._loading is not None:
            await asyncio.wait([self._loading])
        self._asleep = False
        self._forget_failure()
        await self._end()

    async def _end(self) -> None:
        engine, self._engine = self._engine, None
        for task in (self._ping, self._watch, self._tending):
            if task is not None and not task.done():
                task.cancel()
                await asyncio.wait([task])
        if engine is not None:
            engine.give_up()
            await in_own_thread(engine.shutdown)


class VLLMJudge(_InProcess):
    """A frozen judge model on vLLM's AsyncLLM in this process.

        judge = VLLMJudge("Qwen/Qwen2.5-1.5B-Instruct")

    *model*: a folder or a hub name; by default the embedded tiny judge. *max_model_len*: context in tokens,
    prompt and reply together. *dtype*, *tensor_parallel_size*, *gpu_memory_utilization* (0..1): as in vLLM;
    None leaves vLLM's default (on CPU: float32). *prefix_caching*: compute what a group's prompts have
    in common only once. *chat_template_kwargs*: for the chat template; thinking is off unless a request
    asks for it. *engine_args*: anything else of vLLM's AsyncEngineArgs (`quantization`, `data_parallel_size`, …). *lora*: folder
    or hub name of a LoRA adapter that the judge was trained as. *images*: of the conversations it judges, for a model that sees: none,
    or those that come as data. *sleep*: it can sleep between grading phases, for a trainer on the same GPUs, see
    `judgekit.judges.awake`.

    The engine starts with the first request or `await start()`, and is restarted if it dies. `close()` stops it;
    if a judge is not closed, its engine ends with the process, even if that is killed.
    """

    def __init__(
        self,
        model: str | os.PathLike[str] = EMBEDDED,
        *,
        max_model_len: int | None = None,
        dtype: str | None = None,
        tensor_parallel_size: int = 1,
        gpu_memory_utilization: float | None = None,
        prefix_caching: bool = True,
        chat_template_kwargs: Mapping[str, Any] | None = None,
        engine_args: Mapping[str, Any] | None = None,
        lora: str | os.PathLike[str] | None = None,
        images: ImageData = "none",
        sleep: bool = False,
    ) -> None:
        super().__init__(
            model,
            max_model_len=max_model_len,
            dtype=dtype,
            tensor_parallel_size=tensor_parallel_size,
            gpu_memory_utilization=gpu_memory_utilization,
            chat_template_kwargs=chat_template_kwargs,
            engine_args=engine_args,
            sleep=sleep,
            lora=lora,
            enable_prefix_caching=prefix_caching,
        )
        self.images = checked_data(images)

    async def complete(self, request: JudgeRequest, /) -> JudgeReply:
        return await self._on_loop(self._complete(request))  # type: ignore[no-any-return]

    async def check_request(self, request: JudgeRequest) -> None:
        """Check that the model can answer such requests: with labels of one token, after thinking, about images. Raises ConfigError."""
        await self._on_loop(self._check(request))

    async def _check(self, request: JudgeRequest) -> None:
        engine = await self._ensure()
        if request.sampling.thinking:
            engine.encoder.check_thinking(request.sampling.thinking_tokens)
        engine.check_priority(request.sampling.priority)
        if request.choices:
            engine.label_ids(request.choices)
        if self.images != "none" or any(piece.image for turn in request.turns for piece in turn.pieces):
            await engine.check_images()

    async def _complete(self, request: JudgeRequest) -> JudgeReply:
        engine = await self._ensure()
        self._begin()
        try:
            return await engine.complete(request)
        finally:
            self._at_work -= 1

    async def _warm_up(self, engine: Engine) -> None:
        for choices in (("0", "1"), ()):  # not every model has digits of one token
            try:
                await engine.complete(JudgeRequest(turns=_WARM_UP, choices=choices, max_tokens=1))
                return
            except JudgeUnavailable:
                raise
            except Exception as error:
                logger.info("%r: the warm-up request failed: %s: %s", self, type(error).__name__, error)


class VLLMRewardModel(_InProcess):
    """A scalar reward model (a sequence classifier with one label) on vLLM in this process.

    Arguments as in `VLLMJudge`. `reward` returns the model's number for a conversation, before any activation.
    """

    def __init__(
        self,
        model: str | os.PathLike[str],
        *,
        max_model_len: int | None = None,
        dtype: str | None = None,
        tensor_parallel_size: int = 1,
        gpu_memory_utilization: float | None = None,
        chat_template_kwargs: Mapping[str, Any] | None = None,
        engine_args: Mapping[str, Any] | None = None,
        sleep: bool = False,
    ) -> None:
        super().__init__(
            model,
            max_model_len=max_model_len,
            dtype=dtype,
            tensor_parallel_size=tensor_parallel_size,
            gpu_memory_utilization=gpu_memory_utilization,
            chat_template_kwargs=chat_template_kwargs,
            engine_args=engine_args,
            sleep=sleep,
            runner="pooling",
        )

    async def reward(self, turns: Sequence[Turn], /) -> tuple[float, Usage]:
        return await self._on_loop(self._reward(turns))  # type: ignore[no-any-return]

    async def _reward(self, turns: Sequence[Turn]) -> tuple[float, Usage]:
        engine = await self._ensure()
        self._begin()
        try:
            return await engine.reward(turns)
        finally:
            self._at_work -= 1

    async def _warm_up(self, engine: Engine) -> None:
        try:
            await engine.reward((*_WARM_UP, Turn("assistant", (Piece("1"),))))
        except JudgeUnavailable:
            raise
        except Exception as error:
            logger.info("%r: the warm-up request failed: %s: %s", self, type(error).__name__, error)


def engine_identity(
    model: str, args: Mapping[str, Any], template_kwargs: Mapping[str, Any], lora: str | None = None
) -> str:
    """Return the identity of the weights and of an adapter's, with a digest of the engine's arguments and the chat template's."""
    rest = {key: _with_contents(value) for key, value in args.items() if key not in _SAME_NUMBERS}
    text = json.dumps([rest, template_kwargs], sort_keys=True, default=str)
    weights = weights_identity(model, args.get("revision"))
    if lora is not None:
        weights += f"+{weights_identity(lora)}"
    return f"{weights}+{hashlib.blake2b(text.encode(), digest_size=4).hexdigest()}"


def _with_contents(value: Any) -> Any:
    """An argument with a digest beside each file or model folder that it names, such as a chat template's."""
    if isinstance(value, Mapping):
        return {key: _with_contents(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_with_contents(item) for item in value]
    if not isinstance(value, str | os.PathLike):
        return value
    path = os.path.expanduser(value)
    if os.path.isfile(path):
        return [value, *_digests([Path(path)])]
    if any(os.path.isfile(os.path.join(path, name)) for name in ("config.json", "tokenizer_config.json")):
        return [value, weights_identity(str(path))]
    return value


def _rank_of(lora: str) -> dict[str, int]:
    """Return `max_lora_rank` for an adapter in a folder, where it is known. Raises ConfigError if there is none."""
    folder = Path(lora).expanduser()
    if not folder.is_dir() and lora.count("/") == 1 and not lora.startswith((".", "~", "/")):
        return {}  # a hub name: vLLM takes up to 16, unless engine_args say otherwise
    try:
        rank = json.loads((folder / "adapter_config.json").read_text())["r"]
    except (OSError, ValueError, KeyError, TypeError):
        raise ConfigError(
            f"vllm: no LoRA adapter at {lora}: give a folder with an adapter_config.json"
        ) from None
    ranks = (8, 16, 32, 64, 128, 256, 320, 512)
    fitting = [most for most in ranks if isinstance(rank, int) and rank <= most]
    if not fitting:
        raise ConfigError(
            f"vllm: the LoRA adapter at {lora} has the rank {rank!r}, and vLLM takes up to {ranks[-1]}"
        )
    return {"max_lora_rank": fitting[0]}


def weights_identity(model: str, revision: str | None = None) -> str:
    """Return a digest of all bytes of a model folder's files, or the hub name with its revision.

    Hidden files and folders do not count: the hub's client keeps its own there. Without a *revision* this is the commit in the hub's local cache, if there is one.
    """
    folder = Path(model)
    if not folder.is_dir():
        revision = revision or _cached_commit(model)
        return f"{model}@{revision}" if revision else model
    digest = hashlib.blake2b(digest_size=8)
    paths = {
        p.relative_to(folder).as_posix(): p for p in folder.rglob("*") if p.is_file() and p.suffix != ".md"
    }
    names = sorted(name for name in paths if not any(part.startswith(".") for part in name.split("/")))
    for name, found in zip(names, _digests([paths[name] for name in names]), strict=True):
        digest.update(f"{name}\0{found}\0".encode())
    return f"{folder.name}-{digest.hexdigest()}"


def _cached_commit(name: str) -> str | None:
    home = Path(os.environ.get("HF_HOME") or Path.home() / ".cache" / "huggingface")
    hub = Path(os.environ.get("HF_HUB_CACHE") or home / "hub")
    try:
        return (hub / f"models--{name.replace('/', '--')}" / "refs" / "main").read_text().strip() or None
    except OSError:
        return None


def _digests(paths: Sequence[Path]) -> list[str]:
    """Digests of files; those of large ones are kept in the state folder while size, times and inode are the same."""
    store = state_folder() / "digests.json"
    try:
        known = json.loads(store.read_text())
        known = known if isinstance(known, dict) else {}
    except (OSError, ValueError):
        known = {}
    found, new = [], {}
    for path in paths:
        real, stat = path.resolve(), path.stat()
        # whoever replaces a file can set back the time of its change, but not that of its inode's
        key = f"{real}:{stat.st_size}:{stat.st_mtime_ns}:{stat.st_ctime_ns}:{stat.st_ino}"
        digest = known.get(key)
        if not isinstance(digest, str):
            with real.open("rb") as file:
                digest = hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).hexdigest()
            if stat.st_size >= _LARGE:
                new[key] = digest
        found.append(digest)
    if new:
        kept = {key: value for key, value in known.items() if Path(key.rsplit(":", 4)[0]).is_file()}
        with contextlib.suppress(OSError):  # then they are read again next time
            store.parent.mkdir(parents=True, exist_ok=True)
            draft = store.with_name(f"{store.name}.{os.getpid()}")
            draft.write_text(json.dumps({**kept, **new}))
            draft.replace(store)
    return found


def model_path(model: str) -> str:
    """Return the model's folder, or its hub name unchanged. Raises ConfigError."""
    if model == EMBEDDED:
        os.environ.setdefault("HF_HUB_OFFLINE", "1")
        return str(resources.files("judgekit.judges") / "embedded")
    path = Path(model).expanduser()
    if path.is_dir():
        if not (path / "config.json").is_file():
            raise ConfigError(f"{model} is not a model folder: it has no config.json")
        return str(path)
    if path.is_absolute() or model.startswith((".", "~")) or model.count("/") != 1:
        raise ConfigError(
            f"no model at {model}: give a folder with a config.json, a hub name such as Qwen/Qwen2.5-1.5B-Instruct, or {EMBEDDED!r}"
        )
    return model
