"""Records what judges reply, so that tests of a reward need no engine.

A recording is a file of JSON lines: a first line that says what was recorded, and one line for each different request.
"""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from judgekit.errors import ConfigError, JudgeRejected
from judgekit.judges.base import JudgeReply, JudgeRequest, Turn
from judgekit.judges.layers.cache import request_key
from judgekit.judges.prompts.images import Images
from judgekit.types import Usage

FORMAT = 1
"""The format that this version writes, and the newest that it reads."""
_SHOWN = 200
"""Characters of the judged text that a line shows to its reader."""


class _Head(Struct, tag_field="type", tag="recording"):
    graders: dict[str, str]
    """By grader, the digest of the settings that its grades depend on, its judges' included."""
    images: dict[str, Images] = {}
    format: int = FORMAT


class _Line(Struct, tag_field="type", tag="reply", omit_defaults=True):
    judge: str
    key: str
    about: str
    """The judged text, shortened: for who reads the file."""
    reply: JudgeReply | None = None
    reward: float | None = None
    """Of a reward model."""


class Recording:
    """The replies of a reward.yaml's judges in a file, by judge and request.

    *graders*: for each grader, the digest of its settings. *new*: begin with an empty recording, whatever the file holds. Raises
    ConfigError if the file cannot be read, or was recorded with other settings: another template, judge or sampling.
    """

    def __init__(
        self, path: str | os.PathLike[str], graders: Mapping[str, str], *, new: bool = False
    ) -> None:
        self.path = Path(path)
        self._graders: dict[str, str] = {}
        self._images: dict[str, Images] = {}
        self._lines: dict[tuple[str, str], _Line] = {}
        self.missed: list[str] = []
        """Of each request without a recorded reply, the judged text."""
        if not new:
            self._read()
        self.join(graders)

    def join(self, graders: Mapping[str, str]) -> None:
        """Let the graders of another reward use it, too. Raises ConfigError if it was recorded with other settings."""
        for name, digest in graders.items():
            if self._graders.setdefault(name, digest) != digest:
                raise ConfigError(
                    f"{self.path} was recorded with other settings of {name!r} (its template, judge or sampling): "
                    f"record it again{_HOW}"
                )

    def _read(self) -> None:
        try:
            lines = self.path.read_bytes().splitlines()
        except OSError as error:
            raise ConfigError(f"cannot read {self.path}: {error.strerror}{_HOW}") from None
        try:
            head = msgspec.json.decode(lines[0], type=_Head)
            if head.format > FORMAT:
                raise ConfigError(
                    f"{self.path} is a recording of a newer judgekit: this one reads format {FORMAT}"
                )
            found = [msgspec.json.decode(line, type=_Line) for line in lines[1:]]
        except (msgspec.MsgspecError, UnicodeDecodeError, IndexError):
            raise ConfigError(f"{self.path} is not a recording of judges' replies{_HOW}") from None
        self._graders = head.graders
        self._images = head.images
        self._lines = {(line.judge, line.key): line for line in found}

    def judges(self) -> set[str]:
        """Return the names of the judges whose replies it holds."""
        return {judge for judge, _ in self._lines}

    def of(self, judge: str) -> RecordedJudge:
        """Return a judge that replies as *judge* did. Raises ConfigError if the recording has none of its replies."""
        if judge not in self.judges():
            raise ConfigError(
                f"{self.path} holds no replies of the judge {judge!r}, but of {', '.join(sorted(self.judges())) or 'none'}"
            )
        return RecordedJudge(self, judge, self._images.get(judge, "none"))

    def listen(self, judge: str, images: Images = "none") -> Callable[[Any, Any], None]:
        """Return what to tell each request of *judge* and its reply."""
        self._images[judge] = images

        def heard(asked: Any, replied: Any) -> None:
            key, about = _key(asked), _about(asked)
            if isinstance(replied, JudgeReply):
                line = _Line(judge, key, about, _lasting(replied, replied.nonce or asked.nonce, key))
            else:
                line = _Line(judge, key, about, reward=replied[0])
            if _finite(line):
                self._lines[judge, key] = line

        return heard

    def reply(self, judge: str, asked: Any) -> _Line:
        """Return the recorded line. Raises JudgeRejected if there is none, and keeps that in `missed`."""
        found = self._lines.get((judge, _key(asked)))
        if found is None:
            self.missed.append(_about(asked))
            raise JudgeRejected(f"{self.path} holds no reply to this request{_HOW}")
        return found

    def lines(self) -> Iterator[str]:
        """Yield the file's lines. They are in the order of their texts, so that two recordings can be compared."""
        head = _Head(dict(sorted(self._graders.items())), dict(sorted(self._images.items())))
        for line in (
            head,
            *sorted(self._lines.values(), key=lambda line: (line.judge, line.about, line.key)),
        ):
            yield msgspec.json.encode(line).decode() + "\n"


class RecordedJudge:
    """A judge, or a reward model, whose replies come from a recording."""

    def __init__(self, recording: Recording, name: str, images: Images) -> None:
        self.recording = recording
        self.name = name
        self.images = images

    async def complete(self, request: JudgeRequest, /) -> JudgeReply:
        reply = self.recording.reply(self.name, request).reply
        assert reply is not None
        return reply

    async def reward(self, turns: Sequence[Turn], /) -> tuple[float, Usage]:
        reward = self.recording.reply(self.name, turns).reward
        assert reward is not None
        return reward, Usage()

    def __repr__(self) -> str:
        return f"RecordedJudge({str(self.recording.path)!r}, {self.name!r})"


_HOW = " (judgekit grade --record, or pytest --judgekit-record, makes one)"


def _key(asked: Any) -> str:
    """Return what tells requests apart; runs and engines may be others."""
    if isinstance(asked, JudgeRequest):
        return request_key(msgspec.structs.replace(asked, run=""), "").hex()
    return hashlib.blake2b(msgspec.json.encode(asked), digest_size=16).hexdigest()


def _about(asked: Any) -> str:
    turns = asked.turns if isinstance(asked, JudgeRequest) else asked
    data = [piece.text for turn in turns for piece in turn.pieces if not piece.trusted and not piece.image]
    text = " | ".join(data)
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN // 2]} … {text[-_SHOWN // 2 :]}"


def _finite(line: _Line) -> bool:
    """Whether a reply has no number that JSON lacks: it is no verdict, and failures are not recorded."""
    numbers = (
        [line.reward]
        if line.reply is None
        else [line.reply.label_mass, *(line.reply.choice_probs or {}).values()]
    )
    return all(math.isfinite(number) for number in numbers if number is not None)


def _lasting(reply: JudgeReply, nonce: str, key: str) -> JudgeReply:
    """Return a reply without what is another one each time: times, costs, and the code that its verdict repeats.

    The code becomes a piece of the request's digest, which no text that was judged can know.
    """
    same = key[: len(nonce)]
    told = {name: getattr(reply, name) for name in ("text", "thinking")}
    if nonce:
        told = {name: text.replace(nonce, same) for name, text in told.items()}
    return msgspec.structs.replace(reply, usage=Usage(), latency_s=0.0, identity=None, nonce=same, **told)
