"""What commands write never destroys what they read, nor anything else without being told to."""

from __future__ import annotations

import errno
import io
import os
import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

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


def test_nothing_is_overwritten_without_force(full: Path, pipe: tuple[Path, int], tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="exists: --force overwrites it"):
        check_targets([full])
    check_targets([full], force=True)
    (tmp_path / "empty").touch()
    check_targets([tmp_path / "empty", pipe[0], tmp_path / "deep" / "er" / "new"])
    assert (tmp_path / "deep" / "er").is_dir()


def test_what_cannot_be_written_is_said_before_the_work(full: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is a folder"):
        check_targets([tmp_path], force=True)
    with pytest.raises(ConfigError, match="cannot write"):
        check_targets([full / "below"])


def test_what_the_operating_system_refuses_is_said_in_its_words(
    full: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Path] = []

    def access(path: Path, mode: int) -> bool:
        assert mode == os.W_OK
        asked.append(path)
        return False

    monkeypatch.setattr(os, "access", access)  # whoever runs the tests may write everywhere
    for path in (full, tmp_path / "new"):
        with pytest.raises(ConfigError, match=f"cannot write {path}: Permission denied"):
            check_targets([path], force=True)
    assert asked == [full, tmp_path]  # a file that is there may be written where nothing can be made
    for path in (tmp_path / "new.jsonl", tmp_path / "deep" / "er" / "new.jsonl"):
        with pytest.raises(ConfigError, match=f"cannot write the ledger {path}: Permission denied"):
            check_ledger(path)
    assert asked[2:] == [tmp_path, tmp_path]
    long = tmp_path / ("x" * 300)
    for check in (lambda: check_targets([long]), lambda: check_ledger(long)):
        with pytest.raises(ConfigError, match="cannot write .*xxx: File name too long"):
            check()


def test_a_file_in_the_place_of_a_folder_is_said(full: Path, tmp_path: Path) -> None:
    says = "full.jsonl/.*: a part of its path is a file, not a folder"
    for path in (full / "below", full / "deep" / "er"):
        with pytest.raises(ConfigError, match=says):
            check_targets([path])
        with pytest.raises(ConfigError, match=says):
            check_ledger(path)
    (tmp_path / "broken").symlink_to(tmp_path / "nowhere")
    with pytest.raises(ConfigError, match="cannot write .*broken/new: a part of its path is a file"):
        check_targets([tmp_path / "broken" / "new"])
    with pytest.raises(ConfigError, match="cannot write .*full.jsonl/x: "), whole_file(full / "x"):
        pass
    with pytest.raises(ConfigError, match="cannot write .*no/fd: No such "), whole_file("/proc/self/no/fd"):
        pass


def test_an_output_is_no_new_ledger_of_a_folder_that_is_read(tmp_path: Path) -> None:
    folder = tmp_path / "runs"
    folder.mkdir()
    with pytest.raises(
        ConfigError, match="new.jsonl would be read as a part of .*runs: choose another folder"
    ):
        check_targets([folder / "new.jsonl"], inputs=[folder])
    check_targets([folder / "page.html", tmp_path / "new.jsonl"], inputs=[folder])
    check_targets([folder / "sub" / "new.jsonl"], inputs=[folder])


def test_a_ledger_is_overwritten_by_nobody(tmp_path: Path) -> None:
    ledger = tmp_path / "ledger.jsonl"
    for text in ('{"type":"spec"}\n', '{"type": "rollout"}\n', '\ufeff{ "type" : "spec"}'):
        ledger.write_text(text)
        with pytest.raises(ConfigError, match="ledger.jsonl is a ledger, which is not overwritten"):
            check_targets([ledger], force=True)
    ledger.write_text('{"typed":1}\n')
    check_targets([ledger], force=True)


def test_refused_calls_leave_no_folders_behind(full: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError):
        check_targets([tmp_path / "new" / "out", full])
    with pytest.raises(ConfigError):
        check_ledger(full)
    check_ledger(tmp_path / "new" / "ledger.jsonl")
    assert os.listdir(tmp_path) == ["full.jsonl"]


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


@pytest.fixture
def pipe(tmp_path: Path) -> Iterator[tuple[Path, int]]:
    """A pipe with a name, and its other end. No device of the system: where this goes wrong, it is replaced by a file."""
    path = tmp_path / "pipe"
    os.mkfifo(path)
    end = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    yield path, end
    os.close(end)


def test_pipes_and_standard_output_are_written_as_they_are(
    pipe: tuple[Path, int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, end = pipe
    link = tmp_path / "link"
    link.symlink_to(path)
    for given in (path, link):
        with whole_file(given) as file:
            file.write("é\ud800")
        assert os.read(end, 100) == b"\xc3\xa9\\ud800"
    assert stat.S_ISFIFO(path.stat().st_mode)
    with whole_file("-") as file:
        file.write("row\n")
    assert capsys.readouterr().out == "row\n"


def test_a_pipe_without_a_path_is_written_too() -> None:
    """As /dev/stdout in a pipeline, and as a shell's >(gzip)."""
    out, into = os.pipe()
    try:
        with whole_file(f"/proc/self/fd/{into}") as file:
            file.write("row\n")
        assert os.read(out, 100) == b"row\n"
    finally:
        os.close(out)
        os.close(into)


def test_a_device_that_cannot_be_opened_is_one_sentence(
    pipe: tuple[Path, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any, **__: Any) -> Any:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr("builtins.open", refuse)
    with pytest.raises(ConfigError, match="cannot write .*/pipe: Permission denied"), whole_file(pipe[0]):
        pass


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
    for number in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO):
        why = os.strerror(number)
        with pytest.raises(JudgekitError, match=f"cannot write .*out: {why}"), whole_file(tmp_path / "out"):
            raise OSError(number, why)
    assert list(tmp_path.iterdir()) == []


def test_a_ledger_may_be_a_new_file_a_folder_or_a_ledger(pipe: tuple[Path, int], tmp_path: Path) -> None:
    check_ledger(tmp_path / "new" / "ledger.jsonl")
    check_ledger(tmp_path)
    old = tmp_path / "old.jsonl"
    for text in ('{"type":"spec"}\n', "", "\n", '{"ty', '\ufeff{"type" : "rollout"}\n'):
        old.write_text(text)
        check_ledger(old)
    for path in (Path("/dev/null"), pipe[0]):
        with pytest.raises(ConfigError, match="is a device or a pipe, from which nothing can be read again"):
            check_ledger(path)


def test_nothing_is_appended_to_what_is_no_ledger(full: Path, tmp_path: Path) -> None:
    for text in ("what was there", '{"prompt":"p"}\n', "x" * 100, '{"type"'[::-1]):
        full.write_text(text)
        with pytest.raises(ConfigError, match="full.jsonl is not a ledger, and nothing is appended to it"):
            check_ledger(full)
    for path in (Path(), Path("-")):
        with pytest.raises(ConfigError, match="the ledger is a file or a folder: give its name"):
            check_ledger(path)
    full.write_text('{"type":"spec"}\n')
    link = tmp_path / "link"
    link.symlink_to(full)
    for same in (full, link, tmp_path):
        with pytest.raises(
            ConfigError, match=f"the ledger {same} is {same}, which is read: choose another file"
        ):
            check_ledger(same, inputs=[Path("-"), same])
    check_ledger(full, inputs=[Path("-"), tmp_path / "rollouts.jsonl"])


class Piped(io.StringIO):
    """Standard output that keeps what it is given until it is flushed."""

    def __init__(self) -> None:
        super().__init__()
        self.out = ""

    def flush(self) -> None:
        self.out = self.getvalue()


def test_what_goes_to_standard_output_is_there_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", piped := Piped())
    with whole_file("-") as file:
        file.write("a line")
    assert (piped.out, piped.closed) == ("a line", False)
