"""The values that flow through judgekit: rollouts in, grades between, rewards out. All are frozen."""

from __future__ import annotations

import math
import re
from collections.abc import Hashable, Mapping, Sequence
from contextvars import ContextVar
from difflib import get_close_matches
from fnmatch import fnmatchcase
from html import escape
from numbers import Integral
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar

import msgspec
from msgspec import Struct, StructMeta

from judgekit.errors import ConfigError, DataError

Message = Mapping[str, Any]
"""A chat message in OpenAI form: role, content, and tool_calls or tool_call_id where it has them."""

Status = Literal["scored", "neutral", "excluded", "masked", "constant", "dropped"]
GRADED: Final = ("scored", "dropped")
"""Statuses of rollouts whose grades make a reward: it is not missing."""
PAID: Final = ("scored", "constant")
"""Statuses whose number a rollout is trained on: its reward, or the one that is written for a missing one."""
Cause = Literal["infrastructure", "rollout"]


OTHER_NAMES: Mapping[str, tuple[str, ...]] = {
    "response": ("completion", "output", "generation", "generated_text", "answer_text", "text", "prediction"),
    "prompt": ("question", "problem", "input", "instruction", "query", "input_prompt"),
    "ground_truth": (
        "answer",
        "solution",
        "target",
        "label",
        "reference",
        "gold",
        "gts",
        "expected",
        "answers",
        "golden_answers",
        "answerKey",
    ),
    "group": ("uid", "prompt_id", "problem_id", "question_id", "task_id", "group_id"),
    "messages": ("conversation", "conversations", "trajectory"),
    "response_tokens": ("response_length", "num_tokens", "completion_tokens"),
    "finish_reason": ("stop_reason",),
    "data_source": ("dataset", "source"),
}
"""Names that columns of these fields often have elsewhere: named in hints, never taken for them."""


SOLUTION_STR, QUERY = "judgekit.solution_str", "judgekit.query"
"""Keys of `extra` for the text that verl's and OpenRLHF's own functions get, where it is not the response, or prompt and response."""
COLUMNS = "judgekit.columns"
"""Key of `extra` for columns in whose place an entry of `extra_info` stands: functions of TRL get these."""


class _NamesMeant(StructMeta):
    """Answers a call with wrong names by the right ones."""

    if not TYPE_CHECKING:  # it takes what the fields say

        def __call__(cls, *args, **fields):
            try:
                return _make(cls, *args, **fields)
            except TypeError:
                if wrong := _wrong_call(cls.__struct_fields__, args, fields):
                    raise DataError(wrong) from None
                raise


_make = StructMeta.__call__


def _wrong_call(known: Sequence[str], args: Sequence[Any], fields: Mapping[str, Any]) -> str:
    """Return what is wrong with the arguments of a rollout, in a sentence; "" if nothing is."""
    for name in fields:
        if name not in known:
            meant = field_meant(name)
            if meant in fields:
                meant = None
            near = f"; did you mean {meant!r}?" if meant else f": give it as extra={{{name!r}: …}}"
            return f"a rollout has no field {name!r}{near}"
    if args:
        return "a rollout's fields are given by name: Rollout(response=…, prompt=…)"
    return (
        ""
        if "response" in fields
        else 'a rollout needs its response, the text to be graded; "" if the policy wrote none'
    )


def field_meant(name: str) -> str | None:
    """Return the field of a rollout that a wrong name seems to mean: one like it, or one that is called so elsewhere."""
    said = name.lower()
    for field, others in OTHER_NAMES.items():
        if said in map(str.lower, others):
            return field
    fields = Rollout.__struct_fields__
    if "_" in said and not set(said.split("_")).isdisjoint(fields):  # prompt_length is no prompt
        return None
    plainly = {field.replace("_", ""): field for field in fields if len(field) > 2}
    near = get_close_matches(said.replace("_", ""), plainly, n=1, cutoff=0.8)
    return plainly[near[0]] if near else None


