"""The server behind `judgekit view`: the report's page over a ledger of any size, live while a run writes to it."""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Annotated, Any, Literal

import anyio
import anyio.to_process
import msgspec
from aiohttp import web

from judgekit.errors import DataError
from judgekit.metrics import SignalLimits
from judgekit.report.access import Access, Handler, as_json
from judgekit.report.audits import audited_at, audits_of
from judgekit.report.costs import costs
from judgekit.report.marks import Mark, write_mark
from judgekit.report.page import marks_of, shell, told
from judgekit.report.search import Texts, Wanted, matching
from judgekit.report.table import LedgerChanged, Table
from judgekit.report.warnings import signals, to_json
from judgekit.types import Price

_SLICE = 100
"""Rows that are read between two looks at the requests: some 2 ms."""
_EXPRESSION_S = 30.0
"""A regular expression that takes longer is given up."""
_OPENING_S = 0.5
"""For so long after a page was asked for nothing is read: it would hold up the first rows, which are there."""
_POLL_S = 1.0
_LONGEST = 1_000_000
"""Longer texts are cut in the middle to this many characters."""


class View:
    """Serves one ledger: `async with View(path).served() as url`. *price*: of judges whose price the ledger does not hold."""

    def __init__(
        self,
        ledger: Path,
        *,
        limits: SignalLimits | None = None,
        price: Price | None = None,
        access: Access | None = None,
    ) -> None:
        self.table = Table(ledger)
        self.access = access or Access()
        self.limits = limits
        self.price = price
        self.caught_up = asyncio.Event()
        """Whether all that was in the ledger has been read."""
        self.problem = ""
        """Why nothing more is read."""
        self._lock = asyncio.Lock()
        self._searching = asyncio.Lock()
        self._texts = Texts()
        self._signals: tuple[int, list[dict[str, Any]]] = (-1, [])
        self._opening = -math.inf
        """When a page was last asked for."""
        self.generation = 0
        """How often the ledger was read from its beginning again: rows of one generation are not those of another."""

    @contextlib.asynccontextmanager
    async def served(self, port: int = 0) -> AsyncIterator[str]:
        """Serve until the end of the block; gives the page's address.

        Raises DataError where the port is taken or the ledger's beginning cannot be read.
        """
        self.table.read(_SLICE)
        try:
            async with self.access.served(self.app(self.access.guard), self.follow, port=port) as url:
                yield url
        finally:
            self.close()

    def app(self, *guards: Any) -> web.Application:
        """Return what answers about the ledger, behind *guards*: itself, it does not ask who wants to know."""
        app = web.Application(middlewares=[*guards, self._of_generation])
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
                web.post("/api/mark", self._mark),
            ]
        )
        return app

    def close(self) -> None:
        self._texts.close()

    async def follow(self) -> None:
        """Read what is in the ledger, and what comes."""
        while True:
            while self.table.rows and (wait := self._opening + _OPENING_S - time.monotonic()) > 0:
                await asyncio.sleep(wait)
            added = 0
            async with self._lock:
                try:
                    added = self.table.read(_SLICE)
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
                if (
                    not self._searching.locked()
                ):  # a long search holds nothing up: what is not in the index is read from the ledger
                    with contextlib.suppress(OSError):  # so is what has no room there
                        await self._indexed()
                await asyncio.sleep(_POLL_S)

    async def _indexed(self) -> None:
        async with self._searching:
            await asyncio.to_thread(self._texts.follow, self.table)

    def _begin_again(self) -> None:
        """Forget what was read; a search that is under way ends on the old table."""
        self.generation += 1
        self.caught_up.clear()
        self._signals = (-1, [])
        self.table = Table(self.table.path)
        self._texts.close()
        self._texts = Texts()

    @web.middleware
    async def _of_generation(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Answer about rows: only of the generation that the page has, before and after."""
        if request.path.endswith(("/", "/api/state")):
            return await handler(request)
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
        self._opening = time.monotonic()
        return web.Response(text=shell("ledger", connect=True), content_type="text/html")

    async def _state(self, request: web.Request) -> web.Response:
        try:
            marks, problem = marks_of(self.table), self.problem
        except DataError as error:
            marks, problem = [], str(error)
        first = self.table.block(0) if "first" in request.query and self.table.blocks else None
        return as_json(
            {
                "generation": self.generation,
                "facts": self.table.facts(),
                "blocks": self.table.blocks,
                "first": first,
                "caught_up": self.caught_up.is_set(),
                "read": self.table.read_bytes,
                "size": max(self.table.read_bytes, self._size()),
                "marks": marks,
                "audited": str(audited_at(self.table.path)),
                "problem": problem,
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
        return as_json(self.table.block(number))

    def _row(self, text: Any) -> int:
        row = int(text)
        if not 0 <= row < self.table.rows:
            raise web.HTTPNotFound
        return row

    async def _rollout(self, request: web.Request) -> web.Response:
        return as_json(told(self.table.rollout(self._row(request.match_info["row"])), _LONGEST))

    async def _search(self, request: web.Request) -> web.Response:
        asked = request.query
        first = int(given) if (given := asked.get("from", "")).isdecimal() else 0
        wanted = Wanted(asked.get("text", ""), asked.get("field", "text"), "regex" in asked)
        try:
            wanted.check()
        except DataError as error:
            raise web.HTTPBadRequest(text=str(error)) from None
        table, texts = self.table, self._texts
        async with self._searching:
            found = await asyncio.to_thread(texts.rows, table, wanted, first)
        if wanted.regex:
            places = [(row, table.place(row)) for row in found]
            with anyio.move_on_after(_EXPRESSION_S) as scope:
                found = await anyio.to_process.run_sync(matching, places, wanted, cancellable=True)
            if scope.cancelled_caught:
                raise web.HTTPBadRequest(
                    text=f"/{wanted.text}/ takes longer than {_EXPRESSION_S:.0f} s: put more plain letters in it"
                )
        return as_json(found)

    async def _told(self, request: web.Request) -> web.Response:
        rows = self.table.rows
        async with self._lock:  # the table stands still
            if self._signals[0] != rows:
                self._signals = (
                    rows,
                    to_json(await asyncio.to_thread(signals, self.table, self.limits)),
                )
        return as_json(self._signals[1])

    async def _costs(self, request: web.Request) -> web.Response:
        return as_json(costs(self.table, self.price))

    async def _audits(self, request: web.Request) -> web.Response:
        return as_json(audits_of(self.table.path))

    async def _mark(self, request: web.Request) -> web.Response:
        try:
            given = msgspec.json.decode(await request.read(), type=_Given)
        except msgspec.DecodeError as error:
            raise web.HTTPBadRequest(text=str(error)) from None
        rollout = self.table.rollout(self._row(given.row))
        mark = Mark(
            rollout["run"], rollout["index"], given.mark, given.note, rollout.get("id", ""), score=given.score
        )
        try:
            write_mark(self.table.path, mark)
        except OSError as error:
            raise web.HTTPInsufficientStorage(text=f"the mark was not kept: {error.strerror}") from None
        return as_json({})


class _Given(msgspec.Struct, forbid_unknown_fields=True):
    """What the page sends for a mark."""

    row: int
    mark: Literal["good", "bad", ""] = ""
    note: str = ""
    score: Annotated[float, msgspec.Meta(ge=0, le=1)] | None = None
