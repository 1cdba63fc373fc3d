"""What a forked child resets: one registry for the whole process.

A child has a copy of everything, but only the thread that forked. A lock that another thread held is never released
there, a loop that ran in another thread never answers, and places and lines of the parent's runs are the parent's.
Whoever owns such a thing registers how to reset it.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

_Reset = TypeVar("_Reset", bound=Callable[[], None])

_functions: list[Callable[[], None]] = []
_methods: WeakKeyDictionary[Any, list[Callable[[Any], None]]] = WeakKeyDictionary()
_parents: list[Any] = []


def in_child(reset: _Reset) -> _Reset:
    """Call *reset* in every forked child; a bound method only while its object lives."""
    if inspect.ismethod(reset):
        _methods.setdefault(reset.__self__, []).append(reset.__func__)
    else:
        _functions.append(reset)
    return reset


def leave_to_parent(*things: Any) -> None:
    """Keep what belongs to the parent: collecting its loops and tasks would run their clean-up here."""
    _parents.extend(things)


def _reset_all() -> None:
    for function in _functions:
        function()
    for owner, methods in list(_methods.items()):
        for method in methods:
            method(owner)


os.register_at_fork(after_in_child=_reset_all)
