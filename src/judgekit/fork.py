"""What a forked child resets: one registry for the whole process.

A child has a copy of everything, but only the thread that forked. A lock that another thread held is never released
there, a loop that ran in another thread never answers, and places and lines of the parent's runs are the parent's.
Whoever owns such a thing registers how to reset it.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from typing import Any
from weakref import WeakMethod

Reset = Callable[[], None]

_resets: dict[Reset | WeakMethod[Reset], None] = {}
_parents: list[Any] = []


def in_child(reset: Reset) -> Reset:
    """Call *reset* in every forked child; a bound method only while its object lives."""
    _resets[WeakMethod(reset, _forget) if inspect.ismethod(reset) else reset] = None
    return reset


def leave_to_parent(*things: Any) -> None:
    """Keep what belongs to the parent: collecting its loops and tasks would run their clean-up here."""
    _parents.extend(things)


def _forget(reset: WeakMethod[Reset]) -> None:
    _resets.pop(reset, None)


def _reset_all() -> None:
    for registered in list(_resets):
        reset = registered() if isinstance(registered, WeakMethod) else registered
        if reset is not None:
            reset()


os.register_at_fork(after_in_child=_reset_all)
