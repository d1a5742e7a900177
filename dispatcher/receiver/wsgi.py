"""A WSGI application that receives deliveries, to mount at their path.

The WSGI server limits the time to read a body. It also joins repeated headers with a comma. No
other header of a delivery contains a comma; a signature next to such a comma is refused. If the
neighbour is not a signature (`v1` joined with `v1,AAA=`), they look like one field.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from http import HTTPStatus
from typing import Any

from holdfast.receiver.handling import Deal, Look, handle, handle_inquiry
from holdfast.receiver.message.body_reading import too_large
from holdfast.receiver.message.problem import Problem
from holdfast.receiver.message.receipt import Answer
from holdfast.receiver.message.secret import Secret
from holdfast.sink.contract.envelope import BODY_BYTES_MAX

Environ = Mapping[str, Any]
StartResponse = Callable[[str, list[tuple[str, str]]], Any]

_LENGTH_DIGITS_MAX = 18
_HOP_BY_HOP = "connection"
"""A WSGI application must not send it (PEP 3333); the server closes an unread connection."""


class DeliveriesApp:
    """Answers `path` with `deal` and paths below `inquiries` with `look`; others get 404."""

    def __init__(
        self,
        secrets: Sequence[Secret],
        deal: Deal,
        *,
        path: str = "/webhooks",
        look: Look | None = None,
        inquiries: str = "/holdfast/keys/",
        body_bytes_max: int = BODY_BYTES_MAX,
    ) -> None:
        if not secrets:
            raise ValueError("pass at least one secret: without one nothing can be verified")
        self._secrets = tuple(secrets)
        self._deal = deal
        self._path = path
        self._look = look
        self._inquiries = inquiries
        self._body_bytes_max = body_bytes_max

    def __call__(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        answer = self._answer(environ)
        status = HTTPStatus(answer.status)
        headers = {name: value for name, value in answer.headers.items() if name != _HOP_BY_HOP}
        headers["content-length"] = str(len(answer.body))
        start_response(f"{status.value} {status.phrase}", list(headers.items()))
        return [answer.body]

    def _answer(self, environ: Environ) -> Answer:
        path, method = environ.get("PATH_INFO", ""), environ["REQUEST_METHOD"]
        fields = dict(headers_of(environ))
        if path == self._path:
            body = read_body(environ, self._body_bytes_max)
            if isinstance(body, Problem):
                return body.answer()
            return handle(
                fields,
                body,
                self._secrets,
                self._deal,
                method=method,
                body_bytes_max=self._body_bytes_max,
            )
        if self._look is not None and path.startswith(self._inquiries):
            if method != "GET":
                text = "send inquiries with GET"
                return Problem(405, "method_not_allowed", text, allow="GET").answer()
            body = read_body(environ, self._body_bytes_max)
            if isinstance(body, Problem):
                return body.answer()
            key = path.removeprefix(self._inquiries)
            return handle_inquiry(fields, key, self._secrets, self._look, body=body)
        return Problem(404, "unknown_path", "this path accepts no deliveries").answer()


def headers_of(environ: Environ) -> Iterator[tuple[str, str]]:
    """Yield the request's header fields."""
    for name, value in environ.items():
        if name.startswith("HTTP_"):
            yield name[5:].replace("_", "-"), value


def read_body(environ: Environ, bytes_max: int = BODY_BYTES_MAX) -> bytes | Problem:
    """Return the body, of its declared length; 413 for more than `bytes_max`.

    A body without a length is read to its end if the server marks the end
    (`wsgi.input_terminated`). Otherwise a chunked body is answered 411: read as empty, the delivery
    would be refused permanently.
    """
    declared = environ.get("CONTENT_LENGTH")
    if not declared:
        if environ.get("wsgi.input_terminated"):
            return _to_the_end(environ["wsgi.input"], bytes_max)
        if environ.get("HTTP_TRANSFER_ENCODING"):
            return Problem(411, "length_required", "this server needs a Content-Length")
        return b""
    if not (declared.isascii() and declared.isdigit()):
        return Problem(400, "bad_header", "content-length is not a number")
    if len(declared) > _LENGTH_DIGITS_MAX or int(declared) > bytes_max:
        return too_large(bytes_max)
    body: bytes = environ["wsgi.input"].read(int(declared))
    return body


def _to_the_end(stream: Any, bytes_max: int) -> bytes | Problem:
    body = bytearray()
    while part := stream.read(bytes_max + 1 - len(body)):
        body += part
        if len(body) > bytes_max:
            return too_large(bytes_max)
    return bytes(body)
