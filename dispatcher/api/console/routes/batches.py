"""Batches: the ledger of a stream, one batch, and a replay of it that diverged."""

from collections import Counter
from difflib import SequenceMatcher
from typing import Annotated, Any, NamedTuple
from uuid import UUID

from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import Response

from holdfast.dispatcher.api import bodies
from holdfast.dispatcher.api.console.forms.confirm import ask, reason_of
from holdfast.dispatcher.api.console.forms.fields import filled, whole_number
from holdfast.dispatcher.api.console.frame.guard import Acting, Form, Login, Person
from holdfast.dispatcher.api.console.frame.pages import page, redirect
from holdfast.dispatcher.api.console.frame.screens import ROWS, acts, older_than, wants_bodies
from holdfast.dispatcher.api.console.rendering.filters import link, pretty
from holdfast.dispatcher.api.requests import DIGITS, no_others
from holdfast.dispatcher.operators.common.person import ALONE_MAX
from holdfast.dispatcher.operators.common.text import display
from holdfast.dispatcher.operators.common.verbs import Question
from holdfast.dispatcher.operators.streams.acceptance import Acceptances, target
from holdfast.dispatcher.operators.streams.store import Streams
from holdfast.sink.contract.exits import CommandError, ExitCode
from holdfast.sink.contract.numbers import counted
from holdfast.sink.contract.source_offsets import range_lines
from holdfast.sink.contract.states import AccessRole

router = APIRouter(dependencies=[Depends(no_others)])

ROWS_COMPARED = 50
NUMBER_MAX = 2**63 - 1

BatchId = Annotated[int, Query(ge=0, le=NUMBER_MAX), DIGITS]
Admin = Annotated[Login, Depends(Acting(AccessRole.ADMIN))]

SIDES = {"only_in_replay": "new", "only_in_ledger": "missing", "changed": "changed"}
COLUMNS = ("Compared", "Key", "Subject", "Type", "Occurred at")


@router.get("/batches")
def list_batches(
    request: Request, person: Person, stream: str = "", query_id: str = "", before: str = ""
) -> Response:
    """Show the streams and the newest batches of one; of the only stream, if none is given."""
    below, checkpoint = whole_number("before", before), query_of(query_id)
    with person.session.open(Streams) as streams:
        known = streams.streams()
    name = filled(stream) or (known[0]["name"] if len(known) == 1 else None)
    rows: list[dict[str, Any]] = []
    older, meant, diverged, checkpoints = None, None, [], []
    if name is not None:
        with person.session.open(Streams) as store:
            meant, rows = store.page(name, checkpoint, limit=ROWS + 1, before=below)
            older = older_than(rows, "batch_id")
            if below is None:
                diverged, checkpoints = store.divergences(name), store.checkpoints(name)
    return page(
        request,
        person,
        "decisions/batches.html",
        streams=known,
        stream=name,
        query_id=meant,
        checkpoints=checkpoints,
        diverged=diverged,
        rows=rows,
        newest=link("/batches", stream=stream, query_id=query_id) if before else None,
        older=link("/batches", stream=name, query_id=query_id, before=older) if older else None,
    )


@router.get("/batches/show")
def show_batch(
    request: Request, person: Person, stream: str, batch_id: BatchId, query_id: str = ""
) -> Response:
    """Show a batch: its counts, its source offsets, the delivery of its entries."""
    with person.session.open(Streams) as store:
        found = store.batch(stream, batch_id, query_of(query_id))
    return page(
        request,
        person,
        "decisions/batch.html",
        batch=found,
        offsets=found["source_offsets"],
        ranges=[
            (each, *range_lines({**each, "partitions": ()}))
            for each in (found["source_offsets"] or {}).get("ranges", ())
        ],
    )


@router.get("/batches/diff")
def show_difference(
    request: Request,
    person: Person,
    stream: str,
    batch_id: BatchId,
    query_id: str = "",
    number: str = "",
    body: str = "",
) -> Response:
    """Show a diverged replay next to what was written, to operators with bodies on demand."""
    with person.session.open(Streams) as store:
        found = store.divergence(
            stream,
            batch_id,
            query_of(query_id),
            number=whole_number("number", number),
            limit=ROWS_COMPARED,
        )
        waiting = store.beside(Acceptances).proposals(limit=ROWS, target=target(found["batch"]))
    asked = wants_bodies(request, person, body)
    if asked:
        _note(person, found)
    rows = [
        {**row, "lines": line_diff(row["body_then"], row["body_now"]) if asked else []}
        for row in found["rows"]
    ]
    address = {"stream": stream, "query_id": found["batch"]["query_id"], "batch_id": batch_id}
    return page(
        request,
        person,
        "decisions/batch_diff.html",
        batch=found["batch"],
        divergence=found["divergence"],
        others=[(each, link("/batches/diff", **address, number=each)) for each in found["others"]],
        rows=rows,
        asked=asked,
        acts=acts(person),
        with_bodies=link(
            "/batches/diff", **address, number=found["divergence"]["id"], body="shown"
        ),
        accepts=person.may(AccessRole.ADMIN),
        acceptance=link("/batches/accept", **address, number=found["divergence"]["id"]),
        proposals=[
            (each, link("/batches/accept", **address, proposal=each["id"])) for each in waiting
        ],
    )


