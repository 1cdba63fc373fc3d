"""Frozen judges behind named Ray actors, each with its own GPUs.

`start_ray_judge` starts replicas; `RayJudge` finds them by name from any process of the cluster, also from
an environment without vLLM. Actors are named `judgekit:<name>:<i>` in the namespace `judgekit`.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import itertools
import json
import logging
import os
import random
import secrets
from collections.abc import Callable, Collection, Mapping, Sequence
from contextvars import Context
from typing import Any, Literal

import msgspec

from judgekit.errors import ConfigError, JudgeLoading, JudgeUnavailable
from judgekit.execution.threads import in_own_thread
from judgekit.judges.base import JudgeReply, JudgeRequest
from judgekit.judges.engines.engine_load import EngineLoad
from judgekit.judges.engines.ray.packing import pack_requests, unpack_answers
from judgekit.judges.engines.ray.replica_plan import ReplicaPlan, replica_plan
from judgekit.judges.engines.replicas import Routed
from judgekit.judges.prompts.images import SHOWN, ImageData, checked_data

logger = logging.getLogger("judgekit")

NAMESPACE = "judgekit"
VLLM = "judgekit.judges.engines.vllm.judge:VLLMJudge"
_COLLECT_S = 30.0
"""Seconds that one call for answers waits in the actor."""
_READY_S = 5.0
"""An actor that does not say within this time whether it is ready is not."""
_SILENT_S, _JITTER_S = 120.0, 10.0
"""An actor that does not describe itself within this time hangs; of several processes that find it out, one kills it."""


class RayJudge:
    """Asks the judge actors of this name in the running Ray cluster.

        judge = RayJudge("maths")

    The process must be connected to the cluster (`ray.init`). Requests are routed to the replica that has
    cached their prefix, see `Routed`. If a replica dies, its pending requests raise JudgeUnavailable; a
    `Retrying` layer retries them on another replica or on the restarted one. *sleep*: its engines sleep between grading phases; they
    are started with `options={"sleep": True}`, see `judgekit.judges.awake`. *images*: of the conversations it judges, for a model that
    sees: none, or those that come as data.
    """

    def __init__(
        self,
        name: str = "judge",
        *,
        namespace: str = NAMESPACE,
        sleep: bool = False,
        images: ImageData = "none",
    ) -> None:
        self.name = name
        self.namespace = namespace
        self.can_sleep = sleep
        self.images = checked_data(images)
        self._routed: Routed | None = None
        self._kept: list[Any] = []
        """Handles that keep the actors alive as long as the process that started them."""

    async def complete(self, request: JudgeRequest, /) -> JudgeReply:
        return await self._router().complete(request)

    async def start(self) -> None:
        """Find the actors and wait until their models are loaded."""
        await self._router().start()

    async def ready(self) -> bool:
        """Whether a replica would answer now. Finds actors that were started again under the judge's name."""
        routed = self._routed
        if routed is not None and await routed.ready():
            return True
        actors = await in_own_thread(_actors, self.name, self.namespace)
        if not actors or self._routed is not routed:
            return False
        known = [] if routed is None else [replica.judge.name for replica in routed.replicas]
        if routed is not None and known == [name for _, name in actors]:
            return False  # the same replicas, and each of them looks for its actor by itself
        self._routed = _routed(actors, self.namespace)
        if routed is not None:
            await routed.close()
        return await self._routed.ready()

    def hangs(self) -> None:
        """Let Ray restart the replicas whose processes answer nothing."""
        if self._routed is not None:
            self._routed.hangs()

    @property
    def sequences(self) -> int | None:
        """Requests that the replicas run at once."""
        return self._routed.sequences if self._routed is not None else None

    async def load(self) -> EngineLoad | None:
        """Return how busy the replicas are."""
        return await self._routed.load() if self._routed is not None else None

    async def identity(self) -> str:
        """Return the weights' identity; asked every few seconds at most."""
        return await self._router().identity()

    async def check_request(self, request: JudgeRequest) -> None:
        """Check that the model can answer such requests. Raises ConfigError."""
        if self.images != "none":  # the actors do not know that
            request = msgspec.structs.replace(request, turns=SHOWN)
        await self._router().check_request(request)

    async def sleep(self) -> None:
        """Let all replicas give their GPUs' memory back, once their running requests are done. See `judgekit.judges.awake`.

        Raises ConfigError unless they were started with `options={"sleep": True}`.
        """
        await self._router().sleep()

    async def wake_up(self) -> None:
        """Let all replicas take it again."""
        await self._router().wake_up()

    async def close(self) -> None:
        """Disconnect. Actors started with lifetime "starter" end with their process or by `stop`."""
        routed, self._routed = self._routed, None
        if routed is not None:
            await routed.close()

    async def status(self) -> list[dict[str, Any]]:
        """Return each replica's description, or `error` if it does not answer within 10 s."""
        found = []
        for handle, name in _actors(self.name, self.namespace):
            try:
                found.append({"actor": name, **await asyncio.wait_for(_await(handle.describe.remote()), 10)})
            except Exception as error:
                found.append(
                    {
                        "actor": name,
                        "error": f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}",
                    }
                )
        return found

    async def stop(self, *, drain_s: float = 30.0) -> int:
        """Stop the replicas; returns how many there were.

        They take no new requests, get up to *drain_s* seconds for running ones, and are then killed.
        """
        ray = _ray()
        actors = _actors(self.name, self.namespace)
        for handle, _ in actors:
            with contextlib.suppress(Exception):
                await asyncio.wait_for(_await(handle.drain.remote()), drain_s)
            with contextlib.suppress(Exception):
                await asyncio.wait_for(_await(handle.shutdown.remote()), 15)
            ray.kill(handle)
        for i in range(max(1, len(actors))):
            with contextlib.suppress(Exception):
                group = _group_name(self.name) + (f":{i}" if i else "")
                ray.util.remove_placement_group(ray.util.get_placement_group(group))
        await self.close()
        self._kept = []
        return len(actors)

    def __repr__(self) -> str:
        return f"RayJudge({self.name!r})"

    def __reduce__(self) -> Any:
        return _ray_judge, (self.name, self.namespace, self.can_sleep, self.images)

    def _router(self) -> Routed:
        if self._routed is None:
            actors = _actors(self.name, self.namespace)
            if not actors:
                raise JudgeUnavailable(
                    f"no judge named {self.name!r} runs in this Ray cluster: start it with judgekit serve --engine ray --name {self.name}"
                )
            self._routed = _routed(actors, self.namespace)
        return self._routed


