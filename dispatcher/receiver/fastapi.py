"""A FastAPI dependency: the route gets a verified delivery, or is not called.

    verified = verified_delivery([Secret.load("env:PAYOUTS_SECRET")])
    app = FastAPI()
    answer_problems(app)

    @app.post("/webhooks")
    async def webhook(delivery: Annotated[Delivery, Depends(verified)]) -> Response:
        merchant = delivery.body.text("merchant_id")
        ...
        return respond(answer(receipt, delivery.secret))

The route must not declare another body: FastAPI would read it first, without a limit. Without
`answer_problems` a refusal, also one that the route raises (`Refused`, `BadData`), has the same
status and headers, with the problem in FastAPI's `detail`. Only Starlette, the base of FastAPI, is
imported.
"""

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

from holdfast.receiver.errors import VerificationError
from holdfast.receiver.message.body_reading import BODY_SECONDS_MAX, read_body
from holdfast.receiver.message.problem import Problem, Refused
from holdfast.receiver.message.receipt import Answer
from holdfast.receiver.message.secret import Secret
from holdfast.receiver.message.verify import Delivery, Inquiry, verify, verify_inquiry
from holdfast.sink.contract.envelope import BODY_BYTES_MAX
from holdfast.sink.contract.extras import needs
from holdfast.sink.contract.failpoints import failpoint

with needs("holdfast.receiver.fastapi", "receiver-fastapi", "starlette"):
    from starlette.applications import Starlette
    from starlette.exceptions import HTTPException
    from starlette.requests import ClientDisconnect, Request
    from starlette.responses import Response


class DeliveryRefused(HTTPException):
    """The request is not a genuine delivery, or the route refuses it; `answer` is its answer."""

    def __init__(self, problem: Problem) -> None:
        self.answer = problem.answer()
        headers = {k: v for k, v in self.answer.headers.items() if k != "content-type"}
        super().__init__(problem.status, detail=json.loads(self.answer.body), headers=headers)


def verified_delivery(
    secrets: Sequence[Secret],
    *,
    body_bytes_max: int = BODY_BYTES_MAX,
    body_seconds_max: float = BODY_SECONDS_MAX,
) -> Callable[[Request], AsyncIterator[Delivery]]:
    """Return the dependency. It raises `DeliveryRefused`; limits are as in `VerifyDeliveries`."""
    accepted = _some(secrets)

    async def dependency(request: Request) -> AsyncIterator[Delivery]:
        headers = request.headers.raw
        body = await _body(request, body_bytes_max, body_seconds_max)
        try:
            delivery = verify(headers, body, accepted)
        except VerificationError as error:
            raise _refused(error) from None
        failpoint("R1")
        try:
            yield delivery
        except Refused as refused:
            raise DeliveryRefused(refused.problem) from None

    return dependency


def verified_inquiry(secrets: Sequence[Secret]) -> Callable[[Request], Awaitable[Inquiry]]:
    """Return the dependency for `GET /holdfast/keys/{key}`. It raises `DeliveryRefused`."""
    accepted = _some(secrets)

    async def dependency(request: Request) -> Inquiry:
        headers = request.headers.raw
        body = await _body(request, BODY_BYTES_MAX, BODY_SECONDS_MAX)
        try:
            return verify_inquiry(headers, body, request.path_params.get("key", ""), accepted)
        except VerificationError as error:
            raise _refused(error) from None

    return dependency


def answer_problems(app: Starlette) -> None:
    """Let `app` answer as JSON problems (RFC 9457): `DeliveryRefused`, and `Refused` of a route."""

    async def problem(_request: Request, error: Exception) -> Response:
        match error:
            case DeliveryRefused():
                return respond(error.answer)
            case Refused():
                return respond(error.problem.answer())
        raise error

    app.add_exception_handler(DeliveryRefused, problem)
    app.add_exception_handler(Refused, problem)


def respond(answer: Answer) -> Response:
    """Convert the answer to a response of the framework."""
    return Response(answer.body, answer.status, answer.headers)


async def _body(request: Request, bytes_max: int, seconds_max: float) -> bytes:
    try:
        body = await read_body(
            request.headers.raw, request.stream(), bytes_max=bytes_max, seconds_max=seconds_max
        )
    except ClientDisconnect:
        # The sender is gone, but the route must not be called.
        raise DeliveryRefused(Problem(400, "bad_body", "the sender disconnected")) from None
    if isinstance(body, Problem):
        raise DeliveryRefused(body)
    return body


def _some(secrets: Sequence[Secret]) -> tuple[Secret, ...]:
    if not secrets:
        raise ValueError("pass at least one secret: without one nothing can be verified")
    return tuple(secrets)


def _refused(error: VerificationError) -> DeliveryRefused:
    return DeliveryRefused(Problem(error.status, error.reason, error.detail))
