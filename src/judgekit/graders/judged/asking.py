"""Asking a judge: a template's fields filled from a rollout, the request, and the verdict read."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import secrets
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Literal

import msgspec

from judgekit.errors import (
    ConfigError,
    JudgekitError,
    JudgeRejected,
    VerdictError,
    attribute,
    reads_rollout,
)
from judgekit.graders.judged.comparing import HARMLESS, Comparisons, aside, spend
from judgekit.judges.base import WRAPPER, Judge, JudgeReply, JudgeRequest, Piece, Sampling, Turn
from judgekit.judges.blame import about_prompt
from judgekit.judges.home import at_home
from judgekit.judges.layers.routes import JudgeRoutes
from judgekit.judges.prompts.images import Images
from judgekit.judges.prompts.material import (
    as_text,
    conversation,
    select_references,
    trajectory_parts,
    unread_part,
)
from judgekit.judges.prompts.template import OTHER_NAMES, Material, Template
from judgekit.judges.registry import verdict_format
from judgekit.judges.verdicts.formats import ChoiceVerdict, Verdict, VerdictFormat
from judgekit.types import (
    CURRENT_RUN,
    KEEP_PROMPTS,
    Abstained,
    Message,
    Rollout,
    Usage,
    look_up,
)

logger = logging.getLogger("judgekit")

Unreadable = Literal["failure", "low"]

FIELDS: Mapping[str, str] = {
    "PROBLEM": "conversation",
    "REFERENCE_SOLUTION": "ground_truth",
    "CANDIDATE_SOLUTION": "response",
    "TRAJECTORY": "messages",
}
"""Default paths of template fields in a rollout: `conversation` is all of its prompt, `prompt_text` the last user message."""


def _with_prompt(verdict: Verdict, request: JudgeRequest) -> Verdict:
    """Keep what the judge was asked, where the run's ledger keeps texts."""
    if not KEEP_PROMPTS.get():
        return verdict
    prompt = [{"role": turn.role, "content": "".join(map(_kept, turn.pieces))} for turn in request.turns]
    return msgspec.structs.replace(verdict, metadata={**verdict.metadata, "prompt": prompt})


def _kept(piece: Piece) -> str:
    """A piece as the ledger keeps it: of an image its address, or a digest of its data."""
    if not piece.image.startswith("data:"):
        return piece.text or piece.image
    return f"[image {hashlib.blake2b(piece.image.encode(), digest_size=8).hexdigest()}]"


def _turns(rollout: Rollout, path: str) -> Sequence[Message]:
    """The messages that a field shows, of a prompt or a trajectory that has some."""
    if path == "messages":
        return rollout.messages
    if path not in ("conversation", "prompt_text") or isinstance(rollout.prompt, str):
        return ()
    if path == "conversation":
        return rollout.prompt
    return [message for message in rollout.prompt if message.get("role") == "user"][-1:]


# what a rollout itself nested too deep is its own fault
_unread_in_rollout = reads_rollout(unread_part)
_parts_of_rollout = reads_rollout(trajectory_parts)


class Prepared(msgspec.Struct, frozen=True):
    """A template's data fields, as text."""

    data: Mapping[str, Material]
    fence: int = 0
    """Backticks of the fences around what rollouts wrote, at least."""


Harmless = Callable[[], Prepared | Abstained]
"""Makes the same data with a harmless text in the rollout's place."""


def _paths(template: Template, fields: Mapping[str, str], given: Sequence[str]) -> dict[str, str]:
    """Return where in a rollout each field of *template* stands, but for those that the grader fills itself."""
    known = {**FIELDS, **fields}
    found: dict[str, str] = {}
    for field in template.fields - {*Template.TRUSTED, *given}:
        if field not in known:
            if field in ("RESPONSE_A", "RESPONSE_B"):
                raise ConfigError(f"template {template.name!r} compares two responses: take use: pairwise")
            meant = f"write {{{OTHER_NAMES[field]}}}, or " if field in OTHER_NAMES else ""
            raise ConfigError(
                f"template {template.name!r} has a field {{{field}}}: {meant}set its path in a rollout with "
                f"fields={{{field!r}: 'extra.…'}}"
            )
        found[field] = known[field]
    return found


