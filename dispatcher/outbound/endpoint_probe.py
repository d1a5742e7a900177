"""The verdict on one test of an endpoint, with advice. Pure.

The sample delivery has a type that the protocol does not define. A receiver that follows
`docs/receivers/PROTOCOL.md` (section 1) verifies it, acts on nothing and answers with a 4xx. So
`unknown_type` and `bad_data` are the best answers.
"""

import json
from dataclasses import dataclass

from holdfast.dispatcher.shared.outcome import CREDENTIALS_REFUSED
from holdfast.sink.contract.exits import ExitCode
from holdfast.sink.contract.states import Outcome

TYPE = "holdfast.test"

DONE, FAILED = "done", "failed"


@dataclass(frozen=True, slots=True)
class Reached:
    """A step on the way to the receiver: `dns`, `address`, `connect` or `tls`."""

    name: str
    end: str
    """`done` or `failed`."""
    detail: str
    ms: float | None = None
    """Duration; None for a step that takes no time."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """A code, its meaning, advice (empty: none needed), and the command's exit code."""

    word: str
    means: str
    advice: str
    exit_code: ExitCode


VERIFIED = frozenset({"unknown_type", "bad_data"})
"""Reasons of a receiver that has verified the delivery."""

_CLOCK = frozenset({"too_old", "too_new"})
_ALTERED = frozenset(
    {
        *("duplicate_header", "bad_header", "missing_header", "encoded_body", "bad_id"),
        *("bad_timestamp", "too_many_signatures", "bad_signature", "bad_body", "key_mismatch"),
        *("body_too_large", "slow_body"),
    }
)

_UNREACHED = {
    "dns": Verdict(
        "name_unknown",
        "its host name cannot be resolved; nothing was sent",
        "check the host of --url, and the DNS resolver of the machine that runs the dispatcher",
        ExitCode.FAILED,
    ),
    "address": Verdict(
        "address_refused",
        "our own guard refuses its address; nothing was sent, and every delivery would be refused",
        "if the address is right: holdfast endpoint set NAME --allow-cidr CIDR --reason TEXT",
        ExitCode.FAILED,
    ),
    "connect": Verdict(
        "no_connection",
        "nothing accepts connections at its address; nothing was sent",
        "start the receiver; check port, firewall and --connect-timeout",
        ExitCode.FAILED,
    ),
    "tls": Verdict(
        "tls_failed",
        "the TLS handshake failed; nothing was sent",
        "check its certificate (name, expiry, authority), --ca and --client-cert",
        ExitCode.FAILED,
    ),
}


def unreached(steps: list[Reached]) -> Verdict | None:
    """Return the verdict of the step that failed, or None."""
    return next((_UNREACHED[step.name] for step in steps if step.end == FAILED), None)


def reason_of(body: str | None) -> str | None:
    """Return the `reason` of a problem (RFC 9457), or None."""
    try:
        content = json.loads(body or "")
    except (ValueError, RecursionError):
        return None
    reason = content.get("reason") if isinstance(content, dict) else None
    return reason if isinstance(reason, str) and reason.isprintable() else None


def judge(outcome: Outcome, status: int | None, reason: str | None, receipt: str) -> Verdict:
    """Return the verdict on a request that was sent; `receipt` as in `one_delivery`."""
    match outcome:
        case Outcome.DELIVERED:
            return _accepted(receipt)
        case Outcome.REJECTED:
            return _rejected(status, reason)
        case Outcome.UNKNOWN:
            return Verdict(
                "no_answer",
                "it received the request, or a part of it, and did not answer in time",
                "check the receiver, and --total-timeout; a delivery would be sent again",
                ExitCode.FAILED,
            )
        case Outcome.THROTTLED:
            return Verdict(
                "throttled",
                "it throttles requests; whether it accepts our signature is unknown",
                "try again later",
                ExitCode.DEGRADED,
            )
        case Outcome.GONE:
            return Verdict(
                "gone",
                "it answers 410 Gone; a delivery would disable the endpoint",
                "agree on another URL: holdfast endpoint set NAME --url URL --reason TEXT",
                ExitCode.FAILED,
            )
        case Outcome.REFUSED:
            return _UNREACHED["address"]
        case Outcome.FAILED if status in CREDENTIALS_REFUSED:
            return _rejected(status, reason)
        case Outcome.FAILED:
            return _failed(status)


def _accepted(receipt: str) -> Verdict:
    if receipt == "not genuine":
        return Verdict(
            "receipt_forged",
            "it accepted the delivery, and its receipt was not made with our secret",
            "find out which service answers; the secrets of both sides may differ",
            ExitCode.DEGRADED,
        )
    proof = "its receipt is genuine" if receipt == "genuine" else "it gives no receipts"
    return Verdict(
        "taken",
        f"it accepted a delivery of the type {TYPE}, which it cannot know; {proof}",
        "have it answer an unknown type with a 4xx: a 2xx counts as delivered",
        ExitCode.OK,
    )


def _rejected(status: int | None, reason: str | None) -> Verdict:
    if reason in VERIFIED:
        return Verdict(
            "verified",
            "it accepts our signature, and acted on nothing, because it does not know the type"
            f" {TYPE}, as the protocol requires",
            "",
            ExitCode.OK,
        )
    if reason == "no_match":
        return Verdict(
            "secret_differs",
            "it does not accept our signature: it has another secret",
            "compare both secrets by holdfast sign and verify, or rotate-secret",
            ExitCode.FAILED,
        )
    if reason in _CLOCK:
        return Verdict(
            "clocks_differ",
            "its clock and the database's, which signs deliveries, differ by more than 300 s",
            "synchronise both clocks (NTP)",
            ExitCode.FAILED,
        )
    if reason in _ALTERED:
        return Verdict(
            "altered",
            f"it received something else than was sent ({reason})",
            "find the proxy between that changes headers or bodies",
            ExitCode.FAILED,
        )
    match status:
        case 401 | 403 | 407:
            return Verdict(
                "not_let_in",
                "it denies access without a reason",
                "compare the secrets, and the tokens that it requires in --header",
                ExitCode.FAILED,
            )
        case 404 | 405:
            return Verdict(
                "wrong_path",
                "nothing accepts deliveries at this path",
                "check the path of --url",
                ExitCode.FAILED,
            )
        case _:
            return Verdict(
                "refused",
                "it refuses without a reason: it may not know the type, which is right, or not"
                " accept the signature",
                "see its log; holdfast trigger sends a type that it knows and acts on",
                ExitCode.DEGRADED,
            )


def _failed(status: int | None) -> Verdict:
    if status is None:
        return Verdict(
            "not_sent",
            "no connection could be used; nothing was sent",
            "try again; if it persists, see the error above",
            ExitCode.FAILED,
        )
    if 300 <= status <= 399:
        return Verdict(
            "redirected",
            "it redirects, and redirects are never followed",
            "set --url to the final address",
            ExitCode.FAILED,
        )
    return Verdict(
        "failing",
        "it fails; a delivery would be sent again",
        "see its log; whether it accepts our signature is unknown",
        ExitCode.FAILED,
    )
