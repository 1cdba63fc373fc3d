"""What to do with a ledger afterwards: compute other rewards, ask for failed grades again, resume a run."""

from judgekit.replay.again import Again, FailedOnce
from judgekit.replay.recompute import Replay, replay
from judgekit.replay.resume import Known, known_grades
from judgekit.run.results import KnownGrades

__all__ = ["Again", "FailedOnce", "Known", "KnownGrades", "Replay", "known_grades", "replay"]
