"""Changes the source one place at a time and asks the tests whether they notice: `make mutation`.

    make mutation                                    # 1,500 by lines, and 30 of each room that needs engines, trainers or a cluster
    make mutation ROOMS="run reward" MUTANTS=200     # of some rooms alone
    make mutation SEED=7                             # the same ones again: the seed of a run is printed
    make mutation SINCE=HEAD~3                       # of the lines that were changed since, in rooms whose tests are quick
    make mutation WHOLE=1                            # ask the slow tests what the quick ones let through

The quick tests are those of `make unit`: what one sees before one pushes. Rooms that need engines, trainers or a cluster have all
of theirs, and mapping them takes as long as their suites do, three quarters of an hour on two cores.
As root, run it in a container of its own: a mutant may delete or replace what its tests only name, /dev/null for one.
A mutant whose tests all pass has survived. One whose tests take many times as long as without it has timed out, which on a
busy machine says nothing: it counts as neither. Survivors that cannot be killed, because nobody can see the difference,
stand in survivors.toml with the reason; they do not count as killed. mutmut was looked at: it has no sample of a bounded
length, no accepted survivors, and its mutants do not reach the programs of worker processes.
"""

from __future__ import annotations

import argparse
import difflib
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import time
import tomllib
from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from mutation.operators import Mutant, mutants_of, sample
from mutation.rooms import ROOMS, ROOT, Room
from mutation.trials import KEPT, SLOTS, Map, map_of, try_all

ACCEPTED = Path(__file__).with_name("survivors.toml")
GOALS = {"killed": 0.85, "room": 0.80}
FEW = 30
"""Mutants of each room whose tests need engines, trainers or a cluster."""


def all_of(room: Room, changed: dict[str, set[int]] | None = None) -> list[Mutant]:
    """Every mutant of a room, or those on lines that were changed."""
    found: list[Mutant] = []
    for module in room.modules():
        lines = None if changed is None else changed.get(f"{room.root}/{module}", set())
        if lines is None or lines:
            made = mutants_of(module, (ROOT / room.root / module).read_text())
            found += made if lines is None else [m for m in made if m.line in lines]
    return found


