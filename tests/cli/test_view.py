"""`judgekit view` and the browser that it opens."""

from __future__ import annotations

from pathlib import Path

import pytest

from judgekit import GradingRunner, Ledger, Rollout
from judgekit.cli import report
from judgekit.graders import FinalAnswer

from .in_process import call


@pytest.mark.parametrize("args", [(), ("--no-browser",)])
def test_view_opens_a_browser_unless_told_not_to(
    tmp_path: Path, args: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    GradingRunner({"correct": FinalAnswer()}, ledger=Ledger(tmp_path / "l.jsonl")).run_sync(
        [Rollout(response="#### 1", ground_truth="1")]
    )
    opened: list[str] = []

    async def forever() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("webbrowser.open", opened.append)
    monkeypatch.setattr(report.anyio, "sleep_forever", forever)
    done = call(tmp_path, "view", "l.jsonl", *args)
    assert "http://127.0.0.1:" in done.stdout
    assert [uri.startswith("file://") for uri in opened] == ([] if args else [True])
