"""What commands write never destroys what they read, nor anything else without being told to."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

import pytest

from judgekit import ConfigError, JudgekitError
from judgekit.ledger.output_files import check_ledger, check_targets, whole_file


@pytest.fixture
def full(tmp_path: Path) -> Path:
    path = tmp_path / "full.jsonl"
    path.write_text("what was there\n")
    return path


def test_an_output_is_no_input_and_no_other_output(full: Path, tmp_path: Path) -> None:
    link, hard = tmp_path / "link", tmp_path / "hard"
    link.symlink_to(full)
    os.link(full, hard)
    for same in (full, link, hard, tmp_path / "." / "full.jsonl", tmp_path / "x" / ".." / "full.jsonl"):
        with pytest.raises(ConfigError, match="would overwrite"):
            check_targets([same], inputs=[full], force=True)
    with pytest.raises(ConfigError, match="would overwrite"):
        check_targets([tmp_path / "new", None, tmp_path / "." / "new"])
    with pytest.raises(ConfigError, match="only one output can be -"):
        check_targets([Path("-"), Path("-")])
    check_targets([tmp_path / "new", Path("-")], inputs=[full, None, Path("-")])


def test_nothing_is_overwritten_without_force(full: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="exists: --force overwrites it"):
        check_targets([full])
    check_targets([full], force=True)
    (tmp_path / "empty").touch()
    check_targets([tmp_path / "empty", Path(os.devnull), tmp_path / "deep" / "er" / "new"])
    assert (tmp_path / "deep" / "er").is_dir()


def test_what_cannot_be_written_is_said_before_the_work(full: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is a folder"):
        check_targets([tmp_path], force=True)
    with pytest.raises(ConfigError, match="cannot write"):
        check_targets([full / "below"])


def test_mode_and_links_are_kept(full: Path, tmp_path: Path) -> None:
    full.chmod(0o640)
    link = tmp_path / "link"
    link.symlink_to(full)
    with whole_file(link) as file:
        file.write("new\n")
    assert link.is_symlink()
    assert full.read_text() == "new\n"
    assert stat.S_IMODE(full.stat().st_mode) == 0o640
    before = os.umask(0o027)
    try:
        with whole_file(tmp_path / "fresh") as file:
            file.write("x")
        assert os.umask(0o027) == 0o027
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "fresh").stat().st_mode) == 0o640


def test_devices_and_standard_output_are_written_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    with whole_file(os.devnull) as file:
        file.write("x")
    assert not stat.S_ISREG(os.stat(os.devnull).st_mode)
    with whole_file("-") as file:
        file.write("row\n")
    assert capsys.readouterr().out == "row\n"


def test_an_error_leaves_the_file_as_it_was(full: Path, tmp_path: Path) -> None:
    def write_half() -> None:
        with whole_file(full) as file:
            file.write("half")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        write_half()
    assert full.read_text() == "what was there\n"
    assert os.listdir(tmp_path) == ["full.jsonl"]


def test_an_error_of_the_file_system_that_is_no_full_disk_stays_itself(tmp_path: Path) -> None:
    with pytest.raises(PermissionError), whole_file(tmp_path / "out"):
        raise PermissionError(errno.EPERM, "not allowed")
    with pytest.raises(JudgekitError, match="No space left"), whole_file(tmp_path / "out"):
        raise OSError(errno.ENOSPC, "No space left on device")
    assert list(tmp_path.iterdir()) == []


def test_a_ledger_may_be_a_new_file_a_folder_or_a_ledger(tmp_path: Path) -> None:
    check_ledger(tmp_path / "new" / "ledger.jsonl")
    check_ledger(tmp_path)
    (tmp_path / "old.jsonl").write_text('{"type":"spec"}\n')
    check_ledger(tmp_path / "old.jsonl")
    with pytest.raises(ConfigError, match="is a device or a pipe"):
        check_ledger(Path("/dev/null"))