@router.get("/batches/accept")
def ask_accept(
    request: Request,
    person: Person,
    stream: str,
    batch_id: BatchId,
    query_id: str = "",
    number: str = "",
    proposal: str = "",
) -> Response:
    """Ask for confirmation to accept a diverged replay, with its difference."""
    with person.session.open(Acceptances) as store:
        if filled(proposal):
            found = store.proposed(stream, batch_id, store.find_proposal(proposal))
        else:
            found = store.preview(
                stream,
                batch_id,
                query_of(query_id),
                whole_number("number", number),
                _limit(request),
            )
    batch, divergence = found["batch"], found["divergence"]
    address = {"stream": stream, "query_id": batch["query_id"], "batch_id": batch_id}
    proposes = found["needs_approval"]
    new = counted(divergence["new_count"], "new decision")
    question = Question(
        title=f"{'Propose' if proposes else 'Accept'} the replay of batch {batch_id} of {stream}",
        action="/batches/accept",
        button="Propose it" if proposes else "Accept it",
        back=link("/batches/diff", **address, number=divergence["id"]),
        says=(
            f"The job writes {new} when it brings this replay again, and receivers act on them.",
            "Whatever was written before stays as it was sent.",
        ),
        warns=_warns(found),
        kept=(
            *((name, str(value)) for name, value in address.items()),
            ("number", str(divergence["id"])),
            ("proposal", proposal),
        ),
    )
    rows = [
        (
            SIDES[row["side"]],
            row["key"],
            display(row["subject"]),
            display(row["type"]),
            display(row["occurred_at"]),
        )
        for row in found["rows"]
    ]
    return ask(request, person, question, rows, COLUMNS, least=AccessRole.ADMIN)


@router.post("/batches/accept")
def accept_replay(request: Request, person: Admin, form: Form) -> Response:
    """Accept it, or propose it where a second person decides; accept what that person approved."""
    reason = reason_of(form)
    stream, proposal = form.get("stream", ""), form.get("proposal", "")
    batch_id = whole_number("batch_id", form.get("batch_id", "")) or 0
    query_id = query_of(form.get("query_id", ""))
    number = whole_number("number", form.get("number", ""))
    with person.session.open(Acceptances) as store:
        if filled(proposal):
            done = store.apply(stream, batch_id, store.find_proposal(proposal), reason)
        else:
            done = store.accept(stream, batch_id, query_id, number, reason, _limit(request))
    batch, divergence = done["batch"], done["divergence"]
    shown = link(
        "/batches/diff",
        stream=stream,
        query_id=batch["query_id"],
        batch_id=batch_id,
        number=divergence["id"],
    )
    if done["accepted"]:
        return redirect(
            request, person, shown, "Accepted: start the job again with the code that brought it."
        )
    text = f"Proposed as {done['proposal'].hex[:8]}; nothing is accepted yet. See below."
    return redirect(request, person, shown, text, tone="bad")


def _limit(request: Request) -> int:
    return min(int(request.app.state.settings.reissue_limit), ALONE_MAX)


def _warns(found: dict[str, Any]) -> list[str]:
    warns = []
    if older := found["overtaking"]:
        warns.append(
            f"{counted(older, 'new decision')} older than the newest decision of the same subject."
            " A sink with suppress_repeats records them as overtaken, another one writes them"
            " after it."
        )
    if found["needs_approval"]:
        warns.append("A second person decides: this becomes a proposal.")
    return warns


def query_of(text: str) -> UUID | None:
    """Parse a checkpoint's query id; raises `CommandError` (usage) if it is not a UUID."""
    if filled(text) is None:
        return None
    try:
        return UUID(text)
    except ValueError:
        raise CommandError(
            "query_id is not a UUID. Nothing was changed; correct the URL.",
            ExitCode.USAGE,
            code="invalid_id",
        ) from None


def _note(person: Login, found: dict[str, Any]) -> None:
    batch, number = found["batch"], found["divergence"]["id"]
    target = f"{batch['stream']} batch {batch['batch_id']}"
    bodies.note(person.session, "entry.read", target, divergence=number)


WORK_MAX = 4_000_000
"""Limit for pairs of equal lines times the number of lines, about a tenth of a second. Beyond it,
texts are shown one after the other, because the cost of comparing repeated lines is cubic.
"""


class Line(NamedTuple):
    """A line of one side (`then` or `now`), or of both (empty)."""

    side: str
    text: str


def line_diff(then: str | None, now: str | None) -> list[Line]:
    """Return the diff of two JSON texts; None stands for an absent text.

    >>> [tuple(line) for line in line_diff('{"a": 1}', '{"a": 2}')]
    [('', '{'), ('then', '  "a": 1'), ('now', '  "a": 2'), ('', '}')]
    """
    before, after = _lines(then), _lines(now)
    if _work(before, after) > WORK_MAX:
        return _all("then", before) + _all("now", after)
    lines: list[Line] = []
    matcher = SequenceMatcher(None, before, after, autojunk=False)
    for what, start, end, start_now, end_now in matcher.get_opcodes():
        if what == "equal":
            lines += _all("", before[start:end])
        else:
            lines += _all("then", before[start:end]) + _all("now", after[start_now:end_now])
    return lines


def _work(before: list[str], after: list[str]) -> int:
    counts = Counter(after)
    return sum(counts[line] for line in before) * (len(before) + len(after))


def _lines(text: str | None) -> list[str]:
    return [] if text is None else pretty(text).split("\n")


def _all(side: str, texts: list[str]) -> list[Line]:
    return [Line(side, text) for text in texts]
