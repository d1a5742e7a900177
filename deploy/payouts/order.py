"""The order in a delivery: hold a merchant's payouts, or release them. Pure.

Each member of `data` is validated, because the signature proves only the sender, not that this
version of the service understands the content.
"""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from holdfast.receiver import BadData, Body

POLICY_BYTES_MAX = 256
REVISION_MAX = 2**31 - 1


class Action(StrEnum):
    BLOCK = "block"
    RELEASE = "release"


TYPES = tuple(f"payout_hold.{action}" for action in Action)


@dataclass(frozen=True, slots=True)
class HoldOrder:
    """Amounts are integers in minor units of `currency`; the window is `[start, end)` in UTC."""

    merchant_id: str
    action: Action
    window_start: datetime
    window_end: datetime
    revision: int
    exposure_minor: int
    limit_minor: int
    release_level_minor: int
    currency: str
    policy_version: str

    @classmethod
    def of(cls, body: Body) -> "HoldOrder":
        """Parse the order; raises `Refused` (`unknown_type`) and `BadData`."""
        name = body.require_type(*TYPES).rpartition(".")[2]
        order = cls(
            merchant_id=body.text("merchant_id"),
            action=Action(name),
            window_start=body.time("window_start"),
            window_end=body.time("window_end"),
            revision=body.integer("revision", least=1, most=REVISION_MAX),
            exposure_minor=body.integer("exposure_minor"),
            limit_minor=body.integer("limit_minor"),
            release_level_minor=body.integer("release_level_minor"),
            currency=body.text("currency", bytes_max=3),
            policy_version=body.text("policy_version", bytes_max=POLICY_BYTES_MAX),
        )
        if body.text("action") != name:
            raise BadData("`data.action` is not the action of the type")
        if not order.window_start < order.window_end:
            raise BadData("`data.window_end` is not after `data.window_start`")
        if not (order.currency.isascii() and order.currency.isupper() and len(order.currency) == 3):
            raise BadData("`data.currency` is not an ISO 4217 code")
        return order