class Rollout(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, metaclass=_NamesMeant):
    """One sampled response to one prompt.

    Raises DataError for a wrong name of a field, with the right one, and for a value of a wrong kind.
    """

    response: str
    """The text that the policy wrote, to be graded."""
    prompt: str | Sequence[Message] = ""
    group: Hashable = None
    """The host's id of the prompt (`uid`). Rollouts of one group compete. None: a digest of the prompt and
    the ground truth."""
    ground_truth: Any = None
    """The reference: a string, a number, a list of accepted answers, or whatever your grader reads."""
    messages: Sequence[Message] = ()
    """The whole trajectory with tool calls, if there is one."""
    data_source: str = ""
    finish_reason: str | None = None
    """The policy engine's word: "stop", "length", …"""
    response_tokens: int | None = None
    extra: Mapping[str, Any] = {}
    """Anything else that a grader may need: columns of the data set, tool schemas, …"""
    id: str = ""
    """The host's id of this sample, for the ledger."""

    def __post_init__(self) -> None:
        if hasattr(type(self.ground_truth), "tolist"):  # numpy's, as rows of pandas have it
            msgspec.structs.force_setattr(self, "ground_truth", plain(self.ground_truth))
        if (  # as nearly all are; this pays for the call that knows names
            type(self.response) is str
            and type(self.prompt) in _TURNS_OR_TEXT
            and type(self.messages) in _TURNS
            and type(self.data_source) is str is type(self.id)
            and type(self.finish_reason) in _TEXT_OR_NONE
            and type(self.response_tokens) in _NUMBER_OR_NONE
            and type(self.extra) is dict
        ):
            return
        for field, kinds, wanted in _ROLLOUT_FIELDS:
            if not isinstance(getattr(self, field), kinds):
                raise DataError(f"a rollout's {field} is {wanted}, not {type(getattr(self, field)).__name__}")

    @property
    def prompt_text(self) -> str:
        """The prompt as text: itself, or the content of its last user message."""
        if isinstance(self.prompt, str):
            return self.prompt
        for message in reversed(self.prompt):
            if message.get("role") == "user":
                return content_text(message.get("content"))
        return ""


_TURNS = frozenset((list, tuple))
_TURNS_OR_TEXT = _TURNS | {str}
_TEXT_OR_NONE = frozenset((str, type(None)))
_NUMBER_OR_NONE = frozenset((int, type(None)))
_ROLLOUT_FIELDS: tuple[tuple[str, Any, str], ...] = (
    ("response", str, "text"),
    ("prompt", (str, list, tuple), "text or a list of messages"),
    ("messages", (list, tuple), "a list of messages"),
    ("data_source", str, "text"),
    ("finish_reason", (str, type(None)), "text or None"),
    ("response_tokens", (int, type(None), Integral), "a whole number or None"),
    ("extra", Mapping, "a mapping"),
    ("id", str, "text"),
)


class Usage(Struct, frozen=True, gc=False, omit_defaults=True):
    """Tokens that judges consumed."""

    calls: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    """Prompt tokens that were in the engine's prefix cache."""
    completion_tokens: int = 0

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.calls + other.calls,
            self.prompt_tokens + other.prompt_tokens,
            self.cached_tokens + other.cached_tokens,
            self.completion_tokens + other.completion_tokens,
        )


class Price(Struct, frozen=True, forbid_unknown_fields=True):
    """A judge's price, in US dollars per million tokens."""

    input: float
    output: float
    cached_input: float | None = None
    """For input tokens from the provider's prompt cache; None: the same as for others."""

    def __post_init__(self) -> None:
        for name in ("input", "output", "cached_input"):
            value = getattr(self, name)
            if value is not None and not 0 <= value < float("inf"):
                raise ConfigError(
                    f"price: {name} is US dollars per million tokens, at least 0, not {value!r}"
                )

    def usd(self, usage: Usage) -> float:
        """Return the cost of *usage*, in US dollars."""
        cached = self.input if self.cached_input is None else self.cached_input
        fresh = max(usage.prompt_tokens - usage.cached_tokens, 0)
        millionths = fresh * self.input + usage.cached_tokens * cached + usage.completion_tokens * self.output
        return millionths / 1e6


class Graded(Struct, frozen=True, gc=False, omit_defaults=True, tag_field="kind", tag="graded"):
    """A score, finite and inside the grader's `score_range`."""

    score: float
    reason: str = ""
    metadata: Mapping[str, Any] | None = None
    usage: Usage | None = None
    """Tokens that judges used for it."""
    turns: tuple[float | None, ...] | None = None
    """What it says of each of the policy's turns (see `policy_turns`), in the same range; None for a turn without an opinion."""


