"""Do the intervals and thresholds of `judgekit certify` hold, how long does it take, and is a grader noticed that is another one? When does an
audit's alarm come, and when falsely?

    make bench-evidence

Draws labels of a world that is known: prompts differ in how often a judge errs (normal effects on the log-odds), rollouts
of a prompt are alike. Coverage is the share of draws in which the interval holds the true value. A threshold for an error
holds if of all verdicts that it keeps, no larger share is wrong. The command is timed from a ledger of 13,000 rollouts on disk.

The alarm is tried on small trainings (gamed_trainings.py): healthy ones, healthy twins of hacked ones, others in which the judge pays exactly
what it may, and hacked ones. Each step is audited as `judgekit audit` does, with an audit that is wrong in 2 % of its verdicts. A hack's delay
counts from the step at which wrong rollouts are in truth paid more than `pays_at_most` on average.

    bench_evidence.py alarm      only these

TRL's and SkyRL's own trainers are audited, too (audited_trainings.py): with the embedded judge, behind a planted weakness and as it ships.

    bench_evidence.py trainings  only these
"""

from __future__ import annotations

import math
import statistics
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from audited_trainings import SHARE, Training, cpu_us_per_rollout, trainings
from common import finish, machine, reported
from gamed_trainings import AT_THE_BOUND, BATCH, GROUP, HACKS, HEALTHY, Kind, Trainings

from judgekit import GradingRunner, Ledger, Rollout, grader
from judgekit.evidence import Alarm
from judgekit.evidence.audit_curve import FEW, RECENT, line_of
from judgekit.evidence.audit_settings import AuditSettings
from judgekit.evidence.certificate import _threshold
from judgekit.evidence.shares import share
from judgekit.ledger.jsonl import json_line

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.evidence.test_trust import unnoticed

DRAWS = 2000
PROMPTS = (10, 25, 100, 250)
EFFECTS = (0.0, 1.0, 2.0)
RATES = (0.85, 0.98)
ROLLOUTS = 13_000
PACES = (1.0, 0.25)
"""Learning rates of the trainings, as factors: how fast a hack takes over is theirs to choose, and decides what an alarm is in time for."""


def coverage(draw: Any, rate: float, effect: float, prompts: int, *, equal: bool, draws: int) -> float:
    """The share of draws in which the interval holds the true rate. *equal*: 8 rollouts a prompt, else 1 to 15."""
    middle = math.log(rate / (1 - rate))
    true = float((1 / (1 + np.exp(-middle - effect * draw.standard_normal(500_000)))).mean())
    held = 0
    for _ in range(draws):
        sizes = np.full(prompts, 8) if equal else draw.integers(1, 16, prompts)
        of = np.repeat(np.arange(prompts), sizes)
        chance = 1 / (1 + np.exp(-middle - effect * draw.standard_normal(prompts)))
        found = share(draw.random(len(of)) < chance[of], of)
        assert found.low is not None
        assert found.high is not None
        held += found.low <= true <= found.high
    return held / draws


def kept_as_asked(draw: Any, error: float, prompts: int, draws: int) -> tuple[float, float]:
    """The share of draws in which a found threshold holds, of those with one; and the share of draws with one."""
    held = found = 0
    for _ in range(draws):
        of = np.repeat(np.arange(prompts), 8)
        right = draw.random(len(of)) < 0.5
        away = draw.random(len(of)) / 2
        calls = right == (draw.random(len(of)) < away + 0.6)
        one = _threshold(np.where(calls, 0.5 + away, 0.5 - away), right, of, 0.5, error)
        if one.high is not None:
            found += 1
            kept = np.linspace(one.high - 0.5, 0.5, 2000)
            held += float(np.maximum(0.4 - kept, 0.0).mean()) <= error
    return held / max(found, 1), found / draws


def promised_falsely(draw: Any, error: float, prompts: int, rollouts: int, draws: int) -> float:
    """The share of draws in which a judge that errs more than *error* gets a threshold: it errs on a prompt as a whole."""
    found = 0
    for _ in range(draws):
        of = np.repeat(np.arange(prompts), rollouts)
        wrong = (draw.random(prompts) < 1.02 * error)[of]
        right = draw.random(len(of)) < 0.5
        found += _threshold(np.where(right ^ wrong, 0.9, 0.1), right, of, 0.5, error).high is not None
    return found / draws