def _routed(actors: Sequence[tuple[Any, str]], namespace: str) -> Routed:
    return Routed([_Replica(handle, name, namespace) for handle, name in actors])


def _ray_judge(name: str, namespace: str, sleep: bool, images: ImageData) -> RayJudge:
    return RayJudge(name, namespace=namespace, sleep=sleep, images=images)


def start_ray_judge(
    model: str = "embedded",
    *,
    name: str = "judge",
    replicas: int = 1,
    tensor_parallel_size: int = 1,
    pipeline_parallel_size: int = 1,
    gpus: float | None = None,
    cpus: float = 1.0,
    lifetime: Literal["starter", "detached"] = "starter",
    namespace: str = NAMESPACE,
    options: Mapping[str, Any] | None = None,
    python: str | None = None,
    runtime_env: Mapping[str, Any] | None = None,
    factory: str = VLLM,
    place_s: float = 60.0,
) -> RayJudge:
    """Start frozen engines as Ray actors, or reuse running ones of the same configuration.

    *gpus*: GPUs of one replica; by default *tensor_parallel_size* times `data_parallel_size` if the cluster has GPUs, else none; a
    fraction shares a GPU, and its engine takes nine tenths of that share of the memory unless *options* say otherwise. Each replica has
    its own bundle of a placement group. With *pipeline_parallel_size* above 1 a replica may span nodes: it has a placement group of its
    own with a bundle for each GPU, and vLLM's workers are Ray actors in them.
    *lifetime*: "starter" ends the replicas
    with this process (keep the RayJudge), "detached" leaves them running until `stop`. *options*: further
    arguments of VLLMJudge. *python*: path of another environment's interpreter, the same on every node, if the
    judge and the trainer need different versions of vLLM; that environment needs judgekit, and the cluster's
    versions of Python and Ray. *runtime_env*: for the actors. *place_s*: seconds to wait for the resources.

    Raises ConfigError if the cluster has no room for them, or if actors of this name run another configuration.
    """
    ray = _ray()
    if ":" in name or not name:
        raise ConfigError(f"ray: a judge's name is text without a colon, not {name!r}")
    if lifetime not in ("starter", "detached"):
        raise ConfigError(f"ray: lifetime is 'starter' or 'detached', not {lifetime!r}")
    given = dict(options or {})
    plan = replica_plan(
        replicas,
        tensor=tensor_parallel_size,
        pipeline=pipeline_parallel_size,
        gpus=gpus,
        cpus=cpus,
        has_gpus=bool(ray.cluster_resources().get("GPU", 0)),
        engine_args=given.get("engine_args") or {},
    )
    arguments = _engine_arguments(model, tensor_parallel_size, given, plan) if factory == VLLM else given
    environment = {**(runtime_env or {}), **({"py_executable": python} if python else {})}
    config = {"factory": factory, "options": arguments, "gpus": plan.gpus, "replicas": replicas}
    # config is shown to users; keep the environment out of it, because its variables may be secret
    whole = json.dumps([config, environment], sort_keys=True, default=str)
    digest = hashlib.blake2b(whole.encode(), digest_size=8).hexdigest()

    judge = RayJudge(
        name,
        namespace=namespace,
        sleep=bool(arguments.get("sleep")),
        images=arguments.get("images", "none"),
    )
    running = _actors(name, namespace)
    if running:
        _check_same(running, digest, name)
        return judge
    from judgekit.judges.engines.ray.actor import JudgeActor

    detached = "detached" if lifetime == "detached" else None
    groups = _placed(plan, name, replicas, detached, place_s)
    actor_class = ray.remote(JudgeActor)
    place = ray.util.scheduling_strategies.PlacementGroupSchedulingStrategy
    handles = [
        actor_class.options(
            name=_actor_name(name, i),
            namespace=namespace,
            lifetime=detached,
            num_cpus=cpus,
            num_gpus=0 if plan.spans else plan.gpus,
            max_restarts=-1,
            max_task_retries=0,
            max_concurrency=10_000,
            runtime_env=environment or None,
            scheduling_strategy=place(
                groups[i] if plan.spans else groups[0],
                placement_group_bundle_index=0 if plan.spans else i,
                placement_group_capture_child_tasks=plan.spans,
            ),
        ).remote(config, digest)
        for i in range(replicas)
    ]
    if detached is None:
        judge._kept = [*groups, *handles]
    return judge