class Abstained(Struct, frozen=True, gc=False, omit_defaults=True, tag_field="kind", tag="abstained"):
    """The grader has no opinion on this rollout: no reference, not applicable."""

    reason: str
    metadata: Mapping[str, Any] | None = None
    usage: Usage | None = None


class Skipped(Struct, frozen=True, gc=False, omit_defaults=True, tag_field="kind", tag="skipped"):
    """The grader was not asked, because the gate before it was not passed."""

    gate: str


class Failed(Struct, frozen=True, gc=False, omit_defaults=True, tag_field="kind", tag="failed"):
    """The grader should have given a score, and could not. There is no score to read by accident."""

    error: str
    """Class name of the error: "JudgeTimeout", "VerdictError", "DeadlineExceeded", …"""
    detail: str = ""
    retryable: bool = False
    cause: Cause = "infrastructure"
    """"rollout": the rollout itself broke the grader (a length bomb, an expression that never ends)."""
    metadata: Mapping[str, Any] | None = None
    """For an unreadable verdict: the reply, under "raw"."""
    usage: Usage | None = None


Grade = Graded | Abstained | Skipped | Failed
"""What a grader says of a rollout: a score, or why there is none."""


class _NoNumbers(dict[str, float | None]):
    """An empty dictionary that many results share, so that nothing may be put into it."""

    __slots__ = ()

    def _refuse(self, *_: Any, **__: Any) -> Any:
        raise TypeError("these are no numbers of a group to change")

    __setitem__ = __delitem__ = __ior__ = update = setdefault = pop = popitem = clear = _refuse

    def __reduce__(self) -> str:
        return "NO_NUMBERS"


NO_NUMBERS: Final[Mapping[str, float | None]] = _NoNumbers()


class RewardResult(Struct, frozen=True, kw_only=True, gc=False):
    """The reward of one rollout and how it was computed."""

    index: int
    """The rollout's place in the input."""
    group: Hashable
    reward: float | None
    """The number to train on, after the group transform and the setting for missing rewards; None if there is none."""
    status: Status
    """"scored": computed from the grades. If the reward is missing: "excluded", no number and no part in its
    group's statistics; "masked", no number; "neutral", the mean of its group's valid rewards; "constant",
    the number given as `missing_reward`. "dropped": the runner's `drop_if` leaves its whole group out, as if its rewards were
    missing."""
    raw_reward: float | None
    """The tree's value before the group transform; None if it is missing."""
    contributions: Mapping[str, float]
    """Weighted value of each term of the tree's top-level `Weighted`, and `residual`: what gates, clips and
    normalisation changed. They sum to `raw_reward`; empty if it is missing."""
    grades: Mapping[str, Grade]
    turns: tuple[float, ...] = ()
    """The part of `raw_reward` that each of the policy's turns earned; the rest is `outcome`. Empty if the reward is missing, or
    if the tree has no `{turns: …}`."""
    group_numbers: Mapping[str, float | None] = NO_NUMBERS
    """Numbers of the whole group on which the reward depends, such as `spread(correct)`; None for one that is missing."""
    step: float | None = None
    """The training step, if the reward has weights that depend on it."""
    missing: tuple[str, ...] = ()
    """Names of the grades whose absence makes the reward missing."""
    policies: tuple[str, ...] = ()
    """The settings for missing grades that were applied, in words."""
    usage: Usage = Usage()
    wall_s: float = 0.0
    """Seconds from the rollout's first evaluation to its last."""

    @property
    def outcome(self) -> float | None:
        """The part of `raw_reward` that belongs to no turn; None if it is missing."""
        return None if self.raw_reward is None else self.raw_reward - math.fsum(self.turns)

    def score(self, name: str) -> float | None:
        """Return the score that grader *name* gave, or None."""
        grade = self.grades.get(name)
        return grade.score if isinstance(grade, Graded) else None

    def _repr_html_(self) -> str:
        rows = [
            (name, shown_grade(grade), shown_number(self.contributions.get(name)), why_of(grade))
            for name, grade in self.grades.items()
        ]
        rest = [
            (name, "", shown_number(c), "")
            for name, c in self.contributions.items()
            if name not in self.grades and c
        ]
        notes = "; ".join(self.policies)
        last = (f"reward ({self.status})", shown_number(self.reward), shown_number(self.raw_reward), notes)
        return html_table(("", "score", "contributes", "why"), [*rows, *rest, last])


