"""Subjects: listed, shown, repaired; a lane continues after a gap. `hold_verbs` has the rest.

A name may contain any character, so it is a query parameter of the API and not part of a path.
"""

from datetime import datetime
from typing import Annotated
from uuid import UUID

from typing_extensions import TypedDict

from holdfast.dispatcher.operators.common import verbs
from holdfast.dispatcher.operators.common.session import Row
from holdfast.dispatcher.operators.common.text import display, visible
from holdfast.dispatcher.operators.entries.verbs import ListedEntry
from holdfast.dispatcher.operators.subjects.rules import By, repair_commands
from holdfast.dispatcher.operators.subjects.skip_gap import GapSkipper
from holdfast.dispatcher.operators.subjects.store import (
    WAITING_MAX,
    Held,
    Repairs,
    SubjectFilter,
    Subjects,
)
from holdfast.dispatcher.shared.states import LaneState
from holdfast.dispatcher.shared.text import last_word
from holdfast.sink.contract.exits import CommandError, ExitCode
from holdfast.sink.contract.states import (
    AccessRole,
    BreakerState,
    DeadReason,
    EndpointState,
    OrderPolicy,
)

GROUP = verbs.Group(
    "subject",
    help="Subjects: list, find those that are held up, show, hold, skip a gap, repair.",
    store=Subjects,
    path="/subjects",
    tag="subjects",
)

_LIST = (
    *("name", "last_sequence", "last_type", "last_written_at", "lanes"),
    *("stopped", "retrying", "behind", "on_hold", "undelivered", "oldest_due_at"),
)

_FACTS = ("last_sequence", "last_type", "last_occurred_at", "last_written_at")

_LANES = (
    *("endpoint", "state", "held", "delivered", "last", "waiting", "head", "attempt"),
    *("due_at", "lease_until", "stopped_by", "kept_by"),
)

_TRANSITIONS = ("stream", "last_type", "last_occurred_at", "updated_at", "ahead")

_OVERTAKEN = ("key", "type", "occurred_at", "suppressed_at", "stream", "batch_id")

_ENTRIES = ("sequence", "key", "type", "occurred_at", "written_at", "stream", "batch_id")

_EXACT = "The exact name of the subject."
Subject_ = Annotated[
    str,
    verbs.Param(_EXACT, verbs.Kind.TEXT, "The exact name.", argument="SUBJECT", limits=(1, None)),
]


class ListedSubject(TypedDict):
    """A subject and the state of its lanes."""

    name: str
    last_sequence: int
    last_type: str | None
    last_written_at: verbs.Time | None
    lanes: verbs.Count
    stopped: Annotated[verbs.Count, verbs.Doc("Lanes stopped behind a dead letter.")]
    retrying: verbs.Count
    behind: Annotated[
        verbs.Count,
        verbs.Doc("Lanes with an entry that was not attempted yet, or is in flight."),
    ]
    on_hold: Annotated[verbs.Count, verbs.Doc("Lanes that an operator holds.")]
    undelivered: Annotated[
        verbs.Count,
        verbs.Doc("Undelivered sequences of the lane that is furthest behind."),
    ]
    oldest_due_at: verbs.Time | None


class Hold(TypedDict):
    """The hold of a subject at an endpoint."""

    since: verbs.Time
    until: Annotated[verbs.Time | None, verbs.Doc("null: until it is resumed.")]
    by: str
    reason: str


class Lane(TypedDict):
    """A subject at an endpoint."""

    endpoint: str
    endpoint_state: EndpointState
    order_policy: OrderPolicy
    state: LaneState
    held: Held | None
    delivered_sequence: int
    last_sequence: int
    waiting: Annotated[verbs.Count, verbs.Doc("Waiting entries, counted to 1,001.")]
    head_sequence: int | None
    head_key: verbs.KeyText | None
    head_type: str | None
    head_written_at: verbs.Time | None
    attempt: Annotated[int, verbs.Doc("Attempts of the head so far.")]
    rescued: Annotated[
        int,
        verbs.Doc(
            "Attempts among these that used no step of the retry schedule: the lease expired,"
            " the receiver sent Retry-After, or the address was refused."
        ),
    ]
    priority: int
    due_at: Annotated[verbs.Time | None, verbs.Doc("null while it is on hold.")]
    lease_until: verbs.Time | None
    dead_letter: Annotated[int | None, verbs.Doc("Id of the dead letter that stops it.")]
    dead_reason: DeadReason | None
    died_at: verbs.Time | None
    breaker: BreakerState
    breaker_until: verbs.Time | None
    held_until: verbs.Time | None
    on_hold: Hold | None


