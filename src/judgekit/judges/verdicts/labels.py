"""One-token verdicts: the tokens of each label, and their probabilities."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from judgekit.errors import ConfigError, JudgeUnavailable

_MOST = 1.05
"""Probabilities that are computed in 16 bits may add up to a little more than 1."""
_ROUNDING = 1e-3
"""How far from 1 relative probabilities may add up."""


def label_forms(choices: Sequence[str]) -> list[str]:
    """Return the texts that `label_token_ids` encodes: each label alone, after a space, and after a newline."""
    return ["\n", *(form for label in choices for form in (label, f" {label}", f"\n{label}"))]


def label_token_ids(
    choices: tuple[str, ...],
    encode: Callable[[str], Sequence[int]],
    reply: Callable[[str], Sequence[int]] = lambda label: (),
) -> dict[str, list[int]]:
    """Return the ids of each label's single tokens: alone, after a space, as a line's first token, and as a reply.

    A sentencepiece model begins its reply with another token of the same label, depending on what the chat template
    ends with. *reply*: the ids of a text where the model's reply begins. Raises ConfigError if a label is a single token neither alone nor after a space, or shares one
    with another label.
    """
    ids: dict[str, list[int]] = {}
    newline = list(encode("\n"))
    for label in choices:
        forms = [list(encode(form)) for form in (label, f" {label}")]
        if not any(len(form) == 1 for form in forms):
            raise ConfigError(
                f"the label {label!r} is not one token of this judge's vocabulary; use labels such as 0 and 1, or A to E"
            )
        line = list(encode(f"\n{label}"))
        if newline and line[: len(newline)] == newline:
            forms.append(line[len(newline) :])
        forms.append(list(reply(label)))
        ids[label] = list(dict.fromkeys(form[0] for form in forms if len(form) == 1))
    flat = [i for label_ids in ids.values() for i in label_ids]
    if len(set(flat)) < len(flat):
        raise ConfigError(
            f"two of the labels {', '.join(choices)} are the same token of this judge's vocabulary"
        )
    return ids


def check_beginnings(choices: Sequence[str]) -> None:
    """Raise ConfigError if a label begins with another, for servers that do not tell their tokens: both may begin with one."""
    for label in choices:
        if begin := [other for other in choices if other != label and label.startswith(other)]:
            raise ConfigError(
                f"the label {label!r} begins with the label {begin[0]!r}, and this server does not tell whether it is one "
                "token; use labels such as 0 and 1, or A to E"
            )


def check_probabilities(probs: Mapping[str, float], mass: float | None) -> None:
    """Raise JudgeUnavailable unless *probs* are the labels' relative probabilities, and *mass*, where it is known, a share.

    Whatever judge or layer they come from: numbers that are none are its own fault, and no rollout's.
    """
    wrong = [p for p in probs.values() if not 0.0 <= p <= 1.0 + _ROUNDING]
    total = math.fsum(probs.values()) if not wrong else math.nan
    if wrong or abs(total - 1.0) > _ROUNDING:
        shown = ", ".join(f"{label}: {p:.4g}" for label, p in probs.items())
        raise JudgeUnavailable(
            f"the judge's numbers for the labels are not probabilities that add up to 1 ({shown}): "
            "choice_probs holds each label's share of the labels' probability"
        )
    if mass is not None and not 0.0 <= mass <= _MOST:
        raise JudgeUnavailable(
            f"the labels' share of the probability is from 0 to 1, and the judge says {mass:.4g}"
        )


def normalised(masses: Mapping[str, float]) -> tuple[dict[str, float], float]:
    """Return the labels' relative probabilities, and their share (0..1) of the full vocabulary.

    If they have no probability at all, the relative ones are equal and the share is 0: no verdict. Raises JudgeUnavailable
    if they add up to more than rounding explains, or to no number: the engine is at fault.
    """
    total = math.fsum(masses.values())
    if not total <= _MOST:
        raise JudgeUnavailable(f"the probabilities of the labels {', '.join(masses)} add up to {total:.3g}")
    if total <= 0:
        return dict.fromkeys(masses, 1 / len(masses)), 0.0
    return {label: mass / total for label, mass in masses.items()}, min(total, 1.0)
