"""The verifier against an independent signer: what it accepts, and how each bad request fails."""

import base64
import gzip
import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone

import pytest

from holdfast.receiver import Delivery, Reason, Secret, VerificationError, verify
from holdfast.receiver.message.verify import verify_inquiry, verify_signature
from tests.support.dispatch.sender import KEY_BYTES, OTHER_KEY_BYTES, body, headers, key_of, sign

NOW = 1_793_620_000
CLOCK = datetime.fromtimestamp(NOW, UTC)
SECRET, OTHER = Secret(KEY_BYTES), Secret(OTHER_KEY_BYTES)
KEY = key_of("m_482", 1)
BODY = body()
GOOD = sign(KEY, NOW, BODY)
JUNK = "v1," + base64.b64encode(bytes(32)).decode()

Pairs = list[tuple[bytes, bytes]]


def pairs(content: bytes = BODY, **changes: str | None) -> Pairs:
    """Signed header fields as an ASGI server gives them; a change of None removes a field."""
    fields: dict[str, str | None] = dict(headers(content, id_=KEY, timestamp=NOW))
    fields |= {name.replace("_", "-"): value for name, value in changes.items()}
    return [
        (name.encode(), value.encode("latin-1"))
        for name, value in fields.items()
        if value is not None
    ]


def check(fields: Pairs, content: bytes = BODY, *secrets: Secret) -> Delivery:
    return verify(fields, content, secrets or (SECRET,), now=CLOCK)


def reason_of(call: Callable[[], object]) -> tuple[int, Reason]:
    with pytest.raises(VerificationError) as refused:
        call()
    return refused.value.status, refused.value.reason


def test_standard_webhooks_vector_is_accepted() -> None:
    """The vector of the Standard Webhooks documentation; its secret is shorter than ours may be."""
    signed = verify_signature(
        {
            "Webhook-Id": "msg_loFOjxBNrRLzqYUf",
            "Webhook-Timestamp": "1731705121",
            "Webhook-Signature": "v1,rAvfW3dJ/X/qxhsaXPOyyCGmRKsaKWcsNccKXlIktD0=",
        },
        b'{"event_type":"ping","data":{"success":true}}',
        [Secret(base64.b64decode("plJ3nmyCDGBKInavdOK15jsl"))],
        now=datetime.fromtimestamp(1731705121, UTC),
    )
    assert signed.id == "msg_loFOjxBNrRLzqYUf"


def test_signed_delivery_is_read() -> None:
    delivery = check(pairs())
    assert (delivery.key, delivery.timestamp, delivery.raw) == (KEY, CLOCK, BODY)
    assert (delivery.body.type, delivery.body.sequence) == ("payout_hold.block", 1)
    assert delivery.body.timestamp == datetime(2026, 11, 2, 12, 15, tzinfo=UTC)
    assert delivery.body.data["merchant_id"] == "m_482"


@pytest.mark.parametrize(
    "fields",
    [
        pairs(idempotency_key=None),
        pairs(idempotency_key=KEY),
        [(name.upper(), value) for name, value in pairs()],
        pairs(content_encoding="identity"),
        pairs(webhook_signature=f"{JUNK} v1a,{GOOD[3:]} {GOOD}"),
        pairs(webhook_signature=f"v1,a,b v1 v1,  {GOOD} v2,x"),
        pairs(webhook_signature=" ".join([JUNK] * 15 + [GOOD])),
    ],
    ids=["no key", "bare key", "upper case", "identity", "other scheme", "malformed", "16th"],
)
def test_good_signature_is_found_among_others(fields: Pairs) -> None:
    assert check(fields).key == KEY


def test_any_accepted_secret_verifies_and_signs_the_receipt() -> None:
    assert check(pairs(), BODY, OTHER, SECRET).secret is SECRET
    old = pairs(webhook_signature=sign(KEY, NOW, BODY, OTHER_KEY_BYTES))
    assert check(old, BODY, SECRET, OTHER).secret is OTHER


