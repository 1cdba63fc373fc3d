"""The server behind `judgekit view`: the report's page over a ledger of any size, live while a run writes to it.

It listens on 127.0.0.1 only. A ledger holds what was graded, so each request must carry the token that the printed
address has behind its `#` (browsers never send that part), and must name this host: no page of another site, and no
other user of the machine, can read it.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import secrets
import sys
from bisect import bisect_right
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import anyio
import msgspec
from aiohttp import web

from judgekit.errors import DataError
from judgekit.ledger.jsonl import encoded
from judgekit.metrics import SignalLimits
from judgekit.report.audits import audited_at, audits_of
from judgekit.report.comparison import comparison
from judgekit.report.costs import costs
from judgekit.report.marks import Mark, write_mark
from judgekit.report.page import cut, marks_of, shell
from judgekit.report.table import LedgerChanged, Table
from judgekit.report.warnings import signals, to_json
from judgekit.types import Price

_SLICE = 200
"""Rows that are read between two looks at the requests: some 3 ms."""
_SEARCHED = 8_000_000
"""Bytes of a ledger that are searched at once."""
_POLL_S = 1.0
_LONGEST = 1_000_000
"""Longer texts are cut in the middle to this many characters."""

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class View:
    """Serves one ledger: `async with View(path).served() as url`. *against*: an earlier ledger to compare with.

    *price*: of judges whose price the ledger does not hold.
    """

    def __init__(
        self,
        ledger: Path,
        *,
        against: Path | None = None,
        limits: SignalLimits | None = None,
        price: Price | None = None,
    ) -> None:
        self.table = Table(ledger)
        self.before = Table(against) if against is not None else None
        self.limits = limits
        self.price = price
        self.token = secrets.token_urlsafe(16)
        self.caught_up = asyncio.Event()
        """Whether all that was in the ledger has been read."""
        self.problem = ""
        """Why nothing more is read."""
        self.port = 0
        self._lock = asyncio.Lock()
        self._signals: tuple[int, list[dict[str, Any]]] = (-1, [])
        self.generation = 0
        """How often the ledger was read from its beginning again: rows of one generation are not those of another."""

    @contextlib.asynccontextmanager
    async def served(self, port: int = 0) -> AsyncIterator[str]:
        """Serve until the end of the block; gives the page's address.

        Raises DataError where the port is taken or the ledger's beginning cannot be read.
        """
        self.table.read(_SLICE)
        app = web.Application(middlewares=[self._guard])
        app.add_routes(
            [
                web.get("/", self._page),
                web.get("/api/state", self._state),
                web.get("/api/block/{number:[0-9]+}", self._block),
                web.get("/api/rollout/{row:[0-9]+}", self._rollout),
                web.get("/api/search", self._search),
                web.get("/api/signals", self._told),
                web.get("/api/costs", self._costs),
                web.get("/api/audits", self._audits),
                web.get("/api/comparison", self._comparison),
                web.post("/api/mark", self._mark),
            ]
        )
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=1)
        await runner.setup()
        try:
            site = web.TCPSite(runner, "127.0.0.1", port)
            try:
                await site.start()
            except OSError as error:
                raise DataError(
                    f"cannot serve on port {port}: {error.strerror}; give --port another"
                ) from None
            self.port = runner.addresses[0][1]
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._read)
                yield f"http://127.0.0.1:{self.port}/#{self.token}"
                tasks.cancel_scope.cancel()
        finally:
            await runner.cleanup()

    async def _read(self) -> None:
        while True:
            added = 0
            async with self._lock:
                try:
                    added = self.table.read(_SLICE)
                    if self.before is not None:
                        added += self.before.read(_SLICE)
                    self.problem = ""
                except LedgerChanged:
                    self._begin_again()
                    continue
                except DataError as error:  # what was read stays on the page, and it is tried again
                    self.problem = f"nothing more is read: {error}"
            if added:
                await asyncio.sleep(0)
            else:
                self.caught_up.set()
                await asyncio.sleep(_POLL_S)

    def _begin_again(self) -> None:
        """Forget what was read; a search that is under way ends on the old table."""
        self.generation += 1
        self.caught_up.clear()
        self._signals = (-1, [])
        self.table = Table(self.table.path)
        if self.before is not None:
            self.before = Table(self.before.path)

    @web.middleware
    async def _guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        if request.host not in (f"127.0.0.1:{self.port}", f"localhost:{self.port}"):
            raise web.HTTPForbidden(text="this page is only served under 127.0.0.1")
        token = request.headers.get("Authorization", "").removeprefix("Bearer ")
        if request.path != "/" and not secrets.compare_digest(
            token.encode("utf-8", "surrogateescape"), self.token.encode()
        ):
            raise web.HTTPForbidden(text="open the address that judgekit view printed, with all behind the #")
        if request.path in ("/", "/api/state"):
            response = await handler(request)
        else:
            response = await self._of_generation(request, handler)
        response.headers["Cache-Control"] = "no-store"
        response.headers["X-Content-Type-Options"] = "nosniff"
        response.headers["X-Frame-Options"] = "DENY"
        response.headers["Referrer-Policy"] = "no-referrer"
        return response

    async def _of_generation(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Answer about rows: only of the generation that the page has, before and after."""
        asked = request.headers.get("Generation", str(self.generation))
        try:
            if asked == str(self.generation):
                response = await handler(request)
                if asked == str(self.generation):
                    return response
        except (OSError, DataError) as error:
            raise web.HTTPGone(text=f"what was read is not in the ledger any more: {error}") from None
        raise web.HTTPConflict(text="the ledger was replaced and is being read again")

    async def _page(self, request: web.Request) -> web.Response:
        return web.Response(text=shell("ledger", connect=True), content_type="text/html")

    async def _state(self, request: web.Request) -> web.Response:
        try:
            marks, problem = marks_of(self.table), self.problem
        except DataError as error:
            marks, problem = [], str(error)
        return _json(
            {
                "generation": self.generation,
                "facts": self.table.facts(),
                "blocks": self.table.blocks,
                "caught_up": self.caught_up.is_set(),
                "read": self.table.read_bytes,
                "size": max(self.table.read_bytes, self._size()),
                "marks": marks,
                "audited": str(audited_at(self.table.path)),
                "problem": problem,
                "compares": self.before is not None,
            }
        )

    def _size(self) -> int:
        try:
            return self.table.size
        except (OSError, DataError):
            return 0

    async def _block(self, request: web.Request) -> web.Response:
        number = int(request.match_info["number"])
        if number >= self.table.blocks:
            raise web.HTTPNotFound
        return _json(self.table.block(number))

    def _row(self, text: Any) -> int:
        row = int(text)
        if not 0 <= row < self.table.rows:
            raise web.HTTPNotFound
        return row

    async def _rollout(self, request: web.Request) -> web.Response:
        return _json(cut(self.table.rollout(self._row(request.match_info["row"])), _LONGEST))

    async def _search(self, request: web.Request) -> web.Response:
        given = request.query.get("from", "")
        first = int(given) if given.isdecimal() else 0
        found = await asyncio.to_thread(matching_rows, self.table, request.query.get("text", ""), first)
        return _json(found)

    async def _told(self, request: web.Request) -> web.Response:
        rows = self.table.rows
        async with self._lock:  # the table stands still
            if self._signals[0] != rows:
                self._signals = (
                    rows,
                    to_json(await asyncio.to_thread(signals, self.table, self.limits)),
                )
        return _json(self._signals[1])

    async def _costs(self, request: web.Request) -> web.Response:
        return _json(costs(self.table, self.price))

    async def _audits(self, request: web.Request) -> web.Response:
        return _json(audits_of(self.table.path))

    async def _comparison(self, request: web.Request) -> web.Response:
        if self.before is None:
            raise web.HTTPNotFound
        await self.caught_up.wait()
        async with self._lock:
            return _json(await asyncio.to_thread(comparison, self.before, self.table))

    async def _mark(self, request: web.Request) -> web.Response:
        try:
            given = msgspec.json.decode(await request.read(), type=_Given)
        except msgspec.DecodeError as error:
            raise web.HTTPBadRequest(text=str(error)) from None
        rollout = self.table.rollout(self._row(given.row))
        mark = Mark(rollout["run"], rollout["index"], given.mark, given.note, rollout.get("id", ""))
        try:
            write_mark(self.table.path, mark)
        except OSError as error:
            raise web.HTTPInsufficientStorage(text=f"the mark was not kept: {error.strerror}") from None
        return _json({})


