"""Which fields of a request a server takes, and under which names.

A server's refusal says it: at the judge's start, or at the first refusal in a run. Only a request without a rollout's text
negotiates them, so that no refusal which quotes a prompt is taken for one of a field.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from judgekit.errors import ConfigError, JudgeRejected
from judgekit.judges.engines.openai.probe import TOP

logger = logging.getLogger("judgekit")

LimitField = Literal["max_tokens", "max_completion_tokens"]
LIMITS: tuple[LimitField, LimitField] = ("max_tokens", "max_completion_tokens")
"""Names of the field that limits a reply; the newer one counts a model's thinking, too."""
OMITTABLE = ("response_format", "seed", "temperature", "top_p")
"""Fields without which a reply still can be a verdict."""
NO_LOGPROBS = "{} sends no logprobs of the first token ({}), so it can give no one-token verdicts: use the format line or json"
_TOPS = (TOP, 8, 5)
_ALIASES = {
    "response_schema": "response_format",
    "response_mime_type": "response_format",
    "json_schema": "response_format",
    "grammar": "response_format",
    "maxOutputTokens": "max_tokens",
}
"""What servers call a field in their refusals."""
_TOO_SHORT = re.compile(r"max_tokens or model output limit was reached", re.IGNORECASE)
"""A model that thinks did not come to its answer: its fields are well."""
SAY = [{"role": "user", "content": 'Answer with the JSON object {"score": 0}.'}]
"""What a server is asked to find out what it takes. OpenAI takes `json_object` only where a message has the word JSON."""


class Terms(Struct, frozen=True):
    """What is known of the fields that a server takes."""

    limit: LimitField = "max_tokens"
    limit_is_given: bool = False
    schema: Literal["json_schema", "json_object"] = "json_schema"
    omit: frozenset[str] = frozenset()
    top: int = TOP
    """Most likely tokens that may be asked for."""

    def applied(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Return *body* with the fields that the server takes, under its names."""
        made = {key: value for key, value in body.items() if key not in self.omit}
        if (
            self.limit != "max_tokens" and "messages" in made
        ):  # completions of token ids know the old name only
            made[self.limit] = made.pop("max_tokens")
        if self.schema != "json_schema" and "response_format" in made:
            made["response_format"] = {"type": self.schema}
        if "top_logprobs" in made:
            made["top_logprobs"] = min(made["top_logprobs"], self.top)
        return made

    def without(self, field: str, error: JudgeRejected, server: object) -> Terms | None:
        """Return the terms after *field* was refused; None if they cannot be the reason. Raises ConfigError."""
        if field in LIMITS and not self.limit_is_given:
            return replace(self, limit=LIMITS[1 - LIMITS.index(self.limit)], limit_is_given=True)
        if field == "response_format":
            # the prompt says the form as well, and the reply is read as strictly
            return replace(self, schema="json_object") if self.schema == "json_schema" else self._less(field)
        if field in ("priority", "seed"):
            return self._less(field)
        if field in ("logprobs", "top_logprobs") and self.top > _TOPS[-1]:  # most call both logprobs
            return replace(self, top=_TOPS[_TOPS.index(self.top) + 1])
        if field in ("logprobs", "top_logprobs"):
            raise ConfigError(NO_LOGPROBS.format(server, error))
        return None

    def _less(self, field: str) -> Terms | None:
        return replace(self, omit=self.omit | {field}) if field not in self.omit else None


def given_terms(limit: LimitField | None, omit: Collection[str], without: frozenset[str]) -> Terms:
    """Return the terms that a user or a provider's documentation gives. Raises ConfigError."""
    if limit not in (None, *LIMITS):
        raise ConfigError(f"openai: max_tokens_field is {' or '.join(LIMITS)}, not {limit!r}")
    for field in [omit] if isinstance(omit, str) else omit:
        if field not in OMITTABLE:
            raise ConfigError(f"openai: omit: {field!r} is not one of {', '.join(OMITTABLE)}")
    return Terms(
        limit=limit or "max_tokens", limit_is_given=limit is not None, omit=frozenset(omit) | without
    )


async def negotiate(
    ask: Callable[[Mapping[str, Any]], Awaitable[Mapping[str, Any]]],
    body: Mapping[str, Any],
    terms: Terms,
    server: object,
) -> tuple[Terms, Mapping[str, Any] | None]:
    """Ask with *body*, which has no rollout's text, until its fields are taken.

    Returns the terms and the server's answer; None where the answer was too short to tell. Raises ConfigError where a verdict
    needs what it refuses, JudgeRejected where that is no field, and what *ask* raises.
    """
    if {"logprobs", "top_logprobs"} & terms.omit & body.keys():
        raise ConfigError(NO_LOGPROBS.format(server, "it documents none"))
    warm: ConfigError | None = None
    while True:
        sent = terms.applied(body)
        try:
            answer = await ask(sent)
            if warm is not None:
                raise warm
            return terms, answer
        except JudgeRejected as error:
            if error.status not in (400, 404, 422):
                raise
            if _TOO_SHORT.search(str(error)):
                return terms, None
            field = refused(error, [key for key in sent if key not in ("model", "messages")])
            if field == "temperature":
                warm = ConfigError(
                    f"{error}: write sampling: {{temperature: 1}} on the grader, or omit: [temperature] on the judge; "
                    "verdicts then vary"
                )
                if "logprobs" not in body:
                    raise warm from None
                body = {key: value for key, value in body.items() if key != "temperature"}
                continue  # a server that has no logprobs either is better told so
            known = terms.without(field, error, server) if field is not None else None
            if known is None:
                raise
            logger.warning(
                "%s refuses the field %s: requests do without, or call it another name", server, field
            )
            terms = known


def refused(error: JudgeRejected, fields: Sequence[str]) -> str | None:
    """Return which of a request's *fields* a refusal is about: the one it names, or else the one it speaks of first."""
    named = error.field.split(".")[0]
    if named in fields:
        return named
    names = {field: field for field in fields} | {a: f for a, f in _ALIASES.items() if f in fields}
    found = re.search(rf"\b({'|'.join(map(re.escape, sorted(names, key=len, reverse=True)))})\b", str(error))
    return names[found[1]] if found is not None else None
