"""Checks of every request (host, caller, size, time) and headers of every response.

The caller is known before a body is read, and a request that waits for its client takes no part in
the budget of requests: clients that are slow, however many, keep nobody else from being answered.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from http import HTTPStatus

from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from holdfast.dispatcher.api.problems import problem
from holdfast.dispatcher.api.settings import BODY_BYTES_MAX, ApiSettings
from holdfast.dispatcher.shared.errors import StoreUnavailableError
from holdfast.sink.contract.numbers import is_whole

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

GRACE_SECONDS = 5.0
BYTES_PER_SECOND_MIN = 8_192
"""Minimum rate of a body, after the grace."""

STRANGER_BYTES_MAX = 65_536
"""Maximum size of the body of a caller who is not known yet: the form of the login."""

REQUESTS_MAX = 200
"""Maximum number of requests that are worked on at once; further ones wait. Those for health, and
those that wait for their client, do not count."""

PLACE_SECONDS = 5.0
"""How long a request waits for its turn before it gets 503."""

HEALTH = "/healthz/"

Authenticate = Callable[[Request], bool]
"""Returns whether a body needs no other check of its sender; raises for a caller who may send none.
"""

CLOSE = {"Connection": "close"}
"""Sent where the rest of the request is not read."""


class Shield:
    """ASGI middleware outside all routes."""

    def __init__(
        self,
        app: ASGIApp,
        settings: ApiSettings,
        authenticate: Authenticate,
        is_doubtful: Callable[[Request], bool],
    ) -> None:
        """`authenticate` is called before a body is read, in a thread.

        `is_doubtful`: the request has a token that was never right, of an address with many wrong
        ones.
        """
        self._app = app
        self._authenticate = authenticate
        self._working = 0
        self._left = asyncio.Condition()
        self._is_doubtful = is_doubtful
        self._doubtful = asyncio.Lock()
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
            async with self._waiting():
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
        elif (doubtful := await self._refused_stranger(scope)) is not None:
            await doubtful(scope, receive, answer)
        elif not (scope["path"].startswith(HEALTH) or await self._has_turn()):
            refusal = problem(
                HTTPStatus.SERVICE_UNAVAILABLE,
                f"{REQUESTS_MAX} requests are worked on. Nothing was changed; try again.",
                headers={"Retry-After": "1", **CLOSE},
            )
            await refusal(scope, receive, answer)
        else:
            self._working += 1
            try:
                await self._app(scope, self._limited(scope, receive), answer)
            finally:
                await self._leave()

    async def _refused_stranger(self, scope: Scope) -> JSONResponse | None:
        """Look a doubtful token up, one at a time; return the refusal of a wrong one.

        They wait here, for one thread, and not in the budget or for the threads of everybody else.
        """
        request = Request(scope)
        if not self._is_doubtful(request):
            return None
        try:
            async with self._doubtful:
                await run_in_threadpool(self._authenticate, request)
        except HTTPException as wrong:
            return problem(wrong.status_code, str(wrong.detail), headers=wrong.headers)
        except StoreUnavailableError:
            return None  # the route answers it
        return None

    async def _has_turn(self) -> bool:
        """Wait for a place in the budget; returns False if there is none in time."""
        try:
            async with asyncio.timeout(PLACE_SECONDS), self._left:
                await self._left.wait_for(lambda: self._working < REQUESTS_MAX)
        except TimeoutError:
            return False
        return True

    async def _leave(self) -> None:
        self._working -= 1
        async with self._left:
            self._left.notify()

    @asynccontextmanager
    async def _waiting(self) -> AsyncIterator[None]:
        """Take the request out of the budget while it waits for its client."""
        await self._leave()
        try:
            yield
        finally:
            self._working += 1

    def _limited(self, scope: Scope, receive: Receive) -> Receive:
        """Return a `receive` that knows the caller before a body is read, and limits the body.

        It limits size, time and rate. It raises HTTPException, because the framework reports any
        other error within a body as invalid JSON.
        """
        clock = asyncio.get_running_loop().time
        taken, complete, began, most = 0, False, 0.0, 0

        async def limited() -> Message:
            nonlocal taken, complete, began, most
            if complete:  # the next message is the disconnect, which has no time limit
                return await receive()
            if not most:
                most = await self._allowed(scope)
                began = clock()
            seconds = min(BODY_SECONDS, GRACE_SECONDS + taken / BYTES_PER_SECOND_MIN)
            try:
                async with self._waiting(), asyncio.timeout_at(began + seconds):
                    message = await receive()
            except TimeoutError:
                raise HTTPException(
                    HTTPStatus.REQUEST_TIMEOUT,
                    f"the request did not arrive within {BODY_SECONDS:.0f} s, or is slower than"
                    f" {BYTES_PER_SECOND_MIN:,} bytes a second. Nothing was changed; send it"
                    " again.",
                    CLOSE,
                ) from None
            complete = not message.get("more_body", False)
            taken += len(message.get("body", b""))
            if taken > most:
                raise _too_large(most)
            return message

        return limited

    async def _allowed(self, scope: Scope) -> int:
        """Return how many bytes this caller may send; raises HTTPException if none."""
        # A response that is sent from a file listens to its client too; no route reads a body here.
        if scope["method"] in ("GET", "HEAD"):
            return STRANGER_BYTES_MAX
        try:
            known = await run_in_threadpool(self._authenticate, Request(scope))
        except HTTPException as refused:
            refused.headers = {**(refused.headers or {}), **CLOSE}
            raise
        except StoreUnavailableError as away:
            raise HTTPException(
                HTTPStatus.SERVICE_UNAVAILABLE, str(away), {"Retry-After": "5", **CLOSE}
            ) from None
        return BODY_BYTES_MAX if known else STRANGER_BYTES_MAX

    def _is_ours(self, host: str) -> bool:
        match = HOST.fullmatch(host)
        return match is not None and (match["v6"] or match["name"].lower()) in self._names


def _declared(headers: Headers) -> int:
    length = headers.get("content-length", "0")
    return int(length) if is_whole(length) else 0


def _too_large(most: int = BODY_BYTES_MAX) -> HTTPException:
    return HTTPException(
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
        f"the request body is larger than {most:,} bytes. Nothing was changed.",
        CLOSE,
    )
