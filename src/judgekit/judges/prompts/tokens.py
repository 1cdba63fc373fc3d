"""Encodes turns as token ids, so that untrusted text never becomes control tokens.

The chat template is rendered once per prompt shape, with a placeholder for each untrusted piece. The text between
placeholders is tokenised as the template's own; each untrusted piece is tokenised separately, with the
tokenizer's special and added tokens switched off. The result is checked id by id.
"""

from __future__ import annotations

import json
import re
import secrets
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

from msgspec import Struct, structs

from judgekit.errors import ConfigError, JudgeRejected, RolloutError
from judgekit.execution.kept import Kept
from judgekit.judges.base import Piece, Turn
from judgekit.judges.prompts.control_strings import is_control, without_headers
from judgekit.judges.prompts.cutting import MARK, level, shortened
from judgekit.judges.prompts.images import SHOWN
from judgekit.judges.prompts.messages import messages_of
from judgekit.judges.prompts.rendered import between, headers_in
from judgekit.judges.prompts.template import CHARS_PER_TOKEN
from judgekit.judges.prompts.thinking_marks import Marks, marks_of, thinking_kwargs, without_thought

_KEPT = 64
"""Tokens kept of each piece while another one can be cut."""
_MOST_BYTES = 32 << 20
"""Texts and their ids that are remembered take at most so many bytes."""


class EncodedPrompt(Struct, frozen=True):
    """Token ids of a whole prompt, generation prompt included."""

    ids: list[int]
    untrusted: list[tuple[int, int]]
    """Half-open spans of `ids` with untrusted text, in order."""


class Thinking(Struct, frozen=True):
    """A model's thinking, as token ids."""

    marks: Marks
    opening: list[int]
    """What opens it behind a prompt; empty if the chat template does."""
    closing: list[int]
    """What ends it and leads to the reply."""
    end_is_token: bool
    """Whether its end is one token, which no text can spell."""
    newline: list[int]


