"""A grader that writes down whom it was asked about, in the file $ASKED, and fails while $ASKED.down is there."""

from __future__ import annotations

import os

from judgekit import grader


@grader
def flaky(response: str, id: str) -> float:
    with open(os.environ["ASKED"], "a") as file:
        file.write(id + "\n")
    if os.path.exists(os.environ["ASKED"] + ".down"):
        raise ConnectionError("down")
    return 1.0
