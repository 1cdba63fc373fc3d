"""Who may ask a server of pages: whoever has its secret, from this machine.

It listens on 127.0.0.1 only. A ledger holds what was graded, so each request must carry the token that the printed
address has behind its `#` (browsers never send that part), and must name this host: no page of another site, and no
other user of the machine, can read it.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from typing import Any

import anyio
from aiohttp import web

from judgekit.errors import DataError
from judgekit.ledger.jsonl import encoded

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Access:
    """The secret of a server, and where it listens."""

    def __init__(self) -> None:
        self.token = secrets.token_urlsafe(16)
        self.port = 0

    @web.middleware
    async def guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Refuse what has no token, unless it is a page, which holds nothing."""
        if request.host not in (f"127.0.0.1:{self.port}", f"localhost:{self.port}"):
            raise web.HTTPForbidden(text="this page is only served under 127.0.0.1")
        token = request.headers.get("Authorization", "").removeprefix("Bearer ")
        if not request.path.endswith("/") and not secrets.compare_digest(
            token.encode("utf-8", "surrogateescape"), self.token.encode()
        ):
            raise web.HTTPForbidden(text="open the address that judgekit view printed, with all behind the #")
        response = await handler(request)
        response.headers["Cache-Control"] = "no-store"
        response.headers["X-Content-Type-Options"] = "nosniff"
        response.headers["X-Frame-Options"] = "DENY"
        response.headers["Referrer-Policy"] = "no-referrer"
        return response

    @contextlib.asynccontextmanager
    async def served(
        self, app: web.Application, *tasks: Callable[[], Coroutine[Any, Any, Any]], port: int = 0
    ) -> AsyncIterator[str]:
        """Serve until the end of the block, while *tasks* run; gives the page's address. Raises DataError where the port is taken."""
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
            async with anyio.create_task_group() as group:
                for task in tasks:
                    group.start_soon(task)
                yield f"http://127.0.0.1:{self.port}/#{self.token}"
                group.cancel_scope.cancel()
        finally:
            await runner.cleanup()


def as_json(value: Any) -> web.Response:
    return web.Response(body=encoded(value), content_type="application/json")
