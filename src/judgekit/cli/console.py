"""What all commands share: the console, the end after an error, and the end after a signal."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Iterator
from typing import TYPE_CHECKING, NoReturn, TypeVar

import anyio
import anyio.abc
import typer
from rich.console import Console

from judgekit.errors import first_error

if TYPE_CHECKING:
    from judgekit.ledger.writer import Ledger

T = TypeVar("T")


def _width() -> int | None:
    """The terminal's width (None), or 140 columns where there is no terminal that says one."""
    terminal = sys.stdout is not None and not sys.stdout.closed and sys.stdout.isatty()
    return None if terminal or os.environ.get("COLUMNS", "").isdecimal() else 140


out = Console(highlight=False, markup=False, emoji=False, width=_width())


def say(text: str = "") -> None:
    """Print *text* to stdout: unwrapped and literal, for it may hold paths and words of a rollout."""
    out.print(text, markup=False, soft_wrap=True)


@contextlib.contextmanager
def prints_aside(aside: bool) -> Iterator[None]:
    """Let what graders, their modules and worker processes print go to stderr, where stdout is for rows or JSON alone."""
    if not aside or sys.stdout is None or sys.stderr is None:
        yield
        return
    sys.stdout.flush()
    try:
        kept = os.dup(1) if sys.stdout.fileno() == 1 else None
    except (OSError, ValueError):  # a stream of Python's only
        kept = None
    try:
        if kept is not None:
            os.dup2(2, 1)
        with contextlib.redirect_stdout(sys.stderr):
            yield
    finally:
        if kept is not None:
            os.dup2(kept, 1)
            os.close(kept)


def fail(error: BaseException | str, *, code: int) -> NoReturn:
    """End the command with one sentence on stderr."""
    _tell(error)
    sys.exit(code)


def _tell(text: BaseException | str) -> None:
    Console(stderr=True, highlight=False, emoji=False).print(
        f"judgekit: {one_line(str(text))}", markup=False, soft_wrap=True
    )


def not_kept(ledger: Ledger | None, advice: str) -> str:
    """Say that lines are not in a ledger that was closed, with what to do; "" if all are."""
    if ledger is None or not ledger.lost:
        return ""
    return f"{ledger.lost} lines are not in the ledger {ledger.path}, whose disk took no more: {advice}"


def many(count: int, what: str) -> str:
    """Return a count with its noun: "1 group", "2 groups"."""
    return f"{count} {what}{'' if count == 1 else 's'}"


def one_line(text: str) -> str:
    """Return *text* for a terminal: it may quote a file or a rollout, whose control characters must not reach it."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())


def visible(text: str) -> str:
    """Return a text of several lines for a terminal, its control characters written out."""
    return "".join(c if c.isprintable() or c in "\n\t" else repr(c)[1:-1] for c in text)


def run(
    main: Callable[[], Awaitable[T]], *signals: signal.Signals, ended: Callable[[], str] | None = None
) -> T:
    """Run *main* on an event loop; each of *signals* cancels it and exits with 128 + its number.

    *ended*: what to say on stderr then, and after Ctrl-C. *main* gets the time that its clean-up takes. A second signal has its usual effect, in case that takes too long.
    Signals that are not given keep their usual effect, which for Ctrl-C is to cancel *main* as well.
    """
    received: list[int] = []

    async def listen(
        scope: anyio.CancelScope, *, task_status: anyio.abc.TaskStatus[None] = anyio.TASK_STATUS_IGNORED
    ) -> None:
        with anyio.open_signal_receiver(*signals) as arriving:
            task_status.started()
            async for number in arriving:
                received.append(number)
                break
        # cancelled after the receiver is closed, so that a second signal is not swallowed
        scope.cancel()

    async def watched() -> T | None:
        value: T | None = None
        try:
            async with anyio.create_task_group() as tasks:
                await tasks.start(listen, tasks.cancel_scope)  # before *main*: no signal is ever missed
                value = await main()
                tasks.cancel_scope.cancel()
        except BaseExceptionGroup as errors:
            raise first_error(errors) from None
        return value

    try:
        value = anyio.run(watched)
    except KeyboardInterrupt:
        if ended is not None:
            _tell(ended())
        raise
    if received:
        if ended is not None:
            _tell(ended())
        raise typer.Exit(128 + received[0])
    return value  # type: ignore[return-value]
