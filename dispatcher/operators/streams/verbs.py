"""Streams: what the sinks write, and which checkpoint each has adopted."""

import json
from typing import Annotated
from uuid import UUID

from typing_extensions import TypedDict

from holdfast.dispatcher.operators.common import verbs
from holdfast.dispatcher.operators.common.session import Row
from holdfast.dispatcher.operators.common.text import display
from holdfast.dispatcher.operators.quarantine.rules import with_rules
from holdfast.dispatcher.operators.streams.renaming import Renaming
from holdfast.dispatcher.operators.streams.store import Streams
from holdfast.sink.contract.checkpoint import local_folder
from holdfast.sink.contract.numbers import counted
from holdfast.sink.contract.states import AccessRole, EndpointState, QuarantineReason

GROUP = verbs.Group(
    "stream",
    help="Streams: list, show, adopt a new checkpoint, rename.",
    store=Streams,
    path="/streams",
    tag="streams",
)

_LIST = ("name", "epoch", "last_batch_id", "last_written_at", "query_id")
_FACTS = (
    *("query_id", "epoch", "run_id", "checkpoint", "created_at", "adopted_at", "started_at"),
    "former_names",
)

_CHECKPOINTS = ("query_id", "batches", "first_batch_id", "last_batch_id", "last_written_at")

_BATCHES = ("batch_id", "written_at", "row_count", "entry_count", "routed_at", "divergences")

_UNDELIVERED = (
    *("endpoint", "state", "undelivered", "complete", "dead_letters", "oldest_written_at"),
)

_QUARANTINED = ("reason", "open", "oldest_quarantined_at")

_DIVERGENCES = (
    *("id", "query_id", "batch_id", "differing_count", "rows_then", "rows_now", "found_at"),
)

Name = Annotated[
    str, verbs.Param(kind=verbs.Kind.NAME, command_help="The stream.", argument="NAME")
]


class Adopted(TypedDict):
    """A stream, its adopted checkpoint, and the run that writes it."""

    name: str
    query_id: Annotated[UUID | None, verbs.Doc("Query id of the adopted checkpoint.")]
    epoch: Annotated[int, verbs.Doc("Epoch of the newest run; older runs are fenced.")]
    run_id: UUID | None
    checkpoint: Annotated[str | None, verbs.Doc("Path of its checkpoint, as given to the sink.")]
    adopted_at: verbs.Time | None
    started_at: Annotated[verbs.Time | None, verbs.Doc("When the run started.")]


class ListedStream(Adopted):
    """A stream with its newest batch."""

    last_batch_id: int | None
    last_written_at: verbs.Time | None


class Checkpoint(TypedDict):
    """A checkpoint that has written batches."""

    query_id: UUID
    batches: verbs.Count
    first_batch_id: int
    last_batch_id: int
    first_written_at: verbs.Time
    last_written_at: verbs.Time


class ListedBatch(TypedDict):
    """A batch of a stream."""

    batch_id: int
    batch_no: Annotated[int, verbs.Doc("Its number among the batches of all streams.")]
    written_at: verbs.Time
    row_count: verbs.Count
    entry_count: verbs.Count
    duplicate_count: verbs.Count
    differing_count: Annotated[verbs.Count, verbs.Doc("Duplicates with different content.")]
    suppressed_count: verbs.Count
    quarantined_count: verbs.Count
    epoch: int
    run_id: UUID
    routed_at: verbs.Time | None
    divergences: Annotated[verbs.Count, verbs.Doc("Number of diverged replays.")]


class Undelivered(TypedDict):
    """Entries of a stream that an endpoint has not got yet."""

    endpoint: str
    state: EndpointState
    undelivered: verbs.Count
    oldest_written_at: Annotated[verbs.Time, verbs.Doc("Oldest of the counted entries.")]
    dead_letters: verbs.Count
    complete: Annotated[
        bool,
        verbs.Doc(
            "False: the count is a lower bound, because counting stops at 500 lanes of a kind,"
            " or at 100 entries of a lane."
        ),
    ]


class OpenRows(TypedDict):
    """Unresolved quarantined rows of a stream."""

    reason: QuarantineReason
    rule: str | None
    open: verbs.Count
    oldest_quarantined_at: verbs.Time


class DivergedReplay(TypedDict):
    """A replay whose content differs from the ledger."""

    id: int
    query_id: UUID
    batch_id: int
    differing_count: verbs.Count
    rows_now: verbs.Count
    rows_then: verbs.Count
    found_at: verbs.Time


