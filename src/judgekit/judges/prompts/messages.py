"""Turns as text, for servers that do not take token ids."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from judgekit.errors import JudgeRejected, RolloutError
from judgekit.judges.base import Piece, Turn
from judgekit.judges.prompts.control_strings import PLAIN_HEADERS, disarm, is_control, template_strings
from judgekit.judges.prompts.cutting import LEAST, level, shortened

_CHARS_PER_TOKEN = 3
"""Without a tokenizer, token budgets are converted to characters at this rate."""
_KEPT = 64 * _CHARS_PER_TOKEN
"""Characters kept of each piece while another one can be cut."""


def text_messages(
    turns: Sequence[Turn],
    *,
    control_strings: Collection[str] = (),
    max_chars: int | None = None,
    limits: Sequence[int] | None = None,
) -> list[dict[str, Any]]:
    """Make chat messages of *turns*, with control strings broken up and over-long pieces cut.

    A text that is a whole turn stands in no quotation: headers of turns in plain words are broken up in it, too.

    *control_strings*: the model's own, see `control_strings`. *max_chars* limits all contents together: the longest
    of the pieces with a token budget are cut first, then other untrusted ones; trusted text never is. Every cut
    is marked, and something is left of every text. *limits*: characters of each piece that its token budget allows, where
    somebody has counted; else three for each token.

    Raises JudgeRejected if even the part that cannot be cut has more than *max_chars* characters; RolloutError if
    it would not with a trajectory's first message alone.
    """
    pieces = [piece for turn in turns for piece in turn.pieces]
    texts = [piece.text for piece in pieces]
    cuttable = [i for i, piece in enumerate(pieces) if not piece.trusted and piece.max_tokens is not None]
    shared = [i for i, piece in enumerate(pieces) if not piece.trusted and piece.max_tokens is None]
    limits = _budgets(pieces, cuttable) if limits is None else limits
    bare = _bare(turns)
    for i in (*cuttable, *shared):
        limit = limits[i] if max_chars is None else min(limits[i], max(max_chars, LEAST))
        strings = (*control_strings, *PLAIN_HEADERS) if i in bare else control_strings
        texts[i] = disarm(shortened(texts[i], limit), strings)
    if max_chars is not None:
        lengths = _fitted(pieces, [len(text) for text in texts], cuttable, shared, max_chars)
        # what is cut here was disarmed before, and a mark begins and ends with a space: nothing grows together
        texts = [shortened(text, length) for text, length in zip(texts, lengths, strict=True)]
    return messages_of(turns, texts)


def _bare(turns: Sequence[Turn]) -> frozenset[int]:
    """Return the numbers of untrusted pieces that are a whole turn, as a reward model's are: no quotation is around them."""
    found, number = set(), 0
    for turn in turns:
        if len(turn.pieces) == 1 and not turn.pieces[0].trusted:
            found.add(number)
        number += len(turn.pieces)
    return frozenset(found)


def _budgets(pieces: Sequence[Piece], cuttable: Sequence[int]) -> list[int]:
    """Return how many characters of each piece its token budget allows, and its pool's."""
    limits = [len(piece.text) for piece in pieces]
    for i in cuttable:
        limits[i] = min(limits[i], max((pieces[i].max_tokens or 0) * _CHARS_PER_TOKEN, LEAST))
    for pool in {pieces[i].pool for i in cuttable} - {0}:
        sharers = [i for i in cuttable if pieces[i].pool == pool]
        most = max((pieces[i].max_tokens or 0) * _CHARS_PER_TOKEN for i in sharers)
        level(limits, sharers, sum(limits[i] for i in sharers) - most, LEAST)
    return limits


