"""Suppressed decisions: recorded but not written. An overtaken one can be written late."""

import json
from dataclasses import dataclass
from typing import Annotated
from uuid import UUID

from typing_extensions import TypedDict

from holdfast.dispatcher.operators.common import verbs
from holdfast.dispatcher.operators.common.overtaking import (
    NewerDecision,
    may_overtake,
    overtaken_text,
)
from holdfast.dispatcher.operators.common.session import Row
from holdfast.dispatcher.operators.common.text import display, shortened, visible
from holdfast.dispatcher.operators.entries.verbs import EntryBatch
from holdfast.dispatcher.operators.reissue.rules import batch_id_of
from holdfast.dispatcher.operators.suppressed.rules import new_key_of, write_command
from holdfast.dispatcher.operators.suppressed.store import (
    Filter,
    OvertakenDecisions,
    Place,
    SuppressedDecisions,
)
from holdfast.sink.contract.exits import CommandError, ExitCode
from holdfast.sink.contract.key import Key
from holdfast.sink.contract.numbers import counted
from holdfast.sink.contract.requeue import REISSUED, writer
from holdfast.sink.contract.states import AccessRole, SuppressedCause


def write_overtaken(
    dsn: str | None, store: OvertakenDecisions, key: Key, proposal: UUID, reason: str
) -> Row:
    """Write an approved decision; return `key`, `new_key`, `subject`, `type`, `proposal`, `detail`.

    The sink compares it with the subject's state in its own transaction too, under the subject's
    lock, so it never follows a newer decision of the job.
    """
    new_key, write = new_key_of(key), writer()
    with store.writing(key, proposal, reason) as (decision, text, overtakes, sequence):
        [outcome] = write(
            dsn or "",
            decision["batch"]["stream"],
            {batch_id_of(new_key.digest): text},
            suppress_repeats=True,
            suffix=REISSUED,
            overtakes=may_overtake(overtakes),
            last_sequence=sequence,
        )
        if not outcome.written:
            raise CommandError(
                f"{key.text} was not written: a decision of its subject was written since, or the"
                f" sink refused it ({outcome.detail}). Nothing was changed; cancel the proposal,"
                f" and see `holdfast suppressed show {key.text}`.",
                code="write_refused",
            )
    return {
        "key": key.text,
        "new_key": new_key.text,
        **{name: decision[name] for name in ("subject", "type")},
        "proposal": proposal,
        "detail": outcome.detail,
    }


GROUP = verbs.Group(
    "suppressed",
    help="Suppressed decisions (repeated or overtaken): list, show, write.",
    store=SuppressedDecisions,
    path="/suppressed",
    tag="suppressed",
)

_LIST = ("key", "subject", "type", "occurred_at", "cause", "suppressed_at", "stream", "batch_id")

_FACTS = ("subject", "type", "occurred_at", "cause", "suppressed_at", "priority", "traceparent")

_BATCH = ("stream", "batch_id", "query_id")

_STATE = ("last_type", "last_occurred_at")


class ListedDecision(TypedDict):
    """A suppressed decision, without its content."""

    key: verbs.KeyText
    subject: str
    type: str
    occurred_at: verbs.Time
    priority: int
    cause: SuppressedCause
    suppressed_at: Annotated[verbs.Time, verbs.Doc("When its batch was written.")]
    batch_no: int
    stream: str
    query_id: UUID
    batch_id: int


class ComparedState(TypedDict):
    """The state with which a decision of the stream about the subject is compared now."""

    stream: str
    last_type: str
    last_occurred_at: verbs.Time
    updated_at: verbs.Time


class SuppressedDecision(TypedDict):
    """A suppressed decision with its batch."""

    key: verbs.KeyText
    subject_id: int
    subject: str
    type: str
    occurred_at: verbs.Time
    priority: int
    traceparent: str | None
    cause: SuppressedCause
    suppressed_at: verbs.Time
    key_parts: Annotated[list[str] | None, verbs.Doc("null unless bodies are requested.")]
    data: Annotated[
        str | None,
        verbs.Doc(
            "JSON, byte for byte as it would have been sent; null unless bodies are requested."
        ),
    ]
    batch: EntryBatch
    state: ComparedState | None
    written_as: Annotated[
        verbs.KeyText | None,
        verbs.Doc("The key under which it was written late; null if it was not."),
    ]


