"""An HTTP client for judge servers, whose errors are all judgekit's own."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import os
import re
import secrets
import time
from collections.abc import AsyncGenerator, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit
from weakref import finalize

import msgspec

from judgekit.errors import ConfigError, JudgeError, JudgeRejected, JudgeTimeout, JudgeUnavailable
from judgekit.judges.engines.engine_load import EngineLoad, read_load
from judgekit.judges.engines.replies import TOO_LONG

if TYPE_CHECKING:
    import aiohttp


class Secret:
    """A key that never shows in a repr or a log."""

    def __init__(self, value: str) -> None:
        self._value = value

    def reveal(self) -> str:
        return self._value

    def __repr__(self) -> str:
        return "Secret(…)" if self._value else "Secret()"

    __str__ = __repr__


KEEP_ALIVE_S = 3.0
"""Idle connections are closed after so many seconds: uvicorn closes them after 5, and both at once would be a race."""

_MOST_BYTES = 64 << 20
"""Longest body that is read, uncompressed."""

_MOST_CONNECTIONS = 1024
_SENT = re.compile("judgekit-[0-9a-f]{32}")
"""What our requests are called."""
_MUTE = 3
"""A server that has not told its load so many times in a row has no such page."""
_COUNTERS = (
    "vllm:prompt_tokens_total",
    "vllm:generation_tokens_total",
    "vllm:iteration_tokens_total_count",
    "vllm:request_success_total",
)


class Server:
    """A server with a `/v1` interface.

    *url*, *api_key* and *timeout_s* (of one request, from when it has a connection) come from LLM_JUDGE_SERVER_URL, LLM_JUDGE_SERVER_API_KEY
    and LLM_JUDGE_SERVER_TIMEOUT if they are not given. The key never shows in a repr, a log or an error, and neither does the
    address's query. *key_header*: the header that carries the key; a bearer's in `Authorization`.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        api_key: str | None = None,
        timeout_s: float | None = None,
        max_connections: int | None = None,
        key_header: str = "Authorization",
    ) -> None:
        self.url, self._query = base_url(url or os.environ.get("LLM_JUDGE_SERVER_URL", ""))
        parts = urlsplit(self.url)
        self.root = (
            self.url.removesuffix("/v1") if parts.path.endswith("/v1") else f"{parts.scheme}://{parts.netloc}"
        )
        """Where the pages are that stand beside `/v1`."""
        self._key = Secret(api_key if api_key is not None else os.environ.get("LLM_JUDGE_SERVER_API_KEY", ""))
        self._key_header = key_header
        self.timeout_s = _timeout(timeout_s)
        self._sessions = Sessions(
            self._key, self.timeout_s, max_connections or _most_connections(), key_header
        )
        self._mute = 0
        """How often in a row it did not tell its load."""

    def beside(self, *, timeout_s: float, max_connections: int) -> Server:
        """Return the same server with other connections."""
        return Server(
            self.url + self._query,
            api_key=self._key.reveal(),
            timeout_s=min(timeout_s, self.timeout_s),
            max_connections=max_connections,
            key_header=self._key_header,
        )

    async def get(self, path: str, *, root: bool = False) -> dict[str, Any]:
        """GET the JSON object at *path* below `/v1`, or below the server's root."""
        return await self._exchange("GET", path, None, root)

    async def post(
        self,
        path: str,
        body: Mapping[str, Any],
        *,
        root: bool = False,
        headers: Mapping[str, str] | None = None,
    ) -> dict[str, Any]:
        """POST *body*; returns the server's JSON object. Raises JudgeUnavailable if it answers another of our requests.

        vLLM repeats the header in the answer's `id`, so that a proxy which mixes replies up is found.
        """
        sent = f"judgekit-{secrets.token_hex(16)}"
        answer = await self._exchange("POST", path, body, root, {"X-Request-Id": sent, **(headers or {})})
        answered = _SENT.search(str(answer.get("id", "")))
        if answered is not None and answered[0] != sent:
            raise JudgeUnavailable(
                f"{self} sent the reply to another request: does a proxy before it mix replies up?"
            )
        return answer

    async def call(self, path: str) -> None:
        """POST to *path* below the server's root, and read nothing. Raises as `post` does."""
        await self._exchange("POST", path, None, True, reads=False)

    async def sleeping(self) -> bool:
        """Whether vLLM says that its engine sleeps; servers say so with VLLM_SERVER_DEV_MODE=1 only."""
        try:
            return (await self.get("/is_sleeping", root=True)).get("is_sleeping") is True
        except JudgeError:
            return False

    async def page(self, path: str) -> str | None:
        """GET the text at *path* below the server's root; None if there is none."""
        import aiohttp

        try:
            async with self._sessions.here().client.get(self.root + path, allow_redirects=False) as response:
                if response.status != 200:
                    return None
                return (await self._body(response)).decode("utf-8", "replace")
        except (JudgeError, TimeoutError, OSError, ValueError, aiohttp.ClientError):
            return None

    async def healthy(self) -> bool:
        """Whether the server answers `/health`, or `/v1/models` where it has no such page."""
        import aiohttp

        try:
            client = self._sessions.here().client
            async with client.get(f"{self.root}/health", allow_redirects=False) as response:
                if response.status != 404 and not _is_redirect(response.status):
                    # a page for people is not the server's: a proxy answers in its place
                    return response.status == 200 and response.content_type != "text/html"
            return bool(await self.models())
        except JudgeRejected:  # it lists none, and answers
            return True
        except (JudgeError, TimeoutError, OSError, ValueError, aiohttp.ClientError):
            return False

    async def work_done(self) -> str | None:
        """Return what vLLM's counters say that the engine has done so far; None where that cannot be known.

        Two equal answers mean that the engine has worked on nothing in between. `/health` says nothing of that: it
        answers while the engine's process hangs.
        """
        page = await self.page("/metrics") or ""
        return "\n".join(line for line in page.splitlines() if line.startswith(_COUNTERS)) or None

    async def load(self) -> EngineLoad | None:
        """Return how busy the engine is; None where `/metrics` does not tell it. Who has none is asked a few times only."""
        if self._mute >= _MUTE:
            return None
        found = read_load(await self.page("/metrics") or "")
        self._mute = 0 if found is not None else self._mute + 1
        return found

    async def models(self) -> list[dict[str, Any]]:
        """List the server's models."""
        found = (await self.get("/models")).get("data")
        if not isinstance(found, list) or not all(isinstance(m, dict) and "id" in m for m in found):
            raise JudgeUnavailable(f"{self} lists its models in an unknown format")
        return found

    @property
    def connected_at(self) -> float:
        """Monotonic time of the newest connection: behind it may be another server than before."""
        return self._sessions.connected_at

    async def close(self) -> None:
        """Close the running loop's connections; those of other loops close with their loop."""
        await self._sessions.close()

    def __repr__(self) -> str:
        return self.url

    async def _exchange(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None,
        root: bool,
        headers: Mapping[str, str] | None = None,
        *,
        reads: bool = True,
    ) -> dict[str, Any]:
        import aiohttp

        url = (self.root if root else self.url) + path + self._query
        data = msgspec.json.encode(body) if body is not None else None
        try:
            session = self._sessions.here()
            # waiting for a place is not the server's time: the timeout starts with the request
            async with (
                session.places,
                # whoever is elsewhere gets neither the key nor the rollout
                session.client.request(
                    method, url, data=data, headers=headers, allow_redirects=False
                ) as response,
            ):
                raw = await self._body(response)
                status, told = response.status, response.headers
        except TimeoutError:
            raise JudgeTimeout(f"{self} did not answer within {self.timeout_s:g} s") from None
        except (aiohttp.ClientError, OSError, ValueError) as error:
            if isinstance(error, aiohttp.ClientConnectorError) and error.os_error.errno == errno.ECONNREFUSED:
                why = "nothing listens there: start the server (judgekit serve, vllm serve, …), or correct the url"
            else:
                why = f"{type(error).__name__}: {error}".replace(self._query or "?", "?")
            lost = JudgeUnavailable(f"{self} cannot be reached: {why}")
            lost.lost = True
            raise lost from None
        if _is_redirect(status):
            raise JudgeUnavailable(
                f"{self} answered HTTP {status}, to {_shown(told.get('Location', ''))}: if the server has moved, give that address"
            )
        if status >= 400:
            raise _refusal(str(self) if status != 404 else url.partition("?")[0], status, told, raw)
        if not reads:
            return {}
        try:
            answer = json.loads(raw)  # accepts NaN, so that one such number does not spoil the other answers
        except (ValueError, RecursionError):
            raise JudgeUnavailable(f"{self} answered {len(raw)} bytes that are not JSON") from None
        if not isinstance(answer, dict):
            raise JudgeUnavailable(f"{self} answered with JSON that is not an object")
        return answer

    async def _body(self, response: aiohttp.ClientResponse) -> bytes:
        """Read a body. Raises JudgeUnavailable if it has no end."""
        body = bytearray()
        async for part in response.content.iter_any():
            body += part
            if len(body) > _MOST_BYTES:
                raise JudgeUnavailable(f"{self} answered with more than {_MOST_BYTES >> 20} MiB")
        return bytes(body)


