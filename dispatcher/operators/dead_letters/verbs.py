"""Dead letters: what a person can do about them."""

from collections import Counter
from typing import Annotated

from typing_extensions import TypedDict

from holdfast.dispatcher.operators.common import verbs
from holdfast.dispatcher.operators.common.session import Row
from holdfast.dispatcher.operators.common.text import shortened, visible
from holdfast.dispatcher.operators.dead_letters.rules import (
    what_helps,
    what_it_holds,
    without_answer,
)
from holdfast.dispatcher.operators.dead_letters.store import DeadLetters, Filter, resolved
from holdfast.dispatcher.operators.replays.actions import planned
from holdfast.dispatcher.operators.replays.rules import ReplayFilter, ReplayScope, few_keys_of
from holdfast.dispatcher.operators.replays.store import Replays
from holdfast.sink.contract.exits import CommandError, ExitCode
from holdfast.sink.contract.numbers import counted
from holdfast.sink.contract.states import (
    AccessRole,
    DeadReason,
    DeadResolution,
    EndpointState,
    OrderPolicy,
    Outcome,
)

GROUP = verbs.Group(
    "dead-letter",
    noun="dead letter",
    help="Dead letters: list, show, export, dismiss. `redeliver` sends them again.",
    store=DeadLetters,
    path="/dead-letters",
    tag="dead letters",
    screen="/dead",
)

_LIST = ("id", "endpoint", "subject", "sequence", "key", "type", "reason", "detail")
_LIST_OPEN = (*_LIST, "attempts", "died_at", "holds_lane")
_LIST_ALL = (*_LIST, "died_at", "resolution", "resolved_at", "resolved_by", "resolution_reason")
_LEFT_OUT = ("type", "resolved_by", "resolved_at", "attempts", "endpoint")
_FACTS = (
    *("key", "endpoint", "subject", "sequence", "type", "reason", "detail", "attempts"),
    *("written_at", "died_at", "resolution", "resolved_at", "resolved_by", "resolution_reason"),
)
_ATTEMPTS = ("number", "finished_at", "outcome", "status", "duration_ms", "error", "response")


class ListedDeadLetter(TypedDict):
    """A dead letter: an entry given up at an endpoint."""

    id: int
    endpoint: str
    subject: str
    sequence: int
    key: verbs.KeyText
    type: Annotated[str | None, verbs.Doc("null if the entry's partition was dropped.")]
    reason: DeadReason
    detail: Annotated[str, verbs.Doc("The result of the last attempt.")]
    attempts: verbs.Count
    written_at: Annotated[verbs.Time, verbs.Doc("When the entry was written.")]
    died_at: verbs.Time
    resolution: DeadResolution | None
    resolved_at: verbs.Time | None
    resolved_by: str | None
    holds_lane: Annotated[bool, verbs.Doc("Later entries of its subject wait behind it.")]
    resolution_reason: str | None


class LastAttempt(TypedDict):
    """An attempt."""

    number: int
    finished_at: verbs.Time
    outcome: Outcome
    status: int | None
    duration_ms: int | None
    error: str | None
    response: Annotated[str | None, verbs.Doc("null unless bodies are requested.")]


class Advice(TypedDict):
    """A command and its effect."""

    command: str
    effect: str


class DeadLetter(ListedDeadLetter):
    """A dead letter, what it holds up, and what can be done about it."""

    order_policy: OrderPolicy
    endpoint_state: EndpointState
    window_waived: Annotated[
        bool, verbs.Doc("Sent although the receiver may have forgotten the key.")
    ]
    key_window_seconds: int | None
    waiting: Annotated[verbs.Count, verbs.Doc("Entries waiting behind it, counted to 1,000.")]
    body: Annotated[
        str | None, verbs.Doc("null unless requested, or if its partition was dropped.")
    ]
    newest_attempts: Annotated[list[LastAttempt], verbs.Doc("At most 20, the newest first.")]
    holds: str
    advice: list[Advice]


class DismissedDeadLetter(TypedDict):
    """A dismissed dead letter."""

    id: int
    endpoint: str
    subject: str
    sequence: int
    key: str
    lane_goes_on: bool
    waiting: Annotated[int, verbs.Doc("Later entries behind it, counted to 1,000.")]


class ResolvedDeadLetter(TypedDict):
    """A dead letter that was already resolved."""

    id: int
    resolution: DeadResolution
    resolved_at: verbs.Time
    resolved_by: str


class DeadLetterDismissal(TypedDict):
    """What was dismissed, and what was already resolved."""

    dismissed: list[DismissedDeadLetter]
    resolved_before: list[ResolvedDeadLetter]


def _without_answer(row: Row) -> Row:
    return row | {"detail": without_answer(row["detail"])}


def _without_bodies(row: Row) -> Row:
    tried = [each | {"response": None} for each in row["newest_attempts"]]
    return _without_answer(row) | {"body": None, "newest_attempts": tried}


