"""The rollouts that every host grades, and how it writes down what it got: shared by all hosts' environments."""

from __future__ import annotations

import asyncio
import json
import os
import random
import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

GROUPS, SIZE, PLANTED = 125, 4, 40
AT_ONCE = int(os.environ.get("EVERYWHERE_AT_ONCE", "64"))
"""Rollouts that a host has graded at once."""
LOST = 60
"""The group of which nobody gets a reward."""
UNREADABLE, REFUSED = "unreadable", "unavailable"
"""Words that make the judge answer without a verdict, and with HTTP 500."""


class Sample(NamedTuple):
    """A rollout."""

    group: int
    member: int
    text: str

    @property
    def id(self) -> str:
        return f"{self.group}_{self.member}"

    @property
    def prompt(self) -> str:
        return f"q{self.group}?"

    @property
    def truth(self) -> str:
        return str(self.group)


def samples() -> list[Sample]:
    """Make the rollouts, a prompt's one after another; each text has another length than its siblings."""
    rng = random.Random(17)
    found = []
    for group in range(GROUPS):
        lengths = rng.sample(range(50, 100), SIZE)
        if group != LOST:
            lengths[-1] = rng.randrange(110, 150)
        rng.shuffle(lengths)
        for member, length in enumerate(lengths):
            answer = group if rng.random() < 0.5 else group + 1
            found.append(
                Sample(group, member, _padded(f"Sample {group} {member}:", f" #### {answer}", length))
            )
    # never where the gate is shut, so that nobody asks the judge
    open_ = [i for i, one in enumerate(found) if len(one.text) < 100]
    lost = [i for i in open_ if found[i].group == LOST]
    lost += rng.sample([i for i in open_ if i not in lost], PLANTED - len(lost))
    for number, i in enumerate(lost):
        word = REFUSED if number % 2 else UNREADABLE
        one = found[i]
        begin, _, end = one.text.partition(":")
        found[i] = one._replace(text=_padded(f"{begin}: {word}", end[end.index(" ####") :], len(one.text)))
    return found


def _padded(begin: str, end: str, length: int) -> str:
    return (
        begin
        + " so" * ((length - len(begin) - len(end)) // 3)
        + "." * ((length - len(begin) - len(end)) % 3)
        + end
    )


def by_prompt() -> Iterator[tuple[str, list[Sample]]]:
    """Give each prompt with its samples."""
    for start, rows in enumerate(zip(*[iter(samples())] * SIZE, strict=True)):
        yield f"q{start}?", list(rows)


class Script:
    """What the policy says: a prompt's samples, one a call."""

    def __init__(self) -> None:
        self._left = {prompt: iter(rows) for prompt, rows in by_prompt()}

    def __call__(self, prompt: str, call: int) -> str:
        return next(self._left[re.findall(r"q\d+\?", prompt)[-1]]).text


async def each(work: Callable[[Sample], Awaitable[Any]], *, groups: bool = False) -> list[Any]:
    """Do *work* for each sample, as many at once as the run says. *groups*: whole groups, whose members wait for each other."""
    places = asyncio.Semaphore(max(AT_ONCE // SIZE, 1) if groups else AT_ONCE)

    async def one(rows: Sequence[Sample]) -> list[Any]:
        async with places:
            return await asyncio.gather(*map(work, rows))

    together = [rows for _, rows in by_prompt()] if groups else [[one] for one in samples()]
    return [made for found in await asyncio.gather(*map(one, together)) for made in found]


def write(
    host: str,
    rows: Iterable[tuple[Sample, float | None, str]],
    *,
    package: str = "",
    advantages: Mapping[str, float] | None = None,
) -> None:
    """Write what a host made of each rollout into the folder of the run, the working directory.

    *rows*: a rollout, its reward, and what says that the reward is missing; "" for one that is taken for a graded one.
    *package*: whose version is named. *advantages*: by the rollout's id, where the host has its own.
    """
    graded: dict[str, Any] = {
        "host": f"{host} {version(package)}" if package else host,
        "rewards": {},
        "missing": {},
    }
    for one, reward, told in rows:
        graded["rewards"][one.id] = None if reward is None else float(reward).hex()
        if told:
            graded["missing"][one.id] = told
    if advantages is not None:
        graded["advantages"] = advantages
    Path("graded.json").write_text(json.dumps(graded))
