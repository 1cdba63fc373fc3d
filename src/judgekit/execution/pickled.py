"""Graders and rollouts as they are sent to worker processes."""

from __future__ import annotations

import functools
import io
import pickle
import sys
from hashlib import blake2b
from typing import Any

import cloudpickle

from judgekit.errors import ConfigError, RolloutError
from judgekit.types import Rollout


class PickledGrader:
    """A grader, pickled for the workers: by name from a module, by value from a script or a notebook.

    Raises ConfigError if it cannot be pickled.
    """

    def __init__(self, name: str, grader: Any) -> None:
        self.name = name
        try:
            self.payload = _by_value(grader)
        except Exception as error:
            raise ConfigError(
                f"grader {name!r} runs in a worker process and cannot be sent to one: {error}. Make what cannot be "
                "pickled (a client, a lock, a model) in the worker: in the function, or in the grader's warm_up()"
            ) from None
        self.key = blake2b(self.payload, digest_size=16).digest()


def pickled(rollout: Rollout) -> bytes:
    try:
        data = pickle.dumps(rollout)
        # it may hold objects of a script's own classes
        return _by_value(rollout) if b"_main__" in data else data
    except RecursionError:
        raise RolloutError("the rollout is nested too deeply to be sent to a worker process") from None


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    """Pickles what a script or notebook defines by value, including functions with an `lru_cache`."""

    def reducer_override(self, obj: Any) -> Any:
        if type(obj) is functools._lru_cache_wrapper and obj.__module__ in ("__main__", "__mp_main__"):
            return _with_cache, (obj.__wrapped__, obj.cache_parameters())
        return super().reducer_override(obj)


def _with_cache(function: Any, parameters: dict[str, Any]) -> Any:
    return functools.lru_cache(**parameters)(function)


def _by_value(thing: Any) -> bytes:
    main = sys.modules["__main__"]
    if main.__name__ == "__mp_main__":  # a script's name in the processes that multiprocessing spawns for it
        cloudpickle.register_pickle_by_value(main)
    buffer = io.BytesIO()
    _Pickler(buffer).dump(thing)
    return buffer.getvalue()
