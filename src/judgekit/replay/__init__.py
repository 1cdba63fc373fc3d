"""What is made of a ledger afterwards: other rewards, failed grades asked again, a run that goes on."""

from judgekit.replay.again import Again, FailedOnce
from judgekit.replay.recompute import Replay, replay
from judgekit.replay.resume import CONFIG, Known, known_grades

__all__ = ["CONFIG", "Again", "FailedOnce", "Known", "Replay", "known_grades", "replay"]
