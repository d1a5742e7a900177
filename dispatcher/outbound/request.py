"""The request of one attempt; the parts that all requests of an endpoint share are made once."""

import re
from dataclasses import field
from importlib.metadata import version
from uuid import UUID

from holdfast.dispatcher.outbound.cloudevents import attributes
from holdfast.dispatcher.shared.value import value
from holdfast.sink.contract.states import EnvelopeStyle
from holdfast.sink.contract.wire import (
    CONTENT_TYPE,
    IDEMPOTENCY_KEY,
    TRACEPARENT,
    WEBHOOK_ID,
    WEBHOOK_SIGNATURE,
    WEBHOOK_TIMESTAMP,
)

USER_AGENT = f"holdfast/{version('holdfast')}"

_TRACEPARENT = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")

Headers = tuple[tuple[str, str], ...]


@value
class Request:
    """A POST: these headers, in this order, and exactly these bytes."""

    headers: Headers = field(repr=False)
    """Hidden in `repr`: they hold a signature and perhaps a token."""
    body: bytes = field(repr=False)


def key_text(digest: UUID) -> str:
    """Return the `text` of the `Key` of a digest, in half the time of making a `Key`."""
    return f"hf_{digest.hex}"


class Composer:
    """Composes the requests to one endpoint."""

    __slots__ = ("_envelope", "_fixed")

    def __init__(
        self,
        user_agent: str,
        envelope: EnvelopeStyle = EnvelopeStyle.STANDARD,
        custom: Headers = (),
    ) -> None:
        """`custom` are the operator's headers, validated (`outbound.operator_headers`)."""
        self._envelope = envelope
        self._fixed: Headers = (
            ("content-type", CONTENT_TYPE),
            ("user-agent", user_agent),
            ("accept-encoding", "identity"),
            *custom,
        )

    def compose(
        self,
        *,
        key: str,
        subject_id: int,
        timestamp: int,
        signature: str,
        traceparent: str | None,
        body: bytes,
        subject: str | None = None,
    ) -> Request:
        """Compose a request. `timestamp` is this attempt's Unix time in seconds, by this host.

        Raises `NotOurBodyError` where the envelope is `cloudevents` and the body lacks the values
        of its headers.
        """
        headers = (
            *self._fixed,
            (WEBHOOK_ID, key),
            (WEBHOOK_TIMESTAMP, str(timestamp)),
            (WEBHOOK_SIGNATURE, signature),
            # A structured-field string (RFC 9651); a key has no characters to escape.
            (IDEMPOTENCY_KEY, f'"{key}"'),
        )
        # The trace is optional: a malformed one is left out, not refused.
        if traceparent is not None and _TRACEPARENT.fullmatch(traceparent):
            headers = (*headers, (TRACEPARENT, traceparent))
        if self._envelope is EnvelopeStyle.CLOUDEVENTS:
            headers = (*headers, *attributes(key, subject_id, subject, body))
        return Request(headers, body)
