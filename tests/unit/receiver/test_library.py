"""The verifier against the `standardwebhooks` library: what that signs is accepted here."""

from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st
from standardwebhooks import Webhook

from holdfast.receiver import Secret, verify_signature


@given(
    key=st.binary(min_size=24, max_size=64),
    id_=st.from_regex(r"\A[A-Za-z0-9_-]{1,64}\Z"),
    seconds=st.integers(0, 2**33),
    body=st.text(),
)
def test_what_the_library_signs_is_accepted(key: bytes, id_: str, seconds: int, body: str) -> None:
    moment = datetime.fromtimestamp(seconds, UTC)
    headers = {
        "webhook-id": id_,
        "webhook-timestamp": str(seconds),
        "webhook-signature": Webhook(key).sign(id_, moment, body),
    }
    signed = verify_signature(headers, body.encode("utf-8"), [Secret(key)], now=moment)
    assert (signed.id, signed.timestamp) == (id_, moment)