def _engine_arguments(
    model: str, tensor_parallel_size: int, given: Mapping[str, Any], plan: ReplicaPlan
) -> dict[str, Any]:
    """Return the arguments of a replica's VLLMJudge: what the plan needs, unless *given* says otherwise."""
    arguments = {"model": os.fspath(model), "tensor_parallel_size": tensor_parallel_size, **given}
    if plan.memory_share is not None:
        arguments.setdefault("gpu_memory_utilization", plan.memory_share)
    if plan.engine_args:
        arguments["engine_args"] = {**plan.engine_args, **(arguments.get("engine_args") or {})}
    return arguments


def _placed(plan: ReplicaPlan, name: str, replicas: int, detached: str | None, place_s: float) -> list[Any]:
    """Reserve the cluster's resources for the replicas. Raises ConfigError if it has none free within *place_s*."""
    ray = _ray()
    groups = [
        ray.util.placement_group(
            bundles, strategy="PACK", name=_group_name(name) + (f":{i}" if i else ""), lifetime=detached
        )
        for i, bundles in enumerate(plan.groups)
    ]
    if not all(group.wait(place_s) for group in groups):
        for group in groups:
            ray.util.remove_placement_group(group)
        bundles = plan.groups[0][0]
        count = f"{len(plan.groups[0])} × " if plan.spans else ""
        raise ConfigError(
            f"ray: the cluster has no room for {replicas} × {count}{bundles}: it has {_total(ray)}, of which {_free(ray)} are free"
        )
    return groups


