"""Answers of a receiver and their outcomes. The transport reports an answer; this classifies it.

`failed` becomes `unknown` once a byte of the request may have been written: from then on the
receiver may have acted, and only the receiver knows.
"""

from dataclasses import dataclass, field
from typing import assert_never

from holdfast.dispatcher.shared.value import value
from holdfast.sink.contract.states import Outcome

CONFLICT = 409
"""The receiver is still processing this key (Idempotency-Key draft): retry soon."""

CREDENTIALS_REFUSED = frozenset({401, 403, 407})
"""The receiver, or a proxy before it, refuses who sends and not what is sent: a wrong secret or
token of the endpoint, which every entry would meet."""

RESPONSE_BYTES_READ_MAX = 16 * 1024
"""How much of a response body is read before the connection is closed."""


@value
class Response:
    """A status line arrived. `body` may be truncated or incomplete."""

    status: int
    retry_after: tuple[str, ...] = ()
    """Every Retry-After field, unparsed."""
    body: bytes = field(default=b"", repr=False)
    key_window: str | None = None
    """The field `holdfast-key-window`, unparsed."""


@dataclass(frozen=True, slots=True)
class NotSent:
    """No byte of the request was written: DNS, connecting or the TLS handshake failed."""

    error: str


@dataclass(frozen=True, slots=True)
class NoAnswer:
    """The request was written, or may have been, and no status line came back."""

    error: str


@dataclass(frozen=True, slots=True)
class Refused:
    """A rule of this process forbids the request: nothing was sent."""

    error: str
    of_endpoint: bool = False
    """Whether the endpoint is at fault, by its address or URL, and not the entry."""


Answer = Response | NotSent | NoAnswer | Refused


def too_late(total_timeout: float) -> str:
    """Return the error of a request that timed out before its first byte."""
    return f"its time of {total_timeout:g} s was over before the request could be written"


def classify(answer: Answer) -> Outcome:
    """Return the outcome of `answer`."""
    match answer:
        case Response():
            return _of_status(answer.status, asks_to_wait=bool(answer.retry_after))
        case NotSent():
            return Outcome.FAILED
        case NoAnswer():
            return Outcome.UNKNOWN
        case Refused():
            return Outcome.REFUSED
        case _:
            assert_never(answer)


def _of_status(status: int, *, asks_to_wait: bool) -> Outcome:
    if 200 <= status <= 299:
        return Outcome.DELIVERED
    match status:
        case 410:
            return Outcome.GONE
        case 429:
            return Outcome.THROTTLED
        case 503 if asks_to_wait:
            return Outcome.THROTTLED
        case 408 | 409:
            return Outcome.FAILED
        case _ if status in CREDENTIALS_REFUSED:
            return Outcome.FAILED
        case _ if 400 <= status <= 499:
            return Outcome.REJECTED
        case _:
            # 5xx; 3xx, because redirects are never followed; and codes that HTTP does not define
            return Outcome.FAILED
