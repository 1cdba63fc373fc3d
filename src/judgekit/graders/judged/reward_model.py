"""A grader that asks a scalar reward model."""

from __future__ import annotations

import math
from functools import partial

import msgspec

from judgekit.errors import ConfigError, JudgeRejected
from judgekit.graders.judged.comparing import HARMLESS, Comparisons
from judgekit.judges.base import Piece, RewardModel, Role, Turn
from judgekit.judges.blame import about_prompt
from judgekit.judges.home import at_home
from judgekit.judges.layers.routes import start_judges
from judgekit.judges.prompts.material import encodable, unread_part, whole_text
from judgekit.types import Abstained, Grade, Graded, Rollout, Usage


class RewardModelGrader:
    """Scores a rollout with a reward model, which reads the prompt and the response.

    *score_range*: the range of the model's numbers; by default any number. The reward must then say what a rollout
    that breaks the grader gets (`Score(name, if_broken=…)`). *squash*: apply the logistic function, so that scores
    are 0 to 1. *max_tokens*: longer responses are cut in the middle to this many tokens. Whose failure a refusal is, a comparison
    with a harmless response says, as for `JudgeGrader`.
    """

    inputs = ("prompt", "response")
    gives_turns = False
    abstains = "there is no prompt, or it holds more than text"
    source = "the reward model's own"

    def __init__(
        self,
        model: RewardModel,
        *,
        score_range: tuple[float, float] | None = None,
        squash: bool = False,
        max_tokens: int | None = None,
        name: str = "reward_model",
        version: str = "1",
    ) -> None:
        if not callable(getattr(model, "reward", None)):
            raise ConfigError(f"{name}: {model!r} is not a reward model: it has no reward()")
        if squash and score_range is not None:
            raise ConfigError(f"{name}: a squashed reward is in 0..1: leave score_range out")
        self.model = model
        self.name = name
        self.version = version
        self.squash = squash
        self.max_tokens = max_tokens
        self._comparisons = Comparisons(f"{name}@{version}")
        self.score_range = (0.0, 1.0) if squash else score_range or (-math.inf, math.inf)

    async def warm_up(self) -> None:
        """Start the model, outside any rollout's time."""
        await start_judges(self.model)

    async def grade(self, rollout: Rollout, /) -> Grade:
        if not rollout.prompt:
            return Abstained("there is no prompt")
        if not isinstance(rollout.prompt, str) and (unread := unread_part(rollout.prompt)) is not None:
            return Abstained(f"there is {unread} in the prompt, and the model reads text only")
        try:
            value, usage = await at_home(self.model.reward, self._turns(rollout))
        except JudgeRejected as error:
            if not about_prompt(error):
                raise
            value, usage = await self._compared(rollout, error)
        if self.squash:
            value = 1 / (1 + math.exp(-value)) if value >= 0 else 1 - 1 / (1 + math.exp(value))
        return Graded(value, usage=usage)

    async def _compared(self, rollout: Rollout, error: JudgeRejected) -> tuple[float, Usage]:
        other = msgspec.structs.replace(rollout, response=HARMLESS)

        async def harmless() -> Usage:
            return (await at_home(self.model.reward, self._turns(other)))[1]

        again = partial(at_home, self.model.reward, self._turns(rollout))
        (value, usage), spent = await self._comparisons.again(self.model, again, harmless, error)
        return value, usage + spent

    def _turns(self, rollout: Rollout) -> list[Turn]:
        messages = (
            [{"role": "user", "content": rollout.prompt}]
            if isinstance(rollout.prompt, str)
            else rollout.prompt
        )
        turns: list[Turn] = []
        for message in messages:
            given = message.get("role")
            role: Role = "system" if given == "system" else "assistant" if given == "assistant" else "user"
            turns.append(Turn(role, (Piece(encodable(whole_text(message.get("content"))), trusted=False),)))
        response = Piece(encodable(rollout.response), trusted=False, max_tokens=self.max_tokens)
        return [*turns, Turn("assistant", (response,))]
