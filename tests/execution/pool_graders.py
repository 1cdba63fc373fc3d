"""Graders that worker processes import for test_pool."""

from __future__ import annotations

import os
import time

from judgekit import Rollout, RolloutError


class Act:
    """Does what the response says."""

    name, version, score_range, where = "act", "1", (0.0, 1.0), "process"

    def grade(self, rollout: Rollout, /) -> float:
        act = rollout.response
        if act == "spin":
            while True:
                pass
        if act == "sleep":
            time.sleep(60)
        if act == "memory":
            return float(len(bytearray(1 << 40)))
        if act == "die":
            os._exit(9)
        if act == "raise":
            raise ValueError("boom")
        if act == "bomb":
            raise RolloutError("too deep")
        if act == "recurse":
            return Act.grade(self, rollout)
        if act == "print":
            print("to standard output")  # noqa: T201
        if act == "pid":
            return float(os.getpid() % 1000) / 1000
        return 0.5
