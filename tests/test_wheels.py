"""The wheels: built from the source, complete, and working where nothing else of ours is."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ADAPTERS = ("verl", "skyrl", "trl")


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The wheel of each distribution, by its name."""
    folder = tmp_path_factory.mktemp("wheels")
    projects = [ROOT, *(ROOT / "adapters" / name for name in ADAPTERS)]
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", folder, *projects],
        check=True,
    )
    return {path.name.split("-")[0]: path for path in folder.glob("*.whl")}


def test_each_wheel_has_its_types_licence_and_pin(wheels: dict[str, Path]) -> None:
    assert set(wheels) == {"judgekit_rl", *(f"judgekit_{name}" for name in ADAPTERS)}
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    for name, path in wheels.items():
        with zipfile.ZipFile(path) as wheel:
            files = wheel.namelist()
            (metadata,) = (f for f in files if f.endswith(".dist-info/METADATA"))
            told = wheel.read(metadata).decode()
        package = "judgekit" if name == "judgekit_rl" else name
        assert f"{package}/py.typed" in files
        assert any(f.endswith("licenses/LICENSE") for f in files)
        assert not [f for f in files if "/tests/" in f or f.startswith("tests/")]
        if package != "judgekit":
            assert f"Requires-Dist: judgekit-rl~={version}" in told


def test_an_installed_wheel_grades_and_reports(wheels: dict[str, Path], tmp_path: Path) -> None:
    """Assets that are no Python (templates, the page, the embedded judge's weights) are in the wheel."""
    with zipfile.ZipFile(wheels["judgekit_rl"]) as wheel:
        wheel.extractall(tmp_path / "installed")
    package = tmp_path / "installed" / "judgekit"
    source = ROOT / "src" / "judgekit"
    ours = {
        str(path.relative_to(source))
        for path in source.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert ours == {str(path.relative_to(package)) for path in package.rglob("*") if path.is_file()}
    (tmp_path / "rollouts.jsonl").write_text('{"response": "#### 4", "ground_truth": "4"}\n')
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "installed")}
    for command in (
        ("init",),
        ("grade", "reward.yaml", "rollouts.jsonl", "--out", "graded.jsonl"),
        ("report", "ledger.jsonl"),
    ):
        done = subprocess.run(
            [sys.executable, "-m", "judgekit", *command],
            cwd=tmp_path, env=environment, capture_output=True, text=True, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
    assert (tmp_path / "ledger.html").stat().st_size > 30_000


def test_the_unrelated_distribution_of_our_name_is_said(tmp_path: Path) -> None:
    info = tmp_path / "judgekit-0.2.1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: judgekit\nVersion: 0.2.1\n")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    command = [sys.executable, "-m", "judgekit", "graders"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert "the distribution judgekit 0.2.1 is installed, another project" in done.stderr
    assert done.returncode == 0
    assert "another project" not in subprocess.run(command, capture_output=True, text=True).stderr