class _Replica:
    """A judge that asks one actor, found again by its name when it was stopped and started."""

    def __init__(self, handle: Any, name: str, namespace: str) -> None:
        self.name = name
        self._handle = handle
        self._namespace = namespace
        self._gone = False
        """Whether the actor has ended for good; another may have its name by now."""
        self._link: _Link | None = None
        self._looking: asyncio.Task[None] | None = None
        self.sequences: int | None = None
        """Requests that its engine runs at once, as far as it was asked."""

    async def complete(self, request: JudgeRequest, /) -> JudgeReply:
        if self._gone:
            await self._look_up()
        link = self._link
        if link is None or link.handle is not self._handle or link.loop is not asyncio.get_running_loop():
            link = self._link = _Link(self._handle, self.name, self._lost)
        return await link.ask(request)

    async def start(self) -> None:
        if self._gone:
            await self._look_up()
        await self._call(self._handle.start.remote())
        await self.load()

    async def load(self) -> EngineLoad | None:
        """Return how many requests its engine runs and has waiting, of all processes; None if the engine does not tell."""
        told = await self._call(self._handle.describe.remote())
        sequences: int | None = told.get("sequences")  # an actor of an earlier version does not say
        self.sequences = sequences
        if sequences is None:
            return None
        return EngineLoad(min(told["in_flight"], sequences), max(told["in_flight"] - sequences, 0))

    async def ready(self) -> bool:
        """Whether the actor's engine would answer now."""
        try:
            if self._gone:
                await self._look_up()
            async with asyncio.timeout(_READY_S):
                return bool(await self._call(self._handle.ready.remote()))
        except (JudgeUnavailable, TimeoutError):
            return False

    def hangs(self) -> None:
        """Let Ray restart the actor if its process answers nothing; an actor whose engine hangs restarts that by itself."""
        if self._looking is None or self._looking.done():
            self._looking = asyncio.get_running_loop().create_task(self._kill_if_silent(), context=Context())

    async def _kill_if_silent(self) -> None:
        handle = self._handle
        answer = asyncio.ensure_future(_await(handle.describe.remote()))
        done, _ = await asyncio.wait([answer], timeout=_SILENT_S + random.uniform(0, _JITTER_S))
        if done:
            answer.exception()  # an error is an answer too: Ray knows that the actor is gone
            return
        answer.cancel()
        logger.warning("%s has not answered for %g s: it is killed and restarted", self.name, _SILENT_S)
        with contextlib.suppress(ConfigError):  # Ray was shut down meanwhile, and the actor with it
            await in_own_thread(lambda: _ray().kill(handle, no_restart=False))

    async def identity(self) -> str:
        return str(await self._call(self._handle.identity.remote()))

    async def sleep(self) -> None:
        """Let the actor's engine sleep."""
        await self._turn("sleep")

    async def wake_up(self) -> None:
        await self._turn("wake_up")

    async def _turn(self, method: str) -> None:
        if self._gone:
            await self._look_up()
        await self._call(getattr(self._handle, method).remote())

    async def check_request(self, request: JudgeRequest) -> None:
        await self._call(self._handle.check_request.remote(request))

    async def close(self) -> None:
        if self._looking is not None:
            self._looking.cancel()
        link, self._link = self._link, None
        if link is not None and link.loop is asyncio.get_running_loop():
            await link.close()

    async def _call(self, ref: Any) -> Any:
        try:
            return await _await(ref)
        except asyncio.CancelledError:
            raise
        except Exception as error:
            self._lost(error)
            raise _mapped(error, self.name) from None

    def _lost(self, error: Exception) -> None:
        """Note that the actor has ended for good, if that is what *error* says."""
        from ray.exceptions import ActorDiedError

        # an actor that Ray restarts raises ActorUnavailableError meanwhile
        self._gone = self._gone or isinstance(error, ActorDiedError)

    async def _look_up(self) -> None:
        """Find the actor that has the name now. Raises JudgeUnavailable if there is none."""
        ray = _ray()
        try:
            handle = await in_own_thread(lambda: ray.get_actor(self.name, namespace=self._namespace))
        except ValueError:
            raise JudgeUnavailable(f"{self.name} has ended, and no other actor has its name") from None
        self._handle, self._gone = handle, False

    def __repr__(self) -> str:
        return self.name


