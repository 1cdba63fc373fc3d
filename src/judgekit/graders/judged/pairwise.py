"""Group graders that compare two rollouts at a time."""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Mapping, Sequence

import msgspec

from judgekit.errors import ConfigError
from judgekit.graders.judged.asking import Asking, Prepared, Unreadable
from judgekit.graders.judged.pointwise import JudgeGrader
from judgekit.graders.judged.strengths import UNKNOWN, Game, Pairings, Place, chance, strengths
from judgekit.graders.judged.voting import Ask, ask_about, failing_alone
from judgekit.judges.base import Judge, Sampling
from judgekit.judges.layers.routes import JudgeRoutes, start_judges
from judgekit.judges.prompts.images import images_of
from judgekit.judges.prompts.template import Template
from judgekit.judges.registry import verdict_format
from judgekit.judges.verdicts.formats import ChoiceVerdict, JsonVerdict, LineVerdict, VerdictFormat
from judgekit.types import Abstained, Failed, Grade, Graded, Rollout, Usage

logger = logging.getLogger("judgekit")

LABELS = {"A": 1.0, "C": 0.5, "B": 0.0}
"""A's share if A wins, in a tie, and if B wins."""


class Pairwise:
    """Compares the rollouts of a group in pairs.

    The score is the probability of beating an average member of the group, 0 to 1, by the strengths that explain all verdicts
    best (Bradley-Terry, see `judgekit.graders.judged.strengths`). Members meet over a few rounds, as in a Swiss tournament: those
    of about equal strength who have not met yet, each pair once, in places that alternate. What the first place is worth to
    the judge is learnt over the groups, and taken off. A tie is a verdict. Equal texts share one strength and cost no call.

    *rubric*: text for the template's {RUBRIC}, if it has one. *rounds*: how many comparisons each member takes part in, about as
    many calls as half the members each; None: 2 log2 of the members, at least 7. With more rounds than others, pairs meet
    again in the other places, until all have. The metadata has each member's `strength` in logits, its `games`, in how many it
    stood `first`, and the `place` term, in logits, too.

    A failed comparison is left out: a member is scored by its others, and fails if none is left. A member whose text the judge
    refuses or gives no verdict on, also alone, fails by itself (a refusal with cause "rollout"), and the others are compared
    without it. *unreadable* as in `JudgeGrader`. A judge that gives labels without probabilities says less in a call: its labels
    are counted, and a warning says so once. Preferences as group rewards: Pref-GRPO (Wang et al. 2025, arXiv:2508.20751).
    """

    inputs = ("prompt", "response of all members")
    gives_turns = False
    abstains = "there is no other member to compare with, or a field of the template is missing"
    source = "Pref-GRPO (Wang et al. 2025, arXiv:2508.20751)"
    score_range = (0.0, 1.0)

    def __init__(
        self,
        judge: Judge | JudgeRoutes,
        *,
        template: Template | str = "pairwise",
        verdict: VerdictFormat | str | None = None,
        sampling: Sampling | None = None,
        rubric: str = "",
        rounds: int | None = None,
        max_tokens: int | None = 4096,
        unreadable: Unreadable = "failure",
        seed: int = 0,
        name: str = "pairwise",
        version: str = "2",
    ) -> None:
        if rounds is not None and (isinstance(rounds, bool) or not isinstance(rounds, int) or rounds < 1):
            raise ConfigError(f"{name}: rounds is a whole number, at least 1, or None, not {rounds!r}")
        self.judge = JudgeGrader(judge, name=name).judge
        self.name = name
        self.version = version
        self.rounds = rounds
        self.seed = seed
        self._places: dict[int, Place] = {}
        """What the first place is worth, by the identity of the judge."""
        self._told_of_labels = False
        loaded = Template.load(template) if isinstance(template, str) else template
        if verdict is None and loaded.verdict is None:
            verdict = _ThreeWay()
        verdict = _of_two(verdict_format(verdict, name))
        self._asking = Asking(
            template=loaded,
            verdict=verdict,
            sampling=sampling or Sampling(),
            fields={},
            rubric=rubric,
            max_tokens=max_tokens,
            asker=f"{name}@{version}",
            given=("RESPONSE_A", "RESPONSE_B"),
            unreadable=unreadable,
        )
        verdict = self._asking.verdict
        if verdict.score_range != (0.0, 1.0) or verdict.outputs:
            raise ConfigError(f"{name}: the verdict of a comparison is A's share, one score from 0 to 1")

    async def warm_up(self) -> None:
        """Start the judge and check its labels, outside any rollout's time."""
        await start_judges(self.judge)
        await self._asking.check(self.judge)

    async def grade_group(self, rollouts: Sequence[Rollout], /) -> Sequence[Grade]:
        judge = self.judge.choose(rollouts[0]) if isinstance(self.judge, JudgeRoutes) else self.judge
        if isinstance(judge, Abstained):
            return [judge] * len(rollouts)
        base = self._asking.prepare(rollouts[0], images_of(judge))
        if isinstance(base, Abstained):
            return [base] * len(rollouts)
        texts = list(dict.fromkeys(rollout.response for rollout in rollouts))

        async def ask(players: Sequence[int]) -> Grade:
            first, second = [texts[player] for player in players] + [""] * (2 - len(players))
            prepared = Prepared({**base.data, "RESPONSE_A": first, "RESPONSE_B": second})
            verdict, reply, usage = await self._asking.ask(judge, prepared)
            return Graded(verdict.score, verdict.reason, {"model": reply.model}, usage)

        place = self._places.get(id(judge), UNKNOWN)  # what the groups before it have taught
        rounds = self.rounds or usual_rounds(len(texts))
        match = Tournament(len(texts), rounds, self.seed, place, ask)
        await match.play()
        self._places[id(judge)] = self._places.get(id(judge), UNKNOWN).learnt(place, match.place)
        if match.games and all(game.share in _LABELS for game in match.games):
            self._tell_of_labels()
        who = {text: player for player, text in enumerate(texts)}
        players = [who[rollout.response] for rollout in rollouts]
        grades = match.grades(players)
        if self._asking.unreadable == "low":
            grades = _own(grades)
        spent = list(match.usage)
        found = []
        for player, grade in zip(players, grades, strict=True):
            found.append(msgspec.structs.replace(grade, usage=spent[player]))
            spent[player] = Usage()  # equal texts cost once
        return found

    def _tell_of_labels(self) -> None:
        if not self._told_of_labels:
            self._told_of_labels = True
            logger.warning(
                "%s: the judge gives labels without probabilities, so that each comparison counts as won, lost or tied: take one that "
                "gives them, or more rounds",
                self.name,
            )


