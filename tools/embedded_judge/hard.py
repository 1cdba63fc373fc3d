"""Sets of cases that small judges get wrong, from seeds that training never uses."""

from __future__ import annotations

import random

from .generator import (
    Case,
    Recipe,
    has_run,
    has_two,
    has_zero,
    other_digit,
    other_run,
    other_zeros,
    sample,
    swapped,
    times_ten,
    whole,
)

SIZE = 240


RECIPES: dict[str, tuple[Recipe, ...]] = {
    "empty_prediction": (Recipe(candidate="empty"),),
    "no_number": (Recipe(candidate="none"),),
    "times_ten": (Recipe(right=True, text="right"), Recipe(right=False, miss=times_ten)),
    "trailing_zeros": tuple(
        Recipe(right=right, gold=whole(2, 6, has_zero), miss=other_zeros)
        for right in (True, False)
    ),
    "one_digit": (Recipe(right=True), Recipe(right=False, miss=other_digit)),
    "digit_swap": tuple(Recipe(right=r, gold=whole(2, 6, has_two), miss=swapped) for r in (True, False)),
    "six_seven_digits": (Recipe(right=True, digits=(6, 7)), Recipe(right=False, digits=(6, 7))),
    "repeated_digits": tuple(Recipe(right=r, gold=whole(3, 7, has_run), miss=other_run) for r in (True, False)),
    "long_prompts": (Recipe(right=True, long=380), Recipe(right=False, long=380)),
    "right_number_elsewhere": (Recipe(right=False, text="right", short=0.0, candidate="marked"),),
    "wrong_number_elsewhere": (Recipe(right=True, text="wrong", short=0.0),),
    "second_thoughts": (Recipe(right=True, candidate="twice"), Recipe(right=False, candidate="twice")),
    "injection": (Recipe(right=True, candidate="injected"), Recipe(right=False, candidate="injected")),
}  # fmt: skip
"""What each set is made of, in turns."""


def hard_sets(seed: int = 0, size: int = SIZE) -> dict[str, list[Case]]:
    """*size* cases of each kind. Every set but those that can only be wrong or right has as many of both labels."""
    sets: dict[str, list[Case]] = {}
    for kind, recipes in RECIPES.items():
        rng = random.Random(f"hard {kind} {seed}")
        made = [sample(rng, recipes[i % len(recipes)]).case for i in range(size)]
        sets[kind] = [Case(kind, c.prompt, c.ground_truth, c.response, c.label) for c in made]
    return sets
