"""The judge of bench_scale, in a module of its own so that Ray's actors can import it."""

from __future__ import annotations

import os
import re

from judgekit.judges.base import JudgeReply, JudgeRequest
from judgekit.types import Usage

NUMBER = re.compile(r"solution (\d+):")


def verdict(number: int) -> float:
    """The score of a solution: what it is does not matter, only that each row gets its own."""
    return (number * 2654435761 % 97) / 96


class CountingJudge:
    """Answers at once, and writes the number of each solution that it was asked about into a file."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)

    async def complete(self, request: JudgeRequest, /) -> JudgeReply:
        found = NUMBER.search(request.turns[-1].text)
        assert found is not None
        os.write(self._file, f"{found[1]}\n".encode())
        low, high = sorted(request.choices)
        score = verdict(int(found[1]))
        return JudgeReply(
            high if score >= 0.5 else low,
            choice_probs={low: 1 - score, high: score},
            label_mass=1.0,
            usage=Usage(calls=1, prompt_tokens=100, completion_tokens=1),
            model="counting",
        )
