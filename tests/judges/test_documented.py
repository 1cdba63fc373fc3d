"""The judges that docs/judges.md configures: each example loads through reward.yaml's own reader."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from judgekit.config import load_runner

PAGE = (Path(__file__).parents[2] / "docs" / "judges.md").read_text()
BLOCKS = [block for block in re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL) if "judges:" in block]


@pytest.mark.parametrize("block", BLOCKS, ids=[f"block {n}" for n in range(1, len(BLOCKS) + 1)])
def test_examples_load(block: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in re.findall(r"\$\{(\w+)\}", block):
        monkeypatch.setenv(name, "a-key")
    given = yaml.safe_load(block)
    assert given.keys() <= {"judges", "graders"}
    asked = {grader.get("judge") for grader in given.get("graders", {}).values()}
    missing = given["judges"].keys() - asked
    graders = given.get("graders", {}) | {f"g_{name}": {"use": "judge", "judge": name} for name in missing}
    whole = {
        "judges": given["judges"],
        "graders": graders,
        "reward": {"weighted": dict.fromkeys(graders, 1.0)},
    }
    path = tmp_path / "reward.yaml"
    path.write_text(yaml.safe_dump(whole))
    assert load_runner(path).graders.keys() == graders.keys()


def test_there_are_examples() -> None:
    assert len(BLOCKS) >= 3
