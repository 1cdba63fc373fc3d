"""Is the credit of turns right: in the tree, on the trainers' tokens, in the gradient, in a training, in a replay? What do verdicts cost?

    make bench-credit

Trees: 10,000 random trees with turns over random grades. What a turn earned is compared with finite differences of the
reward by it, where the reward is linear on both sides; the step shrinks where it is not. Gradient: all groups of 2, 4 and 6
rollouts of a policy that decides when to stop, by enumeration, against the true gradient. Replay: 3,000 trajectories from a
ledger, with the same weights and with others. The hosts' halves run in their own environments: adapters/skyrl and
adapters/verl/benchmarks/bench_credit.py, and benchmarks/credit_prefill.py for the tokens that a judge reads.
"""

from __future__ import annotations

import itertools
import json
import math
import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from common import finish, machine, reported

from judgekit import Graded, GradingRunner, Ledger, Rollout, Turns, Weighted
from judgekit.replay import replay
from judgekit.reward.nodes import Node, score_names
from judgekit.reward.spec import parse
from judgekit.reward.tree import RewardTree
from judgekit.reward.turns import turn_advantages

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.reward.test_turn_advantages import chance, rewards_of, scores
from tests.reward.test_turns import RANGES, earning, node

TREES = 10_000
TRAJECTORIES = 3_000
SMALLEST = 2.0**-11


def trees() -> dict[str, Any]:
    """Compare what turns earned with finite differences, and their sum with the reward."""
    rng = random.Random(0)
    worst = off = 0.0
    tried = placed = kinks = 0
    while tried < TREES:
        root, turns = node(rng, 3, True), rng.randint(1, 6)
        grades: dict[str, Any] = {"a": Graded(rng.random()), "b": Graded(rng.uniform(-1, 1))}
        for name in "pq":
            said = (rng.uniform(-1, 1) if rng.random() > 0.15 else None for _ in range(turns))
            grades[name] = Graded(0.0, turns=tuple(said))
        tree = RewardTree(root, {name: RANGES[name] for name in score_names(root)})
        grades = {name: grade for name, grade in grades.items() if name in tree.names}
        ev = tree.evaluate(grades)
        if ev.value is None or not tree.has_turns:
            continue
        tried += 1
        placed += any(ev.turns)
        outcome = ev.value - math.fsum(ev.turns)
        off = max(off, abs(outcome + math.fsum(ev.turns) - ev.value))
        for at, earned in enumerate(ev.turns):
            found = slope(tree, grades, ev.value, at)
            if found is None:
                kinks += 1
            else:
                worst = max(worst, abs(found - earned))
    return {
        "trees": tried,
        "trees_with_places": placed,
        "turns_at_a_kink": kinks,
        "slope_error": worst,
        "sum_error": off,
    }


def slope(tree: RewardTree, grades: dict[str, Any], value: float, at: int) -> float | None:
    """By how much the reward changes if what turn *at* earned is scaled; None at a kink."""

    def scaled(by: float) -> float:
        found = tree.evaluate({name: earning(grade, at, by, name) for name, grade in grades.items()}).value
        assert found is not None
        return found

    step = 2.0**-5
    while step >= SMALLEST:
        above, below = (scaled(1 + step) - value) / step, (value - scaled(1 - step)) / step
        if abs(above - below) < 1e-9:
            return (above + below) / 2
        step /= 4
    return None


def gradient() -> dict[str, float]:
    """The largest relative error of the policy gradient at any turn, for groups of 2, 4 and 6."""
    true = [0.0, 0.0]
    for turns in (1, 2, 3):
        for t, score in scores(turns):
            true[t] += chance(turns) * score * sum(rewards_of(turns))
    worst = 0.0
    for members in (2, 4, 6):
        got = [0.0, 0.0]
        for group in itertools.product((1, 2, 3), repeat=members):
            weight = math.prod(map(chance, group))
            advantages = turn_advantages([rewards_of(turns) for turns in group], ["g"] * members)
            for i, turns in enumerate(group):
                for t, score in scores(turns):
                    got[t] += weight * score * advantages[i][t] / members
        worst = max(worst, *(abs(g - x) / abs(x) for g, x in zip(got, true, strict=True)))
    return {"gradient_error": worst}