class _Link:
    """Connects the running event loop with one actor; batches requests and answers."""

    def __init__(self, handle: Any, name: str, lost: Callable[[Exception], None]) -> None:
        self.handle = handle
        self.loop = asyncio.get_running_loop()
        self._name = name
        self._lost = lost
        """Is told every error of the actor's."""
        self._caller = secrets.token_hex(8)
        self._numbers = itertools.count()
        self._waiting: dict[int, asyncio.Future[JudgeReply]] = {}
        self._outbox: list[tuple[int, JudgeRequest]] = []
        self._given_up: list[int] = []
        self._scheduled = False
        self._life = ""
        self._got = 0
        """Answers received from this life of the actor."""
        self._collector: asyncio.Task[None] | None = None
        self._sending: set[asyncio.Task[None]] = set()

    async def ask(self, request: JudgeRequest) -> JudgeReply:
        loop = asyncio.get_running_loop()
        number = next(self._numbers)
        future: asyncio.Future[JudgeReply] = loop.create_future()
        self._waiting[number] = future
        self._outbox.append((number, request))
        self._schedule(loop)
        try:
            return await future
        except asyncio.CancelledError:
            if self._waiting.pop(number, None) is not None:
                # cancelling here does not cancel in the actor: tell it
                self._given_up.append(number)
                self._schedule(loop)
            raise

    def _schedule(self, loop: asyncio.AbstractEventLoop) -> None:
        if not self._scheduled:
            self._scheduled = True
            loop.call_soon(self._flush, loop)

    def _flush(self, loop: asyncio.AbstractEventLoop) -> None:
        self._scheduled = False
        given_up, self._given_up = self._given_up, []
        outbox = [(n, r) for n, r in self._outbox if n in self._waiting]
        self._outbox = []
        try:
            if given_up:
                self.handle.cancel.remote(self._caller, given_up)
            if outbox:
                ref = self.handle.submit.remote(self._caller, pack_requests(outbox))
                task = loop.create_task(self._sent(ref, {number for number, _ in outbox}))
                self._sending.add(task)
                task.add_done_callback(self._sending.discard)
        except Exception as error:
            self._failed(error)

    async def _sent(self, ref: Any, numbers: set[int]) -> None:
        try:
            life = await _await(ref)
        except Exception as error:
            self._failed(error)
            return
        if self._life != life:
            if self._life:
                # the actor was restarted, so its earlier requests are lost
                self._fail(JudgeLoading(f"{self._name} was restarted"), but=numbers)
            self._life, self._got = life, 0
        if self._collector is None or self._collector.done():
            self._collector = asyncio.get_running_loop().create_task(self._collect())

    async def _collect(self) -> None:
        while self._waiting:
            life = self._life
            try:
                data = await _await(self.handle.collect.remote(self._caller, life, self._got, _COLLECT_S))
                if life != self._life:  # the answer of an actor that was restarted meanwhile
                    continue
                first, answers = (0, []) if data is None else unpack_answers(data)
            except Exception as error:  # also an answer that this version cannot read
                self._failed(error)
                return
            if data is None:
                self._fail(JudgeLoading(f"{self._name} was restarted"))
                self._life = ""
                return
            self._got = first + len(answers)  # less than before, where the actor had forgotten this caller
            for made in answers:  # those that came before are not waited for any more
                future = self._waiting.pop(made.number, None)
                if future is None or future.done():
                    continue
                result = made.result()
                if isinstance(result, Exception):
                    future.set_exception(result)
                else:
                    future.set_result(result)

    def _failed(self, error: Exception) -> None:
        """A call to the actor failed: so do all requests that wait for it."""
        self._lost(error)
        self._fail(_mapped(error, self._name))

    def _fail(self, error: Exception, but: Collection[int] = ()) -> None:
        waiting, self._waiting = self._waiting, {n: f for n, f in self._waiting.items() if n in but}
        for number, future in waiting.items():
            if number not in but and not future.done():
                future.set_exception(error)

    async def close(self) -> None:
        tasks = [t for t in (self._collector, *self._sending) if t is not None and not t.done()]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        self._fail(JudgeUnavailable(f"{self._name} was closed"))