def shown_number(value: float | None) -> str:
    """Return a number for people; "" if there is none."""
    return "" if value is None else f"{value:.4g}"


def shown_grade(grade: Grade | None) -> str:
    """Return a grade's score for people, or what it is instead."""
    if isinstance(grade, Graded):
        return shown_number(grade.score)
    return "" if grade is None else type(grade).__name__.lower()


def why_of(grade: Grade) -> str:
    """Return why a grade is what it is, in words."""
    if isinstance(grade, Failed):
        return f"{grade.error}: {grade.detail} ({grade.cause})"
    return grade.gate if isinstance(grade, Skipped) else grade.reason


def html_table(head: Sequence[str], rows: Sequence[Sequence[str]], below: str = "") -> str:
    """Return a table for notebooks. Cells are texts, which may be a rollout's: they are escaped and cut at 200 characters."""

    def row(cells: Sequence[str], tag: str) -> str:
        shown = (escape(cell if len(cell) <= 200 else f"{cell[:199]}…") for cell in cells)
        made = (f'<{tag} style="text-align:left">{cell}</{tag}>' for cell in shown)
        return f"<tr>{''.join(made)}</tr>"

    body = "".join(row(cells, "td") for cells in rows)
    return f"<table><thead>{row(head, 'th')}</thead><tbody>{body}</tbody></table>{escape(below)}"


def content_text(content: Any) -> str:
    """Return a message's content as text: a string, or the joined text blocks of a list."""
    if isinstance(content, str):
        return content
    if isinstance(content, Sequence):
        blocks = (
            b if isinstance(b, str) else b.get("text", "") for b in content if isinstance(b, str | Mapping)
        )
        return "".join(b for b in blocks if isinstance(b, str))
    return "" if content is None else str(content)


ASSISTANTS = frozenset(("assistant", "ai", "model", "gpt"))
"""Roles of the policy's own messages."""
_POLICYS_ITEMS = frozenset(("function_call", "tool_use", "custom_tool_call", "reasoning"))
"""Types of messages without a role that the policy wrote, as in OpenAI's Responses."""


def prompt_end(rollout: Rollout) -> int:
    """Return the number of `messages` that are the prompt's, and not what the rollout made of it."""
    prompt = rollout.prompt
    return 0 if isinstance(prompt, str) else end_of(prompt, rollout.messages)


def end_of(prompt: Sequence[Message], messages: Sequence[Message]) -> int:
    """Return where *prompt* ends in a conversation that begins with it; 0 if it does not."""
    if not prompt:
        return 0
    first = next((at for at, message in enumerate(messages) if _role_of(message) != "system"), 0)
    asked = list(map(_without_nulls, prompt))
    for start in {0, first}:  # a host may have put a system message before the prompt
        if list(map(_without_nulls, messages[start : start + len(asked)])) == asked:
            return start + len(asked)
    return 0


def _role_of(message: Any) -> Any:
    return message.get("role") if isinstance(message, Mapping) else None


def _without_nulls(message: Any) -> Any:
    """Return a message without the keys that are null: as Arrow fills them."""
    if not isinstance(message, Mapping):
        return message
    return {key: value for key, value in message.items() if value is not None}


def policy_turns(rollout: Rollout) -> list[list[int]]:
    """Return the places in `messages` of each of the policy's turns, in order.

    A turn is what the policy wrote after the prompt in one go: messages of its that stand side by side are one turn. A rollout
    without such messages is one turn, its response, which has no place.
    """
    messages = rollout.messages
    turns: list[list[int]] = []
    writing = False
    for at in range(prompt_end(rollout), len(messages)):
        message = messages[at]
        inner = message.get("message") if isinstance(message, Mapping) else None
        wrote = _by_policy(inner if isinstance(inner, Mapping) else message)
        if wrote and writing:
            turns[-1].append(at)
        elif wrote:
            turns.append([at])
        writing = wrote
    return turns or [[]]