def _most_connections() -> int:
    """Return how many connections one client may open: half of the files that this process may have open."""
    try:
        import resource
    except ImportError:  # not on Windows
        return 256
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _MOST_CONNECTIONS if soft == resource.RLIM_INFINITY else max(1, min(soft // 2, _MOST_CONNECTIONS))


class Sessions:
    """A client's connections, of the event loop that used it last. Raises ConfigError."""

    def __init__(
        self, key: Secret, timeout_s: float, max_connections: int, key_header: str = "Authorization"
    ) -> None:
        if max_connections < 1:
            raise ConfigError(f"max_connections is at least 1, not {max_connections}")
        self.max_connections = max_connections
        self._key, self._key_header = key, key_header
        self._timeout_s = timeout_s
        self.connected_at = 0.0
        """Monotonic time of the newest connection."""
        self._session: Session | None = None

    def here(self) -> Session:
        """Return the running loop's."""
        session = self._session
        if session is None or session.loop is not asyncio.get_running_loop():
            session = self._session = Session(
                self._key, self._timeout_s, self.max_connections, self._key_header, self._connected
            )
        return session

    async def _connected(self, *_: object) -> None:
        self.connected_at = time.monotonic()

    async def close(self) -> None:
        """Close the running loop's; those of another loop close with it."""
        session, self._session = self._session, None
        if session is not None and session.loop is asyncio.get_running_loop():
            await session.keeper.aclose()


class Session:
    """The connections of one event loop, closed when the loop ends or nobody holds them."""

    def __init__(
        self, key: Secret, timeout_s: float, max_connections: int, key_header: str, connected: Any
    ) -> None:
        import aiohttp

        headers = {"Content-Type": "application/json"}
        if secret := key.reveal():
            headers[key_header] = f"Bearer {secret}" if key_header == "Authorization" else secret
        tracing = aiohttp.TraceConfig()
        tracing.on_connection_create_end.append(connected)
        connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=KEEP_ALIVE_S)
        self.loop = asyncio.get_running_loop()
        self.places = asyncio.Semaphore(max_connections)
        self.client = aiohttp.ClientSession(
            headers=headers,
            connector=connector,
            trace_configs=[tracing],
            timeout=aiohttp.ClientTimeout(total=timeout_s, sock_connect=min(10.0, timeout_s)),
        )
        self.keeper = _keep(self.client)
        self._first = asyncio.ensure_future(self.keeper.__anext__())
        # Engines are dropped unclosed, by hosts too. The finaliser holds the client, so that it runs before aiohttp's.
        finalize(self, _let_go, self.client, asyncio.get_running_loop())


async def _keep(client: aiohttp.ClientSession) -> AsyncGenerator[None, None]:
    """Close the connections when the loop shuts down, which finalises its generators."""
    try:
        yield
    finally:
        await client.close()


def _let_go(client: aiohttp.ClientSession, loop: asyncio.AbstractEventLoop) -> None:
    """Close what nobody holds any more, from any thread: in its loop, or at once where that is closed."""
    if client.closed:
        return
    try:
        loop.call_soon_threadsafe(lambda: loop.create_task(client.close()))
    except RuntimeError:  # the loop is closed
        closing = client.close()
        with contextlib.suppress(StopIteration):
            closing.send(None)


def _is_redirect(status: int) -> bool:
    return 300 <= status < 400


def _shown(location: str) -> str:
    """An address without what may be secret in it."""
    try:
        parts = urlsplit(location[:300])
    except ValueError:
        return "an address that is none"
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="").geturl() or "nowhere"


