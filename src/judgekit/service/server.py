"""The service's HTTP side, on aiohttp.web: routes, keys, limits, and a graceful end."""

from __future__ import annotations

import asyncio
import base64
import binascii
import contextlib
import errno
import hmac
import logging
import math
import resource
import socket
import time
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping

import anyio
from aiohttp import web
from msgspec import Struct

from judgekit.errors import ConfigError, JudgekitError
from judgekit.judges.launch.supervise import is_loopback
from judgekit.ledger.jsonl import encoded
from judgekit.service.exposition import exposition
from judgekit.service.forms import Form, OpenRLHF, Slime, Verify
from judgekit.service.once import Job, digest
from judgekit.service.reading import Refusal, batch, refusal_of
from judgekit.service.roll import RollTasks
from judgekit.service.service import RESERVED, RewardService
from judgekit.service.wire import JSON, KEY, LINES

logger = logging.getLogger("judgekit")

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

KEEP_ALIVE_S = 3600.0
"""Idle connections are kept longer than any client keeps them: a POST on one that is being closed is not retried."""
_MAX_KEY = 256
_LAST_BYTES_S = 2.0
"""What a body has left to arrive once the service stops."""
_CLOSE_S = 5.0
"""What connections, and then the judges, have to close."""
_OPEN = ("/health",)
"""Routes that need no key."""


class Limits(Struct, frozen=True, kw_only=True):
    """What the server takes."""

    requests: int = 4096
    """Requests in flight; more are answered 503 with Retry-After."""
    body_bytes: int = 64 << 20
    body_s: float = 60.0
    """How long a request's body may take to arrive."""
    stop_s: float = 600.0
    """How long a stop waits for what was taken."""


