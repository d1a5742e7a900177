"""States and reasons that the engine writes and operators read."""

from enum import StrEnum

BARRED = "our own guard refused the endpoint"
"""Start of the reason of a breaker that the address guard opened."""

CREDENTIALS = "its receiver refuses our signature or credentials"
"""Start of the reason of a breaker that such answers opened."""


class LaneState(StrEnum):
    """The state of a lane (`holdfast.dispatcher.delivery.rules.lifecycle`)."""

    IDLE = "idle"
    DUE = "due"
    LEASED = "leased"
    STOPPED = "stopped"
