"""Whether one reward.yaml pays the same wherever it is used, bit by bit.

    make bench-everywhere

500 rollouts in 125 groups of 4 are graded by a GradingRunner, which is the reference, and through every host of
benchmarks/everywhere, each in its own environment: two rules, a gate, a judge, and a grader that ranks groups. The judge
is a server whose opinion is a hash of the question, the reference and the response that it reads; it fails for 40 rollouts,
with HTTP 500 or without a readable verdict, among them a whole group. All of it happens once with 64 rollouts at once, as a trainer's
day is, and, through the hosts that start no cluster, with 1 and 256 at once, and with a judge that is slow, one that is dead for a
while, and one that refuses every eighth request.

* `different`: rewards of scored rollouts whose bits are not those of the reference, in the precision in which the host keeps
  rewards (single, where they are tensors). A host that hands over rollouts one by one is compared with the same file
  without the ranking.
* `missing_paid`: missing rewards that nothing told from a graded one, or whose number gives them an advantage: it is neither
  the mean of the group nor one number for a group without any reward.
* `recorded_wrong`: rollouts of which the ledger says another thing than happened: another reward, scored where the trainer was told that the
  reward is missing, or the other way round, or nothing.
* `max_advantage_error`: of hosts whose advantages are judgekit's doing (slime's `normalise`), against the group's mean and deviation
  over the rewards that there are. `make bench-advantages` has the others.
* `failed`: hosts that did not finish.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import struct
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, NamedTuple

from common import finish, machine, reported
from everywhere.samples import GROUPS, PLANTED, SIZE, samples

from judgekit import RewardResult, Rollout
from judgekit.config import load_runner
from judgekit.ledger.reader import read_ledger

ROOT = Path(__file__).resolve().parents[1]
HERE = ROOT / "benchmarks" / "everywhere"

REWARD = """\
graders:
  correct: {use: final_answer}
  brief:   {use: length, soft_max: 60, hard_max: 120}
  judge:   {use: judge, judge: remote, verdict: {format: line, low: 0, high: 1000, to: [0, 1]}}
  ranked:  {use: listwise, judge: remote}
judges:
  remote: {engine: openai, url: "http://127.0.0.1:PORT/v1", model: judge, layers: {retry: RETRY}}
reward:
  gate:
    if: "brief > 0.3"
    then:
      weighted:
        correct: 0.37
        judge: 0.31
        brief: 0.11
        ranked: 0.21
    otherwise: -0.1
runner: {max_concurrency: AT_ONCE, timeout_s: 120, missing_reward: "MISSING"}
ledger: {path: "${EVERYWHERE_LEDGER}", texts: true}
"""
GOALS: dict[str, tuple[str, float]] = {
    "hosts": (">=", 10),
    "failed": ("==", 0),
    "different": ("==", 0),
    "missing_paid": ("==", 0),
    "recorded_wrong": ("==", 0),
    "max_advantage_error": ("<=", 1e-6),
}


class Cell(NamedTuple):
    """The conditions under which hosts grade."""

    weather: str
    """Of the judge, see judge_server.py."""
    at_once: int


DAY = Cell("", 64)
CELLS = [DAY, Cell("", 1), Cell("", 256), Cell("slow", 256), Cell("dead", 64), Cell("refusing", 64)]
CLUSTERS = ("verl", "skyrl", "trl")
"""Hosts that take minutes, and are run in the first cell only."""


class Host(NamedTuple):
    """A script of benchmarks/everywhere and what it is given."""

    script: str
    env: str
    given: str
    """A file of the run's folder, or an address of the service."""
    single: bool = False
    """Whether it keeps rewards in single precision."""

    @property
    def alone(self) -> bool:
        """Whether it hands over rollouts one by one."""
        return self.given.startswith("alone")


HOSTS = [
    Host("verl", "verl", "reward.yaml", single=True),
    Host("skyrl", "skyrl", "reward.yaml"),
    Host("trl", "trl", "reward.yaml", single=True),
    Host("service", "core", ""),
    Host("slime", "core", "reward.yaml"),
    Host("slime_http", "core", f"/slime?group={SIZE}"),
    Host("nemo_gym", "trl", f"/verify?group={SIZE}"),
    Host("openrlhf", "trl", f"/openrlhf?group={SIZE}&strip=<eos>"),
    Host("openrlhf", "trl", "alone_raise.yaml"),
    Host("verifiers", "trl", "alone.yaml"),
    Host("tinker", "trl", "reward.yaml"),
    Host("areal", "trl", "reward.yaml", single=True),
]
CONTRACT = ("slime", "slime_http")
"""Hosts whose own code does not install here: their calls are written from their source."""


def python(env: str) -> Path:
    return ROOT / ".venv" / env / "bin" / "python"


