"""Holding one subject at an endpoint, and resuming it."""

from datetime import datetime
from typing import Annotated

from typing_extensions import TypedDict

from holdfast.dispatcher.operators.common import verbs
from holdfast.dispatcher.operators.common.session import Row
from holdfast.dispatcher.operators.common.text import display, visible
from holdfast.dispatcher.operators.subjects.holding import Holding
from holdfast.dispatcher.operators.subjects.store import Subjects
from holdfast.dispatcher.operators.subjects.verbs import GROUP, Hold, Subject_, hold_text
from holdfast.dispatcher.shared.text import last_word
from holdfast.sink.contract.states import AccessRole

__all__ = ["GROUP"]

_Endpoint = Annotated[
    str, verbs.Param("", verbs.Kind.NAME, "The endpoint to which nothing of it is sent.")
]
_WARNING = (
    "What it does to keys that the receiver forgets meanwhile, and whether replays of an older"
    " dispatcher ignore it; null: nothing."
)


class SubjectHeld(TypedDict):
    """A subject on hold at an endpoint."""

    subject: str
    endpoint: str
    since: verbs.Time
    until: Annotated[verbs.Time | None, verbs.Doc("null: until it is resumed.")]
    before: Annotated[Hold | None, verbs.Doc("The hold that it replaces.")]
    in_flight: Annotated[
        bool,
        verbs.Doc("Whether something claimed before is not settled; nothing is sent after that."),
    ]
    warning: Annotated[str | None, verbs.Doc(_WARNING)]


class SubjectResumed(TypedDict):
    """A subject that is no longer on hold at an endpoint."""

    subject: str
    endpoint: str
    before: Annotated[Hold, verbs.Doc("The hold that ended.")]
    warning: Annotated[str | None, verbs.Doc(_WARNING)]


def _held(done: Row, _: Row) -> verbs.Text:
    name = visible(done["subject"])
    end = "it is resumed" if done["until"] is None else display(done["until"])
    yield f"{name} is on hold at {done['endpoint']} until {end}; its decisions wait in order"
    if done["before"]:
        yield f"this replaces the hold {hold_text(done['before'])}"
    if done["in_flight"]:
        yield "a request is in flight: it ends, and nothing is sent after it"
    if done["warning"]:
        yield f"warning: {done['warning']}"
    yield (
        f"to resume it: holdfast subject resume --endpoint {done['endpoint']} --reason TEXT"
        f" {last_word(done['subject'])}"
    )


def _resumed(done: Row, _: Row) -> verbs.Text:
    yield f"{visible(done['subject'])} at {done['endpoint']} is resumed, in order"
    yield f"it was on hold {hold_text(done['before'])}"
    if done["warning"]:
        yield f"warning: {done['warning']}"


@GROUP.verb(
    "hold",
    changes=True,
    help="Hold one subject at an endpoint: nothing of it is sent there until it is resumed.\n\nThe"
    " other subjects continue. Decisions of it wait in order, and its retries do not count"
    " meanwhile. What is in flight ends. Again with another --until: changes the hold. Exit code"
    " 3: nothing of it was ever routed to the endpoint.",
    text=_held,
    least=AccessRole.OPERATOR,
    route=verbs.Route("Hold one subject at an endpoint.", "/hold"),
    body=verbs.Model(
        "SubjectToHold", "A subject, and the endpoint to which nothing of it is sent."
    ),
    result=SubjectHeld,
)
def hold_subject(
    store: Subjects,
    *,
    subject: Subject_,
    endpoint: _Endpoint,
    until: Annotated[
        datetime | None,
        verbs.Param(
            "When the hold ends by itself; null: a person resumes the subject.",
            verbs.Kind.EXACT_TIME,
            "When it ends by itself (RFC 3339). Default: when it is resumed.",
        ),
    ] = None,
    reason: verbs.Reason,
) -> Row:
    """Hold the subject, or change its hold. Nothing is sent after what is in flight."""
    return store.beside(Holding).hold(subject, endpoint, until, reason)


@GROUP.verb(
    "resume",
    changes=True,
    help="Resume a subject that is on hold at an endpoint: what waits is sent in order.\n\nA retry"
    " is due as long after now as it was when the hold began. Exit code 3: it is not on hold.",
    text=_resumed,
    least=AccessRole.OPERATOR,
    route=verbs.Route("Resume a subject that is on hold at an endpoint.", "/resume"),
    body=verbs.Model("SubjectToResume", "A subject, and the endpoint at which it is on hold."),
    result=SubjectResumed,
)
def resume_subject(
    store: Subjects, *, subject: Subject_, endpoint: _Endpoint, reason: verbs.Reason
) -> Row:
    """Resume the subject: what waits is sent in order."""
    return store.beside(Holding).resume(subject, endpoint, reason)