async def _await(ref: Any) -> Any:
    return await ref


def _actor_name(name: str, i: int) -> str:
    return f"judgekit:{name}:{i}"


def _group_name(name: str) -> str:
    return f"judgekit:{name}"


def _actors(name: str, namespace: str) -> list[tuple[Any, str]]:
    """Return a judge's actor handles with their names, by number."""
    ray = _ray()
    prefix = _actor_name(name, 0)[:-1]
    names = [
        entry["name"]
        for entry in ray.util.list_named_actors(all_namespaces=True)
        if entry["namespace"] == namespace and entry["name"].startswith(prefix)
    ]
    found = []
    for actor in sorted(
        names, key=lambda n: int(n.removeprefix(prefix)) if n.removeprefix(prefix).isdigit() else 0
    ):
        with contextlib.suppress(ValueError):  # it died after it was listed
            found.append((ray.get_actor(actor, namespace=namespace), actor))
    return found


def _check_same(actors: Sequence[tuple[Any, str]], digest: str, name: str) -> None:
    """Raise ConfigError if a running actor has another configuration or does not answer."""
    ray = _ray()
    for handle, actor in actors:
        try:
            told = ray.get(handle.describe.remote(), timeout=60)
        except Exception as error:
            raise ConfigError(
                f"ray: {actor} is running but does not answer ({type(error).__name__}): stop it with judgekit serve --engine ray --stop --name {name}"
            ) from None
        if told["digest"] != digest:
            options = told["config"].get("options", {})
            raise ConfigError(
                f"ray: {actor} runs another configuration ({options.get('model', told['config'].get('factory'))}, "
                f"{told['config'].get('replicas')} replicas): stop it with judgekit serve --engine ray --stop --name {name}, or use another name"
            )


def _ray() -> Any:
    try:
        import ray
        import ray.util.scheduling_strategies
    except ImportError:
        raise ConfigError("ray is not here: install judgekit-rl[ray]") from None
    if not ray.is_initialized():
        raise ConfigError("this process is not connected to a Ray cluster: call ray.init() first")
    return ray


def connect(address: str = "auto") -> None:
    """Connect this process to a running Ray cluster. Raises ConfigError if there is none."""
    try:
        import ray
    except ImportError:
        raise ConfigError("ray is not here: install judgekit-rl[ray]") from None
    if ray.is_initialized():
        return
    try:
        ray.init(address=address, namespace=NAMESPACE, logging_level="ERROR", log_to_driver=False)
    except ConnectionError as error:
        raise ConfigError(
            f"no Ray cluster at {address}: start one with 'ray start --head' ({str(error).splitlines()[0]})"
        ) from None


def _mapped(error: Exception, name: str) -> Exception:
    """Map a Ray error to a judge error."""
    if isinstance(error, ConfigError | JudgeUnavailable):
        return error
    cause = getattr(error, "cause", None)
    if isinstance(cause, ConfigError):
        return cause
    text = str(cause or error).strip().splitlines()
    from ray.exceptions import ActorUnavailableError

    kind = JudgeLoading if isinstance(error, ActorUnavailableError) else JudgeUnavailable
    return kind(f"{name}: {type(cause or error).__name__}: {text[-1] if text else ''}"[:500])


def _total(ray: Any) -> str:
    return _shown(ray.cluster_resources())


def _free(ray: Any) -> str:
    return _shown(ray.available_resources())


def _shown(resources: Mapping[str, float]) -> str:
    return f"{resources.get('CPU', 0):g} CPU and {resources.get('GPU', 0):g} GPU"
