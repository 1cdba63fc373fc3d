"""What is made of judges' replies, servers' answers, and texts on their way into a prompt.

The rows stand in `readings/`, a file for each kind and a row for each line: the reader, what it is given, and what it makes of
it. After a change that is meant, `python -m tests.judges.test_readings` writes it anew: read the diff.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from judgekit.errors import JudgeRejected
from judgekit.judges.base import JudgeReply, JudgeRequest, Piece, Sampling, Turn
from judgekit.judges.engines.engine_load import EngineLoad, read_load
from judgekit.judges.engines.openai import (
    budgets,
    completions,
    first_token,
    fitting,
    providers,
    request_bodies,
    request_fields,
    sglang,
)
from judgekit.judges.engines.replies import checked_end, text_of_choice, usage_shares
from judgekit.judges.prompts import (
    control_strings,
    cutting,
    images,
    material,
    messages,
    template,
    thinking_marks,
)
from judgekit.judges.verdicts import formats, labels
from judgekit.types import Usage

from ..readings import Readings


def _reply(given: Any) -> JudgeReply:
    return JudgeReply(given) if isinstance(given, str) else JudgeReply(**given)


def _scores(verdict: Any) -> tuple[Any, ...]:
    return verdict.score, verdict.reason, dict(verdict.metadata), verdict.scores and dict(verdict.scores)


def _choice(options: Mapping[str, Any], reply: Any) -> Any:
    return _scores(formats.ChoiceVerdict(**options).read(_reply(reply)))


def _about(kind: Any, options: Mapping[str, Any], nonce: str) -> Any:
    made = kind(**options)
    told = (made.score_range, made.choices, made.outputs, made.uses_nonce, made.markers, made.max_tokens)
    return made.words(nonce), *told, made.json_schema


def _label_ids(
    choices: list[str], vocabulary: Mapping[str, list[int]], replies: Mapping[str, list[int]]
) -> Any:
    return labels.label_token_ids(
        tuple(choices), lambda text: vocabulary.get(text, [0, 0, 0]), lambda label: replies.get(label, [])
    )


def _pieces(given: list[Any]) -> tuple[Piece, ...]:
    return tuple(Piece(one) if isinstance(one, str) else Piece(**one) for one in given)


def _turns(given: list[Any]) -> tuple[Turn, ...]:
    return tuple(Turn(role, _pieces(pieces)) for role, pieces in given)


def _messages(turns: list[Any], **how: Any) -> Any:
    return messages.text_messages(_turns(turns), **how)


def _request(given: Mapping[str, Any]) -> JudgeRequest:
    sampling = Sampling(**given.get("sampling", {}))
    lists = {key: tuple(given[key]) for key in ("choices", "stop") if key in given}
    return JudgeRequest(_turns([["user", ["?"]]]), **{**given, **lists, "sampling": sampling})


class _Encoder:
    """Knows a few tokens."""

    def token_ids(self, text: str) -> list[int]:
        return [7] if text == "</s>" else [1, 2]


def _fields(request: Mapping[str, Any], extra: Any, native: bool, ids: bool) -> Any:
    bodies = request_bodies.RequestBodies(None, None, extra)  # type: ignore[arg-type]
    return bodies.fields(_request(request), _Abilities(native=native), _Encoder() if ids else None)  # type: ignore[arg-type]


class _Abilities:
    def __init__(self, native: bool = False, version: str = "1") -> None:
        self.model, self.native, self.version = "m", native, version


def _with_prompts(request: Mapping[str, Any], prompts: Any, template: Any, version: str, ids: bool) -> Any:
    bodies = request_bodies.RequestBodies(None, template, None)  # type: ignore[arg-type]
    encoder: Any = _Encoder() if ids else None
    return bodies.with_prompts(_request(request), prompts, _Abilities(version=version), encoder)  # type: ignore[arg-type]


def _terms(given: Mapping[str, Any]) -> request_fields.Terms:
    return request_fields.Terms(
        **{**given, **({"omit": frozenset(given["omit"])} if "omit" in given else {})}
    )


def _without(given: Mapping[str, Any], field: str) -> Any:
    found = _terms(given).without(field, JudgeRejected("no"), "it")
    return found and (found.limit, found.limit_is_given, found.schema, sorted(found.omit), found.top)


def _given_terms(limit: Any, omit: Any, without: list[str]) -> Any:
    found = request_fields.given_terms(limit, omit, frozenset(without))
    return found.limit, found.limit_is_given, sorted(found.omit)


def _refused(text: str, field: str, fields: list[str]) -> Any:
    error = JudgeRejected(text)
    error.field = field
    return request_fields.refused(error, fields)


def _first_token(choices: list[str], style: Any, ids: Any, choice: Any) -> Any:
    return first_token.FirstToken(tuple(choices), style, ids).read(choice, "it")


def _first_fields(choices: list[str], style: Any, ids: Any, by_ids: bool) -> Any:
    return first_token.FirstToken(tuple(choices), style, ids).fields(by_ids=by_ids)


def _reply_of(choice: Any, one_token: bool) -> Any:
    token = first_token.FirstToken(("0", "1"), "top") if one_token else None
    return completions.reply_of(choice, token, "it", usage=Usage(1), seconds=2.0, model="m", identity="i")


def _level(given: list[int], which: list[int], over: int, least: int) -> Any:
    made = list(given)
    return cutting.level(made, which, over, least), made


def _quoted(text: str, **how: Any) -> Any:
    opening, inside, closing = template.quoted(text, **how)
    return opening.text, inside, closing.text


def _image(block: Any, which: Any) -> Any:
    found = images.image_in(block, which)
    return found.url[:80] if isinstance(found, images.Image) else found


def _shown_parts(parts: Any) -> Any:
    if isinstance(parts, str):
        return parts
    return [(heading, one if isinstance(one, str) else f"image {one.url[:30]}") for heading, one in parts]


def _limits(pieces: list[Any], tokens: Mapping[str, int]) -> Any:
    made = _pieces(pieces)
    counted = {int(at): count for at, count in tokens.items()}
    return budgets._levelled(made, counted), budgets._may_exceed([made[at] for at in counted])


def _load(page: str, before: list[float] | None = None) -> Any:
    found = read_load(page)
    return found and (found, found.hit_rate(None if before is None else EngineLoad(0, 0, *before)))


READERS = {
    "verdicts": {
        "choice": _choice,
        "about_choice": lambda options: _about(formats.ChoiceVerdict, options, ""),
        "spare": lambda options: formats.ChoiceVerdict(**options).spare().labels,
        "all_labels": lambda options: formats.ChoiceVerdict(**options).all_labels,
        "scale": lambda low, high, **how: formats.ChoiceVerdict.scale(low, high, **how).labels,
        "about_line": lambda options, nonce: _about(formats.LineVerdict, options, nonce),
        "line": lambda options, reply, nonce="k3": _scores(
            formats.LineVerdict(**options).read(_reply(reply), nonce)
        ),
        "about_json": lambda options, nonce: _about(formats.JsonVerdict, options, nonce),
        "json": lambda options, reply, nonce="k3": _scores(
            formats.JsonVerdict(**options).read(_reply(reply), nonce)
        ),
        "without_thinking": formats.without_thinking,
        "label_ids": _label_ids,
        "label_forms": labels.label_forms,
        "check_beginnings": labels.check_beginnings,
        "check_probabilities": labels.check_probabilities,
        "normalised": labels.normalised,
    },
    "answers": {
        "checked_end": lambda reason, written: checked_end(reason, "it", written=written),
        "text_of_choice": lambda choice: text_of_choice(choice, "it"),
        "usage_shares": usage_shares,
        "load": _load,
        "choices_of": lambda answer: completions.choices_of(answer, "it"),
        "in_order": lambda answer, count: completions.in_order(answer, count, "it"),
        "reply_of": _reply_of,
        "first_token": _first_token,
        "first_fields": _first_fields,
        "as_completion": sglang.as_completion,
        "generate_body": lambda *given: dict(sorted(sglang.generate_body(*given).items())),
        "applied": lambda terms, body: _terms(terms).applied(body),
        "without": _without,
        "given_terms": _given_terms,
        "refused": _refused,
        "provider_of": lambda url, name: providers.provider_of(url, name).name,
        "deployment": providers.deployment,
        "fields": _fields,
        "with_prompts": _with_prompts,
        "reply_tokens": lambda request: request_bodies.reply_tokens(_request(request)),
        "all_but_the_prompt": lambda request: request_bodies.all_but_the_prompt(_request(request)),
        "limits": _limits,
        "bytes": budgets._bytes,
        "most_tokens": lambda texts: fitting._most_tokens([{"role": "user", "content": t} for t in texts]),
    },
    "prompts": {
        "shortened": cutting.shortened,
        "level": _level,
        "disarm": control_strings.disarm,
        "without_headers": control_strings.without_headers,
        "is_control": lambda token, special, text: control_strings.is_control(
            token, special=special, template=text
        ),
        "template_strings": lambda text: sorted(control_strings.template_strings(text)),
        "jinja_literals": lambda text: list(control_strings.jinja_literals(text)),
        "control_strings": messages.control_strings,
        "text_messages": lambda turns, how: _messages(turns, **how),
        "messages_of": lambda turns: messages.messages_of(
            _turns(turns), [piece.text for turn in _turns(turns) for piece in turn.pieces]
        ),
        "marks_of": thinking_marks.marks_of,
        "thinking_kwargs": thinking_marks.thinking_kwargs,
        "without_thought": thinking_marks.without_thought,
        "made_visible": template.made_visible,
        "without_markers": template.without_markers,
        "quoted": lambda text, how: _quoted(text, **how),
        "fence_around": template.fence_around,
        "image_in": _image,
        "as_text": material.as_text,
        "select_references": lambda truth, how: material.select_references(truth, **how),
        "trajectory": lambda given, how: _shown_parts(material.trajectory_parts(given, **how)),
        "conversation": lambda given, how: _shown_parts(material.conversation(given, **how)),
        "unread_part": material.unread_part,
        "whole_text": material.whole_text,
    },
}
READINGS = Readings(Path(__file__).with_name("readings"), READERS)


@pytest.mark.parametrize(("file", "start"), READINGS.parts(), ids=str)
def test_what_is_made_of_what_is_given_has_not_changed(file: str, start: int) -> None:
    changed = list(READINGS.changed(file, start))
    assert not changed, "\n".join(changed)


def test_every_reader_has_rows() -> None:
    assert READINGS.named() == {file: {*readers} for file, readers in READERS.items()}


if __name__ == "__main__":
    READINGS.write(sys.argv[1:])