@pytest.mark.parametrize("absent", [None, ""], ids=["missing", "empty"])
@pytest.mark.parametrize("name", ["webhook_id", "webhook_timestamp", "webhook_signature"])
def test_required_header_may_not_be_missing_or_empty(name: str, absent: str | None) -> None:
    fields = pairs(**{name: absent})
    assert reason_of(lambda: check(fields)) == (400, Reason.MISSING_HEADER)


@pytest.mark.parametrize(
    "name", ["webhook-id", "webhook-timestamp", "webhook-signature", "idempotency-key"]
)
def test_header_may_not_be_doubled(name: str) -> None:
    fields = pairs()
    fields += [(name.title().encode(), value) for known, value in fields if known == name.encode()]
    assert len(fields) == 6
    assert reason_of(lambda: check(fields)) == (400, Reason.DUPLICATE_HEADER)


@pytest.mark.parametrize(
    ("changes", "status", "reason"),
    [
        ({"idempotency_key": f'"{key_of("m_1", 9)}"'}, 400, Reason.KEY_MISMATCH),
        ({"idempotency_key": f'"{KEY}'}, 400, Reason.KEY_MISMATCH),
        ({"idempotency_key": f'"{KEY}";a=1'}, 400, Reason.KEY_MISMATCH),
        ({"idempotency_key": ""}, 400, Reason.KEY_MISMATCH),
        ({"content_encoding": "gzip"}, 400, Reason.ENCODED_BODY),
        ({"webhook_id": "a.b"}, 400, Reason.BAD_ID),
        ({"webhook_id": "hf_\x01"}, 400, Reason.BAD_ID),
        ({"webhook_id": "x" * 257}, 400, Reason.BAD_ID),
        ({"webhook_id": "hf_\xe9"}, 400, Reason.BAD_HEADER),
        ({"webhook_id": key_of("m_1", 9)}, 401, Reason.NO_MATCH),
        ({"webhook_signature": "v1"}, 400, Reason.BAD_SIGNATURE),
        ({"webhook_signature": "v1,"}, 400, Reason.BAD_SIGNATURE),
        ({"webhook_signature": "v1,a,b"}, 400, Reason.BAD_SIGNATURE),
        ({"webhook_signature": f"v2,{GOOD[3:]}"}, 400, Reason.BAD_SIGNATURE),
        ({"webhook_signature": f"V1,{GOOD[3:]}"}, 400, Reason.BAD_SIGNATURE),
        ({"webhook_signature": GOOD[3:]}, 400, Reason.BAD_SIGNATURE),
        ({"webhook_signature": "v1,!!!"}, 400, Reason.BAD_SIGNATURE),
        ({"webhook_signature": GOOD.rstrip("=")}, 400, Reason.BAD_SIGNATURE),
        ({"webhook_signature": "v1," + "-_" * 21 + "A="}, 400, Reason.BAD_SIGNATURE),
        ({"webhook_signature": "v1,AAAA"}, 400, Reason.BAD_SIGNATURE),
        ({"webhook_signature": f"{GOOD},{GOOD}"}, 400, Reason.BAD_SIGNATURE),
        ({"webhook_signature": JUNK}, 401, Reason.NO_MATCH),
        ({"webhook_signature": " ".join([JUNK] * 16 + [GOOD])}, 400, Reason.TOO_MANY_SIGNATURES),
        ({"webhook_signature": f"{GOOD} " * 10_000}, 400, Reason.TOO_MANY_SIGNATURES),
    ],
)
def test_malformed_header_is_refused(changes: dict[str, str], status: int, reason: Reason) -> None:
    assert reason_of(lambda: check(pairs(**changes))) == (status, reason)


@pytest.mark.parametrize(
    "text",
    [
        "1793620000.0",
        "1.79362e9",
        "1_793_620_000",
        "01793620000",
        "+1793620000",
        "-1793620000",
        " 1793620000",
        "1793620000\n",
        "nan",
        "inf",
        "0x6ae8a0e0",
        "9" * 13,
        "9" * 20,
        "2026-11-02T12:00:00Z",
    ],
)
def test_timestamp_that_is_not_plain_seconds_is_refused(text: str) -> None:
    fields = pairs(webhook_timestamp=text, webhook_signature=sign(KEY, text, BODY))
    assert reason_of(lambda: check(fields)) == (400, Reason.BAD_TIMESTAMP)