class LaterDecision(TypedDict):
    """A decision that occurred later and was suppressed, too."""

    key: verbs.KeyText
    type: str
    occurred_at: verbs.Time
    cause: SuppressedCause


class NewestOfSubject(TypedDict):
    """The newest decision of a subject, in all streams."""

    last_sequence: int
    last_type: str | None
    last_occurred_at: verbs.Time | None


@dataclass(kw_only=True)
class SuppressedWrite:
    """An overtaken decision: proposed, or written."""

    key: verbs.KeyText
    new_key: verbs.KeyText
    subject: str
    type: str
    written: bool
    detail: Annotated[str | None, verbs.Doc("Where it was written; null if only proposed.")] = None
    proposal: UUID
    sha256: Annotated[str | None, verbs.Doc("SHA-256 of the entry; null if written.")] = None
    newest: Annotated[NewestOfSubject | None, verbs.Doc("null if written.")] = None
    overtakes: Annotated[
        NewerDecision | None,
        verbs.Doc("The newest decision if it occurred later, of another stream."),
    ] = None
    later: Annotated[
        int | None,
        verbs.Doc(
            "Number of later decisions of the subject in this stream that were suppressed, too;"
            " null if written."
        ),
    ] = None
    newest_later: Annotated[
        LaterDecision | None,
        verbs.Doc("The newest of these, which determines the subject's current state."),
    ] = None
    planned_by: Annotated[str | None, verbs.Doc("null if written.")] = None
    approved_by: str | None = None


def _list(page: verbs.Page, _: Row) -> verbs.Text:
    rows = [row | {"subject": visible(row["subject"])} for row in page.rows]
    left_out = ("batch_id", "stream", "suppressed_at")
    yield verbs.Table(rows, _LIST, "Suppressed decisions", left_out)


def _show(found: Row, _: Row) -> verbs.Text:
    yield found["key"]
    state = found["state"] or dict.fromkeys(_STATE)
    facts = {
        **{name: found[name] for name in _FACTS},
        **{name: found["batch"][name] for name in _BATCH},
        **{f"now {name}": state[name] for name in _STATE},
        "written as": found["written_as"],
        "key parts": json.dumps(found["key_parts"], ensure_ascii=False),
    }
    for name, value in facts.items():
        yield f"  {name.replace('_', ' '):<21} {display(value)}"
    yield f"\n{shortened(found['data'])}"
    if found["cause"] == SuppressedCause.OVERTAKEN and found["written_as"] is None:
        yield f"to write it: {write_command(found['key'])}"


def _proposed(proposed: Row) -> verbs.Text:
    newest = proposed["newest"]
    yield f"subject {visible(proposed['subject'])}, stream {proposed['batch']['stream']}"
    yield (
        f"  newest is {display(newest['last_type'])} of {display(newest['last_occurred_at'])},"
        f" sequence {newest['last_sequence']}"
    )
    yield f"  write     {proposed['type']} of {display(proposed['occurred_at'])}, after it"
    yield f"  data      {shortened(proposed['data'])}"
    yield f"  new key   {proposed['new_key']}, for every endpoint that takes this type"
    if (over := proposed["overtakes"]) is not None:
        yield (f"  WARNING   it overtakes {visible(overtaken_text(over))}")
    if (last := proposed["newest_later"]) is not None:
        yield (
            f"  WARNING   {counted(proposed['later'], 'later decision')} of the subject suppressed"
            f" too, the newest {last['type']} of {last['occurred_at']} ({last['key']}), which"
            " contradicts this one"
        )
    if proposed["approved_by"]:
        after = f"{proposed['approved_by']} approved it. Apply it with\n  {proposed['apply']}"
    else:
        after = f"A second person approves it with\n  {proposed['approve']}\n"
        after += f"Then apply it with\n  {proposed['apply']}"
    yield f"This is a proposal; nothing was written. {after}"