@contextlib.contextmanager
def started(command: Sequence[str | Path], ready: str, folder: Path) -> Iterator[str]:
    """Run a server, and give what *ready* finds in its output."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=folder, env=environment())
    try:
        assert process.stdout is not None
        for line in process.stdout:
            if found := re.search(ready, line):
                yield found[1]
                return
        raise RuntimeError(f"{command[1:]} did not start")
    finally:
        process.terminate()
        process.communicate(timeout=60)


def environment(host: str = "") -> dict[str, str]:
    """Where this tree's judgekit is, the host's adapter, and the tests that know how to drive it."""
    adapter = ROOT / "adapters" / host
    paths = [HERE, ROOT / "src", ROOT, *((adapter / "src", adapter / "tests") if host else ())]
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(map(str, paths)),
        "PYTHONWARNINGS": "ignore",  # of libraries that are not ours
    }


def reference(file: Path) -> dict[str, RewardResult]:
    """What a GradingRunner makes of each rollout."""
    rows = samples()
    results = load_runner(file).run_sync(
        Rollout(prompt=one.prompt, response=one.text, ground_truth=one.truth, group=one.prompt, id=one.id)
        for one in rows
    )
    return {one.id: result for one, result in zip(rows, results, strict=True)}


def bits(value: float, single: bool) -> str:
    """The number in the host's precision."""
    return (struct.unpack("f", struct.pack("f", value))[0] if single else value).hex()


class Compared(NamedTuple):
    """A host's rewards beside the reference's."""

    host: str
    scored: int
    different: int
    missing: int
    paid: int
    seen: str
    advantages: float = 0.0
    """The largest error of an advantage, where the host has them."""
    recorded: int = 0
    """Rollouts of which the ledger says another thing."""


def compare(graded: Mapping[str, Any], expected: Mapping[str, RewardResult], host: Host) -> Compared:
    """Compare what a host wrote down (see samples.write) with the reference."""
    rewards: dict[str, str | None] = graded["rewards"]
    told: dict[str, str] = graded["missing"]
    scored = {id_: result.reward for id_, result in expected.items() if result.reward is not None}
    lost = [id_ for id_ in expected if id_ not in scored]
    different = sum(
        rewards.get(id_) != bits(value, host.single) or id_ in told for id_, value in scored.items()
    )
    paid = 0
    seen: Counter[str] = Counter()
    for id_ in lost:
        group = id_.partition("_")[0] + "_"
        siblings = [value for one, value in scored.items() if one.startswith(group)]
        companions = [rewards.get(one) for one in lost if one.startswith(group)]
        place = in_place(rewards.get(id_), siblings, companions)
        paid += place is None or id_ not in told
        seen[f"{place or 'a number of its own'} ({told.get(id_, 'nothing says so')})"] += 1
    text = "; ".join(f"{count} × {what}" for what, count in seen.most_common())
    wrong = off_by(graded["advantages"], scored) if "advantages" in graded else 0.0
    return Compared(graded["host"], len(scored), different, len(lost), paid, text, wrong)


def off_by(advantages: Mapping[str, float], scored: Mapping[str, float]) -> float:
    """The largest distance from GRPO's advantages over the rewards that there are; 0 is that of a missing one."""
    worst = 0.0
    for id_, given in advantages.items():
        group = id_.partition("_")[0] + "_"
        paid = [value for one, value in scored.items() if one.startswith(group)]
        right = (scored[id_] - fmean(paid)) / (stdev(paid) + 1e-6) if id_ in scored and len(paid) > 1 else 0.0
        worst = max(worst, abs(given - right))
    return worst


def recorded_wrong(ledger: Path, expected: Mapping[str, RewardResult]) -> int:
    """How many rollouts the ledger is wrong about, or does not know."""
    if not ledger.exists():
        return len(expected)
    by_text = {one.text: one.id for one in samples()}
    found: dict[str, Any] = {}
    for entry in read_ledger(ledger).entries:
        said = str(entry.response).removesuffix("<eos>")
        found[by_text.get(said, "")] = entry
    wrong = 0
    for id_, result in expected.items():
        entry = found.get(id_)
        if entry is None or (entry.status == "scored") != (result.reward is not None):
            wrong += 1
        elif result.reward is not None:
            wrong += entry.reward != result.reward
    return wrong


def in_place(given: str | None, siblings: Sequence[float], companions: Sequence[str | None]) -> str | None:
    """Say what stands in the place of a missing reward; None: a number that has an advantage in its group.

    *siblings*: the group's rewards. *companions*: what stands there for all that are missing in the group.
    """
    if given is None:
        return "no number"
    if siblings:
        return "the group's mean" if abs(float.fromhex(given) - fmean(siblings)) < 1e-6 else None
    return "one number for its whole group" if len(set(companions)) == 1 else None


