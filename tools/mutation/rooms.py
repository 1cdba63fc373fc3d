"""The rooms of the source, the tests that claim each, and the environment in which they run."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]


class Room(NamedTuple):
    """Modules whose path under src/ begins with one of *begins*, and what is to notice a change of them."""

    name: str
    begins: tuple[str, ...]
    tests: tuple[str, ...]
    environment: str = "core"
    root: str = "src"
    """The folder that holds its package."""
    few: bool = False
    """Whether a few of its mutants are tried, and not its share by lines: its tests need engines, trainers or a cluster."""
    but: tuple[str, ...] = ()
    """Modules of *begins* that are another room's, or that no test of this environment can execute."""

    def modules(self) -> list[str]:
        """Return the paths of its modules under its root."""
        root = ROOT / self.root
        paths = sorted(path.relative_to(root).as_posix() for path in root.rglob("*.py"))
        return [
            path
            for path in paths
            if path.startswith(self.begins) and not path.startswith(self.but or ("\\0",))
        ]


def _of(
    name: str, *tests: str, environment: str = "core", few: bool = False, but: tuple[str, ...] = ()
) -> Room:
    """A package of the core, whose tests stand under tests/ by its name."""
    return Room(
        name,
        (f"judgekit/{name}",),
        tests or (f"tests/{name}",),
        environment,
        few=few,
        but=tuple(f"judgekit/{path}" for path in but),
    )


_ENGINES = ("judges/engines/vllm", "judges/engines/ray")
_TOKENS = "judges/prompts/tokens.py"
_JUDGED = "graders/judged"
_JUDGED_TESTS = tuple(
    f"tests/graders/test_{name}.py" for name in ("judged", "judge_turns", "groups", "strengths", "shapes")
)
_PROGRAMS = "graders/rules/programs"
_READERS = (
    "tests/test_config.py",
    "tests/cli/test_config.py",
    "tests/cli/test_wrong_yaml.py",
    "tests/cli/test_check.py",
)

ROOMS = (
    _of("run"),
    _of("replay", "tests/replay", "tests/evidence/test_trust.py"),
    _of("execution"),
    _of("reward", "tests/reward", "tests/run/test_dropping.py", "tests/run/test_group_conditions.py"),
    _of("ledger", "tests/ledger", "tests/execution/test_fork.py", "tests/evidence/test_audit.py"),
    _of("trainers"),
    _of("graders", "tests/graders", "tests/evidence/test_trust.py", but=(_JUDGED, _PROGRAMS)),
    Room("programs", (f"judgekit/{_PROGRAMS}",), ("tests/graders",)),
    Room(
        "judges",
        ("judgekit/judges", f"judgekit/{_JUDGED}"),
        ("tests/judges", *_JUDGED_TESTS, "tests/attack/test_recordings.py"),
        "vllm",  # which has transformers: prompts as token ids
        but=tuple(f"judgekit/{path}" for path in (*_ENGINES, _TOKENS)),
    ),
    _of(
        "config",
        *_READERS,
        "tests/test_config_parts.py",
        "tests/cli/test_again.py",
        "tests/cli/test_graders.py",
        "tests/cli/test_init.py",
        "tests/cli/test_schema.py",
        "tests/cli/test_main.py",
        "tests/reward",
        "tests/run/test_findings.py",
        "tests/run/test_grouping.py",
        "tests/judges/test_arguments.py",
        "tests/judges/test_places.py",
        "tests/graders/test_arguments.py",
        "tests/graders/test_reward_functions.py",
        "tests/replay/test_replay.py",
        "tests/evidence/test_audit.py",
        "tests/evidence/test_trust.py",
    ),
    _of(
        "cli",
        "tests/cli",
        "tests/evidence/test_audit.py",
        "tests/evidence/test_certify.py",
        "tests/report/test_compare.py",
        "tests/report/test_page.py",
        "tests/report/test_table.py",
        "tests/report/test_view.py",
        "tests/replay/test_replay.py",
        "tests/attack/test_recordings.py",
        "tests/run/test_findings.py",
        "tests/judges/test_load.py",
    ),
    _of("report"),
    _of("service"),
    _of(
        "evidence",
        "tests/evidence",
        "tests/trainers/test_audit_beside.py",
        "tests/report/test_page.py",
        "tests/report/test_texts.py",
    ),
    _of(
        "attack",
        "tests/attack",
        "tests/test_testing.py",
        "tests/cli/test_attack.py",
        "tests/cli/test_init.py",
    ),
    _of(
        "testing",
        "tests/test_testing.py",
        "tests/attack/test_plugin.py",
        "tests/attack/test_recordings.py",
        "tests/judges/test_layers.py",
        "tests/judges/test_blame.py",
        "tests/judges/test_spending.py",
        "tests/graders/test_judged.py",
        "tests/evidence/test_trust.py",
    ),
    _of(
        "metrics",
        "tests/test_metrics.py",
        "tests/report/test_signals.py",
        "tests/trainers/test_steps.py",
        "tests/run/test_account.py",
        "tests/run/test_runner.py",
        "tests/run/test_faults.py",
        "tests/cli/test_grade.py",
        "tests/trackers",
    ),
    _of("trackers"),
    Room(
        "ground",
        (
            "judgekit/types.py",
            "judgekit/errors.py",
            "judgekit/strict_yaml.py",
            "judgekit/fork.py",
            "judgekit/rollouts",
        ),
        (
            "tests/test_package.py",
            "tests/test_types.py",
            "tests/test_errors.py",
            "tests/test_rows.py",
            "tests/data/test_rollouts.py",
            "tests/test_strict_yaml.py",
            "tests/test_config.py",
            "tests/run/test_grouping.py",
            "tests/run/test_runner.py",
            "tests/run/test_faults.py",
            "tests/execution/test_fork.py",
            "tests/reward/test_turns.py",
            "tests/reward/test_reward.py",
            "tests/replay/test_turns.py",
            "tests/judges/test_prompt.py",
            "tests/judges/test_spending.py",
            "tests/judges/test_images.py",
            "tests/graders/test_judge_turns.py",
            "tests/graders/test_trajectories.py",
            "tests/ledger/test_ledger.py",
            "tests/report/test_costs.py",
            "tests/trainers/test_rollouts.py",
            "tests/cli/test_wrong_rollouts.py",
            "tests/trackers",
        ),
    ),
    Room(
        "tokens",
        (f"judgekit/{_TOKENS}",),
        ("tests/vllm/test_tokens.py", "tests/vllm/test_chat_templates.py"),
        "vllm",
        few=True,
    ),
    Room("engines", tuple(f"judgekit/{path}" for path in _ENGINES), ("tests/vllm",), "vllm", few=True),
    _of("data", environment="verl", few=True),
    _of("bridges", environment="trl", few=True),
    *(
        Room(name, (f"judgekit_{name}",), (f"adapters/{name}/tests",), name, f"adapters/{name}/src", few=True)
        for name in ("verl", "skyrl", "trl")
    ),
)