class RewardServer:
    """Serves a `RewardService` over HTTP.

    *api_key*: what clients must send as `Authorization: Bearer KEY`, or as the password of an address
    (`http://judgekit:KEY@HOST:PORT/…`), which is all that some of them can be given; None: nothing.
    """

    def __init__(
        self, service: RewardService, *, api_key: str | None = None, limits: Limits | None = None
    ) -> None:
        self.service = service
        self.limits = limits or Limits()
        self.stopping = False
        self._key = api_key.encode() if api_key else None
        self._local = False
        self._reading: set[asyncio.Timeout] = set()
        self._roll = RollTasks(service)

    @contextlib.asynccontextmanager
    async def serve(self, listener: socket.socket) -> AsyncIterator[None]:
        """Serve on a bound socket while the block runs; then finish what was taken."""
        runner = web.AppRunner(
            self.app(),
            access_log=None,
            handler_cancellation=True,
            keepalive_timeout=KEEP_ALIVE_S,
            shutdown_timeout=_CLOSE_S,
        )
        self._local = is_loopback(listener.getsockname()[0])
        try:
            await self.service.start()
            await runner.setup()
            site = web.SockSite(runner, listener, backlog=1024)
            try:
                await site.start()
            except OSError as error:  # somebody else listens on it since it was bound
                raise ConfigError(f"serve-rewards: cannot listen: {error.strerror}") from None
            yield
            self.stopping = True
            await site.stop()  # a balancer sends new requests elsewhere
            await self._finish()
        finally:
            with anyio.CancelScope(shield=True):
                await self.service.answers.finish(0)
                await runner.cleanup()
                with anyio.move_on_after(_CLOSE_S) as closing:
                    await self.service.close()
                if closing.cancelled_caught:
                    logger.error("the judges did not close within %g s and were left", _CLOSE_S)

    async def _finish(self) -> None:
        """Answer what was taken; a body that is still being read has a moment to arrive, and is then refused."""
        now = asyncio.get_running_loop().time()
        for reading in [one for one in self._reading if not one.expired()]:
            reading.reschedule(min(now + _LAST_BYTES_S, reading.when() or math.inf))
        end = time.monotonic() + self.limits.stop_s
        while self.service.in_flight or self.service.answers.running or self._reading:
            left = end - time.monotonic()
            await self.service.answers.finish(max(left, 0.0))
            if left <= 0:
                logger.error("stopped after %g s with requests that were not graded", self.limits.stop_s)
                return
            await asyncio.sleep(0.01)

    def app(self) -> web.Application:
        """Make the application."""
        app = web.Application(client_max_size=self.limits.body_bytes, middlewares=[self._guard])
        app.router.add_get("/health", self._health)
        app.router.add_get("/metrics", self._metrics)
        app.router.add_post("/v1/rewards", self._rewards)
        for path, form in FORMS.items():
            app.router.add_post(path, self._handler(form))
        app.router.add_post("/seed_session", _nothing)
        app.router.add_post("/strict/seed_session", _nothing)
        app.router.add_post("/roll/submit_task", self._roll.submit)
        app.router.add_get("/roll/task_result", self._roll.result)
        return app

    # ---- every request

    @web.middleware
    async def _guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Refuse what must not be graded, and make every failure an answer that is no score."""
        try:
            response = await self._admitted(request, handler)
        except web.HTTPException as error:
            response = _refused(Refusal(error.status, self._http_error(error, request)))
        except (ConnectionError, asyncio.CancelledError):  # the client has gone
            self.service.requests[self._route(request), 499] += 1
            raise
        except Exception as error:
            response = _refused(_refusal(error, request))
        self.service.requests[self._route(request), response.status] += 1
        if response.status == 408:
            response.force_close()
        return response

    def _http_error(self, error: web.HTTPException, request: web.Request) -> str:
        if error.status == 413:
            return f"the body has more than {self.limits.body_bytes} bytes: send fewer rollouts at once, or raise --max-body-mb"
        if error.status == 404:
            return f"there is nothing at {request.path}; there is {', '.join(self.paths())}"
        return error.reason or str(error.status)

    def paths(self) -> list[str]:
        """The routes that grade."""
        return ["/v1/rewards", *FORMS, "/roll/submit_task"]

    def _route(self, request: web.Request) -> str:
        resource = request.match_info.route.resource
        return resource.canonical if resource is not None else "(none)"

    async def _admitted(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        if self._key is None:
            self._refuse_pages(request)
        elif self._route(request) not in _OPEN and not self._knows_key(request):
            raise Refusal(401, "the request has no valid key: send Authorization: Bearer KEY")
        if request.method != "POST":
            return await handler(request)
        self._refuse_more()
        await self._arrived(request)
        self._refuse_more()
        self.service.in_flight += 1
        try:
            return await handler(request)
        finally:
            self.service.in_flight -= 1

    def _refuse_pages(self, request: web.Request) -> None:
        """Without a key, no page in a browser of this machine may use the service, whatever name it was loaded under."""
        if "Origin" in request.headers or request.headers.get("Sec-Fetch-Site", "none") != "none":
            raise Refusal(
                403, "web pages may not use the service: set JUDGEKIT_SERVICE_KEY, and send the key"
            )
        host = request.url.host or ""
        if self._local and not is_loopback(host) and host != socket.gethostname():
            raise Refusal(
                403,
                f"the service is not called {host}: ask it at 127.0.0.1, or set JUDGEKIT_SERVICE_KEY, and send the key",
            )

    def _refuse_more(self) -> None:
        """Refuse what comes while the service stops, or has as many requests as it takes."""
        if self.stopping:
            raise Refusal(503, "the service is stopping", kind="Stopping", retry_after_s=1.0)
        if self.service.in_flight + self.service.answers.abandoned >= self.limits.requests:
            raise Refusal(
                503,
                f"{self.limits.requests} requests are in flight: send this one again",
                kind="Overloaded",
                retry_after_s=1.0,
            )

    async def _arrived(self, request: web.Request) -> None:
        """Read the body. Until it is here, the request holds no other's place."""
        if request.content.is_eof():  # it came with the headers
            await request.read()
            return
        try:
            async with asyncio.timeout(self.limits.body_s) as reading:
                self._reading.add(reading)
                await request.read()
        except TimeoutError:
            raise Refusal(
                408, "the body did not arrive in time: send it again", kind="SlowBody", retry_after_s=1.0
            ) from None
        finally:
            self._reading.discard(reading)

    def _knows_key(self, request: web.Request) -> bool:
        assert self._key is not None
        # ROLL's client has a header of its own
        for header in ("Authorization", "XRL-Authorization"):
            scheme, _, value = request.headers.get(header, "").partition(" ")
            given = value.strip().encode("utf-8", "surrogateescape")
            if scheme.lower() == "basic":
                try:
                    given = base64.b64decode(given, validate=True).partition(b":")[2]
                except binascii.Error:
                    continue
            elif scheme.lower() != "bearer":
                continue
            if hmac.compare_digest(given, self._key):
                return True
        return False

    # ---- the routes

    async def _rewards(self, request: web.Request) -> web.StreamResponse:
        """Our own form: many rollouts, their groups and tags; results with grades."""
        body = await request.read()
        given = request.headers.get(KEY, "")
        if len(given) > _MAX_KEY:
            raise Refusal(400, f"{KEY} has at most {_MAX_KEY} characters")
        asked = batch(body)
        rollouts, tags = asked.rollouts, asked.tags
        if reserved := tags.keys() & RESERVED:
            raise Refusal(400, f"the tag {min(reserved)!r} is judgekit's own: choose another name")
        lines = LINES in request.headers.get("Accept", "")

        async def work(job: Job) -> None:
            await self.service.grade_all(job, rollouts, tags, unique=bool(given), stream=lines)

        # with a key, the text only tells whether the key was used for another request by mistake
        text = f"{len(body)}:{zlib.crc32(body)}" if given else digest(body)
        key = f"key:{given}" if given else f"rewards:{text}"
        with self._job(key, text, work, unique=bool(given)) as job:
            if lines:
                return await self._stream(request, job)
            results = b",".join(await job.whole())
            runner = self.service.runner.spec.digest.encode()
            return await send(request, b'{"results":[%s],"runner":"%s"}' % (results, runner), job)

    async def _stream(self, request: web.Request, job: Job) -> web.StreamResponse:
        """Send results as they are there, one a line; the last line says that it is the last."""
        response = web.StreamResponse(headers={"Content-Type": LINES})
        await response.prepare(request)
        last = b'{"done":true}\n'
        try:
            async for part in job.follow():
                await response.write(part + b"\n")
        except ConnectionError:
            raise
        except Exception as error:  # the status is out: the error is a line, and "done" is missing
            last = _refusal(error, request).body
        await response.write(last)
        await response.write_eof()
        job.delivered = True
        return response

    def _handler(self, form: Form) -> Handler:
        async def handle(request: web.Request) -> web.StreamResponse:
            lane = self.service.lane(form.knows, request.query.get("group"))
            body = await request.read()
            asked = form.read(body, request.query)

            async def work(job: Job) -> None:
                results = await self.service.grade_in(lane, asked.rollouts, job.key, unique=bool(asked.slot))
                job.add(0, form.write(asked, results))

            text = digest(request.path.encode(), request.query_string.encode(), body)
            # a slot alone is no key: trainers use the same ones again in their next step
            key = f"{form.name}:{asked.slot}:{text}"
            with self._job(key, text, work, unique=bool(asked.slot)) as job:
                (answer,) = await job.whole()
                return await send(request, answer, job)

        return handle

    @contextlib.contextmanager
    def _job(
        self, key: str, body: str, work: Callable[[Job], Awaitable[None]], *, unique: bool
    ) -> Iterator[Job]:
        try:
            with self.service.answers.job(key, body, work, unique=unique) as job:
                yield job
        except KeyError:
            raise Refusal(422, f"this {KEY} came with another body before: choose a new one") from None

    async def _health(self, request: web.Request) -> web.Response:
        """200 while requests are taken, 503 while the service stops."""
        runner = self.service.runner
        told = {
            "status": "stopping" if self.stopping else "ok",
            "runner": runner.spec.digest,
            "bounds": runner.reward.bounds(),
            "grouped": runner.compares,
            "missing_reward": runner.settings.missing_reward,
            "in_flight": self.service.in_flight,
            "groups_waiting": self.service.lanes.waiting,
        }
        return web.Response(body=encoded(told), status=503 if self.stopping else 200, content_type=JSON)

    async def _metrics(self, request: web.Request) -> web.Response:
        return web.Response(
            text=exposition(self.service),
            headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"},
        )


