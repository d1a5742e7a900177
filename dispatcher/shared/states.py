"""States and reasons that the engine writes and operators read."""

from enum import StrEnum

BARRED = "our own guard refused the endpoint"
"""How the reason of a breaker begins that no failure of the receiver opened."""


class LaneState(StrEnum):
    """Where a lane stands."""

    IDLE = "idle"
    DUE = "due"
    LEASED = "leased"
    STOPPED = "stopped"
