"""Entries: a filtered list, and one entry from its batch to its receipts."""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from http import HTTPStatus
from typing import Annotated, Any, NamedTuple

from fastapi import APIRouter, Depends, Path, Request
from fastapi.responses import Response
from starlette.exceptions import HTTPException

from holdfast.dispatcher.api import bodies
from holdfast.dispatcher.api.console.frame.guard import Login, Person
from holdfast.dispatcher.api.console.frame.pages import page
from holdfast.dispatcher.api.console.frame.screens import SHOWN, wants_bodies
from holdfast.dispatcher.api.console.rendering.filters import counted, link, words
from holdfast.dispatcher.api.requests import no_others
from holdfast.dispatcher.api.routes.why import CachedTrace, explaining
from holdfast.dispatcher.operators.common.text import between
from holdfast.dispatcher.operators.endpoints.store import Endpoints
from holdfast.dispatcher.operators.entries.rules import key_of
from holdfast.dispatcher.operators.entries.store import Entries
from holdfast.dispatcher.operators.why.rules import AT_REST, Verdict
from holdfast.dispatcher.operators.why.store import EndpointAnswer
from holdfast.dispatcher.outbound.operator_headers import joined
from holdfast.dispatcher.outbound.request import Composer, Headers
from holdfast.sink.contract.money import money
from holdfast.sink.contract.shell import shell_word
from holdfast.sink.contract.states import AccessRole, EnvelopeStyle
from holdfast.sink.contract.wire import WEBHOOK_SIGNATURE, WEBHOOK_TIMESTAMP

Row = dict[str, Any]


class Step(NamedTuple):
    """A step of the timeline. `gap` is the signed time since the step before, or ""."""

    at: datetime | None
    gap: str
    what: str
    tone: str
    detail: str


class Timeline(NamedTuple):
    """The steps at one endpoint; those before any endpoint have no name."""

    endpoint: str | None
    steps: list[Step]


MINOR = "_minor"

ALL_SHOWN_MAX = 5
"""Of more attempts than this, only the first and the newest are shown."""

NEWEST_SHOWN = 3

TONES = {
    "delivered": "good",
    "failed": "bad",
    "rejected": "bad",
    "gone": "bad",
    "refused": "bad",
    "unknown": "warn",
    "throttled": "wait",
}


def timelines(trace: Row) -> list[Timeline]:
    """Return the steps of a `Trace.trace`: first those up to routing, then each endpoint's."""
    entry, batch = trace["entry"], trace["batch"]
    steps: list[Step] = []
    _add(steps, entry["occurred_at"], "decided", "idle", "by the job, in event time")
    _add(
        steps,
        batch["written_at"],
        "written",
        "good",
        f"by batch {batch['batch_id']} of stream {batch['stream']}, in one transaction with"
        f" {counted(batch['entry_count'], 'entry', 'entries')}",
    )
    if batch["routed_at"] is None:
        steps.append(Step(None, "", "routed", "wait", "waits for a dispatcher"))
    else:
        _add(steps, batch["routed_at"], "routed", "good", "to the lanes of its endpoints")
    begun = batch["routed_at"] or batch["written_at"]
    return [
        Timeline(None, steps),
        *(
            Timeline(each["endpoint"], _attempts(each["attempts"], begun))
            for each in trace["endpoints"]
        ),
    ]