FORMS: Mapping[str, Form] = {
    "/openrlhf": OpenRLHF(),
    "/slime": Slime(),
    "/verify": Verify(),
    "/strict/verify": Verify(strict=True),
}
"""The trainers' routes."""


async def send(request: web.Request, body: bytes, job: Job) -> web.Response:
    """Send an answer here, not after the handler, so that it is known whether it went out."""
    response = web.Response(body=body, content_type=JSON)
    await response.prepare(request)
    await response.write_eof()
    job.delivered = True
    return response


async def _nothing(request: web.Request) -> web.Response:
    """NeMo-Gym begins a session for each rollout: a grader has nothing to prepare."""
    await request.read()
    return web.Response(body=b"{}", content_type=JSON)


def _refusal(error: Exception, request: web.Request) -> Refusal:
    """The answer to a request that has ended with *error*."""
    if isinstance(error, Refusal):
        return error
    if isinstance(error, JudgekitError):
        logger.warning("%s: %s", request.path, error)
        return refusal_of(error)
    logger.error("%s", request.path, exc_info=error)
    return Refusal(500, f"{type(error).__name__}, see the service's log")


def _refused(refusal: Refusal) -> web.Response:
    headers = {}
    if refusal.retry_after_s is not None:
        headers["Retry-After"] = f"{math.ceil(refusal.retry_after_s)}"
    if refusal.status == 401:
        headers["WWW-Authenticate"] = 'Bearer, Basic realm="judgekit"'
    return web.Response(body=refusal.body, status=refusal.status, headers=headers, content_type=JSON)


def bound_socket(host: str, port: int) -> socket.socket:
    """Take the address before the judges are loaded, which takes a while. Raises ConfigError."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except OSError:
        raise ConfigError(f"serve-rewards: --host {host} is not an address of this machine") from None
    made = socket.socket(family, kind, protocol)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind(address)
    except OSError as error:
        made.close()
        if error.errno == errno.EADDRNOTAVAIL:
            raise ConfigError(f"serve-rewards: --host {host} is not an address of this machine") from None
        if error.errno == errno.EADDRINUSE:
            raise ConfigError(f"serve-rewards: port {port} is taken: choose another --port") from None
        raise ConfigError(f"serve-rewards: cannot listen on {host}:{port}: {error.strerror}") from None
    return made


def allow_connections(count: int) -> None:
    """Let this process have *count* connections, as far as the system allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = min(count + 1024, hard) if hard != resource.RLIM_INFINITY else count + 1024
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