class _Given(msgspec.Struct, forbid_unknown_fields=True):
    """What the page sends for a mark."""

    row: int
    mark: Literal["good", "bad", ""] = ""
    note: str = ""


def matching_rows(table: Table, text: str, first_row: int = 0) -> list[int]:
    """Rows from *first_row* whose line holds *text*, in upper or lower case: prompts, responses, reasons, ids."""
    if not text:
        return list(range(first_row, table.rows))
    # bytes have cases in ASCII only: of other letters, what was typed and both cases of all of it are looked for
    needles = dict.fromkeys(encoded(form).strip()[1:-1] for form in (text, text.lower(), text.upper()))
    pattern = re.compile(b"|".join(map(re.escape, needles)), re.IGNORECASE)
    ambiguous = pattern.search(_STRUCTURE) is not None or all(map(_NUMERIC.fullmatch, needles))
    found: list[int] = []
    for path, rows, starts, ends in table.lines(first_row):
        with open(path, "rb") as file:
            first = 0
            while first < len(rows):
                after = max(first + 1, bisect_right(ends, starts[first] + _SEARCHED))
                file.seek(starts[first])
                data = file.read(ends[after - 1] - starts[first])
                found += [
                    rows[place]
                    for place in _matching(data, pattern, starts, ends, first)
                    if not ambiguous or _holds(cut(table.rollout(rows[place]), sys.maxsize), pattern)
                ]
                first = after
    return sorted(found)