class Words(msgspec.Struct, frozen=True):
    """What a server says of an error, in its body."""

    shown: str
    """Its message, and its code where the message does not have it."""
    field: str = ""
    """The field of the request that it names."""
    code: str = ""
    """Its code and its type, in small letters."""


def words_of(parsed: Any) -> Words:
    """Read an error's body: `error.message`, `.code`, `.type` and `.param`, or the same beside it."""
    if isinstance(parsed, list) and parsed:  # Gemini's
        parsed = parsed[0]
    if not isinstance(parsed, dict):
        return Words("")
    error = parsed.get("error") or parsed
    if not isinstance(error, dict):
        error = {"message": str(error), "type": parsed.get("error_type")}  # TGI's
    said = str(error.get("message") or error.get("detail") or "")[:300]
    codes = [str(error.get(key)) for key in ("code", "type", "error_type", "status") if error.get(key)]
    code = next((c[:100] for c in codes if not c.isdigit()), "")
    field = error.get("param")
    shown = said if not code or code in said else f"{said} ({code})" if said else code
    return Words(shown, field[:100] if isinstance(field, str) else "", " ".join(codes).lower())


_BUSY = re.compile(r"rate_?limit|overload|capacity|unavailable")
_UNPAID = re.compile(r"insufficient_quota|arrearage|billing|payment")
_WROTE_NO_JSON = "json_validate_failed"
_ENGINE = re.compile(
    r"(?:\S+ )?(?:out of memory|(?:model|server|engine) is (?:currently )?overloaded)", re.IGNORECASE
)
"""What an engine that is at its end says first; further on, a message may quote the prompt."""