def grade(
    host: Host, folder: Path, cell: Cell, references: Mapping[bool, Mapping[str, RewardResult]]
) -> Compared | None:
    """Have a host grade, and compare; None, with its last words printed, if it fails."""
    with contextlib.ExitStack() as stack:
        ledger = folder / f"ledger_{host.script}_{cell.weather}_{cell.at_once}_{len(host.given)}.jsonl"
        os.environ |= {"EVERYWHERE_LEDGER": str(ledger), "EVERYWHERE_AT_ONCE": str(cell.at_once)}
        given = str(folder / host.given)
        if not host.given.endswith(".yaml"):
            serve = [python("core"), "-m", "judgekit", "serve-rewards", "reward.yaml", "--port", "0"]
            given = stack.enter_context(started(serve, r"serving rewards at (\S+);", folder)) + host.given
        found = _grade(host, folder, given, references)
    if found is None:
        return None
    found = found._replace(recorded=recorded_wrong(ledger, references[host.alone]))
    print(
        f"  {cell.weather or 'a day'}, {cell.at_once} at once: {found.host}: {found.different} different, {found.paid} missing paid, "
        f"{found.recorded} recorded wrong",
        flush=True,
    )
    return found


def _grade(
    host: Host, folder: Path, given: str, references: Mapping[bool, Mapping[str, RewardResult]]
) -> Compared | None:
    out = folder / "graded.json"
    out.unlink(missing_ok=True)
    command = [python(host.env), HERE / f"{host.script}_host.py", given]
    done = subprocess.run(
        command, env=environment(host.script), cwd=folder, capture_output=True, text=True, timeout=900
    )
    if done.returncode or not out.exists():
        print(f"{host.script} {host.given}: exit code {done.returncode}")
        print((done.stdout + done.stderr)[-3000:], flush=True)
        return None
    return compare(json.loads(out.read_text()), references[host.alone], host)


def table(rows: Sequence[tuple[Host, Compared]]) -> str:
    lines = [
        "| host | rollouts come | precision | scored | different | missing | what stands for a missing one |",
        "|---|---|---|---|---|---|---|",
    ]
    for host, row in rows:
        come = "one by one: compared without `ranked`" if host.alone else "as groups"
        kind = "single" if host.single else "double"
        lines.append(
            f"| {row.host} | {come} | {kind} | {row.scored} | {row.different} | {row.missing} | {row.seen} |"
        )
    return "\n".join(lines)


REFERENCES = ((False, "reward"), (True, "alone"))


def write_files(folder: Path, port: str, cell: Cell) -> None:
    """Write each reward.yaml of a cell."""
    text = REWARD.replace("PORT", port).replace("AT_ONCE", str(cell.at_once))
    retry = "{attempts: 6}" if cell.weather in ("dead", "refusing") else "null"
    text = text.replace("RETRY", retry)
    alone = re.sub(r"^ +ranked:.*\n", "", text, flags=re.M)
    files = {"reward": (text, "exclude"), "alone": (alone, "exclude"), "alone_raise": (alone, "raise")}
    for name, (content, missing) in files.items():
        (folder / f"{name}.yaml").write_text(content.replace("MISSING", missing))


def main() -> None:
    parser = argparse.ArgumentParser()
    scripts = sorted({host.script for host in HOSTS})
    parser.add_argument("hosts", nargs="*", metavar="HOST", help=f"of {', '.join(scripts)} (default: all)")
    asked = parser.parse_args().hosts
    hosts = [host for host in HOSTS if not asked or host.script in asked]
    print(machine(), flush=True)
    found: list[tuple[Host, Compared | None]] = []
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        references: dict[bool, Mapping[str, RewardResult]] = {}
        for cell in CELLS:
            judge = [python("core"), HERE / "judge_server.py", cell.weather]
            with started(judge, r"^(\d+)$", folder) as port:
                write_files(folder, port, cell)
                if not references:
                    os.environ["EVERYWHERE_LEDGER"] = str(folder / "reference.jsonl")
                    references = {alone: reference(folder / f"{name}.yaml") for alone, name in REFERENCES}
                able = [host for host in hosts if cell == DAY or host.script not in CLUSTERS]
                found += [(host, grade(host, folder, cell, references)) for host in able]
    for graded in references.values():
        lost = sum(result.reward is None for result in graded.values())
        assert (len(graded), lost) == (GROUPS * SIZE, PLANTED), (len(graded), lost)
    rows = [(host, compared) for host, compared in found if compared is not None]
    print(f"\n{table(rows)}\n")
    figures = {
        "hosts": len({host for host, _ in rows}),
        "by_contract": len({host for host, _ in rows if host.script in CONTRACT}),
        "cells": len(rows),
        "failed": len(found) - len(rows),
        "rollouts": GROUPS * SIZE,
        "missing": PLANTED,
        "distinct_rewards": len({result.reward for result in references[False].values()} - {None}),
        "different": sum(row.different for _, row in rows),
        "missing_paid": sum(row.paid for _, row in rows),
        "recorded_wrong": sum(row.recorded for _, row in rows),
        "max_advantage_error": max((row.advantages for _, row in rows), default=0.0),
    }
    finish(figures, {name: goal for name, goal in GOALS.items() if not asked or name != "hosts"})


if __name__ == "__main__":
    reported(main)
