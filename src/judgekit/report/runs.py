"""Several ledgers together: a row for each, curves of their steps, and two of them compared; live, as each of them is."""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable, Sequence
from pathlib import Path
from typing import Any

from aiohttp import web

from judgekit.errors import DataError
from judgekit.ledger.reader import files_in
from judgekit.metrics import SignalLimits
from judgekit.metrics.moments import is_flat
from judgekit.report.access import Access, as_json
from judgekit.report.comparison import comparison
from judgekit.report.costs import costs
from judgekit.report.page import packed, shell
from judgekit.report.table import STATES, Table
from judgekit.report.view import View
from judgekit.report.warnings import signals
from judgekit.types import GRADED, Price


def ledgers_in(paths: Iterable[Path]) -> list[Path]:
    """Return the ledgers that *paths* are: files, folders of one ledger's files, or folders of such folders."""
    found: list[Path] = []
    for path in paths:
        if path.is_dir() and not files_in(path):
            inside = {file.parent for file in files_in(path, below=True)}
            if not inside:
                raise DataError(f"{path} holds no ledger: there is no file *.jsonl in it or below it")
            found += sorted(inside)
        else:
            found.append(path)
    return list(dict.fromkeys(found))


def names_of(ledgers: Sequence[Path]) -> list[str]:
    """Return what tells the ledgers apart: their paths below the folder that holds them all."""
    whole = [str(path.resolve()) for path in ledgers]
    above = os.path.commonpath([os.path.dirname(path) for path in whole])
    return [os.path.relpath(path, above) for path in whole]


def summary(table: Table) -> dict[str, Any]:
    """Sum a ledger up: counts, means, and the same by training step. Fits JSON; what is not known is null."""
    shown = list(table.shown())
    finished = [row for row in shown if table.status(row) != "unfinished"]
    scored = [row for row in finished if table.status(row) == "scored"]
    groups = _by(table.codes["group"], shown)
    failed = STATES.index("failed")
    counts = {
        name: sum(column.state[row] == failed for row in shown) for name, column in table.graders.items()
    }
    times = [table.numbers["time"][row] for row in shown]
    return {
        "rollouts": len(shown),
        "groups": len(groups),
        "reward": _mean(table.numbers["reward"][row] for row in scored),
        "missing": _mean(table.status(row) not in GRADED for row in finished),
        "flat": _flat([table.numbers["raw"][row] for row in rows] for rows in groups.values()),
        "length": _mean(table.lengths[row] for row in shown),
        "unit": table.length,
        "failed": {name: count for name, count in counts.items() if count},
        "tokens": table.usage.prompt_tokens + table.usage.completion_tokens,
        "ended": max(times, default=None),
        "steps": [
            {
                "step": step,
                "reward": _mean(
                    table.numbers["reward"][row] for row in rows if table.status(row) == "scored"
                ),
                "graders": {
                    name: _mean(column.score[row] for row in rows) for name, column in table.graders.items()
                },
            }
            for step, rows in sorted(_by(table.numbers["step"], shown).items())
        ],
    }


def render_runs(
    ledgers: Sequence[Path], title: str, *, limits: SignalLimits | None = None, price: Price | None = None
) -> str:
    """Make a page of several ledgers that needs no server: their rows and curves, of two also the comparison, no rollouts.

    A ledger that cannot be read says why in its row. Raises DataError if none of them holds rollouts.
    """
    told, tables = [], []
    for path, name in zip(ledgers, names_of(ledgers), strict=True):
        table, problem = Table(path), ""
        try:
            table.read(end=True)
        except DataError as error:
            problem = str(error)
        raised = [one.text for one in signals(table, limits) if one.raised] if table.rows else []
        known = {"name": name, "problem": problem, "caught_up": True, "signals": raised}
        told.append({**known, **summary(table), "usd": costs(table, price)["usd"]})
        if len(ledgers) == 2:
            tables.append(table)
    if not any(one["rollouts"] for one in told):
        raise DataError(f"none of the {len(told)} ledgers in {title} holds rollouts that can be read")
    compared = comparison(*tables) if tables else None
    return shell(title, connect=False, islands=[("runs", packed({"runs": told, "compared": compared}))])


