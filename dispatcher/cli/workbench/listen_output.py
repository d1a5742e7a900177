"""What `holdfast listen` prints: its URL, each arrival and the report, as text and as JSON. Pure.

All text from the wire passes through `visible`, so that it cannot control the terminal.
"""

from collections.abc import Mapping
from dataclasses import asdict
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from holdfast.dispatcher.cli.output import visible
from holdfast.dispatcher.workbench.listen.record import REFUSED, Arrival, Report
from holdfast.sink.contract.canonical import rfc3339
from holdfast.sink.contract.money import money
from holdfast.sink.contract.shell import shell_word

MEMBERS_MAX = 16
VALUE_CHARACTERS_MAX = 80
NAME_CHARACTERS_MAX = 40
INDENT = " " * 10
_MINOR = "_minor"
_CURRENCY_CHARACTERS = 3


def arrival_text(arrival: Arrival) -> str:
    """Return an arrival as one line, with a second line for its data."""
    at = arrival.at.strftime("%H:%M:%S")
    answered = "cut" if arrival.status is None else str(arrival.status)
    if arrival.outcome == REFUSED:
        why = visible(f"{arrival.reason}: {arrival.detail}")
        return f"{at}  {REFUSED:<11} {answered}  {why}  ({arrival.bytes} bytes)"
    subject = _short(arrival.subject or "(no subject)", NAME_CHARACTERS_MAX)
    head = (
        f"{at}  {arrival.outcome:<11} {answered}  {_short(arrival.type or '', 128)}  {subject}"
        f"  sequence {arrival.sequence}  {arrival.key}"
    )
    members = data_text(arrival.data)
    return f"{head}\n{INDENT}{members}" if members else head


def data_text(data: Mapping[str, Any]) -> str:
    """Return the members of `data` in one line, amounts in major currency units.

    >>> data_text({"currency": "USD", "exposure_minor": 8500000, "revision": 1})
    'exposure 85,000.00 USD, revision 1'
    """
    currency = data.get("currency")
    known = isinstance(currency, str) and len(currency) == _CURRENCY_CHARACTERS
    members = []
    for name, value in data.items():
        if known and name == "currency" and any(_is_amount(*pair) for pair in data.items()):
            continue
        if known and _is_amount(name, value):
            amount = visible(money(value, str(currency)))
            members.append(f"{_named(name.removesuffix(_MINOR))} {amount}")
        else:
            members.append(f"{_named(name)} {_short(_plain(value), VALUE_CHARACTERS_MAX)}")
    more = len(members) - MEMBERS_MAX
    return ", ".join(members[:MEMBERS_MAX]) + (f", and {more} more" if more > 0 else "")


def arrival_json(arrival: Arrival) -> dict[str, Any]:
    """Return an arrival as the JSON line of `--json`; times are RFC 3339."""
    members: dict[str, Any] = {
        "event": "arrival",
        "number": arrival.number,
        "at": rfc3339(arrival.at),
        "outcome": arrival.outcome,
        "status": arrival.status,
        "bytes": arrival.bytes,
    }
    if arrival.outcome == REFUSED:
        return members | {"reason": arrival.reason, "detail": arrival.detail}
    return members | {
        "type": arrival.type,
        "subject": arrival.subject,
        "sequence": arrival.sequence,
        "key": arrival.key,
        "timestamp": rfc3339(arrival.timestamp) if arrival.timestamp else None,
        "data": dict(arrival.data),
    }


def report_json(report: Report) -> dict[str, Any]:
    """Return the report as the last JSON line of `--json`."""
    shown = asdict(report)
    shown["missing_shown"] = [
        {"subject": subject, "sequence": sequence} for subject, sequence in report.missing_shown
    ]
    return {"event": "report", "degraded": report.degraded, **shown}