class PromptEncoder:
    """Encodes turns for one model.

    *tokenizer*: a Hugging Face fast tokenizer with a chat template. *context_tokens*: the engine's context
    length; if a prompt leaves no room for the reply, its longest cuttable piece is cut further.
    """

    def __init__(
        self,
        tokenizer: Any,
        *,
        context_tokens: int,
        chat_template_kwargs: Mapping[str, Any] | None = None,
    ) -> None:
        if getattr(tokenizer, "chat_template", None) is None:
            raise ConfigError(
                f"the tokenizer of {getattr(tokenizer, 'name_or_path', 'the judge model')} has no chat template: "
                "use an instruction-tuned model as the judge"
            )
        self._tokenizer = tokenizer
        self._kwargs = dict(chat_template_kwargs or {})
        self._context_tokens = context_tokens
        self._data_encode, self._control = _data_encoder(tokenizer)
        self._skeletons: Kept[tuple[Any, ...], list[list[int]]] = Kept(256, _MOST_BYTES)
        self._pieces: Kept[str, list[int]] = Kept(1024, _MOST_BYTES)
        self._nonce = secrets.token_hex(8)
        self._thinking: Thinking | None = None
        self._marker: list[int] = self._template_ids(MARK)
        self._least = len(self._marker) + 8
        """Tokens of a text that was cut, at least: the mark and some of itself."""

    @property
    def control_ids(self) -> frozenset[int]:
        """Ids of the tokens that structure a chat; they never occur in an untrusted span."""
        return self._control

    def token_ids(self, text: str) -> list[int]:
        """Encode *text* without adding a beginning-of-sequence token."""
        return self._template_ids(text)

    def reply_ids(self, text: str) -> list[int]:
        """Encode *text* as the beginning of the model's reply, after all that the chat template puts before it.

        Empty where the two do not part: the template's last token is then another than in a prompt.
        """
        prompt = self._render((Turn("user", (Piece("?"),)),), thinking=False, generation_prompt=True)
        before, whole = self._template_ids(prompt), self._template_ids(prompt + text)
        return whole[len(before) :] if whole[: len(before)] == before else []

    def data_ids(self, text: str) -> list[int]:
        """Encode *text* as data, without any control token."""
        return self._data_encode(text)

    def thinking(self) -> Thinking:
        """Return how the model thinks. Raises ConfigError if its chat template knows no thinking."""
        if self._thinking is None:
            prompt = self._render((Turn("user", (Piece("?"),)),), thinking=True, generation_prompt=True)
            marks, opening = marks_of(prompt, str(self._tokenizer.chat_template))
            self._thinking = Thinking(
                marks,
                opening=self._template_ids(opening),
                closing=self._template_ids(marks.end + marks.after_end),
                end_is_token=len(self._template_ids(marks.end)) == 1,
                newline=self._template_ids("\n"),
            )
        return self._thinking

    def check_images(self) -> None:
        """Raise ConfigError if the model's chat template has no place for an image."""
        ids = [
            self._template_ids(self._render(turns, thinking=False, generation_prompt=True))
            for turns in ((Turn("user", SHOWN[0].pieces[:1]),), SHOWN)
        ]
        text, shown = (sum(i in self._control for i in each) for each in ids)
        if shown <= text:
            raise ConfigError("images: the judge model's chat template has no place for an image")

    def only_images_added(self, before: list[int], after: list[int]) -> bool:
        """Whether the ids *after* an engine's processor are those *before* it, but for more tokens where images are.

        A processor that encodes a prompt again from its text could make control tokens of a rollout's words.
        """
        at = 0
        for segment in _parted(before, self._control - self._structure):
            # the first id is compared alone: an image may have thousands
            while after[at : at + 1] != segment[:1] or after[at : at + len(segment)] != segment:
                if at >= len(after) or after[at] in self._structure:
                    return False
                at += 1
            at += len(segment)
        return at == len(after)

    @cached_property
    def _structure(self) -> frozenset[int]:
        """The control tokens of a chat without images."""
        prompt = self._render((Turn("user", (Piece("?"),)),), thinking=False, generation_prompt=True)
        return self._control.intersection([*self._template_ids(prompt), self._tokenizer.eos_token_id])

    def check_thinking(self, budget: int) -> None:
        """Raise ConfigError if the model cannot think for *budget* tokens."""
        self.thinking()
        if budget + _KEPT > self._context_tokens:
            raise ConfigError(
                f"thinking_tokens: {budget} leaves no room for a prompt in the judge's context of {self._context_tokens} tokens"
            )

    def encode(
        self,
        turns: Sequence[Turn],
        *,
        reply_tokens: int,
        thinking: bool = False,
        generation_prompt: bool = True,
        image_tokens: int = 0,
    ) -> EncodedPrompt:
        """Encode *turns*, leaving room for *reply_tokens*, and for *image_tokens* that images take beside their place in the prompt.

        An image is what the chat template puts in its place, which the engine's processor then extends. Raises JudgeRejected
        if even the part that cannot be cut does not fit the context; RolloutError if it would with a trajectory's first
        message alone.
        """
        skeleton = self._skeleton(turns, thinking, generation_prompt)
        pieces = [piece for turn in turns for piece in turn.pieces if not piece.trusted and not piece.image]
        encoded = [self._piece_ids(piece) for piece in pieces]
        budgets = [
            len(ids) if p.max_tokens is None else min(len(ids), max(p.max_tokens, self._least))
            for p, ids in zip(pieces, encoded, strict=True)
        ]
        for pool in {p.pool for p in pieces if p.pool and p.max_tokens is not None}:
            sharers = [i for i, p in enumerate(pieces) if p.pool == pool]
            most = max(pieces[i].max_tokens or 0 for i in sharers)
            level(budgets, sharers, sum(budgets[i] for i in sharers) - most, self._least)
        over = sum(map(len, skeleton)) + sum(budgets) + reply_tokens + image_tokens - self._context_tokens
        if over > 0:
            self._shorten(budgets, pieces, skeleton, over, reply_tokens)
        ids = list(skeleton[0])
        spans: list[tuple[int, int]] = []
        for i, (piece_ids, budget) in enumerate(zip(encoded, budgets, strict=True)):
            start = len(ids)
            if len(piece_ids) > budget:
                keep = budget - len(self._marker)
                head, tail = piece_ids[: (keep + 1) // 2], piece_ids[len(piece_ids) - keep // 2 :]
                spans.append((start, start + len(head)))
                ids += head
                ids += self._marker
                start = len(ids)
                ids += tail
            else:
                ids += piece_ids
            spans.append((start, len(ids)))
            ids += skeleton[i + 1]
        return EncodedPrompt(ids, spans)

    def encode_dialogue(self, turns: Sequence[Turn]) -> EncodedPrompt:
        """Encode a dialogue for a reward model, in which no text makes a turn of its own. Raises what `encode` raises.

        Control tokens are ids that no text has, but headers of plain words are not: they are broken up.
        """
        if headers := self._headers:
            turns = [
                Turn(turn.role, tuple(p if p.trusted else _headless(p, headers) for p in turn.pieces))
                for turn in turns
            ]
        return self.encode(turns, reply_tokens=0, generation_prompt=False)

    @cached_property
    def _headers(self) -> tuple[str, ...]:
        """The headers of plain words that the template writes between turns."""
        marks = [self._mark(i) for i in range(4)]
        turns = [Turn("assistant" if i % 2 else "user", (Piece(mark),)) for i, mark in enumerate(marks)]
        parts = between(self._render(turns, thinking=False, generation_prompt=False), marks)
        return tuple(dict.fromkeys(headers_in(parts))) if parts is not None else ()

    def _shorten(
        self,
        budgets: list[int],
        pieces: Sequence[Piece],
        skeleton: Sequence[Sequence[int]],
        over: int,
        reply_tokens: int,
    ) -> None:
        """Take *over* tokens from the budgets of *pieces*. Raises what `encode` raises."""
        # cut rollouts' text first, the longest most; then what a group shares; only then leave next to nothing of a text
        own = [i for i, p in enumerate(pieces) if p.max_tokens is not None]
        shared = [i for i, p in enumerate(pieces) if p.max_tokens is None]
        for group, least in ((own, _KEPT), (shared, _KEPT), (own, self._least), (shared, self._least)):
            if over > 0:
                over -= level(budgets, group, over, least)
        more_messages = sum(
            len(skeleton[i]) + budgets[i]
            for i in range(1, len(pieces))
            if pieces[i].pool and pieces[i].pool == pieces[i - 1].pool
        )
        if 0 < over <= more_messages:
            raise RolloutError(
                f"the rollout has too many messages for the context of {self._context_tokens} tokens"
            )
        if over > 0:
            raise JudgeRejected(
                f"the prompt is {over} tokens too long for the context of {self._context_tokens} tokens, "
                f"with {reply_tokens} reserved for the reply"
            )

    def _skeleton(self, turns: Sequence[Turn], thinking: bool, generation_prompt: bool) -> list[list[int]]:
        """Encode the template's text before, between and after the untrusted pieces."""
        key = (
            thinking,
            generation_prompt,
            *((t.role, *(p.text if p.trusted else bool(p.image) for p in t.pieces)) for t in turns),
        )
        if (known := self._skeletons.get(key)) is not None:
            return known
        text = self._render(turns, thinking, generation_prompt)
        skeleton: list[list[int]] = []
        count = sum(not p.trusted and not p.image for t in turns for p in t.pieces)
        for i in range(count):
            before, mark, text = text.partition(self._mark(i))
            if not mark or self._mark(i) in text:
                raise ConfigError(
                    "the model's chat template drops, repeats or reorders parts of a turn: use another judge model"
                )
            skeleton.append(self._template_ids(before))
        skeleton.append(self._template_ids(text))
        texts = (piece.text for turn in turns for piece in turn.pieces if piece.trusted)
        self._skeletons.put(key, skeleton, sum(map(sys.getsizeof, texts)) + sum(map(_bytes_of, skeleton)))
        return skeleton

    def _render(self, turns: Sequence[Turn], thinking: bool, generation_prompt: bool) -> str:
        texts: list[str] = []
        slot = 0
        for piece in (p for turn in turns for p in turn.pieces):
            slotted = not piece.trusted and not piece.image
            texts.append(self._mark(slot) if slotted else piece.text)
            slot += slotted
        messages = messages_of(turns, texts)
        for message in messages:
            if isinstance(message["content"], list):
                # Hugging Face's templates name an image by its type alone
                message["content"] = [
                    part if part["type"] == "text" else {"type": "image"} for part in message["content"]
                ]

        def apply(messages: list[dict[str, Any]]) -> str:
            text = self._tokenizer.apply_chat_template(
                messages,
                add_generation_prompt=generation_prompt,
                tokenize=False,
                **thinking_kwargs(thinking, self._kwargs),
            )
            if generation_prompt and not wanted:
                return without_thought(str(text), str(self._tokenizer.chat_template))
            return str(text)

        wanted = thinking or self._kwargs.get("enable_thinking") or self._kwargs.get("thinking")
        if messages[0]["role"] != "system":
            return apply(messages)
        instructions, asked = f"{messages[0]['content']}\n\n", messages[1]["content"]
        whole = (
            instructions + asked
            if isinstance(asked, str)
            else [{"type": "text", "text": instructions}, *asked]
        )
        merged = [{"role": "user", "content": whole}, *messages[2:]]
        try:
            text = apply(messages)
        except (
            Exception
        ) as error:  # without a system role, templates raise jinja2's TemplateError or drop the turn
            if type(error).__name__ != "TemplateError":
                raise
            return apply(merged)
        probe = messages[0]["content"].strip()[:40]
        return text if probe in text else apply(merged)

    def _mark(self, slot: int) -> str:
        return f"\ue000{self._nonce}:{slot}\ue001"

    def _template_ids(self, text: str) -> list[int]:
        return list(self._tokenizer.encode(text, add_special_tokens=False)) if text else []

    def _piece_ids(self, piece: Piece) -> list[int]:
        text = piece.text
        if (known := self._pieces.get(text)) is not None:
            return known
        limit = CHARS_PER_TOKEN * max(
            min(piece.max_tokens or self._context_tokens, self._context_tokens), self._least
        )
        short = shortened(text, limit)
        ids = self._data_encode(short)
        if piece.max_tokens is None or short is text:
            self._pieces.put(text, ids, sys.getsizeof(text) + _bytes_of(ids))
        return ids


def _data_encoder(tokenizer: Any) -> tuple[Callable[[str], list[int]], frozenset[int]]:
    """Return an encoder without special or added tokens, and the ids that it never yields."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        raise ConfigError(
            "the judge model has no fast tokenizer, so untrusted text could become control tokens: use a model "
            "that ships a tokenizer.json, or serve it over HTTP"
        )
    from tokenizers import Tokenizer

    spec = json.loads(backend.to_str())
    template = str(tokenizer.chat_template)
    control: dict[int, str] = {}
    for token in spec["added_tokens"]:
        if is_control(token["content"], special=bool(token["special"]), template=template):
            control[int(token["id"])] = token["content"]
    for number in map(int, tokenizer.all_special_ids):
        string = str(tokenizer.convert_ids_to_tokens(number))
        if is_control(string, special=True, template=template):
            control[number] = string
    spec.update(added_tokens=[], post_processor=None, truncation=None, padding=None)
    plain = Tokenizer.from_str(json.dumps(spec))
    starts = re.compile(f"(?<=[{''.join(re.escape(c) for c in sorted({s[0] for s in control.values()}))}])")

    # without the place of each token in the text, which nobody asks for: a fifth faster
    batch = getattr(plain, "encode_batch_fast", plain.encode_batch)
    byte = plain.token_to_id("<0x60>")
    reads_bytes = byte is not None and byte in batch(["<0x60>"], add_special_tokens=False)[0].ids

    def encode(text: str) -> list[int]:
        parts = _without_bytes(text, plain.normalizer) if reads_bytes else [text]
        ids: list[int] = []
        for part, found in zip(parts, batch(parts, add_special_tokens=False), strict=True):
            ids += found.ids if control.keys().isdisjoint(found.ids) else without_control(part)
        return ids

    def without_control(text: str) -> list[int]:
        # Some vocabularies also have control strings as ordinary entries: part them behind their first character.
        ids: list[int] = []
        alone: dict[str, list[int]] = {}
        parts = [part for part in starts.split(text) if part]
        for part, found in zip(parts, batch(parts, add_special_tokens=False), strict=True):
            if control.keys().isdisjoint(found.ids):
                ids += found.ids
                continue
            for (
                c
            ) in part:  # normalisation makes one of other characters, or the vocabulary has no such character
                if c not in alone:
                    alone[c] = one(c)
                ids += alone[c]
        return ids

    def one(c: str) -> list[int]:
        for form in (c, f"U+{ord(c):04X}"):
            ids: list[int] = [i for d in batch(list(form), add_special_tokens=False) for i in d.ids]
            if control.keys().isdisjoint(ids):
                return ids
        return []

    return encode, frozenset(control)


def _headless(piece: Piece, headers: Collection[str]) -> Piece:
    return structs.replace(piece, text=without_headers(piece.text, headers))


_BYTE = re.compile("<0x[0-9A-Fa-f]{2}>")
_BEHIND_LESS = re.compile("(?<=[<\u226e\ufe64\uff1c])")
"""Behind a `<`, and what normalisation makes one."""


def _without_bytes(text: str, normalizer: Any) -> list[str]:
    """Part *text* where it spells the token of a byte, `<0x60>`, which unigram models with bytes read as the byte itself."""

    def spells(text: str) -> bool:
        if _BYTE.search(text) is not None:
            return True
        if text.isascii() or normalizer is None:
            return False
        return _BYTE.search(normalizer.normalize_str(text)) is not None

    if not spells(text):
        return [text]
    parts = _BEHIND_LESS.split(text)
    return list(text) if any(map(spells, parts)) else [part for part in parts if part]


def _parted(ids: Sequence[int], by: Collection[int]) -> Iterator[list[int]]:
    """Yield what is between the ids *by*."""
    segment: list[int] = []
    for each in ids:
        if each not in by:
            segment.append(each)
        elif segment:
            yield segment
            segment = []
    if segment:
        yield segment


def _bytes_of(ids: list[int]) -> int:
    """About what a list of ids takes in memory."""
    return 64 + 40 * len(ids)