def _refusal(who: str, status: int, headers: Mapping[str, str], raw: bytes) -> JudgeError:
    """Map an HTTP error to a judge error. What a server says of itself is no prompt's fault, whatever the status."""
    words = Words("")
    with contextlib.suppress(ValueError, AttributeError, RecursionError):
        words = words_of(json.loads(raw))
    said = f"{who} answered HTTP {status}: {words.shown or raw[:100].decode('utf-8', 'replace')}"
    if status in (401, 403):
        return JudgeRejected(
            f"{who} refuses the API key (HTTP {status}): check api_key or LLM_JUDGE_SERVER_API_KEY", status
        )
    if _UNPAID.search(words.code):  # no wait will end it
        rejected = JudgeRejected(said, status)
        rejected.own = True
        return rejected
    if status == 500 and TOO_LONG.search(words.shown):
        return JudgeRejected(said, status)
    if _WROTE_NO_JSON in words.code:
        return JudgeUnavailable(f"{said}: the judge's reply is no JSON")
    busy = status < 500 and (_BUSY.search(words.code) or _ENGINE.match(words.shown))
    if status in (408, 409, 424, 425, 429, 498) or status >= 500 or busy:
        wait = retry_after(headers)
        asks = "" if wait is None else f" (asks to wait {wait:g} s)"
        unavailable = JudgeUnavailable(said + asks, retry_after=wait)
        # with another status it may be about this request alone (more tokens than the limit of a minute): nobody else waits
        unavailable.refused = status in (429, 503)
        return unavailable
    return JudgeRejected(said, status, words.field)


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the seconds that the server asks to wait.

    `Retry-After` in seconds or as a date, `retry-after-ms`, or the longest reset of an exhausted rate limit: the headers
    `x-ratelimit-remaining-…` and `-reset-…` of OpenAI (`6m0s`), `anthropic-ratelimit-…-remaining` and `-reset` (a time).
    """
    waits = [_seconds(headers.get("Retry-After", "")), _seconds(headers.get("retry-after-ms", ""), 1000)]
    if all(wait is None for wait in waits):
        for kind in ("requests", "tokens", "input-tokens", "output-tokens"):
            for left, reset in (
                (f"x-ratelimit-remaining-{kind}", f"x-ratelimit-reset-{kind}"),
                (f"anthropic-ratelimit-{kind}-remaining", f"anthropic-ratelimit-{kind}-reset"),
            ):
                if headers.get(left) == "0":
                    waits.append(_seconds(headers.get(reset, "")))
    return max((wait for wait in waits if wait is not None and 0 <= wait <= _LONGEST_S), default=None)


_LONGEST_S = 7 * 86400.0
"""A server that asks for a longer pause than a week means something else."""


def _seconds(text: str, per_second: float = 1.0) -> float | None:
    """Read a number, a duration such as `1m2.5s` or `20ms`, or a time (HTTP's, or RFC 3339), as seconds from now."""
    with contextlib.suppress(ValueError):
        return float(text) / per_second
    if text and (parts := _DURATION.fullmatch(text)):
        units = (3600.0, 60.0, 1.0, 0.001)
        return sum(float(part) * unit for part, unit in zip(parts.groups(), units, strict=True) if part)
    for read in (parsedate_to_datetime, datetime.fromisoformat):
        with contextlib.suppress(ValueError, TypeError, OverflowError):  # TypeError: it has no time zone
            return max(0.0, (read(text) - datetime.now(UTC)).total_seconds())
    return None


_DURATION = re.compile(r"(?:(\d+)h)?(?:(\d+)m)?(?:(\d+(?:\.\d+)?)s)?(?:(\d+(?:\.\d+)?)ms)?")


def server_address(url: str, example: str) -> str:
    """Return *url* with its scheme, checked, without a slash at its end. *example*: of a right one, for the ConfigError."""
    try:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        fine = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port or an IPv6 address that is none
        fine = False
    if not fine:
        raise ConfigError(f"{url!r} is not a server address such as {example}")
    if parts.username or parts.password:
        raise ConfigError("the address must not contain a password: give the key as api_key=")
    return f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}"


def base_url(url: str) -> tuple[str, str]:
    """Return the address below which the interface is, and its query. `/v1` is added where the path names no version."""
    if not url:
        raise ConfigError("give the server's url=, or set LLM_JUDGE_SERVER_URL")
    address = server_address(url, "http://127.0.0.1:8000/v1")
    query = urlsplit(url).query
    path = urlsplit(address).path
    return address + ("" if _VERSIONED.search(path) else "/v1"), f"?{query}" if query else ""


_VERSIONED = re.compile(r"/v[0-9]+(?:alpha|beta)?[0-9]*(?:/|$)|/deployments/[^/]+$")
"""Paths that are whole: OpenAI's `/v1`, Gemini's `/v1beta/openai`, others' `/v4`, Azure's deployments."""


def _timeout(given: float | None) -> float:
    text = os.environ.get("LLM_JUDGE_SERVER_TIMEOUT", "60")
    try:
        seconds = float(text) if given is None else float(given)
    except ValueError:
        raise ConfigError(f"LLM_JUDGE_SERVER_TIMEOUT is a number of seconds, not {text!r}") from None
    if not seconds > 0:
        raise ConfigError(f"timeout_s is a number of seconds above 0, not {seconds:g}")
    return seconds
