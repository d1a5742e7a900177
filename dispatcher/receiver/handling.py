"""Handle a delivery from headers and raw body to an answer, in any framework.

    def webhook(request):                                      # Flask, Django, bottle, ...
        answer = handle(request.headers, request.get_data(), secrets, deal)
        return answer.body, answer.status, answer.headers

    def deal(delivery: Delivery) -> Receipt:
        delivery.body.require_type("payout_hold.block", "payout_hold.release")
        merchant = delivery.body.text("merchant_id")
        with pool.connection() as connection, inbox.transaction_sync(connection):
            receipt = inbox.receive_sync(connection, delivery, subject=merchant)
            if receipt.outcome is ReceiptOutcome.APPLIED:
                hold_the_payouts(connection, delivery.body)
        return receipt                                         # after the commit

`deal` applies a delivery and commits. Its exceptions propagate to the framework, which answers 5xx;
the sender then retries, which is safe. `Refused` is answered with its problem: `deal` raises it for
a genuine delivery that the service does not understand. The methods of `Body` raise it for an
unexpected type (400), and for data that is missing or has another form (422).
"""

from collections.abc import Callable, Sequence

from holdfast.receiver.errors import VerificationError
from holdfast.receiver.message.body_reading import too_large
from holdfast.receiver.message.problem import Problem, Refused, unknown_key
from holdfast.receiver.message.receipt import Answer, Receipt, answer, answer_inquiry
from holdfast.receiver.message.secret import Secret
from holdfast.receiver.message.verify import Delivery, Headers, Inquiry, verify, verify_inquiry
from holdfast.sink.contract.envelope import BODY_BYTES_MAX
from holdfast.sink.contract.failpoints import failpoint

Deal = Callable[[Delivery], Receipt]
Look = Callable[[Inquiry], Receipt | None]


def handle(
    headers: Headers,
    body: bytes,
    secrets: Sequence[Secret],
    deal: Deal,
    *,
    method: str = "POST",
    body_bytes_max: int = BODY_BYTES_MAX,
) -> Answer:
    """Verify, let `deal` apply and commit, and compose the answer.

    `body` is the raw bytes, before any parsing by a framework.
    """
    if method != "POST":
        return Problem(405, "method_not_allowed", "send deliveries with POST").answer()
    if len(body) > body_bytes_max:
        return too_large(body_bytes_max).answer()
    try:
        delivery = verify(headers, body, secrets)
    except VerificationError as error:
        return Problem(error.status, error.reason, error.detail).answer()
    failpoint("R1")
    try:
        receipt = deal(delivery)
    except Refused as refused:
        return refused.problem.answer()
    failpoint("R4")
    return answer(receipt, delivery.secret)


def handle_inquiry(
    headers: Headers, key: str, secrets: Sequence[Secret], look: Look, *, body: bytes = b""
) -> Answer:
    """Verify a GET for `key`, the last segment of its path, and answer what `look` returns."""
    try:
        inquiry = verify_inquiry(headers, body, key, secrets)
    except VerificationError as error:
        return Problem(error.status, error.reason, error.detail).answer()
    receipt = look(inquiry)
    return unknown_key() if receipt is None else answer_inquiry(receipt, inquiry.secret)
