"""Cancelling an entry that has not left."""

from typing import Annotated

from typing_extensions import TypedDict

from holdfast.dispatcher.operators.cancellations.store import Cancellations
from holdfast.dispatcher.operators.common import verbs
from holdfast.dispatcher.operators.common.session import Row
from holdfast.dispatcher.operators.common.text import display, visible
from holdfast.dispatcher.operators.entries.store import Entries
from holdfast.dispatcher.operators.entries.verbs import GROUP
from holdfast.sink.contract.states import AccessRole

__all__ = ["GROUP"]

_WHERE = "The endpoint that does not get it; null: none gets it, also none that is added later."


class EntryCancelled(TypedDict):
    """A cancelled entry: it stays in its subject's sequence, and is not sent."""

    key: verbs.KeyText
    subject: str
    sequence: int
    type: str
    occurred_at: verbs.Time
    endpoint: Annotated[str | None, verbs.Doc("null: all endpoints.")]
    not_sent_to: Annotated[
        list[str], verbs.Doc("The endpoints that would have got it, without later ones.")
    ]
    cancelled_at: verbs.Time
    cancelled_by: str
    reason: str


def title_of(entry: Row) -> str:
    """Return what an entry is, in a sentence."""
    return f"{entry['type']} of {visible(entry['subject'])}, sequence {entry['sequence']}"


def _where(endpoint: str | None) -> str:
    return "any endpoint" if endpoint is None else endpoint


def _cancelled(done: Row, _: Row) -> verbs.Text:
    yield f"{done['key']} is cancelled: it is not sent to {_where(done['endpoint'])}, by no replay"
    yield f"it was {title_of(done)}, of {display(done['occurred_at'])}"
    yield "receivers keep the decision before it; later ones of its subject are sent in order"


def what_it_does(entry: Row, endpoint: str | None, names: list[str]) -> tuple[str, ...]:
    """Return sentences about a cancellation; `names` are the endpoints that get it otherwise."""
    if endpoint is not None:
        first = f"{endpoint} never gets {title_of(entry)}. Other endpoints do."
    elif names:
        first = (
            f"{title_of(entry)} is never sent, neither to {', '.join(names)} nor to a later one."
        )
    else:
        first = f"{title_of(entry)} is never sent. No endpoint takes it now."
    return (
        first,
        "Receivers keep the decision before it. Later ones of its subject are sent in order.",
        "The job counts it as decided, and does not decide the same again.",
    )


def _preview(store: Entries, *, key: verbs.Key, endpoint: str | None, reason: str) -> verbs.Preview:  # noqa: ARG001 - as the verb takes
    entry = store.entry(key)
    names = store.beside(Cancellations).preview(key, entry, endpoint)
    row = {
        "key": entry["key"],
        **{name: entry[name] for name in ("subject", "sequence", "type", "occurred_at")},
        "endpoint": endpoint,
        "not_sent_to": names,
    }
    return verbs.Preview(row, what_it_does(entry, endpoint, names), "Cancel it for good?", {})


@GROUP.verb(
    "cancel",
    changes=True,
    help="Cancel an entry that has not left: it is never sent, by no replay either.\n\nIt stays in"
    " its subject's sequence, and later entries are sent in order. Refused once an attempt began:"
    " hold its subject, or have the opposite decided. For good; a reissue decides it again under a"
    " new key. Exit code 3: no such entry, or it is cancelled already.",
    text=_cancelled,
    asks=_preview,
    least=AccessRole.OPERATOR,
    route=verbs.Route("Cancel an entry that has not left.", "/{key}/cancel"),
    body=verbs.Model("Cancellation", "Where an entry is not sent."),
    result=EntryCancelled,
)
def cancel_entry(
    store: Entries,
    *,
    key: verbs.Key,
    endpoint: Annotated[
        str | None,
        verbs.Param(_WHERE, verbs.Kind.NAME, "Only at this endpoint. Default: at all, also later."),
    ] = None,
    reason: verbs.Reason,
) -> Row:
    """Cancel the entry, if nothing of it was begun there."""
    entry = store.entry(key)
    return store.beside(Cancellations).cancel(key, entry, endpoint, reason)