def report_text(report: Report) -> str:
    """Return the report as lines of a count and its meaning. Five always show; others if not 0."""
    rows = [
        (report.attempted, "attempted: requests received"),
        (report.acknowledged, "acknowledged: distinct keys answered with 2xx"),
        (report.duplicated, "duplicated: received again with the same body, not applied again"),
        (report.lost, _lost(report)),
        (report.out_of_order, "out of order"),
    ]
    rows += [
        (count, what)
        for count, what in (
            (report.conflicting, "conflicting: a known key with a different body"),
            (report.stale, "stale: a higher sequence of the subject arrived first; not applied"),
            *((count, f"refused: {visible(why)}") for why, count in report.refused.items()),
            (report.failed_on_purpose, "failed on purpose"),
            (report.cut_on_purpose, "connections cut on purpose, after applying"),
            (report.unanswered, "not answered: the sender disconnected"),
            (report.owed, "not acknowledged yet: the sender must retry them"),
            (report.without_subject, "without a subject in data: sequences not compared"),
            (report.unexpected or 0, "not in the --expect file"),
        )
        if count
    ]
    width = max(len(f"{count:,}") for count, _ in rows)
    lines = [f"{count:>{width},}  {what}" for count, what in rows]
    return "\n".join([*lines, *_missing(report)])


def _lost(report: Report) -> str:
    if report.expected is None:
        return "lost: sequences missing between others of their subject"
    return f"lost: never acknowledged, of {report.expected:,} expected keys"


def _missing(report: Report) -> list[str]:
    lines = [f"  lost {visible(key)}" for key in report.lost_shown]
    lines += [
        f"  missing sequence {sequence} of {_short(subject, NAME_CHARACTERS_MAX)}"
        for subject, sequence in report.missing_shown
    ]
    hidden = report.missing_sequences - len(report.missing_shown)
    if report.expected is not None:
        hidden += report.lost - len(report.lost_shown)
    return [*lines, f"  and {hidden:,} more"] if hidden else lines


def _is_amount(name: str, value: Any) -> bool:
    return name.endswith(_MINOR) and type(value) is int


def _named(name: str) -> str:
    return _short(name, NAME_CHARACTERS_MAX).replace("_", " ")


def _plain(value: Any) -> str:
    match value:
        case dict():
            return f"({len(value)} members)"
        case list():
            return f"({len(value)} items)"
        case None:
            return "-"
        case bool():
            return "true" if value else "false"
        case _:
            return str(value)


def _short(text: str, most: int) -> str:
    return visible(text[:most]) + ("..." if len(text) > most else "")


SECRETS_AT_ONCE = 2
"""Maximum number of secrets of an endpoint, during rotation."""


def url_of(host: str, port: int, path: str) -> str:
    """Return the URL of `path` on this server, for a dispatcher on this machine."""
    reached = _reachable(host)[0]
    return (
        f"http://[{reached}]:{port}{path}" if ":" in reached else f"http://{reached}:{port}{path}"
    )


def add_command(url: str, host: str, references: list[str]) -> str:
    """Return the shell command that adds this receiver as an endpoint."""
    words = [
        "holdfast",
        "endpoint",
        "add",
        "listen",
        "--url",
        url,
        "--allow-cidr",
        _reachable(host)[1],
    ]
    for reference in references[:SECRETS_AT_ONCE]:
        kind, _, name = reference.partition(":")
        # The dispatcher may run in another directory, so the path is absolute.
        words += ["--secret-ref", f"file:{Path(name).resolve()}" if kind == "file" else reference]
    return " ".join(map(shell_word, words))


def ready_text(url: str, command: str, seed: int | None) -> str:
    """Return the first lines of output; `seed` is None if no fault is random."""
    chance = f" Random faults use --seed {seed}." if seed is not None else ""
    return f"listening on {url}; Ctrl-C stops it and prints the report.{chance}\n  {command}"


def _reachable(host: str) -> tuple[str, str]:
    """Return the local address of a server bound to `host`, and that address as a CIDR."""
    address = ip_address(host.partition("%")[0])
    if address.is_unspecified:
        address = ip_address("127.0.0.1" if address.version == 4 else "::1")
    return str(address), f"{address}/{address.max_prefixlen}"
