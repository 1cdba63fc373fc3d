"""Two ranks on CPU: groups that are spread over them, and whole ones."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from judgekit import read_ledger
from toy_training import GROUP, check_advantages


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("ranks")


@pytest.fixture(scope="module")
def found(folder: Path) -> Any:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    shared = {**os.environ, "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    ranks = [
        subprocess.Popen(
            [sys.executable, Path(__file__).with_name("ranks.py"), folder],
            env={**shared, "RANK": rank, "LOCAL_RANK": rank},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in ("0", "1")
    ]
    try:
        outputs = [rank.communicate(timeout=200) for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    assert [rank.returncode for rank in ranks] == [0, 0], outputs
    return json.loads(outputs[0][0].splitlines()[-1])


def test_a_group_on_both_ranks(found: Any, folder: Path) -> None:
    """Rewards that are each rollout's own are right, and so are the advantages: TRL compares after it has gathered."""
    spread = found["spread"]
    rewards = [float("nan") if reward is None else reward for reward in spread["rewards"]]
    assert len(rewards) == GROUP
    assert 0 < spread["rewards"].count(None) < GROUP
    check_advantages(rewards, spread["advantages"])
    assert spread["scores"]["judgekit/fussy"] == [
        None if reward is None else pytest.approx(reward) for reward in spread["rewards"]
    ]
    assert spread["figures"]["judgekit/excluded_rate"] == spread["rewards"].count(None) / GROUP
    assert Counter(entry.group for entry in read_ledger(folder / "spread.jsonl").entries) == {"0": GROUP}


def test_a_ranking_over_ranks_is_refused(found: Any) -> None:
    assert "8 rollouts are spread over ranks (4 rows each)" in found["ranked"]["error"]


def test_each_rank_ranks_its_own_groups(found: Any, folder: Path) -> None:
    whole = found["whole"]
    assert len(whole["rewards"]) == 2 * GROUP
    assert whole["figures"]["judgekit/rollouts"] == GROUP
    groups = Counter(entry.group for entry in read_ledger(folder / "whole.jsonl").entries)
    assert groups == {"0": GROUP, "1": GROUP}
    for start in (0, GROUP):
        check_advantages(whole["rewards"][start:][:GROUP], whole["advantages"][start:][:GROUP])
