"""The event loop on which judges live: one for the whole process."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from judgekit.errors import ConfigError
from judgekit.execution.background import in_background

T = TypeVar("T")


async def at_home(function: Callable[..., Coroutine[Any, Any, T]], *args: Any) -> T:
    """Await `function(*args)`, a judge's, on the loop where all judges live.

    Raises ConfigError where the judge has a client or a lock of another loop.
    """
    try:
        return await in_background(function, *args)
    except RuntimeError as error:
        if "different" in str(error) and "loop" in str(error):
            raise ConfigError(
                "judges run on an event loop of judgekit's own, and this one uses something of another loop "
                f"({error}): make its client, session or lock in its start() or on its first call"
            ) from error
        raise
