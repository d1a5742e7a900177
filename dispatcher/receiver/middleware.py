"""ASGI middleware: the application sees verified deliveries and nothing else on the guarded paths.

Plain ASGI 3, so it fits any framework. A verified `Delivery` is put into the scope's state
(`delivery_of(scope)`); everything else is answered here with a JSON problem and never reaches the
application. Other paths pass through untouched.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, MutableMapping, Sequence
from typing import Any

from dispatcher.receiver.errors import VerificationError
from dispatcher.receiver.problem import Problem
from dispatcher.receiver.secret import Secret
from dispatcher.receiver.verify import Delivery, verify
from sink.contract.envelope import BODY_BYTES_MAX
from sink.contract.failpoints import failpoint

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

BODY_SECONDS_MAX = 10.0
POLICY_VIOLATION = 1008
"""The WebSocket close code (RFC 6455) for a path that takes no sockets."""

_STATE_KEY = "holdfast_delivery"
_log = logging.getLogger(__name__)


class VerifyDeliveries:
    """Guard `paths` of `app`: POST only, a bounded body, a valid signature by one of `secrets`.

    A body beyond `body_bytes_max` is answered 413, one that is not complete after
    `body_seconds_max` 408, and what `verify` refuses 400 or 401.
    """

    def __init__(
        self,
        app: App,
        *,
        secrets: Sequence[Secret],
        paths: Iterable[str] = ("/webhooks",),
        body_bytes_max: int = BODY_BYTES_MAX,
        body_seconds_max: float = BODY_SECONDS_MAX,
    ) -> None:
        if not secrets:
            raise ValueError("a receiver without a secret can verify nothing")
        self._app = app
        self._secrets = tuple(secrets)
        self._paths = frozenset(paths)
        self._body_bytes_max = body_bytes_max
        self._body_seconds_max = body_seconds_max

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan" or scope.get("path") not in self._paths:
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": POLICY_VIOLATION})
            return
        match await self._read(scope, receive):
            case Delivery() as delivery:
                failpoint("R1")
                state = {**scope.get("state", {}), _STATE_KEY: delivery}
                await self._app({**scope, "state": state}, _replay(delivery.raw, receive), send)
            case Problem() as problem:
                _log.info("refused a request: %s", problem.reason)
                await _send(problem, send)
            case None:
                return

    async def _read(self, scope: Scope, receive: Receive) -> Delivery | Problem | None:
        """Return the delivery, or what is wrong with it; None when the sender left half way."""
        if scope["method"] != "POST":
            return Problem(405, "method_not_allowed", "deliveries are sent with POST")
        headers = list(scope["headers"])
        if _declared_bytes(headers) > self._body_bytes_max:
            return self._too_large()
        try:
            async with asyncio.timeout(self._body_seconds_max):
                body = await self._body(receive)
        except TimeoutError:
            seconds = f"{self._body_seconds_max:g}"
            return Problem(408, "slow_body", f"the body was not complete after {seconds} s")
        if not isinstance(body, bytes):
            return body
        try:
            return verify(headers, body, self._secrets)
        except VerificationError as error:
            return Problem(error.status, error.reason, error.detail)

    async def _body(self, receive: Receive) -> bytes | Problem | None:
        body = bytearray()
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                return None
            body += message.get("body", b"")
            if len(body) > self._body_bytes_max:
                return self._too_large()
            if not message.get("more_body", False):
                return bytes(body)

    def _too_large(self) -> Problem:
        return Problem(413, "body_too_large", f"a body has at most {self._body_bytes_max} bytes")


def delivery_of(scope: Scope) -> Delivery:
    """Return the delivery that the middleware verified for this request.

    Raises `LookupError` on a path that the middleware does not guard.
    """
    found: Delivery | None = scope.get("state", {}).get(_STATE_KEY)
    if found is None:
        raise LookupError(f"no verified delivery: {scope.get('path')} is not a guarded path")
    return found


def _declared_bytes(headers: Iterable[tuple[bytes, bytes]]) -> int:
    """Return the length that the sender declares; bytes that arrive are counted all the same."""
    values = [value for name, value in headers if name.lower() == b"content-length"]
    return max((int(value[:20]) for value in values if value.isdigit()), default=0)


def _replay(body: bytes, receive: Receive) -> Receive:
    """Give the application the body that was read here, then whatever the server says next."""
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
