"""A webhook endpoint as an operator configured it, and the upper bound of one attempt's time."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from ipaddress import ip_network
from typing import Any

from holdfast.dispatcher.outbound.address import Network
from holdfast.dispatcher.outbound.key_window import KeyWindow
from holdfast.sink.contract.states import EndpointState, EnvelopeStyle, OrderPolicy

INQUIRY_SECONDS_MAX = 5.0
"""Time limit of a key inquiry, which precedes a repeated attempt."""


def inquiry_seconds(total_timeout: float) -> float:
    """Return the time limit of an inquiry at an endpoint with this total timeout."""
    return min(INQUIRY_SECONDS_MAX, total_timeout)


def attempt_seconds(total_timeout: float, *, inquires: bool) -> float:
    """Return the longest time of an attempt, including an inquiry where the endpoint has one."""
    return total_timeout + inquiry_seconds(total_timeout) if inquires else total_timeout


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A webhook endpoint as an operator configured it. Timeouts are in seconds."""

    id: int
    name: str
    url: str
    allowed: tuple[Network, ...]
    connect_timeout: float
    total_timeout: float
    concurrency: int
    schedule_seconds: tuple[int, ...]
    order_policy: OrderPolicy
    envelope: EnvelopeStyle = EnvelopeStyle.STANDARD
    headers: tuple[tuple[str, str], ...] = ()
    """Additional headers by name. A value `env:VAR` or `file:PATH` is resolved by the sender."""
    ca_ref: str | None = None
    client_cert_ref: str | None = None
    client_key_ref: str | None = None
    rate_per_second: int | None = None
    budget_seconds: int = 432_000
    """How long an entry may be tried, excluding the time in which its endpoint is held."""
    breaker_threshold: int = 10
    """Consecutive failures that open the breaker; 0 disables that."""
    slow_start_seconds: int = 60
    inquiry_path: str | None = None
    """Path prefix of key inquiries: the key follows it."""

    @property
    def attempt_seconds(self) -> float:
        """The longest time of one attempt."""
        return attempt_seconds(self.total_timeout, inquires=self.inquiry_path is not None)


@dataclass(frozen=True, slots=True)
class EndpointRow:
    """An endpoint as stored, with the references to its secrets."""

    endpoint: Endpoint
    active: bool
    secret_refs: Sequence[str]
    key_window: KeyWindow | None = None
    """How long its receiver keeps keys; None: the receiver has not said."""


def endpoint_of(row: Mapping[str, Any]) -> EndpointRow:
    """Return the endpoint in a row with the columns of `holdfast.endpoint`.

    `key_window_seconds` and `key_window_seen_at` of `holdfast.endpoint_pace` are optional.
    """
    endpoint = Endpoint(
        id=row["id"],
        name=row["name"],
        url=row["url"],
        allowed=tuple(map(ip_network, row["allow_cidrs"])),
        connect_timeout=row["connect_timeout_ms"] / 1000,
        total_timeout=row["total_timeout_ms"] / 1000,
        concurrency=row["concurrency"],
        schedule_seconds=tuple(row["schedule_seconds"]),
        order_policy=OrderPolicy(row["order_policy"]),
        envelope=EnvelopeStyle(row["envelope"]),
        headers=tuple(sorted(row["headers"].items())),
        ca_ref=row["ca_ref"],
        client_cert_ref=row["client_cert_ref"],
        client_key_ref=row["client_key_ref"],
        rate_per_second=row["rate_per_second"],
        budget_seconds=row["budget_seconds"],
        breaker_threshold=row["breaker_threshold"],
        slow_start_seconds=row["slow_start_seconds"],
        inquiry_path=row["inquiry_path"],
    )
    states_window = row.get("key_window_seen_at") is not None
    return EndpointRow(
        endpoint,
        active=EndpointState(row["state"]) is EndpointState.ACTIVE,
        secret_refs=tuple(row["secret_refs"]),
        key_window=KeyWindow(row["key_window_seconds"]) if states_window else None,
    )
