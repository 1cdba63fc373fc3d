"""The mutants that `make mutation` tries: programs, of each kind, none of a message; and how they are drawn."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

import pytest
from mutation.__main__ import accepted
from mutation.operators import mutants_of, sample
from mutation.rooms import ROOMS, ROOT

SOURCE = '''
LIMITS = (1, 2, 3)

def paid(scores: list[float], weights: list[float], key: str, row: dict[str, float]) -> float:
    """Text."""
    if not scores:
        raise DataError("there are no scores")
    with lock:
        total = 0.0
        total += scores[key]
    try:
        total = add(total, row["paid"])
    except (KeyError, TypeError):
        total = row.get("else", 0.5)
    finally:
        close(key)
    for score, weight in zip(scores, weights):
        if score > 0 and weight:
            continue
    send(escape(key))
    return total
'''


@pytest.mark.parametrize(
    ("what", "text"),
    [
        ("last one left out", "((1, 2))"),
        ("check left out", "pass"),
        ("another exception", "RuntimeError"),
        ("raise removed", "pass"),
        ("with left out", "total = 0.0\n    total += scores[key]"),
        ("entered later", "total = 0.0\n    with lock:\n        total += scores[key]"),
        ("the neighbour's", "key - 1"),
        ("the neighbour's", "reversed(list(weights))"),
        ("arguments 1 and 2 swapped", "(add(row['paid'], total))"),
        ("another key", "'paid_'"),
        ("another key", "'else_'"),
        ("TypeError is not caught", "((KeyError,))"),
        ("finally left out", "try:\n        total = add(total, row['paid'])\n    except (KeyError, TypeError):\n        total = row.get('else', 0.5)"),
        ("> → >=", "(score >= 0)"),
        ("and → or", "(score > 0 or weight)"),
        ("part 2 left out", "(score > 0)"),
        ("escape left out", "(key)"),
        ("scores → weights", "weights"),
        ("return None", "return None"),
    ],
)  # fmt: skip
def test_each_kind_of_change(what: str, text: str) -> None:
    made = mutants_of("m.py", SOURCE)
    assert [m for m in made if (m.what, m.text) == (what, text)], [m for m in made if m.what == what]
    assert not [m for m in made if "there are no" in m.text and "raise" not in m.what]


def test_what_is_made_of_the_source_is_a_program() -> None:
    for room in ROOMS:
        assert room.modules(), room
        assert all((ROOT / test).exists() for test in room.tests), room
        for module in room.modules()[::9]:
            source = (ROOT / room.root / module).read_text()
            for mutant in sample(mutants_of(module, source), 5, seed=3):
                changed = mutant.apply(source.encode())
                assert ast.dump(ast.parse(changed)) != ast.dump(ast.parse(source)), mutant


def test_each_module_of_the_source_is_in_one_room_or_its_part_of_another_environment() -> None:
    owners = Counter(f"{room.root}/{module}" for room in ROOMS for module in room.modules())
    assert not [name for name, count in owners.items() if count > 1]
    every = {path.relative_to(ROOT).as_posix() for folder in ("src", "adapters") for path in (ROOT / folder).rglob("src/**/*.py" if folder == "adapters" else "*.py")}  # fmt: skip
    left = {
        name
        for name in every - set(owners)
        if Path(name).name not in ("__init__.py", "__main__.py", "version.py")
    }
    assert all(
        name.startswith(("src/judgekit/judges/engines/vllm", "src/judgekit/judges/engines/ray"))
        for name in left
    )


def test_a_sample_is_spread_over_lines_and_another_with_another_seed() -> None:
    made = mutants_of("m.py", SOURCE)
    lines = {m.line for m in made}
    first = sample(made, len(lines), seed=1)
    assert {m.line for m in first} == lines
    assert sample(made, len(lines), seed=1) == first != sample(made, len(lines), seed=2)
    assert len(sample(made, 10_000, seed=1)) == len(made)


def test_each_accepted_survivor_still_has_its_line() -> None:
    for module, line, _ in accepted():
        assert line in (ROOT / "src" / module).read_text(), (module, line)
