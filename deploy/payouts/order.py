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
    """Amounts are integers in minor units of `currency`; the window is `[start, end)` in UTC.

    A person decided one without a window.
    """

    merchant_id: str
    action: Action
    window_start: datetime | None = None
    window_end: datetime | None = None
    revision: int | None = None
    exposure_minor: int | None = None
    limit_minor: int | None = None
    release_level_minor: int | None = None
    currency: str | None = None
    policy_version: str | None = None

    @property
    def is_by_hand(self) -> bool:
        """Whether a person decided."""
        return self.window_end is None

    @classmethod
    def of(cls, body: Body) -> "HoldOrder":
        """Parse the order; raises `Refused` (`unknown_type`) and `BadData`."""
        name = body.require_type(*TYPES).rpartition(".")[2]
        if body.text("action") != name:
            raise BadData("`data.action` is not the action of the type")
        merchant_id, action = body.text("merchant_id"), Action(name)
        if body.data.get("origin") == "hand":
            return cls(merchant_id, action)
        start, end = body.time("window_start"), body.time("window_end")
        currency = body.text("currency", bytes_max=3)
        if not start < end:
            raise BadData("`data.window_end` is not after `data.window_start`")
        if not (currency.isascii() and currency.isupper() and len(currency) == 3):
            raise BadData("`data.currency` is not an ISO 4217 code")
        return cls(
            merchant_id,
            action,
            window_start=start,
            window_end=end,
            revision=body.integer("revision", least=1, most=REVISION_MAX),
            exposure_minor=body.integer("exposure_minor"),
            limit_minor=body.integer("limit_minor"),
            release_level_minor=body.integer("release_level_minor"),
            currency=currency,
            policy_version=body.text("policy_version", bytes_max=POLICY_BYTES_MAX),
        )
