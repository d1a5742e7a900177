"""Checks of every request (host, size, time) and headers of every response."""

import asyncio
import re
from http import HTTPStatus

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dispatcher.api.problems import problem
from dispatcher.api.settings import BODY_BYTES_MAX, ApiSettings

HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src"
        " 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
HTTPS_ONLY = "max-age=31536000"


HOST = re.compile(r"(?:\[(?P<v6>[0-9a-fA-F:.]+)\]|(?P<name>[0-9a-zA-Z._-]+))(?::[0-9]{1,5})?")
"""A name or an address, and an optional port. Anything else could be taken for another part of the
requested URL: a path, or a user name in front of another host.
"""

BODY_SECONDS = 15.0
"""Time limit for the body of a request."""


CLOSE = {"Connection": "close"}
"""Sent where the rest of the request is not read."""


class Shield:
    """ASGI middleware outside all routes."""

    def __init__(self, app: ASGIApp, settings: ApiSettings) -> None:
        self._app = app
        names = ("localhost", "127.0.0.1", "::1", settings.host, *settings.names)
        self._names = {name.lower() for name in names}
        self._headers = dict(HEADERS)
        if settings.behind_proxy:
            self._headers["Strict-Transport-Security"] = HTTPS_ONLY

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def answer(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in self._headers.items():
                    headers.setdefault(name, value)
            await send(message)

        headers = Headers(scope=scope)
        if not self._is_ours(headers.get("host", "")):
            refusal = problem(
                HTTPStatus.MISDIRECTED_REQUEST,
                "this server is not known under that host name. Nothing was changed; add it with"
                " --name where the server is started.",
            )
            await refusal(scope, receive, answer)
        elif "transfer-encoding" in headers and "content-length" in headers:
            # A proxy may see another end of this request, and take the rest for the next one
            # (request smuggling).
            refusal = problem(
                HTTPStatus.BAD_REQUEST,
                "the request has both Content-Length and Transfer-Encoding. Nothing was changed;"
                " send one of them.",
                headers=CLOSE,
            )
            await refusal(scope, receive, answer)
        elif _declared(headers) > BODY_BYTES_MAX:
            refused = _too_large()
            refusal = problem(refused.status_code, refused.detail, headers=CLOSE)
            await refusal(scope, receive, answer)
        else:
            await self._app(scope, _limited(receive), answer)

    def _is_ours(self, host: str) -> bool:
        found = HOST.fullmatch(host)
        return found is not None and (found["v6"] or found["name"].lower()) in self._names


def _declared(headers: Headers) -> int:
    given = headers.get("content-length", "0")
    return int(given) if given.isascii() and given.isdigit() and len(given) < 19 else 0


def _limited(receive: Receive) -> Receive:
    """Return a `receive` that limits the size of a body and the time it may take.

    It raises HTTPException, because the framework reports any other error within a body as invalid
    JSON.
    """
    taken, whole = 0, False
    deadline = asyncio.get_running_loop().time() + BODY_SECONDS

    async def limited() -> Message:
        nonlocal taken, whole
        if whole:  # the next message is the disconnect, which has no time limit
            return await receive()
        try:
            async with asyncio.timeout_at(deadline):
                message = await receive()
        except TimeoutError:
            raise HTTPException(
                HTTPStatus.REQUEST_TIMEOUT,
                f"the request did not arrive within {BODY_SECONDS:.0f} s. Nothing was changed;"
                " send it again.",
                CLOSE,
            ) from None
        whole = not message.get("more_body", False)
        taken += len(message.get("body", b""))
        if taken > BODY_BYTES_MAX:
            raise _too_large()
        return message

    return limited


def _too_large() -> HTTPException:
    return HTTPException(
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
        f"the request body is larger than {BODY_BYTES_MAX:,} bytes. Nothing was changed.",
        CLOSE,
    )