def _of_two(verdict: VerdictFormat | None) -> VerdictFormat | None:
    """Have a verdict say which of the two responses it is for; one with words of its own says it itself."""
    if isinstance(verdict, LineVerdict | JsonVerdict) or type(verdict) is ChoiceVerdict:
        return verdict.between("response B is better", "response A is better")
    return verdict


def usual_rounds(size: int) -> int:
    """Return how many rounds are played if nobody says: 2 log2 of the members, at least 7."""
    return max(7, 2 * math.ceil(math.log2(max(size, 2))))


class Tournament:
    """The comparisons of one group. *ask*: see `judgekit.graders.judged.voting`."""

    def __init__(self, size: int, rounds: int, seed: int, place: Place, ask: Ask) -> None:
        self.pairings = Pairings(size, rounds, seed)
        self.place = self._before = place
        self.ask = ask
        self.games: list[Game] = []
        self.strengths = [0.0] * size
        self.usage = [Usage()] * size
        self.lost: dict[int, Failed] = {}
        """Players whose text the judge fails on, alone, too."""
        self.failures: list[list[Failed]] = [[] for _ in range(size)]
        """Of each player's comparisons."""

    async def play(self) -> None:
        """Play all rounds, all games of one at once."""
        while orders := self.pairings.next(self.strengths, tuple(self.lost)):
            found = await ask_about(orders, self.ask, self.usage)
            self.lost |= await failing_alone(orders, found, self.ask, self.usage)
            for (first, second), grade in zip(orders, found, strict=True):
                if isinstance(grade, Graded):
                    self.games.append(Game(first, second, grade.score))
                elif isinstance(grade, Failed):
                    self.failures[first].append(grade)
                    self.failures[second].append(grade)
            if not any(
                isinstance(grade, Graded) for grade in found
            ):  # the judge is at fault, or nobody is left
                break
            # until the last round, no more than their order counts
            self.strengths, _ = strengths(self.games, self.strengths, self._before, precise=0.1)
        self.strengths, self.place = strengths(self.games, self.strengths, self._before)

    def grades(self, players: Sequence[int]) -> list[Grade]:
        """Return the grade of each member. *players*: who plays for it; members of one text have one player."""
        played, first = [0] * len(self.strengths), [0] * len(self.strengths)
        for game in self.games:
            first[game.first] += 1
            for player in game[:2]:
                played[player] += 1
        members = Counter(player for player in players if player not in self.lost)
        known = {player: times for player, times in members.items() if played[player]}
        alike = {player: times for player, times in members.items() if times > 1 and not played[player]}
        grades: dict[int, Grade] = {}
        for player in dict.fromkeys(players):
            if player in self.lost:
                grades[player] = self.lost[player]
            elif played[player]:
                metadata = {
                    "strength": self.strengths[player],
                    "games": played[player],
                    "first": first[player],
                    "place": self.place.worth,
                }
                grades[player] = Graded(self._score(player, known), "", metadata)
            elif failures := self._counted(player):
                detail = f"0 of {len(failures)} comparisons: {failures[0].detail}"
                grades[player] = Failed(failures[0].error, detail, failures[0].retryable)
            elif player in alike:
                grades[player] = Graded(0.5, "equal to all that it could be compared with", {"games": 0})
            else:
                grades[player] = Abstained("there is no other response to compare with")
        return [grades[player] for player in players]

    def _counted(self, player: int) -> list[Failed]:
        """Return the failures of a player's comparisons with those who have not failed alone."""
        return self.failures[player] if len(self.lost) < len(self.strengths) - 1 else []

    def _score(self, player: int, members: Mapping[int, int]) -> float:
        """Return the mean chance against the other members; *members*: how many there are of each player."""
        own = self.strengths[player]
        chances = [
            (times - (other == player)) * chance(own - self.strengths[other])
            for other, times in members.items()
        ]
        return min(max(math.fsum(chances) / (sum(members.values()) - 1), 0.0), 1.0)


_LABELS = frozenset(LABELS.values())
"""Shares that a label gives."""


class _ThreeWay(ChoiceVerdict):
    """Which response is better, or a tie."""

    def __init__(self, labels: Mapping[str, float] | None = None) -> None:
        super().__init__(labels or LABELS)

    def spare(self) -> ChoiceVerdict:
        return _ThreeWay({"1": 1.0, "3": 0.5, "2": 0.0})

    def words(self, nonce: str = "", /) -> dict[str, str]:
        first, tie, second = self.choices
        return {
            "HOW_TO_ANSWER": f"Answer with one character and nothing else: {first} if response A is better, {second} if "
            f"response B is better, {tie} if they are equally good.",
            "REMINDER": f"Your verdict ({first}, {second} or {tie}):",
        }


def _own(standings: Sequence[Grade]) -> list[Grade]:
    """Blame the few members on whom a judge has no verdict that compares the others."""
    lost = [g for g in standings if isinstance(g, Failed) and g.error == "VerdictError"]
    if 2 * len(lost) >= len(standings):
        return list(standings)
    return [
        msgspec.structs.replace(g, cause="rollout") if any(g is one for one in lost) else g for g in standings
    ]
