"""What one test of an endpoint shows, and what to do about it. Pure.

The specimen is of a type that the protocol does not know, without a subject: a receiver that keeps
to `docs/receivers/PROTOCOL.md` (section 1) verifies it and answers with a 4xx, acting on
nothing. So `unknown_type` and `bad_data` are the best answer there is.
"""

import json
from dataclasses import dataclass

from sink.contract.exits import ExitCode
from sink.contract.states import Outcome

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
    """How long it took; None where it takes no time."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """One word, what it means, what to do (empty: nothing), and how the command ends."""

    word: str
    means: str
    advice: str
    exit_code: ExitCode


VERIFIED = frozenset({"unknown_type", "bad_data"})
"""Reasons that a receiver gives after it verified a delivery."""

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
        "its name cannot be resolved; nothing was sent",
        "check the host of --url, and the resolver of the machine that dispatches",
        ExitCode.FAILED,
    ),
    "address": Verdict(
        "address_refused",
        "our own guard refuses its address; nothing was sent, and every delivery would be refused",
        "if the address is meant: holdfast endpoint set NAME --allow-cidr CIDR --reason TEXT",
        ExitCode.FAILED,
    ),
    "connect": Verdict(
        "no_connection",
        "nothing accepts connections there; nothing was sent",
        "start the receiver; check port, firewall and --connect-timeout",
        ExitCode.FAILED,
    ),
    "tls": Verdict(
        "tls_failed",
        "the connection cannot be encrypted to somebody who is proven; nothing was sent",
        "check its certificate (name, end, authority), --ca and --client-cert",
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
    """Return the verdict on a request that was made; `receipt` as in `one_delivery`."""
    match outcome:
        case Outcome.DELIVERED:
            return _taken(receipt)
        case Outcome.REJECTED:
            return _rejected(status, reason)
        case Outcome.UNKNOWN:
            return Verdict(
                "no_answer",
                "it took the request, or a part of it, and did not answer in time",
                "see what it is doing, and --total-timeout; a delivery would be sent again",
                ExitCode.FAILED,
            )
        case Outcome.THROTTLED:
            return Verdict(
                "throttled",
                "it asks for time; whether it accepts our signature is not known",
                "try again when it has had it",
                ExitCode.DEGRADED,
            )
        case Outcome.GONE:
            return Verdict(
                "gone",
                "it says that it wants nothing any more; a delivery would disable the endpoint",
                "agree on another URL: holdfast endpoint set NAME --url URL --reason TEXT",
                ExitCode.FAILED,
            )
        case Outcome.REFUSED:
            return _UNREACHED["address"]
        case Outcome.FAILED:
            return _failed(status)


def _taken(receipt: str) -> Verdict:
    if receipt == "not genuine":
        return Verdict(
            "receipt_forged",
            "it took the delivery, and its receipt was not made with our secret",
            "find out who answers there; the secrets of both sides may differ",
            ExitCode.DEGRADED,
        )
    proof = "its receipt is genuine" if receipt == "genuine" else "it gives no receipts"
    return Verdict(
        "taken",
        f"it took a delivery of the type {TYPE}, which it cannot know; {proof}",
        "see that it answers what it cannot act on with a 4xx: a 2xx counts as done",
        ExitCode.OK,
    )


def _rejected(status: int | None, reason: str | None) -> Verdict:
    if reason in VERIFIED:
        return Verdict(
            "verified",
            "it accepts our signature, and acted on nothing, because it does not know the type"
            f" {TYPE}; that is what the protocol asks for",
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
            "its clock and this machine's are more than 300 s apart",
            "synchronise both clocks (NTP)",
            ExitCode.FAILED,
        )
    if reason in _ALTERED:
        return Verdict(
            "altered",
            f"what arrived there is not what was sent ({reason})",
            "look for a proxy in between that changes headers or bodies",
            ExitCode.FAILED,
        )
    match status:
        case 401 | 403:
            return Verdict(
                "not_let_in",
                "it does not let us in, and does not say why",
                "compare the secrets, and the tokens that it wants in --header",
                ExitCode.FAILED,
            )
        case 404 | 405:
            return Verdict(
                "wrong_path",
                "nothing there takes deliveries",
                "check the path of --url",
                ExitCode.FAILED,
            )
        case _:
            return Verdict(
                "refused",
                "it refuses, and does not say why: it may not know the type, which is right, or"
                " not accept the signature",
                "see its log; holdfast trigger sends a type that it knows, and it acts on that",
                ExitCode.DEGRADED,
            )


def _failed(status: int | None) -> Verdict:
    if status is None:
        return Verdict(
            "not_sent",
            "no connection could be used, so nothing was sent",
            "try again; if it stays so, see the error above",
            ExitCode.FAILED,
        )
    if 300 <= status <= 399:
        return Verdict(
            "redirected",
            "it sends us elsewhere, and redirects are never followed",
            "set --url to where it wants deliveries",
            ExitCode.FAILED,
        )
    return Verdict(
        "failing",
        "it fails; a delivery would be sent again",
        "see its log; whether it accepts our signature is not known",
        ExitCode.FAILED,
    )
