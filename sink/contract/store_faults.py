"""What an object store's client says when the store fails, as one clause for a person. Pure.

The client's own text is a chain of exceptions of its SDK, with request ids and class names.
"""

import re
from collections.abc import Iterable
from typing import Final, NamedTuple

_OF_STORE: Final = re.compile(r"\.fs\.s3a\.|software\.amazon\.awssdk|s3a://")


class StoreFault(NamedTuple):
    """What failed, and what to do."""

    said: str
    advice: str
    is_permanent: bool = False
    """Whether another try fails in the same way until a person acts."""
    ends_start: bool = False
    """Whether it does at a start. Later, what renews the credentials may be about to do so."""


_AGAIN: Final = "It is tried again; if it stays, look at the store and the network"
_FAULTS: Final = (
    (
        r"ExpiredToken|[Tt]oken (has|is|included in the request is) expired",
        StoreFault(
            "the credentials for the object store have expired",
            "Renew them, or use a provider of credentials that does",
            ends_start=True,
        ),
    ),
    (
        r"RequestTimeTooSkewed|RequestExpired|difference between the request time",
        StoreFault(
            "the object store refuses the clock of this machine, which differs too much from its"
            " own",
            "Set the clock by NTP",
            ends_start=True,
        ),
    ),
    (
        r"NoSuchBucket|UnknownStoreException|[Bb]ucket does not exist",
        StoreFault(
            "the bucket does not exist",
            "Name the right one; or, if it was deleted, begin a new checkpoint, which the stream"
            " has to adopt (`holdfast stream adopt`)",
            is_permanent=True,
        ),
    ),
    (
        r"NoAuthWithAWS|NoAwsCredentials|Unable to load credentials|No AWS Credentials",
        StoreFault(
            "there are no credentials for the object store",
            "Give Spark a provider of credentials (fs.s3a.aws.credentials.provider)",
            ends_start=True,
        ),
    ),
    (
        r"Status Code: 400",  # the answer to HEAD has no body that says why
        StoreFault(
            "the credentials for the object store have expired or are invalid (400)",
            "Renew them, or use a provider of credentials that does",
            ends_start=True,
        ),
    ),
    (
        r"InvalidAccessKeyId|SignatureDoesNotMatch|AccessDenied|\b403\b",
        StoreFault(
            "the object store refuses the credentials, what they permit, or the clock of this"
            " machine (403)",
            "The job has to list, read, write and delete below its checkpoint, and its clock to"
            " agree with the store's",
            ends_start=True,
        ),
    ),
    (
        r"SlowDown|Slow Down|ServiceUnavailable|AWSServiceThrottled|\b503\b",
        StoreFault("the object store is overloaded or away (503)", _AGAIN),
    ),
    (
        r"AWSStatus500|InternalError|\b50[024]\b",
        StoreFault("the object store has failed (5xx)", _AGAIN),
    ),
    (
        r"UnknownHost|Connection refused|ConnectException|NoRouteToHost|Connect to .* failed",
        StoreFault("the object store cannot be reached", _AGAIN),
    ),
    (
        r"[Tt]imed? ?out|Timeout|did not complete before",
        StoreFault("the object store does not answer", _AGAIN),
    ),
    (
        r"Connection reset|NoHttpResponse|failed to respond|Broken pipe|SSLException",
        StoreFault("the connection to the object store broke", _AGAIN),
    ),
)


def store_fault(chain: Iterable[tuple[str, str]]) -> StoreFault | None:
    """Return what a chain of exceptions (class name, message) says; None where it is of no store.

    >>> store_fault([("software.amazon.awssdk.services.s3.model.S3Exception", "SlowDown")]).said
    'the object store is overloaded or away (503)'
    >>> store_fault([("java.net.ConnectException", "Connection refused")]) is None
    True
    """
    text = "\n".join(f"{name}: {message}" for name, message in chain)
    if _OF_STORE.search(text) is None:
        return None
    return next((fault for pattern, fault in _FAULTS if re.search(pattern, text)), None)
