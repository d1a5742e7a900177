"""A webhook target as an operator set it up, and how long one attempt at it may take."""

from collections.abc import Sequence
from dataclasses import dataclass

from dispatcher.outbound.address import Network
from dispatcher.outbound.key_window import KeyWindow
from sink.contract.states import BreakerState, EnvelopeStyle, OrderPolicy

INQUIRY_SECONDS_MAX = 5.0
"""How long a receiver may take to say what became of a key, before the key is sent again."""


def inquiry_seconds(total_timeout: float) -> float:
    """Return how long an inquiry at an endpoint may take."""
    return min(INQUIRY_SECONDS_MAX, total_timeout)


def attempt_seconds(total_timeout: float, *, inquires: bool) -> float:
    """Return how long an attempt may take, with an inquiry before it where the endpoint has one."""
    return total_timeout + inquiry_seconds(total_timeout) if inquires else total_timeout


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A webhook target, as an operator set it up. Timeouts are seconds."""

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
    """Further headers by name; a value `env:VAR` or `file:PATH` is read where it is sent."""
    ca_ref: str | None = None
    client_cert_ref: str | None = None
    client_key_ref: str | None = None
    rate_per_second: int | None = None
    budget_seconds: int = 432_000
    """How long an entry may be tried, without the time in which its endpoint is not sent to."""
    breaker_threshold: int = 10
    """Failures in a row that open the breaker; 0: no number of them does."""
    slow_start_seconds: int = 60
    inquiry_path: str | None = None
    """What comes before a key in the path at which its receiver says what became of it."""

    @property
    def attempt_seconds(self) -> float:
        """How long one attempt may take."""
        return attempt_seconds(self.total_timeout, inquires=self.inquiry_path is not None)


@dataclass(frozen=True, slots=True)
class EndpointRow:
    """An endpoint as it stands in its table, with the references of its secrets."""

    endpoint: Endpoint
    active: bool
    secret_refs: Sequence[str]
    breaker: BreakerState = BreakerState.CLOSED
    held: bool = False
    """Whether its receiver asked for time that is not over."""
    key_window: KeyWindow | None = None
    """How long its receiver keeps keys; None: it has not said."""