def decided(decision: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return names and values of a decision; amounts with their currency, if known.

    >>> decided({"limit_minor": 5_000_000, "currency": "USD"})
    [('limit', '50,000.00 USD'), ('currency', 'USD')]
    """
    currency = decision.get("currency")
    detail = []
    for name, value in decision.items():
        if name.endswith(MINOR) and type(value) is int and isinstance(currency, str):
            detail.append((words(name.removesuffix(MINOR)), money(value, currency)))
        else:
            detail.append((words(name), value if isinstance(value, str) else json.dumps(value)))
    return detail


def _attempts(rows: list[Row], begun: datetime) -> list[Step]:
    steps: list[Step] = []
    left_out = rows[1:-NEWEST_SHOWN] if len(rows) > ALL_SHOWN_MAX else []
    for row in rows:
        if row in left_out:
            if row is left_out[-1]:
                said_so = f"{len(left_out)} further attempts"
                _add(steps, row["finished_at"], said_so, "idle", "all are listed below")
            continue
        detail = [f"HTTP {row['status']}"] if row["status"] is not None else []
        detail += [f"took {row['duration_ms']} ms"] if row["duration_ms"] is not None else []
        detail += [row["error"]] if row["error"] else []
        what = f"attempt {row['number']}: {row['outcome']}"
        tone = TONES.get(row["outcome"], "idle")
        _add(steps, row["finished_at"], what, tone, ", ".join(detail), begun)
        receipt = row["receipt"]
        if receipt is not None:
            applied = _moment(receipt.get("applied_at"))
            said_so = f"{receipt.get('outcome')}, by the receiver's clock"
            _add(steps, applied, "receipt", "good", said_so)
    return steps


def _add(
    steps: list[Step],
    at: datetime | None,
    what: str,
    tone: str,
    detail: str,
    begun: datetime | None = None,
) -> None:
    before = next((each.at for each in reversed(steps) if each.at is not None), begun)
    gap = between(before, at) if before is not None and at is not None else ""
    steps.append(Step(at, gap, what, tone, detail))


def _moment(text: Any) -> datetime | None:
    """Parse a receiver's time; None if it is not one or has no zone."""
    try:
        moment = datetime.fromisoformat(str(text))
    except ValueError:
        return None
    return moment if moment.tzinfo is not None else None


router = APIRouter(dependencies=[Depends(no_others)])

KeyText = Annotated[str, Path(max_length=64)]


def operating(person: Person) -> Login:
    """Return the login of an operator; raises 403 for a viewer."""
    if not person.may(AccessRole.OPERATOR):
        raise HTTPException(
            HTTPStatus.FORBIDDEN,
            f"this requires the role operator; {person.session.holder.name} is a viewer. Nothing"
            " was changed.",
        )
    return person


@router.get("/entries/{key}")
def show_entry(request: Request, person: Person, key: KeyText, body: str = "") -> Response:
    """Show one entry: its explanation, timeline and attempts; its body on demand."""
    wanted, asked = key_of(key), wants_bodies(request, person, body)
    with explaining(person.session, CachedTrace) as store:
        store.shows_answers = asked
        explained = store.explain_key(wanted, "")
        if explained.entry is None:
            unknown = explained.verdict is Verdict.UNKNOWN
            return page(
                request,
                person,
                "decisions/entry_unknown.html",
                status=404 if unknown else 200,
                key=wanted.text,
                answer=explained.answer,
            )
        found = store.trace(wanted, body=asked)
    if asked:
        bodies.note(person.session, "entry.read", wanted.text)
    return page(
        request,
        person,
        "decisions/entry.html",
        key=wanted.text,
        entry=found["entry"],
        batch=found["batch"],
        decided=decided(found["entry"]["decision"]),
        answers=explained.at_endpoints,
        notes=explained.notes,
        ways=timelines(found),
        tried=found["endpoints"],
        older_attempts=found["older_attempts"],
        acts=person.may(AccessRole.OPERATOR),
        cancellable=_cancellable(explained.at_endpoints),
        asked=asked,
        with_body=link(f"/entries/{wanted.text}", body=SHOWN),
        with_request=link(f"/entries/{wanted.text}/curl", body=SHOWN),
    )


def _cancellable(answers: Sequence[EndpointAnswer]) -> list[str]:
    """Return the endpoints at which nothing of an entry was begun, and that get it otherwise."""
    return [
        each.endpoint
        for each in answers
        if not each.facts["attempts"] and each.answer.verdict not in (*AT_REST, Verdict.SENDING)
    ]


@router.get("/entries/{key}/curl")
def show_request(
    request: Request, person: Annotated[Login, Depends(operating)], key: KeyText, body: str = ""
) -> Response:
    """Show an entry's request to each endpoint as a `curl` command, on demand."""
    wanted, asked = key_of(key), wants_bodies(request, person, body)
    with person.session.open(Entries) as store:
        entry = store.entry(wanted)
    with person.session.open(Endpoints) as endpoints:
        copies = [
            copy_of(entry, endpoints.endpoint(each["endpoint"])) for each in entry["delivery"]
        ]
    if asked:
        bodies.note(person.session, "entry.read", wanted.text)
    return page(
        request,
        person,
        "decisions/entry_curl.html",
        key=wanted.text,
        copies=copies,
        asked=asked,
        with_request=link(f"/entries/{wanted.text}/curl", body=SHOWN),
    )


LEFT_OUT = "REDACTED"
"""In place of a signature or a token, so that a receiver refuses the request as it stands."""


class Copy(NamedTuple):
    """A command that sends what the dispatcher sends to one endpoint, unsigned."""

    endpoint: str
    command: str


def copy_of(entry: Mapping[str, Any], endpoint: Mapping[str, Any]) -> Copy:
    """Return the request for a row of `Entries.entry` to an endpoint as a `curl` command."""
    custom: Headers = tuple((name, LEFT_OUT) for name in sorted(joined(endpoint)))
    composer = Composer("holdfast", EnvelopeStyle(endpoint["envelope"]), custom)
    request = composer.compose(
        key=entry["key"],
        subject_id=entry["subject_id"],
        timestamp=0,
        signature=f"v1,{LEFT_OUT}",
        traceparent=entry["traceparent"],
        body=entry["body"].encode(),
        subject=entry["subject"],
    )
    return Copy(endpoint["name"], _curl(endpoint["url"], request.headers, entry["body"]))


def _curl(url: str, headers: Headers, body: str) -> str:
    left_out = {WEBHOOK_TIMESTAMP: LEFT_OUT, WEBHOOK_SIGNATURE: f"v1,{LEFT_OUT}"}
    lines = [f"curl --request POST {shell_word(url)}"]
    lines += [
        f"  --header {shell_word(f'{name}: {left_out.get(name, value)}')}"
        for name, value in headers
    ]
    lines.append(f"  --data-raw {shell_word(body)}")
    return " \\\n".join(lines)
