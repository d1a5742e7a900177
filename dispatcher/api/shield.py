"""What holds for every request and answer: names, sizes, headers."""

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
"""A name or an address, and a port. Anything else would be read as a part of the address that was
asked for: a path, or a name in front of another host."""

BODY_SECONDS = 15.0
"""A body that takes longer to come is waited for no longer."""


CLOSE = {"Connection": "close"}
"""What is left of such a request is not read."""


class Shield:
    """ASGI middleware, the outermost one."""

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
                "this server is not known by that name. Nothing was changed; name it with"
                " --name where it is started.",
            )
            await refusal(scope, receive, answer)
        elif "transfer-encoding" in headers and "content-length" in headers:
            # A proxy may end this request elsewhere than we do, and take the rest for another's.
            refusal = problem(
                HTTPStatus.BAD_REQUEST,
                "the request says its length twice. Nothing was changed; send it with one.",
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
    """Return what receives a body, as long as it is not too large and not too slow.

    What it raises is an HTTPException, because the framework takes any other error in the middle
    of a body for a fault in the JSON.
    """
    taken, whole = 0, False
    deadline = asyncio.get_running_loop().time() + BODY_SECONDS

    async def limited() -> Message:
        nonlocal taken, whole
        if whole:  # what comes now is the end of the connection, which may take for ever
            return await receive()
        try:
            async with asyncio.timeout_at(deadline):
                message = await receive()
        except TimeoutError:
            raise HTTPException(
                HTTPStatus.REQUEST_TIMEOUT,
                f"the request did not come within {BODY_SECONDS:.0f} s. Nothing was changed; send"
                " it again.",
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
        f"a request has at most {BODY_BYTES_MAX:,} bytes. Nothing was changed.",
        CLOSE,
    )