def command(folder: Path) -> tuple[float, bool]:
    """Seconds of `judgekit certify` beyond those of `judgekit --version`, and whether two certificates are the same."""

    @grader
    def judge(extra: dict[str, Any]) -> float:
        return float(extra["score"])

    draw = np.random.default_rng(1)
    rollouts, labels = [], []
    for i in range(ROLLOUTS):
        right = bool(draw.random() < 0.5)
        score = min(1.0, max(0.0, float(draw.normal(0.75 if right else 0.25, 0.2))))
        rollouts.append(
            Rollout(
                prompt=f"question {i // 8}",
                response=f"answer {i}",
                id=str(i),
                group=i // 8,
                extra={"score": score},
            )
        )
        labels.append({"id": str(i), "label": right})
    kept = Ledger(folder / "ledger.jsonl", texts=True)
    GradingRunner({"judge": judge}, ledger=kept).run_sync(rollouts)
    kept.flush()
    (folder / "labels.jsonl").write_text("".join(map(json_line, labels)))
    judgekit = [sys.executable, "-m", "judgekit"]
    asked = ["certify", "ledger.jsonl", "--labels", "labels.jsonl", "--grader", "judge", "--out"]
    took: dict[str, list[float]] = {"": [], "certify": []}
    for round_ in range(3):
        for name, args in (("", ["--version"]), ("certify", [*asked, f"{round_}.json"])):
            start = time.perf_counter()
            subprocess.run([*judgekit, *args], cwd=folder, check=True, capture_output=True)
            took[name].append(time.perf_counter() - start)
    same = len({(folder / f"{i}.json").read_bytes() for i in range(3)}) == 1
    return statistics.median(took["certify"]) - statistics.median(took[""]), same


class Audited(NamedTuple):
    """What audits said of some trainings: steps (from 0), None where it did not come to that."""

    alarm: list[int | None]
    crossed: list[int | None]
    """When the curve was above its line, with its whole interval, for the first time."""
    gamed: list[int | None]
    """When wrong rollouts were in truth paid more than they may be."""
    most: list[int | None]
    """When the hack held three quarters of the policy."""


def audited(
    kinds: list[Kind],
    seed: int,
    share: float,
    *,
    twins: bool = False,
    pace: float = 1.0,
    pays_at_most: float = 0.3,
    error: float = 0.02,
) -> Audited:
    """Train, and audit each step: `share` / 2 of its rollouts, rounded up, of as many prompts."""
    world, draw, runs = (
        Trainings(kinds, seed, twins=twins, pace=pace),
        np.random.default_rng(seed + 1),
        len(kinds),
    )
    alarms = [Alarm(pays_at_most, audit_error=error) for _ in kinds]
    recent = [deque[tuple[float, bool, int]](maxlen=RECENT) for _ in kinds]
    settings = AuditSettings(grader="audit", watch="judge", pays_at_most=pays_at_most, audit_error=error)
    found = Audited(*([None] * runs for _ in Audited._fields))
    each = math.ceil(round(share * BATCH * GROUP / 2, 9))
    rows = np.arange(runs)[:, None]
    for number in range(world.steps):
        step = world.step()
        groups = np.argsort(draw.random((runs, BATCH)), 1)[:, :each]
        places = groups * GROUP + draw.integers(0, GROUP, groups.shape)
        scores = step.score[rows, places]
        says = step.right[rows, places] ^ (draw.random(groups.shape) < error)
        for run, alarm in enumerate(alarms):
            pairs = list(zip(scores[run].tolist(), says[run].tolist(), strict=True))
            alarm.add(pairs)
            of = step.prompt[run, places[run]].tolist()
            recent[run].extend((*pair, prompt) for pair, prompt in zip(pairs, of, strict=True))
            above = found.crossed[run] is None and crossed(recent[run], settings)
            for when, now in (
                (found.alarm, alarm.raised is not None),
                (found.crossed, above),
                (found.gamed, step.pay_of_wrong[run] > alarm.pays_at_most),
                (found.most, step.hack[run] > 0.75),
            ):
                if now and when[run] is None:
                    when[run] = number
    return found