class Transition(TypedDict):
    """The state with which a stream's next decision about a subject is compared: repeated,
    overtaken or new.
    """

    stream: str
    last_type: str
    last_occurred_at: verbs.Time
    updated_at: Annotated[verbs.Time, verbs.Doc("When its newest decision was written.")]
    ahead: Annotated[
        bool,
        verbs.Doc("More than a day ahead of the clock, which silences the subject."),
    ]


class Subject(TypedDict):
    """A subject with its lanes and its newest entries."""

    name: str
    last_sequence: int
    last_type: Annotated[str | None, verbs.Doc("From the stream that wrote it last.")]
    last_occurred_at: Annotated[verbs.Time | None, verbs.Doc("From the stream that wrote it last.")]
    last_written_at: verbs.Time | None
    transitions: list[Transition]
    lanes: list[Lane]
    entries: Annotated[list[ListedEntry], verbs.Doc("The newest 20.")]


class LanePassed(TypedDict):
    """What was skipped; the receiver never gets it."""

    subject: str
    endpoint: str
    passed_from: Annotated[int, verbs.Doc("The first sequence that is not stored.")]
    passed_to: Annotated[int, verbs.Doc("The last sequence that is not stored.")]
    next_sequence: Annotated[int | None, verbs.Doc("The next sequence; null if nothing is left.")]


class TransitionState(TypedDict):
    """The state with which a stream's next decision about the subject is compared."""

    last_type: str
    last_occurred_at: verbs.Time


class Overtaken(TypedDict):
    """A decision that was recorded but not written, because the state was ahead of it."""

    key: verbs.KeyText
    type: str
    occurred_at: verbs.Time
    suppressed_at: verbs.Time
    stream: str
    batch_id: int


class SubjectRepair(TypedDict):
    """A repair, proposed or applied."""

    subject: str
    stream: str
    before: TransitionState
    after: Annotated[TransitionState | None, verbs.Doc("null: no state.")]
    applied: bool
    proposal: UUID
    planned_by: str
    approved_by: str | None
    overtaken_count: Annotated[
        verbs.Count,
        verbs.Doc("Number of decisions overtaken since; 0 if applied."),
    ]
    overtaken: Annotated[
        list[Overtaken],
        verbs.Doc("The first 1,000. A repair writes none of them."),
    ]


class SubjectPage(TypedDict):
    """Subjects, in byte order of their names."""

    subjects: list[ListedSubject]
    next_after: Annotated[
        str | None, verbs.Doc("`after` of the next page; null if this is the last.")
    ]


def _list(page: verbs.Page, _: Row) -> verbs.Text:
    rows = [row | {"name": visible(row["name"])} for row in page.rows]
    yield verbs.Table(rows, _LIST, "Subjects", ("last_written_at",))


def _note(page: verbs.Page, _: Row) -> str | None:
    return "no match up to here" if not page.rows and page.further is not None else None


@GROUP.verb(
    "list",
    of=verbs.List,
    help="List subjects by name, with the state of their lanes. Exit code 3: none match.\n\nA lane"
    " is `stopped` behind a dead letter, `retrying` after a failed attempt, or `behind`: an entry"
    " was not attempted yet, or is in flight. One that an operator holds is `on_hold`.",
    text=_list,
    note=_note,
    route=verbs.Route("List subjects."),
    rows="subjects",
    option="after",
    result=ListedSubject,
    page=SubjectPage,
    empty="no subject matches. Nothing was changed; names are compared exactly.",
)
def list_subjects(
    store: Subjects,
    filter_: SubjectFilter,
    limit: verbs.Limit = 50,
    after: Annotated[
        str | None,
        verbs.Param(
            "`next_after` of the page before this one.",
            verbs.Kind.TEXT,
            "Only names after this one, in byte order.",
        ),
    ] = None,
) -> verbs.Page:
    """Return subjects in the order of their names.

    With `held`, a page may be short or empty although `next_after` shows that more follow.
    """
    return verbs.Page(*store.subjects(filter_, limit=limit, after=after))