def test_arabic_digits_are_no_timestamp() -> None:
    fields = dict(headers(BODY, timestamp=NOW)) | {"webhook-timestamp": "١٧٩٣٦٢٠٠٠٠"}
    refused = reason_of(lambda: verify(fields, BODY, [SECRET], now=CLOCK))
    assert refused == (400, Reason.BAD_HEADER)


@pytest.mark.parametrize("offset", [-300, 0, 300])
def test_delivery_within_the_tolerance_is_accepted(offset: int) -> None:
    content = headers(BODY, timestamp=NOW + offset)
    assert verify(content, BODY, [SECRET], now=CLOCK).timestamp == CLOCK + timedelta(seconds=offset)


def test_receivers_clock_may_be_in_any_zone() -> None:
    local = CLOCK.astimezone(timezone(timedelta(hours=5, minutes=30)))
    assert verify(headers(BODY, timestamp=NOW), BODY, [SECRET], now=local).timestamp == CLOCK


@pytest.mark.parametrize(
    ("timestamp", "reason"),
    [
        (NOW - 301, Reason.TOO_OLD),
        (0, Reason.TOO_OLD),
        (NOW + 301, Reason.TOO_NEW),
        (999_999_999_999, Reason.TOO_NEW),
    ],
)
def test_delivery_beyond_the_tolerance_is_refused(timestamp: int, reason: Reason) -> None:
    fields = headers(BODY, timestamp=timestamp)
    assert reason_of(lambda: verify(fields, BODY, [SECRET], now=CLOCK)) == (401, reason)


def test_inquiry_is_judged_by_the_given_tolerance() -> None:
    fields = headers(b"", id_=KEY, timestamp=NOW - 10)
    assert verify_inquiry(fields, b"", KEY, [SECRET], now=CLOCK, tolerance_seconds=10).key == KEY
    refused = reason_of(
        lambda: verify_inquiry(fields, b"", KEY, [SECRET], now=CLOCK, tolerance_seconds=9)
    )
    assert refused == (401, Reason.TOO_OLD)


@pytest.mark.parametrize(
    "secrets", [(), (OTHER,), (Secret(b"whsec_"),)], ids=["none", "another endpoint's", "wrong"]
)
def test_secret_that_did_not_sign_does_not_verify(secrets: tuple[Secret, ...]) -> None:
    refused = reason_of(lambda: verify(pairs(), BODY, secrets, now=CLOCK))
    assert refused == (401, Reason.NO_MATCH)


@pytest.mark.parametrize(
    "sent",
    [
        json.dumps(json.loads(BODY)).encode(),
        b"\xef\xbb\xbf" + BODY,
        BODY + b"\r\n",
        BODY + b"\n",
        BODY[:-1],
        b"",
        BODY.replace(b"block", b"bl\\u006fck"),
    ],
    ids=["re-serialised", "BOM", "CRLF", "newline", "truncated", "empty", "escaped"],
)
def test_signature_covers_the_exact_bytes(sent: bytes) -> None:
    assert reason_of(lambda: check(pairs(), sent)) == (401, Reason.NO_MATCH)


def test_signature_over_the_decompressed_body_does_not_verify() -> None:
    assert reason_of(lambda: check(pairs(), gzip.compress(BODY))) == (401, Reason.NO_MATCH)


@pytest.mark.parametrize("idempotency_key", [None, key_of("m_482", 2)], ids=["id", "both"])
def test_body_of_another_key_is_refused(idempotency_key: str | None) -> None:
    other = body(sequence=2)
    fields = pairs(other, idempotency_key=idempotency_key)
    assert reason_of(lambda: check(fields, other)) == (400, Reason.KEY_MISMATCH)


def test_idempotency_key_of_another_body_is_refused() -> None:
    fields = pairs(idempotency_key=key_of("m_482", 2))
    assert reason_of(lambda: check(fields)) == (400, Reason.KEY_MISMATCH)