class Stream(Adopted):
    """A stream with its totals over every checkpoint, and what needs attention."""

    created_at: verbs.Time
    former_names: Annotated[list[str], verbs.Doc("The names before the stream was renamed.")]
    batches: verbs.Count
    rows: Annotated[verbs.Count, verbs.Doc("entries + duplicates + suppressed + quarantined.")]
    entries: verbs.Count
    duplicates: verbs.Count
    differing: verbs.Count
    suppressed: verbs.Count
    quarantined: verbs.Count
    unrouted_batches: verbs.Count
    unrouted_entries: verbs.Count
    checkpoints: list[Checkpoint]
    newest_batches: Annotated[list[ListedBatch], verbs.Doc("At most 5.")]
    undelivered: list[Undelivered]
    open_quarantine: list[OpenRows]
    divergences: Annotated[list[DivergedReplay], verbs.Doc("The newest 20.")]


class AdoptedStream(TypedDict):
    """A stream and the query id that it accepts."""

    name: str
    query_id: UUID | None
    previous_query_id: UUID | None
    epoch: int
    adopted_at: verbs.Time | None
    changed: Annotated[bool, verbs.Doc("False: it was already adopted.")]


@GROUP.verb(
    "list",
    of=verbs.List,
    help="List the streams, each with its adopted query id and newest batch. Exit code 3: none.",
    text=lambda page, _: [verbs.Table(page.rows, _LIST, "Streams")],
    route=verbs.Route("List streams."),
    rows="streams",
    result=ListedStream,
    page=verbs.Model("StreamList", "Every stream, by name."),
    empty="there is no stream yet: the first write of a sink creates one. Nothing was changed.",
)
def list_streams(store: Streams) -> verbs.Page:
    """Return every stream with its newest batch."""
    return verbs.Page(store.streams())


def _show(found: Row, _: Row) -> verbs.Text:
    yield f"stream {found['name']}"
    yield verbs.Facts({name: found[name] for name in _FACTS}, 11)
    yield (
        f"{counted(found['batches'], 'batch')} with {counted(found['rows'], 'row')} ="
        f" {counted(found['entries'], 'entry')} + {counted(found['duplicates'], 'duplicate')}"
        f" + {found['suppressed']} suppressed + {found['quarantined']} quarantined;"
        f" {counted(found['differing'], 'duplicate')} with other content"
    )
    yield (
        f"{counted(found['unrouted_batches'], 'batch')} with"
        f" {counted(found['unrouted_entries'], 'entry')} to route"
    )
    for rows, columns, title in (
        (found["newest_batches"], _BATCHES, "Newest batches"),
        (found["checkpoints"], _CHECKPOINTS, "Checkpoints"),
        (found["undelivered"], _UNDELIVERED, "Undelivered"),
        (with_rules(found["open_quarantine"]), _QUARANTINED, "Quarantined and open"),
        (found["divergences"], _DIVERGENCES, "Diverged replays"),
    ):
        if rows:
            yield verbs.Table(rows, columns, title)
        elif rows is found["undelivered"] and found["unrouted_entries"]:
            waiting = counted(found["unrouted_entries"], "entry")
            yield f"{title}: {waiting} to route; none of the routed ones"
        else:
            yield f"{title}: none"
    if found["divergences"]:
        newest = found["divergences"][0]
        yield (
            f"to compare one: holdfast batch diff {found['name']} {newest['batch_id']}"
            f" --query-id {newest['query_id']} --divergence {newest['id']}"
        )


@GROUP.verb(
    "show",
    help="Show a stream: its checkpoint and run, its newest batches, and what needs attention.",
    text=_show,
    route=verbs.Route("Show a stream.", "/{name}"),
    result=Stream,
)
def show_stream(store: Streams, name: Name) -> Row:
    """Return a stream with its totals, checkpoints, newest batches and what needs attention."""
    return store.stream(name)


def _adopted(row: Row, _: Row) -> verbs.Text:
    stream, query = f"stream {row['name']}", f"query id {row['query_id']}"
    if row["changed"]:
        yield f"{stream} now accepts {query} (before: {row['previous_query_id'] or 'none'})"
    else:
        since = display(row["adopted_at"])
        yield f"{stream} has accepted {query} since {since}; nothing was changed"


CHECKPOINT = "Path of the new checkpoint. Default: that of the stream's previous one."
NOT_READ = "\0"
"""No argument of a command has this character; an empty one means the default."""