def subject_text(found: Row, _: Row) -> verbs.Text:
    """Yield what a terminal shows of a subject."""
    yield f"subject {visible(found['name'])}"
    yield verbs.Facts({name: found[name] for name in _FACTS}, 17)
    yield verbs.Table(found["transitions"], _TRANSITIONS, "Transition states")
    if found["lanes"]:
        yield verbs.Table([_lane(lane) for lane in found["lanes"]], _LANES, "Lanes")
    else:
        yield "lanes: none; no entry of it has been routed yet"
    yield verbs.Table(found["entries"], _ENTRIES, "Newest entries")
    if any(lane["held"] for lane in found["lanes"]):
        yield f"to see what it waits for: holdfast why {last_word(found['name'])}"
    for command in repair_commands(found):
        yield f"it is silenced; to repair it: {command}"


def _proposed(proposed: Row) -> verbs.Text:
    state, name = proposed["state"], proposed["subject"]
    now = {name: display(state[name]) for name in ("last_type", "last_occurred_at")}
    yield f"subject {visible(name)}, stream {proposed['stream']}"
    yield f"  state is  {_state(now)}, written {display(state['updated_at'])}"
    yield f"  becomes   {_state(proposed['after'])}"
    yield f"  overtaken {state['overtaken_count']:,} since then"
    if state["overtaken"]:
        yield verbs.Table(state["overtaken"], _OVERTAKEN, "Overtaken decisions")
        more = state["overtaken_count"] - len(state["overtaken"])
        yield (
            f"{f'and {more:,} more. ' if more else ''}A repair writes none of them: they stay in"
            " `holdfast suppressed list`, and receivers never got them. After the repair,"
            " `holdfast suppressed write KEY --reason TEXT` proposes to write one."
        )
    if proposed["approved_by"]:
        after = f"{proposed['approved_by']} approved it. Apply it with\n  {proposed['apply']}"
    else:
        after = f"A second person approves it with\n  {proposed['approve']}\n"
        after += f"Then apply it with\n  {proposed['apply']}"
    yield f"This is a proposal; nothing was changed. {after}"


def _repaired(done: Row) -> verbs.Text:
    yield (
        f"{visible(done['subject'])} in {done['stream']}: {_state(done['before'])} became"
        f" {_state(done['after'])}"
    )


def _state(state: Row | None) -> str:
    if state is None:
        return "no state: the next decision is always written"
    return f"{state['last_type']} of {state['last_occurred_at']}"


def _lane(lane: Row) -> Row:
    head, waiting = lane["head_sequence"], lane["waiting"]
    return {
        **lane,
        "delivered": lane["delivered_sequence"],
        "last": lane["last_sequence"],
        "waiting": f"{waiting - 1} or more" if waiting == WAITING_MAX else waiting,
        "head": None if head is None else f"{head} {display(lane['head_type'])}",
        "stopped_by": _stopped(lane),
        "kept_by": _kept(lane),
    }


def _stopped(lane: Row) -> str | None:
    if lane["dead_letter"] is None:
        return None
    return f"dead letter {lane['dead_letter']}, {lane['dead_reason']} {display(lane['died_at'])}"


def hold_text(hold: Row) -> str:
    """Return since when, until when, by whom and why a subject is on hold."""
    until = "" if hold["until"] is None else f" until {display(hold['until'])}"
    return (
        f"since {display(hold['since'])}{until} by {visible(hold['by'])}: {visible(hold['reason'])}"
    )


def _kept(lane: Row) -> str | None:
    """Return the hold of the lane, or what blocks every lane of the endpoint; None for nothing."""
    if lane["on_hold"] is not None:
        return f"on hold {hold_text(lane['on_hold'])}"
    if lane["endpoint_state"] != "active":
        return str(lane["endpoint_state"])
    if lane["breaker"] != "closed":
        return f"breaker {lane['breaker']} until {display(lane['breaker_until'])}"
    if lane["held_until"] is not None:
        return f"receiver, until {display(lane['held_until'])}"
    return None


@GROUP.verb(
    "show",
    help="Show a subject: its lanes and its newest entries. Exit code 3: no such subject.",
    text=subject_text,
    route=verbs.Route("Show a subject.", "/named"),
    result=Subject,
)
def show_subject(store: Subjects, name: Subject_) -> Row:
    """Return a subject with its lanes and its newest entries."""
    return store.subject(name)


def _repair(result: Row, _: Row) -> verbs.Text:
    return _repaired(result) if result["applied"] else _proposed(result)