class Process:
    """Says of each turn what its text is worth; of every fourth, nothing."""

    name, version, score_range = "process", "1", (-1.0, 1.0)

    def grade(self, rollout: Rollout) -> Graded:
        said = [str(m["content"]) for m in rollout.messages if m["role"] == "assistant"]
        turns = tuple(
            None if at % 4 == 3 else (sum(map(ord, text)) % 21 - 10) / 11 for at, text in enumerate(said)
        )
        return Graded(0.0, turns=turns)


class Outcome:
    name, version, score_range = "outcome", "1", (0.0, 1.0)

    def grade(self, rollout: Rollout) -> float:
        return float(len(rollout.response) % 3 == 0)


def replayed() -> dict[str, Any]:
    """Grade trajectories, and count those whose turns a replay places otherwise in any bit."""
    rng = random.Random(1)
    rollouts = []
    for i in range(TRAJECTORIES):
        messages: list[Any] = []
        for _ in range(rng.randint(1, 7)):
            said = "".join(rng.choices("abcdef ", k=rng.randint(1, 20)))
            messages += [{"role": "assistant", "content": said}, {"role": "tool", "content": "x"}]
        rollouts.append(
            Rollout(response=messages[-2]["content"], messages=messages, group=i // 8, id=f"{i:06}")
        )
    graders: dict[str, Any] = {"process": Process(), "outcome": Outcome()}
    reward = Weighted({"outcome": 1.0, "process": (0.3, Turns("process", how="mean"))})
    other: Node = parse(
        {
            "weighted": {
                "outcome": 0.5,
                "process": {"weight": 2.0, "of": {"turns": "process", "how": "change"}},
            }
        }
    )
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "l.jsonl")
        made = GradingRunner(graders, reward, ledger=Ledger(path)).run_sync(rollouts)
        fresh = GradingRunner(graders, other).run_sync(rollouts)
        differ = 0
        for results, again in ((made, replay(path)), (fresh, replay(path, other))):
            turns = {e.id: r.turns for e, r in zip(again.entries, again.results, strict=True)}
            differ += sum(
                turns[one.id] != result.turns for one, result in zip(rollouts, results, strict=True)
            )
    return {
        "replayed": TRAJECTORIES,
        "replayed_turns": sum(len(r.turns) for r in made),
        "replay_differs": differ,
    }


def of_host(name: str, script: str) -> dict[str, Any]:
    """Run a part in its own environment; returns its JSON line."""
    done = subprocess.run(
        [ROOT / ".venv" / name / "bin" / "python", ROOT / script], stdout=subprocess.PIPE, text=True
    )
    print(done.stdout, flush=True)
    try:
        found: dict[str, Any] = json.loads(done.stdout.strip().rpartition("\n")[2])
    except ValueError:
        sys.exit(f"{name}: no figures (exit code {done.returncode})")
    return found


def main() -> None:
    print(machine(), flush=True)
    found = trees() | gradient() | replayed()
    print(found, flush=True)
    skyrl = of_host("skyrl", "adapters/skyrl/benchmarks/bench_credit.py")
    verl = of_host("verl", "adapters/verl/benchmarks/bench_credit.py")
    prefill = of_host("vllm", "benchmarks/credit_prefill.py")
    for name in ("wrong_tokens", "token_sum_error", "missing_error"):
        found[name] = max(skyrl[name], verl[name])
    found["trajectories"] = {**skyrl["trajectories"], **verl["trajectories"]}
    found["ended_with_observation"] = {**skyrl["ended_with_observation"], **verl["ended_with_observation"]}
    found["seeds"] = skyrl["seeds"]
    found["turns_reach_90_first"] = skyrl["turns_reach_90_first"]
    found["prefill_ratio"] = prefill["prefill_ratio"]
    finish(
        found,
        {
            "slope_error": ("<=", 1e-12),
            "sum_error": ("<=", 1e-12),
            "wrong_tokens": ("==", 0),
            "token_sum_error": ("<=", 1e-6),
            "missing_error": ("<=", 1e-6),
            "gradient_error": ("<=", 1e-9),
            "turns_reach_90_first": (">=", 7),
            "prefill_ratio": ("<=", 1.3),
            "replay_differs": ("==", 0),
        },
    )


if __name__ == "__main__":
    reported(main)
