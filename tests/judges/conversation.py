"""What a judge is asked where real servers are recorded (`tools/record_servers.py`) and where the record is played back."""

from __future__ import annotations

from collections.abc import Awaitable
from hashlib import blake2b
from typing import Any

from judgekit.errors import JudgekitError
from judgekit.judges import JudgeReply, JudgeRequest, OpenAIJudge, Piece, Turn

CHOICES = ("0", "1")


def ask(text: str, choices: tuple[str, ...] = CHOICES) -> JudgeRequest:
    turn = Turn(
        "user", (Piece("Is this right? Answer 0 or 1.\n"), Piece(text, trusted=False, max_tokens=4096))
    )
    return JudgeRequest((turn,), choices, max_tokens=8)


async def conversation(url: str, model: str | None, **options: Any) -> list[dict[str, Any]]:
    """Ask one thing after another; returns what came of each."""
    found = []
    judge = OpenAIJudge(url, model=model, **options)
    found.append(await outcome(judge.start()))
    found.append(await outcome(judge.check_request(ask("", CHOICES))))
    texts = ("3 + 4 = 7", "3 + 4 = 8", "3 + 4 = 7. " * 3000)
    found += [await outcome(judge.complete(ask(text))) for text in texts]
    found.append(await outcome(judge.check_request(ask("", ()))))
    found.append(await outcome(judge.complete(ask("3 + 4 = 7", ()))))
    await judge.close()
    nobody = OpenAIJudge(url, model="nobody", **options)
    found.append(await outcome(nobody.start()))
    found.append(await outcome(nobody.complete(ask("3 + 4 = 7"))))
    await nobody.close()
    return found


async def outcome(asked: Awaitable[Any]) -> dict[str, Any]:
    try:
        reply = await asked
    except JudgekitError as error:
        return {"error": type(error).__name__}
    if not isinstance(reply, JudgeReply):
        return {}
    made: dict[str, Any] = {"finish_reason": reply.finish_reason, "text": reply.text}
    if reply.choice_probs is not None:
        made["probs"] = {label: round(p, 6) for label, p in reply.choice_probs.items()}
        made["mass"] = round(reply.label_mass, 6) if reply.label_mass is not None else None
    return made


def digest(body: bytes) -> str:
    """What a recorded answer is found by."""
    return blake2b(body, digest_size=8).hexdigest() if body else ""