def _list(page: verbs.Page, values: Row) -> verbs.Text:
    columns = _LIST_OPEN if values["open"] and not values["resolved"] else _LIST_ALL
    yield verbs.Table([_seen(row) for row in page.rows], columns, "Dead letters", _LEFT_OUT)
    if any(row["holds_lane"] for row in page.rows):
        yield "to see what a dead letter holds up and what to do: holdfast dead-letter show ID"


def _seen(row: Row) -> Row:
    texts = ("subject", "detail", "resolution_reason")
    holds = {"holds_lane": "yes" if row["holds_lane"] else "no"}
    return row | {name: row[name] and visible(row[name]) for name in texts} | holds


@GROUP.verb(
    "list",
    text=_list,
    of=verbs.List,
    help="List dead letters, the newest first, without their bodies. Exit code 3: none match.",
    route=verbs.Route("List dead letters."),
    rows="dead_letters",
    result=ListedDeadLetter,
    page=verbs.Model("DeadLetterPage", "Dead letters, the newest first."),
    bodies=verbs.Bodies(_without_answer),
    screen=verbs.Screen("/dead", "delivery/dead_letters.html"),
    empty="no dead letter matches. Nothing was changed; --all includes those that are resolved.",
)
def list_dead_letters(
    store: DeadLetters, wanted: Filter, limit: verbs.Limit = 50, before: verbs.BeforeId = None
) -> verbs.Page:
    """Return dead letters without their bodies, the newest first."""
    return verbs.page_of(store.newest(wanted, limit=limit + 1, before=before), limit)


def _show(row: Row, _: Row) -> verbs.Text:
    yield f"dead letter {row['id']}"
    yield verbs.Facts({name: row[name] for name in (*_FACTS, "holds")}, 17)
    if row["body"] is None:
        yield "\nbody: no longer stored, its partition was dropped"
    else:
        yield f"\nbody:\n{shortened(row['body'])}"
    tried = [
        each | {name: each[name] and visible(each[name]) for name in ("error", "response")}
        for each in row["newest_attempts"]
    ]
    yield verbs.Table(tried, _ATTEMPTS, "Newest attempts")
    yield from (f"{each['command']}\n    {each['effect']}" for each in row["advice"])


@GROUP.verb(
    "show",
    text=_show,
    help="Show one: its body, its attempts, what it holds up, and what can be done.",
    result=DeadLetter,
    route=verbs.Route("Show a dead letter.", "/{number}"),
    screen=verbs.Screen("/dead/{number}", "delivery/dead_letter.html", "letter"),
    bodies=verbs.Bodies(
        _without_bodies, "entry.read", lambda row: (row["key"], {"dead_letter": row["id"]})
    ),
)
def show_dead_letter(store: DeadLetters, number: verbs.Number) -> Row:
    """Return one: its attempts, what it holds up, and what can be done about it."""
    row = store.one(number)
    advice = [each._asdict() for each in what_helps(row)]
    return {**row, "holds": what_it_holds(row), "advice": advice}


GROUP.verb(
    "export",
    of=verbs.Export,
    help="Write dead letters with their bodies as JSON lines, the oldest first. Exit code 3: none"
    " match.\n\nA body is null if its partition was dropped.",
    empty="no dead letter matches; nothing was written.",
)(DeadLetters.export)


def _dismissed(result: Row, _: Row) -> verbs.Text:
    for row in result["dismissed"]:
        behind = f"with {counted(row['waiting'], 'entry')} behind it"
        after = f"; its lane continues, {behind if row['waiting'] else 'and is idle'}"
        end = after if row["lane_goes_on"] else ""
        yield f"dead letter {row['id']} dismissed: {row['endpoint']} never gets it{end}"
    for row in result["resolved_before"]:
        yield f"dead letter {row['id']} unchanged: it is {resolved(row)}"


COLUMNS = ("No.", "Endpoint", "Subject", "Sequence", "Died of", "Holds")


def _open(store: DeadLetters, ids: list[int]) -> list[Row]:
    """Return those of the ids that are open; raises `CommandError` if none is."""
    rows = [row for row in map(store.one, ids) if row["resolution"] is None]
    if not rows:
        raise CommandError(
            "the selected dead letters are already resolved. Nothing was changed; reload the list.",
            ExitCode.NOTHING_MATCHED,
            code="already_resolved",
        )
    return rows


def _about(rows: list[Row]) -> Row:
    """Return what a question about these rows has in common with others."""
    names = ("id", "endpoint", "subject", "sequence", "reason")
    return {
        "back": GROUP.page(row["id"] for row in rows),
        "kept": [("id", str(row["id"])) for row in rows],
        "count": len(rows),
        "columns": COLUMNS,
        "rows": [[*(str(row[name]) for name in names), what_it_holds(row)] for row in rows],
    }