def _matching(
    data: bytes, pattern: re.Pattern[bytes], starts: Sequence[int], ends: Sequence[int], first: int
) -> Iterator[int]:
    """Places of the lines in *data* that match; it begins with the line at place *first*."""
    base = starts[first]
    at = 0
    while match := pattern.search(data, at):
        place = bisect_right(starts, base + match.start()) - 1
        inside = base + match.start() < ends[place]  # else in a line of another kind
        if inside:
            yield place
        at = ends[place] - base if inside else match.end()


def _holds(value: Any, pattern: re.Pattern[bytes]) -> bool:
    """Whether a value, or one inside it, matches: keys and kinds of the format do not count."""
    if isinstance(value, str):
        return pattern.search(encoded(value)) is not None
    if isinstance(value, list):
        return any(_holds(item, pattern) for item in value)
    if isinstance(value, dict):
        return any(_holds(item, pattern) for key, item in value.items() if key not in _OWN)
    return False


_NUMERIC = re.compile(rb"[0-9a-f.+-]+", re.IGNORECASE)
"""What may stand in a time, a score or a digest."""
_OWN = frozenset(("type", "kind", "status", "spec", "run", "rollout_digest"))
"""Fields whose texts are the ledger's own."""
_STRUCTURE = encoded(
    {
        "type rollout kind graded abstained skipped failed infrastructure scored neutral excluded masked constant": 0,
        "spec time run index group id tags reward status raw_reward contributions residual grades missing policies": 0,
        "usage calls prompt_tokens cached_tokens completion_tokens wall_s data_source finish_reason response_tokens": 0,
        "response_chars rollout_digest prompt messages response ground_truth extra role content": 0,
        "score reason metadata error detail retryable cause raw thinking model user assistant system tool": 0,
    }
)
"""Words of the format itself: a text that is part of them stands in every line."""


def _json(value: Any) -> web.Response:
    return web.Response(body=encoded(value), content_type="application/json")