def _check_fields(template: Template, fields: Mapping[str, str], verdict: VerdictFormat, rubric: str) -> None:
    """Raise ConfigError if the template lacks a field that is needed, or something is given for one that it lacks."""
    if verdict.uses_nonce and "REMINDER" not in template.fields:
        raise ConfigError(
            f"template {template.name!r} has no {{REMINDER}}, which tells the judge the code that its verdict "
            "must contain: add it at the end, or use a verdict with nonce=False"
        )
    if unused := set(fields) - template.fields:
        raise ConfigError(f"template {template.name!r} has no field {{{sorted(unused)[0]}}}")
    if rubric and "RUBRIC" not in template.fields:
        raise ConfigError(f"template {template.name!r} has no field for the rubric: add {{RUBRIC}} to it")
    if "RUBRIC" in template.fields and not rubric:
        raise ConfigError(f"template {template.name!r} needs a rubric: give one with rubric='…'")


class Asking:
    """Builds requests from a template, a verdict format and sampling, and reads the verdicts."""

    def __init__(
        self,
        *,
        template: Template,
        verdict: VerdictFormat | str | None,
        sampling: Sampling,
        fields: Mapping[str, str],
        rubric: str,
        max_tokens: int | None,
        asker: str,
        given: tuple[str, ...] = (),
        unreadable: Unreadable = "failure",
        trust_rubric: bool = True,
    ) -> None:
        """*verdict*: None is the template's own, or else one token, 0 or 1. *given*: fields that the grader fills itself,
        from several rollouts. *trust_rubric*: whether the rubric is the user's own text; off: it is quoted like other data.
        """
        if template.verdict is not None and verdict is not None:
            raise ConfigError(
                f"{asker}: the template {template.name!r} is for judges that answer in a form of their own, and has a "
                "verdict: leave the grader's out, or take another template"
            )
        verdict = verdict_format(verdict, asker)
        verdict = verdict or template.verdict or ChoiceVerdict()
        rubric = rubric or template.rubric
        if unreadable not in ("failure", "low"):
            raise ConfigError(f"{asker}: unreadable is 'failure' or 'low', not {unreadable!r}")
        self.template = template
        self.verdict = verdict
        self.sampling = sampling
        self.rubric = rubric
        self.max_tokens = max_tokens
        self.asker = asker
        self._secret = secrets.token_bytes(16)
        self.unreadable = unreadable
        self._comparisons = Comparisons(asker)
        self.trust_rubric = trust_rubric
        self.forms: list[tuple[Any, VerdictFormat]] = []
        """Formats that `form` has chosen, with their judges."""
        self._paths = _paths(template, fields, given)
        # what rollouts wrote is cut first, whatever a template calls it; what a group shares stays whole
        own = {field for field, path in self._paths.items() if path.split(".")[0] in ("response", "messages")}
        self._pools = {
            field: number if self._paths.get(field) == "messages" else 0
            for number, field in enumerate((*sorted(own), *given), 1)
        }
        _check_fields(template, fields, verdict, rubric)
        shown = set(given) <= template.fields if given else own or fields
        if not shown:
            missing = " and ".join(f"{{{field}}}" for field in given or ("CANDIDATE_SOLUTION",))
            raise ConfigError(
                f"{asker}: the judge would never see what it judges, and every rollout would get one score: write {missing} "
                f"into the template {template.name!r}, where the rollout's text belongs"
            )

    def prepare(self, rollout: Rollout, images: Images = "none") -> Prepared | Abstained:
        """Return the template's data from a rollout, or Abstained if a field is missing.

        *images*: those that the judge is shown; it abstains where a conversation has others.
        """
        data: dict[str, Material] = {}
        for field, path in self._paths.items():
            value: Any
            turns = _turns(rollout, path)
            unread_in = _unread_in_rollout if path == "messages" else unread_part
            if (unread := unread_in(turns, images)) is not None:
                blind = ", and the judge reads text only" if images == "none" else ""
                return Abstained(f"there is {unread} in {{{field}}}{blind}")
            # headings are not part of the budget: few enough that they stay below it
            most = 256 if self.max_tokens is None else max(16, self.max_tokens // 32)
            if path == "conversation":
                data[field] = conversation(turns, most=most, images=images) if turns else rollout.prompt_text
                if not data[field]:
                    return Abstained(f"there is no prompt for {{{field}}}")
                continue
            if path == "messages" and turns:
                data[field] = _parts_of_rollout(turns, most=most, images=images)
                continue
            if path == "prompt_text":
                shown = conversation(turns, most=most, images=images) if turns else ""
                if not isinstance(shown, str):
                    data[field] = shown
                    continue
                value = rollout.prompt_text
            else:
                value = look_up(rollout, path, None)
                if path == "ground_truth":
                    value = _references(rollout, value)
                    if isinstance(value, Abstained):
                        return value
            text = value if path == "response" else as_text(value)  # an empty response is judged, too
            if text is None:
                return Abstained(f"there is no {path.removesuffix('_text')} for {{{field}}}")
            data[field] = text
        return Prepared(data)

    async def check(self, judge: Any) -> None:
        """Check that each judge can answer: think, and give the labels as single tokens, or others. Raises ConfigError."""
        if isinstance(judge, JudgeRoutes):
            for one in (*judge.routes.values(), judge.default):
                await self.check(one)
        elif judge is not None:
            await self.form(judge)

    async def form(self, judge: Any) -> VerdictFormat:
        """Return the format for *judge*. It depends on the judge's vocabulary, never on a rollout."""
        check = getattr(judge, "check_request", None)
        if check is None:
            return self.verdict
        for known, form in self.forms:
            if known is judge:
                return form
        wrong: ConfigError | None = None
        for form in (
            self.verdict,
            *([self.verdict.spare()] if isinstance(self.verdict, ChoiceVerdict) else []),
        ):
            try:
                await check(
                    JudgeRequest(
                        (),
                        form.choices,
                        json_schema=form.json_schema,
                        max_tokens=form.max_tokens,
                        sampling=self.sampling,
                    )
                )
            except ConfigError as error:
                wrong = wrong or error
            else:
                if wrong is not None:
                    logger.info("%s: %s; the labels are %s", self.asker, wrong, ", ".join(form.choices))
                self.forms.append((judge, form))
                return form
        assert wrong is not None
        raise wrong

    def request(
        self, prepared: Prepared, vote: int = 0, form: VerdictFormat | None = None
    ) -> tuple[JudgeRequest, VerdictFormat]:
        """Return the request for a verdict, and the format to read the reply with.

        *form*: what `form` returned for the judge; None: the grader's own.
        """
        form = form or self.verdict
        nonce = self._nonce(prepared, vote) if form.uses_nonce else ""
        words = form.words(nonce)
        data = prepared.data
        if self.rubric and self.trust_rubric:
            words["RUBRIC"] = self.rubric
        elif self.rubric:
            data = {**data, "RUBRIC": [("This text from the data set says what to look for:\n", self.rubric)]}
        turns = self.template.render(
            data,
            words,
            max_tokens=self.max_tokens,
            pools=self._pools,
            fence=prepared.fence,
            labels=form.choices,
            markers=getattr(form, "markers", ()),  # a user's own format may have none
        )
        request = JudgeRequest(
            turns=turns,
            choices=form.choices,
            json_schema=form.json_schema,
            max_tokens=form.max_tokens,
            sampling=self.sampling,
            vote=vote,
            asker=self.asker,
            nonce=nonce,
            run=CURRENT_RUN.get(),
            accept=lambda reply: form.read(reply, reply.nonce or nonce),
        )
        return request, form

    def harmless(self, rollout: Rollout, images: Images = "none") -> Prepared | Abstained:
        """Return the same data with a harmless text in place of what the rollout wrote."""
        messages = [{"role": "assistant", "content": HARMLESS}] if rollout.messages else []
        return self.prepare(msgspec.structs.replace(rollout, response=HARMLESS, messages=messages), images)

    async def ask(
        self, judge: Judge, prepared: Prepared, vote: int = 0, harmless: Harmless | None = None
    ) -> tuple[Verdict, JudgeReply, Usage]:
        """Ask for a verdict; returns it with the reply and the usage.

        Raises VerdictError if the second reply contains no verdict either, and the judge's own errors. *harmless*: what to
        compare with where the rollout may be at fault (`judges/blame.py`): RolloutError if it is refused. Without it, whoever
        asks compares.
        """
        request, form = self.request(prepared, vote, await self.form(judge))
        wrapped = _wrapped(judge)
        try:
            return await self._verdict(wrapped, request, form)
        except (JudgeRejected, VerdictError) as error:
            low = isinstance(error, VerdictError) and self.unreadable == "low"
            if harmless is not None and (low or about_prompt(error)):
                other = harmless()
                if isinstance(other, Prepared) and other != prepared:
                    known = self.request(other, vote, form)[0]
                    if low:
                        low = await self._answers(wrapped, known, form, error)
                    else:
                        return await self._compared(judge, wrapped, request, known, form, error)
                else:
                    low = False  # a rollout that is as harmless as that is not at fault
            if isinstance(error, VerdictError):
                error.from_rollout = low
            raise

    async def answers(self, judge: Judge, harmless: Harmless, error: VerdictError) -> bool:
        """Whether the judge has a verdict on a harmless text. What it costs is added to *error*'s usage."""
        other = harmless()
        if isinstance(other, Abstained):
            return False
        request, form = self.request(other, form=await self.form(judge))
        return await self._answers(_wrapped(judge), request, form, error)

    async def _answers(
        self, judge: Judge, request: JudgeRequest, form: VerdictFormat, error: JudgekitError
    ) -> bool:
        try:
            async with aside():
                _, _, usage = await self._verdict(judge, _unkept(request), form)
        except (JudgekitError, TimeoutError) as other:
            spend(error, attribute(other, "usage"))
            return False
        spend(error, usage)
        return True

    async def _compared(
        self,
        judge: Judge,
        wrapped: Judge,
        request: JudgeRequest,
        harmless: JudgeRequest,
        form: VerdictFormat,
        error: JudgekitError,
    ) -> tuple[Verdict, JudgeReply, Usage]:
        async def other() -> Usage:
            return (await at_home(wrapped.complete, _unkept(harmless))).usage

        again = partial(self._verdict, wrapped, request, form)
        (verdict, reply, usage), spent = await self._comparisons.again(judge, again, other, error)
        return verdict, reply, usage + spent

    async def _verdict(
        self, judge: Judge, request: JudgeRequest, form: VerdictFormat
    ) -> tuple[Verdict, JudgeReply, Usage]:
        """Ask, and once more with a hint if the reply contains no verdict."""
        usage = Usage()
        try:
            reply = await at_home(judge.complete, request)
            usage += reply.usage
            try:
                return _with_prompt(form.read(reply, reply.nonce or request.nonce), request), reply, usage
            except VerdictError:
                request = self._again(request, form)
            reply = await at_home(judge.complete, request)
            usage += reply.usage
            return _with_prompt(form.read(reply, reply.nonce or request.nonce), request), reply, usage
        except (JudgekitError, asyncio.CancelledError) as error:
            # recorded whatever it ends with, a time-out too; not added up: a judge may raise the same error every time
            error.usage = usage if usage != Usage() else None  # type: ignore[union-attr]
            raise

    def _again(self, request: JudgeRequest, form: VerdictFormat) -> JudgeRequest:
        """Add a hint about the format; at temperature 0 the same prompt would fail the same way."""
        last = request.turns[-1]
        reminder = form.words(request.nonce)["REMINDER"]
        hint = Piece(f"\n\nAnswer in the form that was asked for, nothing after it. {reminder}")
        turn = Turn(last.role, (*last.pieces, hint))
        return msgspec.structs.replace(request, turns=(*request.turns[:-1], turn))

    def _nonce(self, prepared: Prepared, vote: int) -> str:
        """Return a code that the data's author cannot know; the same for the same data."""
        digest = hashlib.blake2b(key=self._secret, digest_size=5)
        for field in sorted(prepared.data):
            digest.update(f"{field}\0{prepared.data[field]!r}\0".encode("utf-8", "surrogatepass"))
        digest.update(str(vote).encode())
        return digest.hexdigest()


def _wrapped(judge: Judge) -> Judge:
    return wrap(judge) if (wrap := WRAPPER.get()) is not None else judge


def _unkept(request: JudgeRequest) -> JudgeRequest:
    """Return a request whose reply no cache keeps: a comparison asks the judge as it is now."""
    return msgspec.structs.replace(request, accept=_keep_nothing)


def _keep_nothing(reply: JudgeReply) -> None:
    raise VerdictError("a comparison is not kept", reply.text)


def _references(rollout: Rollout, truth: Any) -> Any:
    extra = rollout.extra
    prefix = extra.get("prompt") if extra.get("filter_gt_by_prompt_token") else None
    return select_references(
        truth,
        equal=extra.get("target_gt"),
        starts_with=prefix if isinstance(prefix, str) else None,
    )