def _ask_dismiss(store: DeadLetters, ids: list[int]) -> verbs.Question:
    rows = _open(store, ids)
    holding = [row for row in rows if row["holds_lane"]]
    lanes = "1 lane continues" if len(holding) == 1 else f"{len(holding)} lanes continue"
    waiting = sum(row["waiting"] for row in holding)
    later = "1 later entry" if waiting == 1 else f"{waiting:,} later entries"
    agreed = f"{lanes} without them, with {later}: the receiver gets those and never these"
    return verbs.Question(
        title=f"Dismiss {GROUP.what(rows)}",
        button=f"Dismiss {GROUP.what(rows)}",
        says=(
            f"The receiver never gets {GROUP.what(rows)}.",
            "Nothing is deleted; a replay can still send it again.",
        ),
        agreed=("skip", agreed) if holding else None,
        danger=True,
        **_about(rows),
    )


def _after_dismissal(result: Row, values: Row) -> verbs.Done:
    done, before = result["dismissed"], result["resolved_before"]
    on = sum(row["lane_goes_on"] for row in done)
    text = f"{verbs.some(len(done))} dismissed."
    text += f" {on:,} {'lane continues' if on == 1 else 'lanes continue'}." if on else ""
    text += f" {verbs.some(len(before))} already resolved." if before else ""
    return verbs.Done(text, GROUP.page(values["ids"]))


SKIP = "Release the lanes that they hold. Without it, a dead letter that holds a lane is refused."


@GROUP.verb(
    "dismiss",
    text=_dismissed,
    changes=True,
    help="Dismiss dead letters: their receivers never get them. `list --all` still shows them.\n\n"
    "One that holds its lane is dismissed only with --skip, because later entries of its subject"
    " then go out without it.",
    least=AccessRole.OPERATOR,
    route=verbs.Route("Dismiss dead letters: their receivers never get them.", "/dismiss"),
    result=DeadLetterDismissal,
    body=verbs.Model("Dismissal", "Dead letters to dismiss: their receivers never get them."),
    asked=verbs.Asked("/dead/dismiss", _ask_dismiss, _after_dismissal, do="dismiss"),
)
def dismiss_dead_letters(
    store: DeadLetters,
    *,
    ids: verbs.Ids,
    skip: Annotated[bool, verbs.Param(SKIP)] = False,
    reason: verbs.Reason,
) -> Row:
    """Dismiss all of them or none. Those already resolved stay unchanged."""
    done, before = store.dismiss(list(dict.fromkeys(ids)), reason, skip=skip)
    return {"dismissed": done, "resolved_before": before}


def _ask_again(store: DeadLetters, ids: list[int]) -> verbs.Question:
    rows = _open(store, ids)
    names = sorted({row["endpoint"] for row in rows})
    reasons = Counter(row["reason"] for row in rows)
    warns = []
    if count := reasons[DeadReason.REJECTED]:
        text = "by the receiver, and will be rejected again unless the receiver was corrected."
        warns.append(f"{verbs.some(count)} rejected {text}")
    if count := reasons[DeadReason.REFUSED]:
        text = "by Holdfast itself: correct the endpoint's address first."
        warns.append(f"{verbs.some(count)} refused {text}")
    if len(names) > 1:
        warns.append("The plan includes dead letters with the same key at other endpoints.")
    return verbs.Question(
        title=f"Send {GROUP.what(rows)} again",
        button="Make the plan",
        says=(
            f"A plan for {GROUP.what(rows)} at {', '.join(names)} will be made for your review.",
            "Nothing is sent before you apply that plan.",
            (
                "Each is sent with its original key and bytes, so a receiver skips what it has"
                " already applied."
            ),
        ),
        warns=warns,
        rate=True,
        **_about(rows),
    )


def _planned(row: Row, _: Row) -> verbs.Done:
    return verbs.Done("Planned. Nothing is sent yet.", f"/replays/{row['id']}")


@GROUP.verb(
    "plan",
    least=AccessRole.OPERATOR,
    changes=True,
    asked=verbs.Asked("/dead/plan", _ask_again, _planned, do="redeliver"),
)
def plan(
    store: DeadLetters,
    *,
    ids: verbs.Ids,
    rate: verbs.Rate,
    plan: verbs.PlanId,
    reason: verbs.Reason,
) -> Row:
    """Plan a replay of open ones. Nothing is sent before the plan is applied."""
    rows = _open(store, ids)
    names = {row["endpoint"] for row in rows}
    wanted = ReplayFilter(
        endpoint=names.pop() if len(names) == 1 else None,
        states=(ReplayScope.DEAD,),
        keys=few_keys_of(sorted({row["key"] for row in rows})),
    )
    return planned(store.beside(Replays), plan, wanted, reason=reason, rate=rate)
