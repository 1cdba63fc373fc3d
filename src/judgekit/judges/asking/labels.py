"""One-token verdicts: the tokens of each label, and their probabilities."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from judgekit.errors import ConfigError


def label_token_ids(choices: tuple[str, ...], encode: Callable[[str], Sequence[int]]) -> dict[str, list[int]]:
    """Return the ids of each label's single tokens, alone and after a space.

    Raises ConfigError if a label is not a single token, or shares one with another label.
    """
    ids: dict[str, list[int]] = {}
    for label in choices:
        forms = [encode(form) for form in (label, f" {label}")]
        single = list(dict.fromkeys(form[0] for form in forms if len(form) == 1))
        if not single:
            raise ConfigError(
                f"the label {label!r} is not one token of this judge's vocabulary; use labels such as 0 and 1, or A to E"
            )
        ids[label] = single
    flat = [i for label_ids in ids.values() for i in label_ids]
    if len(set(flat)) < len(flat):
        raise ConfigError(
            f"two of the labels {', '.join(choices)} are the same token of this judge's vocabulary"
        )
    return ids


def normalised(masses: Mapping[str, float]) -> tuple[dict[str, float], float]:
    """Return the labels' relative probabilities, and their share (0..1) of the full vocabulary.

    If they have no probability at all, the relative ones are equal and the share is 0: no verdict.
    """
    total = math.fsum(masses.values())
    if not 0 < total < math.inf:
        return dict.fromkeys(masses, 1 / len(masses)), 0.0
    return {label: mass / total for label, mass in masses.items()}, min(total, 1.0)