FORCE = (
    "Accept the id although the stream has no batch of it. The server does not read checkpoints;"
    " the command does."
)


@GROUP.verb(
    "adopt",
    changes=True,
    help="Accept batches of another checkpoint. Existing decisions keep their keys; none is"
    " repeated.\n\nA wrong id would fence the right run. It is therefore compared with the"
    " checkpoint, if that can be read on this machine, and with the batches that the stream has of"
    " other checkpoints.",
    text=_adopted,
    least=AccessRole.ADMIN,
    route=verbs.Route("Accept batches of another checkpoint.", "/{name:path}/adopt"),
    body=verbs.Model("Adoption", "A checkpoint to adopt: its batches are accepted from now on."),
    result=AdoptedStream,
)
def adopt_checkpoint(
    store: Streams,
    *,
    name: Annotated[
        str,
        verbs.Param("The stream's name.", verbs.Kind.TEXT, "The stream.", argument="NAME"),
    ],
    query_id: Annotated[
        UUID,
        verbs.Param("The id in the new checkpoint's `metadata` file.", verbs.Kind.UUID),
    ],
    checkpoint: Annotated[
        str | None, verbs.Param(CHECKPOINT, verbs.Kind.LOCAL, command_default=None)
    ] = NOT_READ,
    force: Annotated[
        bool,
        verbs.Param(FORCE, command_help="Accept the id although it cannot be verified."),
    ] = False,
    reason: verbs.Reason,
) -> Row:
    """Existing decisions keep their keys; none is repeated. The current run is fenced."""
    return store.adopt(
        name,
        query_id,
        reason,
        found_in=lambda kept: None if checkpoint == NOT_READ else query_id_in(checkpoint or kept),
        force=force,
    )


def query_id_in(checkpoint: str | None) -> UUID | None:
    """Return the query id of a checkpoint; None if it cannot be read on this machine.

    >>> query_id_in("s3a://bucket/checkpoints") is None
    True
    """
    folder = local_folder(checkpoint)
    if folder is None:
        return None
    try:
        return UUID(json.loads((folder / "metadata").read_text(encoding="utf-8"))["id"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


class RenamedStream(TypedDict):
    """A stream, its name before, and what named it."""

    name: str
    previous_name: str
    batches: verbs.Count
    endpoints: Annotated[list[str], verbs.Doc("Endpoints whose `streams` name it.")]
    by_hand: Annotated[
        dict[str, str],
        verbs.Doc("New names of the streams that hold what people wrote by hand for it."),
    ]


def _renaming(row: Row) -> verbs.Text:
    yield (
        f"stream {row['previous_name']} becomes {row['name']}, with its"
        f" {counted(row['batches'], 'batch')} and all that belongs to them"
    )
    for before, after in row["by_hand"].items():
        yield f"stream {before}, written by hand, becomes {after}"
    if row["endpoints"]:
        yield f"endpoints that take the stream: {', '.join(row['endpoints'])}"


def _before_rename(
    store: Streams,
    *,
    name: str,
    new_name: str,
    reason: str,  # noqa: ARG001 - of the change
) -> verbs.Preview:
    row = store.beside(Renaming).preview(name, new_name)
    return verbs.Preview(
        row, _renaming(row), "Rename it? A sink with the old name is then refused.", {}
    )


@GROUP.verb(
    "rename",
    changes=True,
    help="Give a stream another name, in the ledger and wherever it is named.\n\nStop its job"
    " first, and start it with the new name: a sink with the old one is refused. Entries keep their"
    " keys and bodies, and audit rows their former name. Shows what names it, and asks.",
    text=lambda row, _: [f"stream {row['previous_name']} is called {row['name']} now"],
    asks=_before_rename,
    least=AccessRole.ADMIN,
    route=verbs.Route("Rename a stream.", "/{name:path}/rename"),
    body=verbs.Model("Renaming", "A new name of a stream."),
    result=RenamedStream,
)
def rename_stream(
    store: Streams,
    *,
    name: Annotated[
        str, verbs.Param("The stream's name.", verbs.Kind.TEXT, "The stream.", argument="OLD")
    ],
    new_name: Annotated[str, verbs.Param("Its new name.", verbs.Kind.TEXT, argument="NEW")],
    reason: verbs.Reason,
) -> Row:
    """Its job must not run. A sink with the old name is refused from then on."""
    return store.beside(Renaming).rename(name, new_name, reason)
