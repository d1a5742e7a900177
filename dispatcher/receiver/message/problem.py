"""Problem answers (RFC 9457) for every request that is not accepted, and errors that carry one."""

import json
from dataclasses import dataclass

from holdfast.receiver.errors import ReceiverError
from holdfast.receiver.message.receipt import RETRY_AFTER_SECONDS, Answer

_TITLES = {
    400: "Malformed delivery",
    401: "Not authenticated",
    404: "Not known",
    405: "Method not allowed",
    408: "Request timeout",
    411: "Length required",
    413: "Body too large",
    422: "Not understood",
    500: "Internal error",
    503: "Not available",
}


@dataclass(frozen=True, slots=True)
class Problem:
    """`reason` is a stable code for programs, `detail` one line for people."""

    status: int
    reason: str
    detail: str
    allow: str = "POST"
    """The allowed method, for a 405."""

    def answer(self) -> Answer:
        """Compose the answer, with the headers that its status requires."""
        content = {
            "type": "about:blank",
            "title": _TITLES.get(self.status, "Refused"),
            "status": self.status,
            "detail": self.detail,
            "reason": self.reason,
        }
        headers = {"content-type": "application/problem+json", "cache-control": "no-store"}
        match self.status:
            case 401:
                headers["www-authenticate"] = "StandardWebhooks"
            case 405:
                headers["allow"] = self.allow
            case 408 | 411 | 413:
                # The body is not read to its end, so the connection cannot be reused.
                headers["connection"] = "close"
            case 503:
                headers["retry-after"] = str(RETRY_AFTER_SECONDS)
        return Answer(self.status, headers, json.dumps(content, separators=(",", ":")).encode())


class Refused(ReceiverError):
    """The service permanently refuses a genuine delivery: answered 400; it needs a person."""

    def __init__(self, reason: str, detail: str, status: int = 400) -> None:
        super().__init__(f"{reason}: {detail}")
        self.problem = Problem(status, reason, detail)


class BadData(Refused):
    """`data` lacks a member, or has it in another form than the service needs: answered 422."""

    def __init__(self, detail: str) -> None:
        super().__init__("bad_data", detail, 422)


def unknown_key() -> Answer:
    """Answer an inquiry about an unknown key.

    It is not signed: the sender may only conclude that it should send the delivery again.
    """
    return Problem(404, "unknown_key", "no delivery with this key was handled").answer()