def crossed(audits: Sequence[tuple[float, bool, int]], settings: AuditSettings) -> bool:
    """Whether the curve is above its line, as `judgekit audit` draws it."""
    line = line_of(settings, [(paid, right) for paid, right, _ in audits])
    mean = sum(paid for paid, right, _ in audits if not right) / len(audits)
    if line is None or mean <= line or len(audits) < FEW:
        return False
    low = share([paid * (not right) for paid, right, _ in audits], [prompt for *_, prompt in audits]).low
    return low is not None and low > line


def of_healthy_runs(seed: int) -> dict[str, Any]:
    """Of 400 healthy runs, the shares with an alarm, and with a curve above its line at some time; and of 400 in which the judge
    pays exactly what it may, the share with an alarm."""
    healthy, twins = audited(HEALTHY * 25, seed, 0.04), audited(HACKS * 13, seed + 10, 0.04, twins=True)
    alarms = [*healthy.alarm, *twins.alarm[:200]]
    crossed = [*healthy.crossed, *twins.crossed[:200]]
    bound = audited([AT_THE_BOUND] * 400, seed + 20, 0.04).alarm
    return {
        "healthy_alarmed": sum(at is not None for at in alarms) / len(alarms),
        "healthy_curve_above_line": sum(at is not None for at in crossed) / len(crossed),
        "at_the_bound_alarmed": sum(at is not None for at in bound) / len(bound),
    }


def of_hacked_runs(seed: int, share: float, pace: float, pays_at_most: float) -> dict[str, Any]:
    """Of 16 kinds × 4 seeds: how many were told, how soon, and whether the curve showed it no later."""
    runs = audited(HACKS * 4, seed, share, pace=pace, pays_at_most=pays_at_most)
    taken = [
        (alarm, crossed, gamed, most)
        for alarm, crossed, gamed, most in zip(*runs, strict=True)
        if gamed is not None and most is not None
    ]
    delays = [alarm - gamed for alarm, _, gamed, _ in taken if alarm is not None]
    return {
        "hacked": len(taken),
        "alarmed": sum(alarm is not None for alarm, *_ in taken),
        "in_time": sum(alarm is not None and alarm <= most for alarm, _, _, most in taken),
        "too_early": sum(alarm is not None and alarm < gamed for alarm, _, gamed, _ in taken),
        "delay_steps": statistics.median(delays) if delays else None,
        "takeover_steps": statistics.median(most - gamed for *_, gamed, most in taken),
        "curve_delay_steps": statistics.median(
            crossed - gamed for _, crossed, gamed, _ in taken if crossed is not None
        ),
        "curve_in_time": sum(crossed is not None and crossed <= most for _, crossed, _, most in taken),
        "curve_no_later": sum(
            crossed is not None and (alarm is None or crossed <= alarm) for alarm, crossed, *_ in taken
        ),
        "curve_before_gamed": sum(crossed is not None and crossed < gamed for _, crossed, gamed, _ in taken),
    }


def alarms() -> dict[str, Any]:
    """All figures of the alarm."""
    found = of_healthy_runs(400)
    for pace in PACES:
        for of_step, bound in ((0.04, 0.3), (0.02, 0.3), (0.04, 0.15), (0.02, 0.15)):
            figures = of_hacked_runs(40, of_step, pace, bound)
            setting = f"share {of_step:g}, pays_at_most {bound:g}, pace {pace:g}"
            found |= {f"{key}, {setting}": value for key, value in figures.items()}
    for name, value in found.items():
        print(f"{name:58} {value}")
    return found


