"""One-token verdicts over HTTP: the fields that ask for the labels' probabilities, and how replies are read."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from judgekit.errors import JudgeUnavailable
from judgekit.judges.engines.openai.probe import TOP, LogprobStyle, first_logprobs, label_fields
from judgekit.judges.verdicts.labels import normalised

_MASS_OF_CONSTRAINED = 0.99
"""Labels of a reply that was constrained to them hold all of the probability."""


_NEGLIGIBLE = 0.02
_BYTE = re.compile(r"<0x([0-9A-Fa-f]{2})>")
_SPACES = str.maketrans(dict.fromkeys("\u0120\u2581\u010a", " "))


def _shown(token: str) -> str:
    """Return a token's text without the spaces around it, also from servers that show the pieces of their vocabulary.

    Byte-level vocabularies write a space as `\u0120` and a newline as `\u010a`, sentencepiece a space as `\u2581` and a byte as `<0x31>`.
    """
    if (byte := _BYTE.fullmatch(token)) is not None:
        return chr(int(byte[1], 16)).strip()
    return token.translate(_SPACES).strip()


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
        masses: dict[str, float] = {}
        for label in self.choices:
            masses[label], known = self._mass(label, found)
            if not known and not self._negligible(label, found):
                raise JudgeUnavailable(
                    f"{server} left out the probability of the label {label!r}, which may be more than one token"
                )
        probs, mass = normalised(masses)
        if self.style == "constrained" and mass >= _MASS_OF_CONSTRAINED:
            return probs, None
        return probs, mass

    def _mass(self, label: str, found: Sequence[tuple[str, float]]) -> tuple[float, bool]:
        """Return a label's probability over all of its tokens, and whether each of them is there."""
        if self.style == "labels":  # a number is one token, however often it is listed
            by_id, tokens = dict(found), [f"token_id:{i}" for i in self.ids[label]]
            values = [by_id[token] for token in tokens if token in by_id]
            return math.fsum(map(math.exp, values)), len(values) == len(tokens) > 0
        values = [value for token, value in found if _shown(token) == label]
        return math.fsum(map(math.exp, values)), bool(values)

    def _negligible(self, label: str, found: Sequence[tuple[str, float]]) -> bool:
        """Whether a label that is not among the most likely tokens has next to no probability.

        It may have more if it is several tokens, and the first of them is likely.
        """
        if self.style != "top":
            return False
        listed = math.fsum(math.exp(value) for _, value in found)
        begun = math.fsum(math.exp(v) for token, v in found if (t := _shown(token)) and label.startswith(t))
        least = min(math.exp(value) for _, value in found)  # a token that is not listed has no more
        listed_all = len(found) >= TOP and least <= _NEGLIGIBLE
        return (listed_all or listed >= _MASS_OF_CONSTRAINED) and begun <= 1 - _MASS_OF_CONSTRAINED