def turn_texts(rollout: Rollout) -> list[str]:
    """Return the text of each of the policy's turns (see `policy_turns`)."""
    return [
        "\n".join(content_text(_content(rollout.messages[at])) for at in turn) if turn else rollout.response
        for turn in policy_turns(rollout)
    ]


def _content(message: Message) -> Any:
    inner = message.get("message")
    return (inner if isinstance(inner, Mapping) else message).get("content")


def _by_policy(message: Any) -> bool:
    if not isinstance(message, Mapping):
        return False
    role = message.get("role")
    return role in ASSISTANTS if isinstance(role, str) else is_item(message)


def is_item(message: Mapping[str, Any]) -> bool:
    """Return whether a message without a role is an item of OpenAI's Responses that the policy wrote."""
    kind = message.get("type")
    return isinstance(kind, str) and kind in _POLICYS_ITEMS


def text_size(*values: Any) -> int:
    """Count the characters in *values*: strings, and mappings and sequences of them.

    Counting stops at 10 million, so that it ends for a value that contains itself.
    """
    most = 10_000_000
    size = 0
    level: list[Any] = list(values)
    while level:  # by levels, and the plain types first: traces have thousands of messages
        deeper: list[Any] = []
        for value in level:
            kind = type(value)
            if kind is str:
                size += len(value)
            elif kind is list or kind is tuple:
                size += 8
                deeper += value
            elif kind is dict or isinstance(value, Mapping):
                size += 8
                deeper += value.values()
            elif isinstance(value, str):
                size += len(value)
            elif isinstance(value, Sequence) and not isinstance(value, bytes | bytearray):
                size += 8
                deeper += value
            elif value is not None:
                size += 8
            if len(deeper) > most // 8:
                return most
        if size > most:
            return most
        level = deeper
    return size


def plain(value: Any) -> Any:
    """Convert arrays and their scalars, at any depth of mappings and lists, to Python's values.

    Data sets have them where pandas has read Parquet files.
    """
    kind = type(value)
    if kind in _PLAIN:
        return value
    if isinstance(value, Mapping):
        return {name: plain(item) for name, item in value.items()}
    if kind is list or kind is tuple:  # long lists of tokens are left as they are
        return value if _PLAIN.issuperset(map(type, value)) else kind(map(plain, value))
    if hasattr(kind, "tolist"):
        found = value.tolist()
        return value if type(found) is kind else plain(found)
    return value


_PLAIN = frozenset((str, int, float, bool, type(None)))

_NOTHING: Any = object()


def look_up(rollout: Rollout, path: str, default: Any = _NOTHING) -> Any:
    """Return the value at a dotted *path* of the rollout (`extra.answer`, `messages.-1.content`), or *default*."""
    value: Any = rollout
    for part in path.split("."):
        if isinstance(value, Mapping):
            if part not in value:
                return default
            value = value[part]
        elif isinstance(value, Sequence) and not isinstance(value, str) and re.fullmatch(r"-?\d+", part):
            if not -len(value) <= int(part) < len(value):
                return default
            value = value[int(part)]
        elif isinstance(value, msgspec.Struct) and part in value.__struct_fields__:
            value = getattr(value, part)
        else:
            return default
    return value


_Case = TypeVar("_Case")


def field_text(rollout: Rollout, path: str) -> str:
    """Return the value at a dotted *path* as text; "" if there is none.

    Raises what reading it raises: a column of the user's data set may be lazy.
    """
    value = look_up(rollout, path, None)
    return "" if value is None else str(value)


def first_match(cases: Mapping[str, _Case], text: str) -> _Case | None:
    """Return the first of *cases* whose shell pattern matches *text*, or None."""
    return next((case for pattern, case in cases.items() if fnmatchcase(text, pattern)), None)


KEEP_PROMPTS: ContextVar[bool] = ContextVar("judgekit_keep_prompts", default=False)
"""Whether judged grades keep the judge's prompt in their metadata, because the run's ledger keeps texts."""
CURRENT_RUN: ContextVar[str] = ContextVar("judgekit_run", default="")
"""Id of the current run."""
