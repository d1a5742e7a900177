"""The order in a delivery: hold a merchant's payouts, or release them. Pure.

Each member of `data` is validated, because the signature proves only the sender, not that this
version of the service understands the content.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from dispatcher.receiver import Body, parse_rfc3339

MERCHANT_BYTES_MAX = 1024
TEXT_CHARACTERS_MAX = 256
REVISION_MAX = 2**31 - 1


class Action(StrEnum):
    BLOCK = "block"
    RELEASE = "release"


class OrderRefused(Exception):
    """The delivery is genuine, but this service does not understand it."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason
        self.detail = detail


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
        """Parse the order; raises `OrderRefused` (`unknown_type`, `bad_data`)."""
        family, _, name = body.type.partition(".")
        if family != "payout_hold" or name not in set(Action):
            raise OrderRefused("unknown_type", f"this service does not support {body.type}")
        data = body.data
        order = cls(
            merchant_id=_text(data, "merchant_id", MERCHANT_BYTES_MAX),
            action=Action(name),
            window_start=_moment(data, "window_start"),
            window_end=_moment(data, "window_end"),
            revision=_integer(data, "revision"),
            exposure_minor=_integer(data, "exposure_minor"),
            limit_minor=_integer(data, "limit_minor"),
            release_level_minor=_integer(data, "release_level_minor"),
            currency=_text(data, "currency", 3),
            policy_version=_text(data, "policy_version", TEXT_CHARACTERS_MAX),
        )
        if data.get("action") != name:
            raise OrderRefused("bad_data", "`data.action` is not the action of the type")
        if not order.window_start < order.window_end:
            raise OrderRefused("bad_data", "`data.window_end` is not after `data.window_start`")
        if not 1 <= order.revision <= REVISION_MAX:
            raise OrderRefused("bad_data", "`data.revision` is not a positive 32-bit integer")
        if not (order.currency.isascii() and order.currency.isupper() and len(order.currency) == 3):
            raise OrderRefused("bad_data", "`data.currency` is not an ISO 4217 code")
        return order


def _text(data: Mapping[str, Any], name: str, bytes_max: int) -> str:
    value = data.get(name)
    if not isinstance(value, str) or not 1 <= len(value.encode()) <= bytes_max:
        raise OrderRefused("bad_data", f"`data.{name}` is not a text of 1 to {bytes_max} bytes")
    return value


def _integer(data: Mapping[str, Any], name: str) -> int:
    value = data.get(name)
    if type(value) is not int:
        raise OrderRefused("bad_data", f"`data.{name}` is not an integer")
    return value


def _moment(data: Mapping[str, Any], name: str) -> datetime:
    value = data.get(name)
    try:
        return parse_rfc3339(value if isinstance(value, str) else "")
    except ValueError as error:
        raise OrderRefused("bad_data", f"`data.{name}`: {error}") from None