@GROUP.verb(
    "list",
    of=verbs.List,
    help="List suppressed decisions, the newest first, without their content. Exit code 3: none"
    " match.\n\n`repeated`: the subject already had this type. `overtaken`: a decision of the"
    " subject that occurred later was written first. Both are decided within one stream.",
    text=_list,
    route=verbs.Route("List suppressed decisions."),
    rows="suppressed",
    result=ListedDecision,
    page=verbs.Model("SuppressedPage", "Suppressed decisions, the newest first."),
    screen=verbs.Screen("/suppressed", "decisions/suppressed.html"),
    empty="no suppressed decision matches. Nothing was changed.",
)
def list_suppressed(
    store: SuppressedDecisions,
    wanted: Filter,
    limit: verbs.Limit = 50,
    before: verbs.Before = None,
) -> verbs.Page:
    """Return decisions without their content, the newest first."""
    place = None if before is None else Place.of(before)
    rows, older = store.newest(wanted, limit=limit, before=place)
    return verbs.Page(rows, None if older is None else str(older))


@GROUP.verb(
    "show",
    help="Show a suppressed decision with its content. Exit code 3: the key was not suppressed.",
    text=_show,
    route=verbs.Route("Show a suppressed decision.", "/{key}"),
    result=SuppressedDecision,
    bodies=verbs.Bodies(
        lambda row: row | {"key_parts": None, "data": None},
        "suppressed.read",
        lambda row: (row["key"], {}),
    ),
    screen=verbs.Screen("/suppressed/{key}", "decisions/suppressed_decision.html", "found"),
)
def show_suppressed(store: SuppressedDecisions, key: verbs.Key) -> Row:
    """Return a decision and its batch, with its content if requested."""
    return store.decision(key)


def _written(result: Row, _: Row) -> verbs.Text:
    if result["written"]:
        yield f"{result['key']} written as {result['new_key']}, {result['detail']}"
    else:
        yield from _proposed(result)


@GROUP.verb(
    "write",
    changes=True,
    help="Write an overtaken decision under a new key. Its receivers act on it.\n\nProposes it"
    " (exit code 4). After a second person has approved it, --proposal writes it once. Repair a"
    " silenced subject first (`holdfast subject repair`). Exit code 3: no such decision is"
    " stored.",
    text=_written,
    least=AccessRole.ADMIN,
    route=verbs.Route("Write an overtaken decision under a new key.", "/{key}/write"),
    body=verbs.Model(
        "ToWrite", "An overtaken decision: propose to write it, or write what was approved."
    ),
    result=SuppressedWrite,
    ends=lambda result: ExitCode.OK if result["written"] else ExitCode.DEGRADED,
)
def write_suppressed(
    store: SuppressedDecisions,
    *,
    key: verbs.Key,
    proposal: Annotated[
        UUID | None,
        verbs.Param(
            "Write this approved proposal; null: propose it.",
            verbs.Kind.PROPOSAL,
            "Write what a second person approved.",
        ),
    ] = None,
    despite_later: Annotated[
        bool,
        verbs.Param(
            "Propose it although later decisions of the subject were suppressed.",
            excludes="proposal",
        ),
    ] = False,
    reason: verbs.Reason,
    dsn: verbs.Dsn,
) -> Row:
    """Propose to write it, or write what a second person approved. Idempotent."""
    writer()  # Report a missing package before anything is proposed.
    decisions = store.beside(OvertakenDecisions)
    if proposal is not None:
        return write_overtaken(dsn, decisions, key, proposal, reason) | {"written": True}
    row = decisions.propose_write(key, reason, despite_later=despite_later)
    short = row["proposal"].hex[:8]
    return {
        **row,
        "written": False,
        "approve": f"holdfast proposal approve {short} --reason TEXT",
        "apply": f"holdfast suppressed write --proposal {short} --reason TEXT {row['key']}",
    }
