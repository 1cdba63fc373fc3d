"""A client for the reward service, with the methods of a GradingRunner.

    async with RewardClient("http://127.0.0.1:8080") as client:
        results = await client.run(rollouts)

A request that breaks off is sent again with the same key, under which the service grades nothing twice.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import os
import random
import secrets
import time
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import msgspec

from judgekit.errors import (
    ConfigError,
    DataError,
    FailureRateError,
    JudgekitError,
    MissingRewardError,
    ServiceUnavailable,
)
from judgekit.execution.background import run_blocking
from judgekit.judges.engines.http import Secret, Sessions, retry_after, server_address
from judgekit.service.wire import JSON, KEY, LINES, hashable
from judgekit.types import RewardResult, Rollout

if TYPE_CHECKING:
    import aiohttp

_FIRST_PAUSE_S, _MAX_PAUSE_S = 0.1, 5.0
_LARGE = 1 << 20
"""Bytes of a body that aiohttp writes piece by piece, and wants in a file."""
_AGAIN = (408, 425, 429, 502, 503, 504)
"""Statuses after which the same request may be sent again."""
_RAISED: Mapping[str, type[JudgekitError]] = {
    "MissingRewardError": MissingRewardError,
    "FailureRateError": FailureRateError,
}


class About(msgspec.Struct):
    """What a service says of its runner."""

    bounds: tuple[float | None, float | None]
    """Lowest and highest raw reward; None: there is no bound."""
    grouped: bool
    """Whether a grade depends on the other rollouts of its group."""
    missing_reward: Any


class _Results(msgspec.Struct):
    results: list[RewardResult]


_decode = msgspec.json.Decoder(_Results, dec_hook=hashable).decode
_decode_line = msgspec.json.Decoder(RewardResult, dec_hook=hashable).decode


class RewardClient:
    """Grades rollouts with a runner that is behind `judgekit serve-rewards`.

    *url* and *api_key* come from JUDGEKIT_SERVICE_URL and JUDGEKIT_SERVICE_KEY if they are not given. *timeout_s*: for
    one attempt. *deadline_s*: for a call with its retries; then it raises ServiceUnavailable. *max_connections*: requests
    in flight at once. May be used from several event loops and threads.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        api_key: str | None = None,
        timeout_s: float = 600.0,
        deadline_s: float = 1800.0,
        max_connections: int = 64,
    ) -> None:
        self.url = _base_url(url or os.environ.get("JUDGEKIT_SERVICE_URL", ""))
        self._key = Secret(api_key if api_key is not None else os.environ.get("JUDGEKIT_SERVICE_KEY", ""))
        for name, value in (("timeout_s", timeout_s), ("deadline_s", deadline_s)):
            if not value > 0:
                raise ConfigError(f"{name} is a number of seconds above 0, not {value!r}")
        self.timeout_s = timeout_s
        self.deadline_s = deadline_s
        self._sessions = Sessions(self._key, timeout_s, max_connections)

    async def run(
        self,
        rollouts: Iterable[Rollout],
        *,
        tags: Mapping[str, Any] | None = None,
        step: float | None = None,
        key: str | None = None,
    ) -> list[RewardResult]:
        """Grade *rollouts*; one result each, in input order.

        *step*: the training step, for weights that depend on it. *key*: names the call. A program that was restarted and calls
        with the same key and rollouts gets what was graded for it before. Raises as `GradingRunner.run` does, DataError for rollouts that the service does not take, and
        ServiceUnavailable.
        """
        batch = list(rollouts)
        body = _body(batch, tags, step)
        attempts = _Attempts(self, key)
        while True:
            try:
                async with self._post(body, attempts, JSON) as response:
                    raw = await response.read()
                    if response.status == 200:
                        return _with_groups(_decode(raw).results, batch)
                    attempts.refused(response.status, response.headers, raw)
            except _faults() as error:
                attempts.failed(error)
            await attempts.pause()

    async def stream(
        self,
        rollouts: Iterable[Rollout],
        *,
        tags: Mapping[str, Any] | None = None,
        step: float | None = None,
        key: str | None = None,
    ) -> AsyncGenerator[RewardResult, None]:
        """Grade *rollouts* and yield each result once it is final; `index` tells which it is. Otherwise as `run`."""
        batch = list(rollouts)
        body = _body(batch, tags, step)
        attempts = _Attempts(self, key)
        seen: set[int] = set()
        while True:
            try:
                async with self._post(body, attempts, LINES) as response:
                    if response.status != 200:
                        attempts.refused(response.status, response.headers, await response.read())
                    else:
                        async with contextlib.aclosing(_lines(response)) as lines:
                            async for line in lines:
                                row = msgspec.json.decode(line)
                                if "done" in row:
                                    return
                                if "error" in row:
                                    attempts.refused(row["error"].get("status", 500), {}, line)
                                    break
                                result = _with_group(_decode_line(line), batch)
                                if result.index not in seen:
                                    seen.add(result.index)
                                    yield result
                            else:
                                attempts.failed(ConnectionError("the answer broke off"))
            except _faults() as error:
                attempts.failed(error)
            await attempts.pause()

    def run_sync(
        self,
        rollouts: Iterable[Rollout],
        *,
        tags: Mapping[str, Any] | None = None,
        step: float | None = None,
        key: str | None = None,
    ) -> list[RewardResult]:
        """`run` for synchronous callers: from any thread, also where a loop is already running."""
        return run_blocking(self.run(rollouts, tags=tags, step=step, key=key))

    async def about(self, *, wait_s: float = 0.0) -> About:
        """Return what the service says of its runner. *wait_s*: seconds for which it may be away. Raises ServiceUnavailable."""
        attempts = _Attempts(self, None, wait_s)
        while True:
            try:
                async with self._sessions.here().client.get(f"{self.url}/health") as response:
                    raw = await response.read()
                    if response.status == 200:
                        return msgspec.json.decode(raw, type=About)
                    attempts.refused(response.status, response.headers, raw)
            except _faults() as error:
                attempts.failed(error)
            await attempts.pause()

    async def healthy(self) -> bool:
        """Whether the service takes requests."""
        try:
            async with self._sessions.here().client.get(f"{self.url}/health") as response:
                return response.status == 200
        except _faults():
            return False

    async def close(self) -> None:
        """Close the running loop's connections."""
        await self._sessions.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"RewardClient({self.url!r})"

    def __reduce__(self) -> Any:
        return _client, (
            self.url,
            self._key.reveal(),
            self.timeout_s,
            self.deadline_s,
            self._sessions.max_connections,
        )

    @contextlib.asynccontextmanager
    async def _post(
        self, body: bytes, attempts: _Attempts, accept: str
    ) -> AsyncGenerator[aiohttp.ClientResponse, None]:
        import aiohttp

        session = self._sessions.here()
        timeout = min(self.timeout_s, attempts.left())
        # a stream goes on as long as results come
        limit = aiohttp.ClientTimeout(
            total=None if accept == LINES else timeout, sock_read=timeout, sock_connect=10.0
        )
        headers = {"Accept": accept, KEY: attempts.key}
        async with (
            session.places,
            session.client.post(
                f"{self.url}/v1/rewards",
                data=body if len(body) < _LARGE else io.BytesIO(body),
                headers=headers,
                timeout=limit,
            ) as response,
        ):
            yield response


