"""What a judge reads, looked at from outside: token ids and the text they decode to.

Nothing here uses the library's ideas of a fence or a control token. A control token is what a tokenizer lists as special,
what its template writes, and what looks like markup; a quotation is what CommonMark says, read in the decoded text
under every normal form; and a prompt that holds an attack must have the structure of the same prompt without it.
"""

from __future__ import annotations

import copy
import re
import unicodedata
from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from judgekit import JudgekitError
from judgekit.execution.kept import Kept
from judgekit.judges import JudgeRequest
from judgekit.judges.engines.openai.fitting import shorter
from judgekit.judges.prompts.messages import text_messages
from judgekit.judges.prompts.tokens import PromptEncoder

HTML = {"<table>", "</table>", "<h1>", "</h1>", "<code>", "</code>"}
CHAT = [
    {"role": "user", "content": "x"},
    {"role": "assistant", "content": "y"},
    {"role": "user", "content": "z"},
]


class Seen(Struct, frozen=True):
    """The structure of one prompt."""

    control: tuple[int, ...]
    """Its control tokens, in order."""
    outside: tuple[str, ...]
    """For each way of reading it: the text outside of all quotations."""
    inside: tuple[str, ...]
    """The quotations, as decoded."""


class Reader:
    """Reads prompts with one tokenizer, on both paths."""

    def __init__(self, name: str, tokenizer: Any, context: int) -> None:
        self.name = name
        self.tokenizer = tokenizer
        self.context = context
        self.encoder = PromptEncoder(tokenizer, context_tokens=context)
        used = set(tokenizer.encode(self._template(CHAT), add_special_tokens=False))
        self.control = {
            number
            for number, token in tokenizer.added_tokens_decoder.items()
            if token.content.strip()
            and (token.special or number in used or _is_markup(token.content))
            and token.content not in HTML
        }

    def with_template(self, template: str) -> Reader:
        """Return a reader of the same vocabulary with another chat template of the same control tokens."""
        made = copy.copy(self)
        made.tokenizer = copy.copy(self.tokenizer)
        made.tokenizer.chat_template = template
        # an encoder of its own would read the whole vocabulary again
        made.encoder = copy.copy(self.encoder)
        made.encoder._tokenizer = made.tokenizer
        made.encoder._skeletons = Kept(256, 32 << 20)
        for name in ("_headers", "_structure"):
            made.encoder.__dict__.pop(name, None)
        return made

    def by_ids(self, request: JudgeRequest) -> Seen:
        """Read the prompt that an engine gets as token ids."""
        prompt = self.encoder.encode(request.turns, reply_tokens=_reply(request))
        assert len(prompt.ids) + _reply(request) <= self.context
        return self._seen(prompt.ids, request.nonce)

    def by_text(self, request: JudgeRequest, strings: Sequence[str]) -> Seen | None:
        """Read the prompt that a server makes of text messages; None if it refuses them as too long."""
        room = self.context - _reply(request)
        try:
            messages = text_messages(request.turns, control_strings=strings, max_chars=16 * self.context)
            for _ in range(16):
                ids = self.tokenizer.encode(self._template(messages), add_special_tokens=False)
                if len(ids) <= room:
                    return self._seen(ids, request.nonce)
                messages = shorter(request.turns, strings, messages, 0.97 * room / len(ids))
        except JudgekitError:
            pass
        return None

    def first_token(self, text: str) -> int | None:
        """Return the token that a judge begins with which repeats *text*."""
        ids = self.tokenizer.encode(text.lstrip()[:200], add_special_tokens=False)
        return ids[0] if ids else None

    def _template(self, messages: list[dict[str, str]]) -> str:
        def render(messages: list[dict[str, str]]) -> str:
            return str(
                self.tokenizer.apply_chat_template(
                    messages, tokenize=False, add_generation_prompt=True, enable_thinking=False
                )
            )

        try:
            return render(messages)
        except Exception:  # no system role
            merged = "\n\n".join(message["content"] for message in messages)
            return render([{"role": "user", "content": merged}])

    def _seen(self, ids: Sequence[int], nonce: str) -> Seen:
        text = self.tokenizer.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False)
        if nonce:
            text = text.replace(nonce, "CODE")
        outside, inside = [], [""]
        for form in readings(text):
            out, quotations = split(form)
            outside.append(out)
            inside = inside if len(inside) > 1 else quotations
        return Seen(tuple(i for i in ids if i in self.control), tuple(outside), tuple(inside))


def readings(text: str) -> list[str]:
    """Return *text* in every normal form, with and without accents, and with all line breaks as newlines."""
    found = [text]
    for form in ("NFC", "NFKC", "NFKD"):
        normal = unicodedata.normalize(form, text)  # type: ignore[arg-type]
        bare = "".join(
            c for c in unicodedata.normalize("NFKD", normal) if not unicodedata.category(c).startswith("M")
        )
        found += [normal, bare, "\n".join(normal.splitlines())]
    return found


def split(text: str) -> tuple[str, list[str]]:
    """Split *text* at CommonMark's fences: what is outside, white space folded, and each quotation.

    Stricter than CommonMark: every line that begins with the fence closes it.
    """
    outside: list[str] = []
    inside: list[str] = []
    quotation: list[str] | None = None
    fence = ""
    for line in text.split("\n"):
        bare = line.strip()
        if quotation is None:
            if len(bare) > 2 and not bare.strip("`"):
                fence, quotation = bare, []
            else:
                outside.append(line)
        elif bare.startswith(fence):
            inside.append("\n".join(quotation))
            quotation = None
            outside.append(bare[len(fence) :])
        else:
            quotation.append(line)
    if quotation is not None:
        inside.append("\n".join(quotation))
        outside.append("(a quotation that never ends)")
    return re.sub(r"\s+", " ", "\n".join(outside)).strip(), inside


def _is_markup(token: str) -> bool:
    ends = {unicodedata.category(token[0])[0], unicodedata.category(token[-1])[0]}
    return len(token) > 2 and ends <= {"P", "S"} and any(map(str.isalnum, token))


def _reply(request: JudgeRequest) -> int:
    return 1 if request.choices else request.max_tokens