def _fitted(
    pieces: Sequence[Piece],
    lengths: list[int],
    cuttable: Sequence[int],
    shared: Sequence[int],
    max_chars: int,
) -> list[int]:
    """Return the lengths to which the pieces are cut, so that they have *max_chars* together."""
    over = sum(lengths) - max_chars
    for group, least in ((cuttable, _KEPT), (shared, _KEPT), (cuttable, LEAST), (shared, LEAST)):
        if over > 0:
            over -= level(lengths, group, over, least)
    more_messages = sum(
        lengths[i + 1] + lengths[i + 2]
        for i in range(len(pieces) - 2)
        if pieces[i].pool and pieces[i].pool == pieces[i + 2].pool
    )
    if 0 < over <= more_messages:
        raise RolloutError(
            f"the rollout has too many messages for the {max_chars} characters that fit the judge"
        )
    if over > 0:
        raise JudgeRejected(f"the prompt is {over} characters longer than the {max_chars} that fit the judge")
    return lengths


def messages_of(turns: Sequence[Turn], texts: Sequence[str]) -> list[dict[str, Any]]:
    """Make chat messages of *turns*, where *texts* are those of all their pieces.

    A turn with images has a list of parts as its content, and is the user's: most servers and chat templates take images in
    no other.
    """
    filled = iter(texts)
    if not any(piece.image for turn in turns for piece in turn.pieces):
        return [{"role": turn.role, "content": "".join(next(filled) for _ in turn.pieces)} for turn in turns]
    messages: list[dict[str, Any]] = []
    moved = False
    for turn in turns:
        parts = _parts(turn, filled)
        if moved and turn.role == "user":  # one user turn behind another: templates want them to alternate
            if parts and parts[0]["type"] == "text" == messages[-1]["content"][-1]["type"]:
                messages[-1]["content"][-1]["text"] += f"\n\n{parts.pop(0)['text']}"
            messages[-1]["content"] += parts
            moved = False
            continue
        seen = any(part["type"] == "image_url" for part in parts)
        moved = turn.role == "system" and seen
        content = parts if seen else "".join(part["text"] for part in parts)
        messages.append({"role": "user" if moved else turn.role, "content": content})
    return messages


def _parts(turn: Turn, filled: Iterator[str]) -> list[dict[str, Any]]:
    """Return a turn's texts and images in their order; texts beside each other are one."""
    parts: list[dict[str, Any]] = []
    for piece in turn.pieces:
        text = next(filled)
        if piece.image:
            parts.append({"type": "image_url", "image_url": {"url": piece.image}})
        elif parts and parts[-1]["type"] == "text":
            parts[-1]["text"] += text
        elif text:
            parts.append({"type": "text", "text": text})
    return parts


def text_of(message: Mapping[str, Any]) -> str:
    """The text of a chat message, without its images."""
    content = message["content"]
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in content)


def control_strings(tokenizer_config: Mapping[str, Any], chat_template: str | None = None) -> tuple[str, ...]:
    """Return a model's control strings, from its tokenizer_config.json and its chat template.

    *chat_template*: None takes the one in *tokenizer_config*, if it has one.
    """
    template = chat_template if chat_template is not None else template_of(tokenizer_config)
    found = template_strings(template)
    for token, special in _listed(tokenizer_config):
        if is_control(token, special=special, template=template):
            found.add(token)
    return tuple(sorted(found, key=lambda string: (-len(string), string)))


def template_of(config: Mapping[str, Any]) -> str:
    """Return the chat template in a tokenizer_config; several, one behind the other."""
    given = config.get("chat_template")
    if isinstance(given, list):  # several, by name
        return "\n".join(str(one.get("template", "")) for one in given if isinstance(one, Mapping))
    return given if isinstance(given, str) else ""


def _listed(config: Mapping[str, Any]) -> Iterator[tuple[str, bool]]:
    """Yield the tokens that a tokenizer_config names, and whether they are special."""
    added = config.get("added_tokens_decoder")
    for token in added.values() if isinstance(added, Mapping) else ():
        if isinstance(token, Mapping) and isinstance(token.get("content"), str):
            yield token["content"], bool(token.get("special"))
    for key, value in config.items():
        if key.endswith(("_token", "_tokens")):
            for token in _flat(value):
                yield token, True


def _flat(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping) and isinstance(value.get("content"), str):
        yield value["content"]
    elif isinstance(value, Mapping | list | tuple):
        for item in value.values() if isinstance(value, Mapping) else value:
            yield from _flat(item)