def _by(column: Sequence[float], rows: Iterable[int]) -> dict[float, list[int]]:
    """Rows by their value in a column, where they have one."""
    found: dict[float, list[int]] = defaultdict(list)
    for row in rows:
        if not math.isnan(column[row]):
            found[column[row]].append(row)
    return found


def _flat(groups: Iterable[Sequence[float]]) -> float | None:
    """The share of groups of several rewards that are all equal."""
    several = [known for group in groups if len(known := [x for x in group if x == x]) > 1]
    return sum(map(is_flat, several)) / len(several) if several else None


def _mean(values: Iterable[float]) -> float | None:
    known = [x for x in values if math.isfinite(x)]
    return math.fsum(known) / len(known) if known else None


class Runs:
    """Serves several ledgers: `async with Runs(paths).served() as url`. Each has its own page, below its number."""

    def __init__(
        self, ledgers: Sequence[Path], *, limits: SignalLimits | None = None, price: Price | None = None
    ) -> None:
        self.access = Access()
        self.views = [View(path, limits=limits, price=price, access=self.access) for path in ledgers]
        self.names = names_of(ledgers)
        self.limits = limits
        self.price = price
        self._told: dict[int, tuple[tuple[int, bool], dict[str, Any]]] = {}
        """What was said of each ledger, and of how many rows, read to the end or not."""
        self._raised: dict[int, tuple[int, list[str]]] = {}
        """Its signals, and of how many rows: they take longer, and come with a later answer."""
        self._working = asyncio.Lock()

    @contextlib.asynccontextmanager
    async def served(self, port: int = 0) -> AsyncIterator[str]:
        """Serve until the end of the block; gives the page's address. Raises DataError where the port is taken."""
        app = web.Application(middlewares=[self.access.guard])
        app.add_routes(
            [
                web.get("/", self._page),
                web.get("/api/runs", self._runs),
                web.get("/api/comparison", self._comparison),
            ]
        )
        for number, view in enumerate(self.views):
            app.add_subapp(f"/{number}/", view.app())
        try:
            async with self.access.served(app, *(view.follow for view in self.views), port=port) as url:
                yield url
        finally:
            for view in self.views:
                view.close()

    async def _page(self, request: web.Request) -> web.Response:
        return web.Response(
            text=shell("runs", connect=True, islands=[("runs", "")]), content_type="text/html"
        )

    async def _runs(self, request: web.Request) -> web.Response:
        async with self._working:  # one answer at a time: they are long
            return as_json([await self._one(number) for number in range(len(self.views))])

    async def _one(self, number: int) -> dict[str, Any]:
        view, table = self.views[number], self.views[number].table
        now = table.rows, view.caught_up.is_set()
        if self._told.get(number, (None,))[0] != now:
            told = await asyncio.to_thread(summary, table)
            self._told[number] = now, {**told, "usd": costs(table, self.price)["usd"]}
        elif now[1] and table.rows and self._raised.get(number, (0,))[0] != table.rows:
            with contextlib.suppress(DataError, OSError):  # it is being replaced
                found = await asyncio.to_thread(signals, table, self.limits)
                self._raised[number] = now[0], [one.text for one in found if one.raised]
        return {
            "name": self.names[number],
            "problem": view.problem,
            "caught_up": now[1],
            "signals": self._raised.get(number, (0, []))[1],
            **self._told[number][1],
        }

    async def _comparison(self, request: web.Request) -> web.Response:
        try:
            before, after = (
                dict(enumerate(self.views))[int(request.query[key])] for key in ("before", "after")
            )
        except (LookupError, ValueError):
            raise web.HTTPBadRequest(text="compare two ledgers by their numbers: ?before=0&after=1") from None
        await before.caught_up.wait()
        await after.caught_up.wait()
        return as_json(await asyncio.to_thread(comparison, before.table, after.table))