class _Attempts:
    """The attempts of one call: its key, its errors, and the pauses between them."""

    def __init__(self, client: RewardClient, key: str | None, deadline_s: float | None = None) -> None:
        self.key = key or secrets.token_hex(16)
        self._who = client.url
        self._end = time.monotonic() + (client.deadline_s if deadline_s is None else deadline_s)
        self._pause = _FIRST_PAUSE_S
        self._wait: float | None = None
        """What the service asked to wait."""
        self._error = ""

    def left(self) -> float:
        """Seconds until the deadline."""
        return max(self._end - time.monotonic(), 0.001)

    def failed(self, error: BaseException) -> None:
        """Note that there was no answer."""
        why = f"{type(error).__name__}: {error}".rstrip(": ")
        if isinstance(getattr(error, "os_error", error), ConnectionRefusedError):
            why = "nothing listens there: start it with judgekit serve-rewards, or correct the url"
        self._error = f"{self._who} cannot be reached: {why}"
        self._wait = None

    def refused(self, status: int, headers: Mapping[str, str], raw: bytes) -> None:
        """Note a refusal; raises where asking again is no use."""
        try:
            error = json.loads(raw)["error"]
            kind, message = str(error["type"]), str(error["message"])
        except (ValueError, TypeError, KeyError):  # of a balancer in between
            kind, message = "", raw[:200].decode("utf-8", "replace")
        if status in _AGAIN:
            self._error = f"{self._who} answered HTTP {status}: {message}"
            self._wait = retry_after(headers)
            return
        if status == 401:
            raise ConfigError(f"{self._who} refuses the key: check api_key or JUDGEKIT_SERVICE_KEY")
        if status in (400, 413):
            raise DataError(f"{self._who}: {message}")
        if status < 500:
            raise ConfigError(f"{self._who} answered HTTP {status}: {message}")
        raise _RAISED.get(kind, JudgekitError)(message if kind else f"{self._who} answered HTTP {status}")

    async def pause(self) -> None:
        """Wait before the next attempt. Raises ServiceUnavailable where the deadline is nearer."""
        wait = self._wait if self._wait is not None else self._pause * random.uniform(0.5, 1.0)
        self._pause = min(2 * self._pause, _MAX_PAUSE_S)
        if time.monotonic() + wait >= self._end:
            raise ServiceUnavailable(self._error)
        await asyncio.sleep(wait)


