"""Turns budgets of tokens into characters by asking the server, which has the tokenizer."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

from judgekit.errors import JudgeRejected
from judgekit.execution.together import together
from judgekit.judges.base import UNLIMITED, Piece, Turn
from judgekit.judges.engines.http import Server
from judgekit.judges.engines.openai.probe import Abilities, token_ids
from judgekit.judges.prompts.control_strings import disarm
from judgekit.judges.prompts.cutting import LEAST, level, shortened

_LEAST_TOKENS = 24
"""Tokens of a text that was cut, at least: the mark and some of itself."""
_TRIES = 8


async def counted_limits(turns: Sequence[Turn], server: Server, abilities: Abilities) -> list[int] | None:
    """Return how many characters of each piece its budget of tokens allows; None where no budget can be exceeded or none is told.

    Only texts with more bytes than their budget has tokens are counted: no token is less than a byte.
    """
    pieces = [piece for turn in turns for piece in turn.pieces]
    limited = [i for i, piece in enumerate(pieces) if _budget(piece) is not None]
    if not abilities.version or not _may_exceed([pieces[i] for i in limited]):
        return None

    async def count(text: str) -> int:
        return len(await token_ids(server, abilities.model, disarm(text, abilities.control_strings)))

    async def longest(text: str, tokens: int, budget: int) -> int:
        length = len(text)
        for _ in range(_TRIES):
            if tokens <= budget or length <= LEAST:
                break
            length = max(LEAST, min(length - 1, int(0.98 * length * budget / tokens)))
            tokens = await count(shortened(text, length))
        return length

    try:
        tokens = dict(
            zip(limited, _raised(await together(count(pieces[i].text) for i in limited)), strict=True)
        )
        budgets = _levelled(pieces, tokens)
        lengths = _raised(await together(longest(pieces[i].text, tokens[i], budgets[i]) for i in limited))
    except JudgeRejected as error:
        if error.status in (401, 403):
            raise
        return None  # it tells no tokens
    found = [len(piece.text) for piece in pieces]
    for i, length in zip(limited, lengths, strict=True):
        found[i] = length
    return found


def _budget(piece: Piece) -> int | None:
    """A piece's budget, where it has one of its own."""
    if piece.trusted or piece.image or piece.max_tokens is None or piece.max_tokens >= UNLIMITED:
        return None
    return max(piece.max_tokens, _LEAST_TOKENS)


def _may_exceed(pieces: Sequence[Piece]) -> bool:
    pools: dict[int, int] = {}
    for number, piece in enumerate(pieces):
        key = piece.pool or -1 - number
        pools[key] = pools.get(key, 0) + _bytes(piece.text)
        if pools[key] > (piece.max_tokens or 0):
            return True
    return False


def _bytes(text: str) -> int:
    """The bytes of a text, also where a tokenizer writes compatibility forms out first."""
    if text.isascii():
        return len(text)
    return max(
        len(form.encode("utf-8", "surrogatepass")) for form in (text, unicodedata.normalize("NFKD", text))
    )


def _levelled(pieces: Sequence[Piece], tokens: dict[int, int]) -> dict[int, int]:
    """Return the tokens that each of the counted pieces may have, by its own budget and its pool's."""
    limited = list(tokens)
    budgets = [min(tokens[i], _budget(pieces[i]) or 0) for i in limited]
    for pool in {pieces[i].pool for i in limited} - {0}:
        sharers = [at for at, i in enumerate(limited) if pieces[i].pool == pool]
        most = max(pieces[limited[at]].max_tokens or 0 for at in sharers)
        level(budgets, sharers, sum(budgets[at] for at in sharers) - most, _LEAST_TOKENS)
    return dict(zip(limited, budgets, strict=True))


def _raised(outcomes: list[int | Exception]) -> list[int]:
    found = []
    for outcome in outcomes:
        if isinstance(outcome, Exception):
            raise outcome
        found.append(outcome)
    return found
