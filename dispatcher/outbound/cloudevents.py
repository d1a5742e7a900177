"""The envelope `cloudevents`: CloudEvents 1.0 in HTTP binary mode.

The attributes are additional headers. The body does not change, so signatures, receipts and keys
are those of the other envelope. The attributes depend only on the entry, so every attempt sends the
same:

    ce-id        the key
    ce-source    `/holdfast/subjects/N`, N being the subject's number in the outbox
    ce-type, ce-time, ce-sequence   the body's `type`, `timestamp` and `sequence`
    ce-subject   the subject's name, where it is known

The sequence extension orders within a source, so each subject is a source of its own. Its values
compare as strings, so they have leading zeros.
"""

import re
from urllib.parse import quote

SPEC_VERSION = "1.0"
SEQUENCE_DIGITS = 19
"""Number of digits of the largest bigint."""

# As the sink composes it (`holdfast.sink.contract.envelope`); every value is valid in a header
# unescaped. Releases before 0.3 also wrote types such as `a..b`.
_HEAD = re.compile(
    rb'\{"type":"([A-Za-z0-9_.]{1,128})","timestamp":"([0-9TZ:.-]{20,30})",'
    rb'"sequence":([0-9]{1,19}),"key":"'
)
_PLAIN = re.compile(r"[!#$&-~]*")
# All printable ASCII except space, the quotation mark and the percent sign.
_KEPT = "!#$&'()*+,/:;<=>?@[\\]^`{|}"


class NotOurBodyError(ValueError):
    """A stored body does not start as the sink composes it."""


def attributes(
    key: str, subject_id: int, subject: str | None, body: bytes
) -> tuple[tuple[str, str], ...]:
    """Return the headers of one entry; raises `NotOurBodyError`."""
    head = _HEAD.match(body)
    if head is None:
        raise NotOurBodyError("the stored body does not begin with type, timestamp and sequence")
    type_, time, sequence = head.groups()
    headers = (
        ("ce-specversion", SPEC_VERSION),
        ("ce-id", key),
        ("ce-source", f"/holdfast/subjects/{subject_id}"),
        ("ce-type", type_.decode("ascii")),
        ("ce-time", time.decode("ascii")),
        ("ce-sequence", sequence.decode("ascii").zfill(SEQUENCE_DIGITS)),
    )
    return headers if subject is None else (*headers, ("ce-subject", encoded(subject)))


def encoded(text: str) -> str:
    """Return `text` as the HTTP binding encodes a header: percent-encoded UTF-8.

    >>> encoded('Zoë "50 %"')
    'Zo%C3%AB%20%2250%20%25%22'
    """
    return text if _PLAIN.fullmatch(text) else quote(text, safe=_KEPT, errors="replace")
