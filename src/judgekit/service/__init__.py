"""Rewards over HTTP: the service that `judgekit serve-rewards` starts, and its client.

The server's modules are imported where they are used, so that a client costs little to import.
"""

from judgekit.service.client import RewardClient

__all__ = ["RewardClient"]