@GROUP.verb(
    "repair",
    changes=True,
    help="Repair a subject that is silenced by a decision dated more than a day ahead.\n\nProposes"
    " the state that the stored entries imply (exit code 4). After a second person has approved"
    " it, --proposal applies it. Overtaken decisions are not written; they stay listed. Exit code"
    " 3: no such subject, or not silenced in this stream.",
    text=_repair,
    least=AccessRole.ADMIN,
    route=verbs.Route(
        "Repair a subject silenced by a decision dated ahead of the clock.", "/repair"
    ),
    body=verbs.Model(
        "SubjectToRepair",
        "A subject silenced by a decision dated ahead of the clock: what to propose, or what to\n"
        "apply.",
    ),
    result=SubjectRepair,
    ends=lambda result: ExitCode.OK if result["applied"] else ExitCode.DEGRADED,
)
def repair_subject(
    store: Subjects,
    *,
    subject: Subject_,
    stream: Annotated[
        str | None,
        verbs.Param(
            "The stream whose state is repaired; null with `proposal`.",
            verbs.Kind.TEXT,
            "The stream whose decisions are overtaken.",
            limits=(1, None),
            excludes="proposal",
        ),
    ] = None,
    to_type: Annotated[
        str | None,
        verbs.Param(
            "The new last type, if no stored entry determines it.",
            verbs.Kind.TEXT,
            excludes="proposal",
        ),
    ] = None,
    to_time: Annotated[
        datetime | None,
        verbs.Param(
            "The new last time, if no stored entry determines it.",
            verbs.Kind.EXACT_TIME,
            "The new last time (RFC 3339), if no stored entry determines it.",
            excludes="proposal",
        ),
    ] = None,
    to_nothing: Annotated[
        bool,
        verbs.Param(
            "Remove the state, if no stored entry determines it: any next decision is written.",
            excludes="proposal",
        ),
    ] = False,
    proposal: Annotated[
        UUID | None,
        verbs.Param(
            "Apply this approved proposal; then no other member may be given.",
            verbs.Kind.PROPOSAL,
            "Apply the proposal that a second person approved.",
        ),
    ] = None,
    reason: verbs.Reason,
) -> Row:
    """Propose the state that the stored entries imply, or apply what a second person approved."""
    repairs = store.beside(Repairs)
    if proposal is not None:
        done = repairs.apply_repair(subject, proposal, reason)
        return {**done, "applied": True, "overtaken": [], "overtaken_count": 0}
    if stream is None:
        raise CommandError(
            "give the stream, or the proposal to apply. Nothing was changed.",
            ExitCode.USAGE,
            code="missing_parameter",
        )
    row = repairs.propose_repair(subject, stream, By(to_type, to_time, to_nothing), reason)
    state, short = row["state"], row["proposal"].hex[:8]
    return {
        **row,
        "before": state,
        "applied": False,
        "overtaken": state["overtaken"],
        "overtaken_count": state["overtaken_count"],
        "approve": f"holdfast proposal approve {short} --reason TEXT",
        "apply": f"holdfast subject repair --proposal {short} --reason TEXT {last_word(subject)}",
    }


def _passed(done: Row, _: Row) -> verbs.Text:
    first, last = done["passed_from"], done["passed_to"]
    which = f"sequence {first}" if first == last else f"sequences {first} to {last}"
    after = done["next_sequence"]
    then = "it is idle" if after is None else f"it continues with {after}"
    yield f"{visible(done['subject'])} at {done['endpoint']}: skipped {which}; {then}"


@GROUP.verb(
    "pass",
    changes=True,
    help="Let a lane skip decisions that are no longer stored; they are never delivered.\n\nFor a"
    " lane that `holdfast why` reports as `gap`. The missing entries may be in a backup: check that"
    " first. Exit code 3: nothing is missing.",
    text=_passed,
    least=AccessRole.OPERATOR,
    route=verbs.Route("Let a lane skip decisions that are no longer stored.", "/pass"),
    body=verbs.Model(
        "LaneToPass", "A subject, and the endpoint at which its lane is blocked by a gap."
    ),
    result=LanePassed,
)
def pass_missing(
    store: Subjects,
    *,
    subject: Subject_,
    endpoint: Annotated[
        str, verbs.Param("", verbs.Kind.NAME, "The endpoint whose lane is blocked.")
    ],
    reason: verbs.Reason,
) -> Row:
    """Skip the gap. A lane without a gap, or held by a dead letter, is not changed."""
    return store.beside(GapSkipper).pass_missing(subject, endpoint, reason)
