"""What cannot be sent to a worker is said."""

from __future__ import annotations

import pickle
import threading
from hashlib import blake2b
from typing import Any

import pytest

from judgekit import ConfigError, Rollout, RolloutError
from judgekit.execution.pickled import PickledGrader, pickled


def test_a_grader_is_known_by_the_digest_of_what_is_sent() -> None:
    one = PickledGrader("n", {"a": 1})
    assert (one.name, pickle.loads(one.payload)) == ("n", {"a": 1})
    assert one.key == blake2b(one.payload, digest_size=16).digest()
    assert PickledGrader("other", {"a": 1}).key == one.key != PickledGrader("n", {"a": 2}).key


def test_a_grader_that_cannot_be_sent_says_what_to_do() -> None:
    with pytest.raises(ConfigError) as caught:
        PickledGrader("n", threading.Lock())
    told = str(caught.value)
    assert told.startswith("grader 'n' runs in a worker process and cannot be sent to one: ")
    assert told.endswith(
        "Make what cannot be pickled (a client, a lock, a model) in the worker: in the function, or in the grader's "
        "warm_up()"
    )


def test_a_rollout_is_sent_as_it_is_unless_it_is_nested_too_deeply() -> None:
    one = Rollout(response="x", extra={"a": [1, "__main__"]})
    assert pickle.loads(pickled(one)) == one
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(RolloutError) as caught:
        pickled(Rollout(response="x", extra={"a": deep}))
    assert str(caught.value) == "the rollout is nested too deeply to be sent to a worker process"
    while deep:
        deep = deep.pop()