def audited_trainings() -> dict[str, Any]:
    """How many of TRL's and SkyRL's toy trainings were stopped, hacked ones and healthy ones, and what audits cost a trainer."""
    done: list[Training] = []
    with tempfile.TemporaryDirectory() as name:
        for one in trainings(Path(name)):
            done.append(one)
            print(
                f"{one.host:6} {one.kind:8} seed {one.seed}: {'stopped' if one.stopped else 'ended'} after {one.steps} steps",
                flush=True,
            )
        cost = cpu_us_per_rollout(Path(name) / "trl-healthy-0")
    stopped = {
        kind: [one for one in done if one.kind == kind and one.stopped] for kind in ("hacked", "healthy")
    }
    return {
        "trainings": len(done),
        "trainings_share": SHARE,
        "hacked_stopped": len(stopped["hacked"]),
        "hacked_stopped_after": [one.steps for one in stopped["hacked"]],
        "healthy_stopped": len(stopped["healthy"]),
        "audits_cpu_us_per_rollout": round(cost, 2),
    }


TRAINING_BOUNDS: dict[str, tuple[str, float]] = {
    "trainings": ("==", 12),
    "hacked_stopped": ("==", 6),
    "healthy_stopped": ("==", 0),
    "audits_cpu_us_per_rollout": ("<=", 2),
}
ALARM_BOUNDS = {"healthy_alarmed": ("<=", 0.05), "at_the_bound_alarmed": ("<=", 0.05)}


def main() -> None:
    print(machine())
    if sys.argv[1:] == ["alarm"]:
        finish(alarms(), ALARM_BOUNDS)
    if sys.argv[1:] == ["trainings"]:
        finish(audited_trainings(), TRAINING_BOUNDS)
    draw = np.random.default_rng(40)
    covered: dict[str, float] = {}
    for rate in RATES:
        for effect in EFFECTS:
            for prompts in PROMPTS:
                for equal in (True, False):
                    name = f"{rate:g}, effect {effect:g}, {prompts} prompts, {'8 rollouts' if equal else '1 to 15'}"
                    held = coverage(draw, rate, effect, prompts, equal=equal, draws=DRAWS)
                    if held < 0.94:  # chance, or not?
                        held = coverage(draw, rate, effect, prompts, equal=equal, draws=10 * DRAWS)
                    covered[name] = held
                    print(f"{name:48} {held:.3f}", flush=True)
    kept = {
        f"{error:g}, {prompts} prompts": kept_as_asked(draw, error, prompts, DRAWS // 4)
        for error in (0.05, 0.1)
        for prompts in (100, 250)
    }
    for name, (held, found) in kept.items():
        print(
            f"error {name:24} holds in {held:.3f} of the draws with a threshold, which are {found:.2f} of all"
        )
    falsely = {
        f"{error:g}, {prompts} prompts of {rollouts}": promised_falsely(draw, error, prompts, rollouts, DRAWS)
        for error, prompts, rollouts in (
            (0.01, 600, 8),
            (0.02, 300, 16),
            (0.05, 150, 8),
            (0.1, 80, 16),
            (0.05, 300, 1),
        )
    }
    for name, share_ in falsely.items():
        print(f"error {name:24} promised falsely in {share_:.3f} of the draws")
    with tempfile.TemporaryDirectory() as folder:
        seconds, same = command(Path(folder))
    with tempfile.TemporaryDirectory() as folder:
        changes, unseen = unnoticed(Path(folder))
    print(f"{changes} changes of a grader with a certificate; unnoticed: {unseen}")
    finish(
        {
            "coverage": {name: round(held, 4) for name, held in covered.items()},
            "least_coverage": round(min(covered.values()), 4),
            "kept_as_asked": {name: round(held, 4) for name, (held, _) in kept.items()},
            "least_kept_as_asked": round(min(held for held, _ in kept.values()), 4),
            "promised_falsely": falsely,
            "most_promised_falsely": max(falsely.values()),
            "certify_s": round(seconds, 2),
            "recomputed": same,
            "changes": changes,
            "changes_unnoticed": len(unseen),
            **alarms(),
            **audited_trainings(),
        },
        {
            "least_coverage": (">=", 0.93),
            "most_promised_falsely": ("<=", 0.06),
            "least_kept_as_asked": (">=", 0.94),
            "certify_s": ("<=", 1.0),
            "recomputed": ("==", True),
            "changes": (">=", 24),
            "changes_unnoticed": ("==", 0),
            **ALARM_BOUNDS,
            **TRAINING_BOUNDS,
        },
    )


if __name__ == "__main__":
    reported(main)
