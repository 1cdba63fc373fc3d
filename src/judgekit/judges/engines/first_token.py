"""One-token verdicts over HTTP: the fields that ask for the labels' probabilities, and how replies are read."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from judgekit.errors import JudgeUnavailable
from judgekit.judges.asking.labels import normalised
from judgekit.judges.engines.abilities import TOP, LogprobStyle, first_logprobs, label_fields

_MASS_OF_CONSTRAINED = 0.99
"""Labels of a reply that was constrained to them hold all of the probability."""


class FirstToken(Struct, frozen=True):
    """The first token of a reply as a verdict: one of *choices*.

    One POST is made and read with the same value, also if the server turns out to be another meanwhile.
    """

    choices: tuple[str, ...]
    style: LogprobStyle
    ids: Mapping[str, list[int]] = {}
    """Each label's tokens, for the style `labels`."""

    def fields(self, *, by_ids: bool) -> dict[str, Any]:
        """Return the fields that ask for the labels' probabilities.

        *by_ids*: for a completion of token ids; otherwise for one of chat messages.
        """
        if self.style == "labels":
            fields = label_fields([i for ids in self.ids.values() for i in ids])
            return fields if by_ids else {**fields, "logprobs": True}
        fields, count = {}, TOP
        if self.style == "constrained":
            fields["structured_outputs"] = {"choice": list(self.choices)}
            count = len(self.choices)
        return fields | ({"logprobs": count} if by_ids else {"logprobs": True, "top_logprobs": count})

    def read(self, choice: Mapping[str, Any], server: object) -> tuple[dict[str, float], float | None]:
        """Return the labels' relative probabilities, and their share of all; None where it cannot be known.

        Raises JudgeUnavailable unless every label's probability is known: a missing one is no zero.
        """
        found = first_logprobs(choice)
        if found is None:
            raise JudgeUnavailable(
                f"{server} sent no logprobs of the first token, so it cannot give one-token verdicts: use the verdict "
                "format line or json"
            )
        if self.style == "labels":
            labels = {label: [f"token_id:{i}" for i in ids] for label, ids in self.ids.items()}
        else:
            labels = {label: [t for t in found if t.strip() == label] for label in self.choices}
        masses: dict[str, float] = {}
        for label, tokens in labels.items():
            if not (tokens and all(t in found for t in tokens)) and not self._negligible(found):
                raise JudgeUnavailable(f"{server} left out the probability of the label {label!r}")
            masses[label] = math.fsum(math.exp(found[t]) for t in tokens if t in found)
        probs, mass = normalised(masses)
        if self.style == "constrained" and mass >= _MASS_OF_CONSTRAINED:
            return probs, None
        return probs, mass

    def _negligible(self, found: Mapping[str, float]) -> bool:
        """Whether a label that is not among the most likely tokens has next to no probability."""
        if self.style != "top":
            return False
        return len(found) >= TOP or math.fsum(map(math.exp, found.values())) >= _MASS_OF_CONSTRAINED
