"""ASGI middleware: on the guarded paths the application gets only verified deliveries.

It is plain ASGI 3 and works with any framework. A verified `Delivery` is stored in the scope's
state (`delivery_of(scope)`), as is a verified `Inquiry` if inquiries are enabled
(`inquiry_of(scope)`). The middleware answers all other requests with a JSON problem, and so a
delivery for which the application raises `Refused` before it answers. Other paths pass through
unchanged.
"""

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, MutableMapping, Sequence
from typing import Any

from holdfast.receiver.errors import VerificationError
from holdfast.receiver.message.body_reading import BODY_SECONDS_MAX, SenderLeft, read_body
from holdfast.receiver.message.problem import Problem, Refused
from holdfast.receiver.message.secret import Secret
from holdfast.receiver.message.verify import Delivery, Inquiry, verify, verify_inquiry
from holdfast.sink.contract.envelope import BODY_BYTES_MAX
from holdfast.sink.contract.failpoints import failpoint

__all__ = ["BODY_SECONDS_MAX", "VerifyDeliveries", "delivery_of", "inquiry_of"]

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

POLICY_VIOLATION = 1008
"""The WebSocket close code (RFC 6455) for a path without WebSockets."""

_DELIVERY = "holdfast_delivery"
_INQUIRY = "holdfast_inquiry"
_log = logging.getLogger(__name__)


class VerifyDeliveries:
    """Guard `paths` of `app`: POST only, a bounded body, a valid signature by one of `secrets`.

    A body larger than `body_bytes_max` is answered 413, one incomplete after `body_seconds_max`
    408, and one that `verify` refuses 400 or 401. With `inquiries`, such as
    `holdfast.sink.contract.wire.INQUIRY_PATH`, a GET below that path is verified as an inquiry;
    without it, such paths pass through.
    """

    def __init__(
        self,
        app: App,
        *,
        secrets: Sequence[Secret],
        paths: Iterable[str] = ("/webhooks",),
        inquiries: str | None = None,
        body_bytes_max: int = BODY_BYTES_MAX,
        body_seconds_max: float = BODY_SECONDS_MAX,
    ) -> None:
        if not secrets:
            raise ValueError("pass at least one secret: without one nothing can be verified")
        if inquiries is not None and not (inquiries.startswith("/") and inquiries.endswith("/")):
            raise ValueError(f"the path of inquiries must begin and end with a slash: {inquiries}")
        self._app = app
        self._secrets = tuple(secrets)
        self._paths = frozenset(paths)
        self._inquiries = inquiries
        self._body_bytes_max = body_bytes_max
        self._body_seconds_max = body_seconds_max

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = "" if scope["type"] == "lifespan" else scope.get("path", "")
        if path not in self._paths and not self._is_inquiry(path):
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": POLICY_VIOLATION})
            return
        try:
            request = await self._verified(scope, receive)
        except SenderLeft:
            return
        match request:
            case Delivery():
                failpoint("R1")
                await self._pass(scope, receive, send, {_DELIVERY: request}, request.raw)
            case Inquiry():
                await self._pass(scope, receive, send, {_INQUIRY: request}, b"")
            case Problem():
                _log.info("refused a request: %s", request.reason)
                await _send(request, send)

    async def _pass(
        self, scope: Scope, receive: Receive, send: Send, verified: dict[str, Any], body: bytes
    ) -> None:
        state = {**scope.get("state", {}), **verified}
        answered = False

        async def noted(message: Message) -> None:
            nonlocal answered
            answered = True
            await send(message)

        try:
            await self._app({**scope, "state": state}, _replay(body, receive), noted)
        except Refused as refused:
            if answered:
                raise
            _log.info("refused a delivery: %s", refused)
            await _send(refused.problem, send)

    async def _verified(self, scope: Scope, receive: Receive) -> Delivery | Inquiry | Problem:
        """Return the verified request, or the problem with it; raises `SenderLeft`."""
        path, method = scope["path"], scope["method"]
        inquiry = path not in self._paths
        allowed_method = "GET" if inquiry else "POST"
        if method != allowed_method:
            noun = "inquiries" if inquiry else "deliveries"
            return Problem(
                405,
                "method_not_allowed",
                f"send {noun} with {allowed_method}",
                allow=allowed_method,
            )
        headers = list(scope["headers"])
        body = await read_body(
            headers,
            _chunks(receive),
            bytes_max=self._body_bytes_max,
            seconds_max=self._body_seconds_max,
        )
        if isinstance(body, Problem):
            return body
        try:
            if inquiry:
                key = path.removeprefix(self._inquiries)
                return verify_inquiry(headers, body, key, self._secrets)
            return verify(headers, body, self._secrets)
        except VerificationError as error:
            return Problem(error.status, error.reason, error.detail)

    def _is_inquiry(self, path: str) -> bool:
        return self._inquiries is not None and path.startswith(self._inquiries)


def delivery_of(scope: Scope) -> Delivery:
    """Return the delivery that the middleware verified for this request.

    Raises `LookupError` on a path that the middleware does not guard.
    """
    delivery: Delivery | None = scope.get("state", {}).get(_DELIVERY)
    if delivery is None:
        raise LookupError(f"no verified delivery: {scope.get('path')} is not a guarded path")
    return delivery


def inquiry_of(scope: Scope) -> Inquiry:
    """Return the inquiry that the middleware verified for this request; raises `LookupError`."""
    inquiry: Inquiry | None = scope.get("state", {}).get(_INQUIRY)
    if inquiry is None:
        raise LookupError(f"no verified inquiry: {scope.get('path')} is not a guarded path")
    return inquiry


async def _chunks(receive: Receive) -> AsyncIterator[bytes]:
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise SenderLeft
        yield message.get("body", b"")
        if not message.get("more_body", False):
            return


def _replay(body: bytes, receive: Receive) -> Receive:
    """Return a `receive` that yields the body already read, then the server's messages."""
    pending: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replayed() -> Message:
        return pending.pop() if pending else await receive()

    return replayed


async def _send(problem: Problem, send: Send) -> None:
    answer = problem.answer()
    headers = [(name.encode(), value.encode()) for name, value in answer.headers.items()]
    length = (b"content-length", str(len(answer.body)).encode())
    await send(
        {
            "type": "http.response.start",
            "status": answer.status,
            "headers": [*headers, length],
        }
    )
    await send({"type": "http.response.body", "body": answer.body})