def changed_since(commit: str) -> dict[str, set[int]]:
    """Return, by file, the lines that the working tree has and *commit* has not."""
    diff = subprocess.run(
        ["git", "diff", "--unified=0", commit, "--", "src", "adapters"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    lines: dict[str, set[int]] = {}
    name = ""
    for line in diff.splitlines():
        if line.startswith("+++ b/"):
            name = line[6:]
        elif hunk := re.match(r"@@ -\S+ \+(\d+)(?:,(\d+))? @@", line):
            first, count = int(hunk[1]), int(hunk[2] or 1)
            lines.setdefault(name, set()).update(range(first, first + count))
    return lines


def chosen(
    rooms: Sequence[Room], count: int, seed: int, changed: dict[str, set[int]] | None
) -> dict[str, list[Mutant]]:
    """Return the mutants to try by room: *count* by lines, and FEW of those whose tests take long."""
    everything = {room.name: all_of(room, changed) for room in rooms}
    here = [room.name for room in rooms if not room.few]
    room_of = {m.module: name for name in here for m in everything[name]}
    tried: dict[str, list[Mutant]] = {room.name: [] for room in rooms}
    for mutant in sample((m for name in here for m in everything[name]), count, seed):
        tried[room_of[mutant.module]].append(mutant)
    for room in rooms:
        if room.few:
            tried[room.name] = sample(everything[room.name], FEW if here else count, seed)
    total = sum(map(len, everything.values()))
    print(
        f"seed {seed}: {sum(map(len, tried.values()))} of {total} mutants, in {len(rooms)} rooms", flush=True
    )
    return tried


def in_its_environment(job: dict[str, Any], *, mapping: bool) -> list[str]:
    """Try a room's mutants, or only map its tests, by the Python that has what the room needs."""
    room = next(room for room in ROOMS if room.name == job["room"])
    python = ROOT / ".venv" / room.environment / "bin" / "python"
    if not python.exists():
        sys.exit(f"{room.name} needs an environment: python3 tools/envs.py {room.environment}")
    with tempfile.TemporaryDirectory(prefix="judgekit-mutation-") as folder:
        given, answer = Path(folder, "job.json"), Path(folder, "answer.json")
        given.write_text(json.dumps({**job, "mapping": mapping}))
        command = [python, Path(__file__).parent, "--job", given, "--answer", answer]
        subprocess.run(command, cwd=ROOT, check=True)
        return list(json.loads(answer.read_text()))


def work(job: dict[str, Any], answer: Path) -> None:
    """What in_its_environment() starts."""
    room = next(room for room in ROOMS if room.name == job["room"])
    mutants = [Mutant(**fields) for fields in job["mutants"]]
    verdicts = ["no test executes it"] * len(mutants)
    for slow in (False, True) if job["whole"] else (False,):
        known = map_of(room, slow=slow)
        if job["mapping"]:
            _check(room, known)
            continue
        left = [i for i, verdict in enumerate(verdicts) if verdict in ("survived", "no test executes it")]
        home = answer.parent / ("slow" if slow else "quick")
        for i, verdict in zip(left, try_all(room, [mutants[i] for i in left], known, home), strict=True):
            if verdict != "no test executes it":
                verdicts[i] = verdict
    answer.write_text(json.dumps(verdicts))


def _check(room: Room, known: Map) -> None:
    """Say which tests fail without a mutation, and end where there are many."""
    if known.failed:
        print(
            f"{room.name}: {len(known.failed)} tests fail without a mutation:",
            *known.failed,
            sep="\n  ",
            flush=True,
        )
    if len(known.failed) > max(1, len(known.seconds) / 50):
        sys.exit(f"{room.name}: too few tests are left; what they say is in {KEPT}")


def accepted() -> dict[tuple[str, str, str], str]:
    """Survivors that were looked at: by module, line and change, the reason."""
    rows = tomllib.loads(ACCEPTED.read_text())["survivor"]
    return {(row["module"], row["line"].strip(), row["change"]): row["reason"] for row in rows}


def diff_of(room: Room, mutant: Mutant) -> str:
    before = (ROOT / room.root / mutant.module).read_bytes()
    sides = (before.decode().splitlines(), mutant.apply(before).decode().splitlines())
    return "\n".join(difflib.unified_diff(*sides, mutant.module, mutant.what, "", "", 1, ""))


def told(room: Room, mutants: Iterable[Mutant], verdicts: Iterable[str]) -> dict[str, Any]:
    """Print a room's survivors; return its figures."""
    reasons = accepted()
    counts: Counter[str] = Counter()
    for mutant, verdict in zip(mutants, verdicts, strict=True):
        counts[verdict] += 1
        if verdict in ("killed", "timed out"):
            continue
        line = (ROOT / room.root / mutant.module).read_text().splitlines()[mutant.line - 1].strip()
        reason = reasons.get((mutant.module, line, mutant.what))
        if reason:
            print(f"\n{mutant.module}:{mutant.line} {mutant.what}: accepted. {reason}")
        else:
            print(
                f"\n{mutant.module}:{mutant.line} {mutant.function}: {mutant.what}: {verdict}\n{diff_of(room, mutant)}"
            )
    tried = counts.total() - counts["timed out"]
    figures = {
        "mutants": tried,
        "killed": round(counts["killed"] / max(1, tried), 4),
        "timed_out": counts["timed out"],
    }
    print(f"\n{room.name}: {json.dumps(figures)}", flush=True)
    return figures


def judged(by_room: dict[str, dict[str, Any]], seed: int, seconds: float) -> list[str]:
    """Print the figures of all rooms as one line of JSON; return the goals that are missed."""
    mutants = sum(room["mutants"] for room in by_room.values())
    killed = sum(room["mutants"] * room["killed"] for room in by_room.values()) / max(1, mutants)
    missed = [f"killed is {killed:.3f}, the goal is >= {GOALS['killed']}"] if killed < GOALS["killed"] else []
    for name, room in by_room.items():
        few = next(r for r in ROOMS if r.name == name).few
        if not few and room["mutants"] and room["killed"] < GOALS["room"]:
            missed.append(f"killed of {name} is {room['killed']:.3f}, the goal is >= {GOALS['room']}")
    print(
        json.dumps(
            {
                "seed": seed,
                "mutants": mutants,
                "killed": round(killed, 4),
                "rooms": by_room,
                "seconds": round(seconds),
            }
        )
    )
    return missed


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("rooms", nargs="*", help=f"of {', '.join(room.name for room in ROOMS)}; all of them")
    parser.add_argument("--mutants", type=int, default=1500, help="how many to try")
    parser.add_argument("--seed", type=int, help="which of them; else others each time")
    parser.add_argument("--since", help="only on lines that were changed since this commit")
    parser.add_argument(
        "--whole", action="store_true", help="ask the slow tests, too, about those that survive"
    )
    parser.add_argument("--job", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--answer", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.job:
        work(json.loads(options.job.read_text()), options.answer)
        return
    unknown = set(options.rooms) - {room.name for room in ROOMS}
    if unknown:
        parser.error(f"there is no room {', '.join(sorted(unknown))}")

    os.chdir(ROOT)
    began = time.monotonic()
    seed = random.SystemRandom().randrange(10**6) if options.seed is None else options.seed
    rooms = [
        room
        for room in ROOMS
        if room.name in options.rooms or (not options.rooms and not (options.since and room.few))
    ]
    tried = chosen(rooms, options.mutants, seed, changed_since(options.since) if options.since else None)
    rooms = [room for room in rooms if tried[room.name]]
    jobs = [
        {"room": room.name, "whole": options.whole, "mutants": [vars(m) for m in tried[room.name]]}
        for room in rooms
    ]
    with ThreadPoolExecutor(SLOTS) as side_by_side:
        list(side_by_side.map(lambda job: in_its_environment(job, mapping=True), jobs))
    print(f"tests mapped in {time.monotonic() - began:.0f} s", flush=True)
    figures = {
        room.name: told(room, tried[room.name], in_its_environment(job, mapping=False))
        for room, job in zip(rooms, jobs, strict=True)
    }
    missed = judged(figures, seed, time.monotonic() - began)
    for line in missed:
        print(f"MISSED: {line}")
    sys.exit(bool(missed))


if __name__ == "__main__":
    main()