def _faults() -> tuple[type[BaseException], ...]:
    """What a connection can raise; also an answer that was cut."""
    import aiohttp

    return (aiohttp.ClientError, TimeoutError, OSError, msgspec.DecodeError)


async def _lines(response: aiohttp.ClientResponse) -> AsyncGenerator[bytes, None]:
    """The lines of an answer, however long; what was cut off is left out."""
    rest = b""
    async for chunk in response.content.iter_any():
        *whole, rest = (rest + chunk).split(b"\n")
        for line in whole:
            yield line


def _with_groups(results: Sequence[RewardResult], rollouts: Sequence[Rollout]) -> list[RewardResult]:
    if len(results) != len(rollouts):
        raise JudgekitError(f"the service gave {len(results)} results for {len(rollouts)} rollouts")
    return [_with_group(result, rollouts) for result in results]


def _with_group(result: RewardResult, rollouts: Sequence[Rollout]) -> RewardResult:
    """A result with the group's id as the caller has it: JSON knows fewer types."""
    group = rollouts[result.index].group
    if group is None or group == result.group:
        return result
    return msgspec.structs.replace(result, group=group)


def _body(rollouts: Sequence[Rollout], tags: Mapping[str, Any] | None, step: float | None = None) -> bytes:
    """Encode a request. *step*: a tag, too. Raises DataError for what JSON cannot hold."""
    asked = {"rollouts": rollouts, "tags": {**(tags or {}), **({} if step is None else {"step": step})}}
    try:
        return _encoder.encode(asked)
    except (UnicodeEncodeError, OverflowError):
        # lone surrogates and large integers, which Python's own JSON can hold
        return json.dumps(msgspec.to_builtins(asked, enc_hook=_plain, str_keys=True)).encode()
    except TypeError as error:
        raise DataError(f"a rollout cannot be sent as JSON: {error}") from None


def _plain(value: Any) -> Any:
    """Convert values of numpy, which data sets wrap things in, to Python's. Raises TypeError."""
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} is no JSON")


_encoder = msgspec.json.Encoder(enc_hook=_plain)


def _base_url(url: str) -> str:
    if not url:
        raise ConfigError("give the service's url=, or set JUDGEKIT_SERVICE_URL")
    return server_address(url, "http://127.0.0.1:8080")


def _client(url: str, key: str, timeout_s: float, deadline_s: float, max_connections: int) -> RewardClient:
    return RewardClient(
        url, api_key=key, timeout_s=timeout_s, deadline_s=deadline_s, max_connections=max_connections
    )
