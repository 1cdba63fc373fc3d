"""Rollouts without a reward change no advantage of their siblings and get none, with verl's own functions."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from omegaconf import OmegaConf

from advantages import CASES, compare, gdpo_by_transform
from judgekit import ConfigError
from judgekit_verl import estimators


@pytest.mark.parametrize("case", CASES, ids=str)
def test_advantages_are_those_of_the_valid_members(case: Any) -> None:
    for missing in range(case.most + 1):
        for binary in (False, True):
            found = compare(case, missing, seed=missing, binary=binary)
            assert found.error <= 1e-6
            assert found.of_missing <= 1e-6
            assert found.recorded_wrong == 0
            assert found.curve_error <= 1e-6


@pytest.mark.parametrize("v1", [True, False])
def test_gdpo_by_the_runners_transform_is_verls(v1: bool) -> None:
    """Up to verl's epsilon of 1e-6, which it adds to each deviation; with missing rewards, too."""
    for missing in range(8):
        assert gdpo_by_transform(missing, seed=missing, v1=v1) <= 1e-4


@pytest.mark.parametrize(
    ("v1", "setting", "says"),
    [(True, "exclude", "does not hand it"), (True, "raise", "does not hand it"), (False, "exclude", "NaN")],
)
def test_verls_gdpo_is_refused_where_it_lacks_terms(v1: bool, setting: str, says: str) -> None:
    hosted: Any = SimpleNamespace(runner=SimpleNamespace(settings=SimpleNamespace(missing_reward=setting)))
    with pytest.raises(ConfigError, match=f"{says}.*transform: gdpo.*reinforce_plus_plus_baseline"):
        estimators.check_terms(algorithm("gdpo"), hosted, v1=v1)
    hosted.runner.settings.missing_reward = "raise"
    estimators.check_terms(algorithm("gdpo"), hosted, v1=False)
    estimators.check_terms(algorithm("grpo"), hosted, v1=v1)


def test_a_neutral_fill_is_not_exact() -> None:
    """The reason for all this: the benchmark notices it."""
    case = next(c for c in CASES if c.name == "grpo" and c.v1)
    assert compare(case, 6, seed=1, neutral=True).error > 0.5


def algorithm(name: str, **more: Any) -> Any:
    return OmegaConf.create({"adv_estimator": name, **more})


@pytest.mark.parametrize(
    ("name", "v1", "v0"),
    [
        ("grpo", True, None),
        ("judgekit_grpo", False, False),
        ("rloo", True, None),
        ("opo", True, None),
        ("gdpo", True, None),
        ("grpo_passk", None, None),
        ("gpg", None, None),
        ("judgekit_gpg", False, False),
        ("reinforce_plus_plus", False, False),
        ("gae", False, False),
        ("somebody_elses", None, None),
        ("judgekit_of_somebody_else", None, None),
    ],
)
def test_which_estimators_can(name: str, v1: bool | None, v0: bool | None) -> None:
    """True: by a uid of its own; False: by the mask; None: the missing reward stays neutral."""
    hosted: Any = SimpleNamespace(mask=True, exclude=True)
    for is_v1, expected in ((True, v1), (False, v0)):
        found = estimators.treatment(algorithm(name), hosted, v1=is_v1)
        assert (None if found is None else found.own_uid) == expected
    no_std = estimators.treatment(algorithm("grpo", norm_adv_by_std_in_grpo=False), hosted, v1=False)
    assert no_std is not None


def test_settings_other_than_exclude() -> None:
    neutral: Any = SimpleNamespace(mask=False, exclude=False)
    assert estimators.treatment(algorithm("grpo"), neutral, v1=True) is None
    mask: Any = SimpleNamespace(mask=True, exclude=False)
    found = estimators.treatment(algorithm("grpo"), mask, v1=True)
    assert found is not None
    assert not found.own_uid


def test_a_group_that_nobody_can_be_compared_in() -> None:
    treatment = estimators.Treatment(own_uid=True, least=2)
    assert treatment.of_group([False] * 3) == [None] * 3
    lone = treatment.of_group([True, False, True, True])
    assert [one is not None and one.keeps for one in lone] == [True, True, False, False]
    assert None not in lone
    assert treatment.of_group([False]) == [None]  # alone by design
    assert estimators.Treatment(own_uid=False, least=1).of_group([True, False])[1] is None


@pytest.mark.parametrize(
    ("name", "v1"),
    [("grpo", True), ("rloo", True), ("opo", True), ("gae", True), ("gae", False), ("judgekit_grpo", False)],
)
def test_a_lone_rollout_without_a_reward_is_not_trained_on(name: str, v1: bool) -> None:
    """As where the other sessions of its prompt failed: nothing is compared with what stands in for its reward."""
    hosted: Any = SimpleNamespace(mask=True, exclude=True)
    treatment = estimators.treatment(algorithm(name), hosted, v1=v1)
    assert treatment is not None
    (lone,) = treatment.of_group([True])
    assert lone is not None
    assert lone.mask([1] * 5) == [0] * 5


def test_what_to_write_is_said() -> None:
    assert "algorithm.adv_estimator=judgekit_grpo_passk" in estimators.advice(algorithm("grpo_passk"))
    assert "cannot be changed" in estimators.advice(algorithm("somebody_elses"))
