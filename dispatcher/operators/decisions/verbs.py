"""Deciding by hand: a person blocks or releases a subject."""

from dataclasses import dataclass
from typing import Annotated, Any
from uuid import UUID, uuid4

from typing_extensions import TypedDict

from holdfast.dispatcher.operators.common import verbs
from holdfast.dispatcher.operators.common.overtaking import NewerDecision, overtaken_text
from holdfast.dispatcher.operators.common.session import Row
from holdfast.dispatcher.operators.common.text import display, visible
from holdfast.dispatcher.operators.decisions.actions import apply, decide
from holdfast.dispatcher.operators.decisions.rules import Action, ByHand
from holdfast.dispatcher.operators.decisions.store import Decisions
from holdfast.dispatcher.operators.subjects.verbs import Subject_
from holdfast.dispatcher.shared.text import last_word
from holdfast.sink.contract.exits import CommandError, ExitCode
from holdfast.sink.contract.states import AccessRole

GROUP = verbs.Group(
    "decide",
    help="Decide by hand about a subject: block, release.",
    store=Decisions,
    path="/decisions",
    tag="decisions",
)

_ALONE = (
    "\n\nThe decision is an entry like any other, in the stream NAME.decide. One that would follow"
    " a newer decision is proposed (exit code 4); after a second person has approved it, --proposal"
    " writes it once. Refused for a stream of an exposure job, which does not know it. Exit code 3:"
    " it would change nothing, or nobody would get it."
)

OfStream = Annotated[
    str | None,
    verbs.Param(
        "The stream that decides about the subject; null with `proposal`.",
        verbs.Kind.NAME,
        "The stream that decides about it.",
        excludes="proposal",
    ),
]
Seen = Annotated[
    int | None,
    verbs.Param(
        "The subject's last sequence that the person knows of: refused if there is a later one;"
        " null: not compared.",
        command_help="Refuse if the subject has another last sequence. Default: the one shown.",
        limits=(0, verbs.NUMBER_MAX),
    ),
]
DecisionId = Annotated[
    UUID | None,
    verbs.Param(
        "The decision's id, a random UUID of the caller: the same request again writes nothing"
        " twice; null: a new one.",
        verbs.Kind.UUID,
        "The id of a decision whose outcome is not known: nothing is written twice.",
        option="--id",
    ),
]
Approved = Annotated[
    UUID | None,
    verbs.Param(
        "Write this approved proposal; null: decide.",
        verbs.Kind.PROPOSAL,
        "Write what a second person approved.",
    ),
]


@dataclass(frozen=True, slots=True)
class Wanted:
    """The stream for which a person decides, or the proposal that is written."""

    stream: OfStream = None
    seen: Seen = None
    decision_id: DecisionId = None
    proposal: Approved = None


class Decided(TypedDict):
    """A decision by hand: written, or proposed."""

    id: UUID
    key: verbs.KeyText
    subject: str
    type: str
    occurred_at: verbs.Time
    stream: Annotated[str, verbs.Doc("The stream of decisions by hand that it is written in.")]
    written: bool
    sequence: Annotated[int | None, verbs.Doc("null if only proposed, or no longer stored.")]
    proposal: Annotated[UUID | None, verbs.Doc("null if no second person was needed.")]
    overtakes: Annotated[
        NewerDecision | None,
        verbs.Doc("The newer decision because of which it is only proposed."),
    ]


def _preview(store: Decisions, action: Action, subject: str, wanted: Wanted) -> verbs.Preview:
    if wanted.proposal is not None:
        detail = store.proposal(wanted.proposal)["detail"]
        return verbs.Preview(
            {"proposal": wanted.proposal, **detail},
            _approved(detail),
            f"{action.value.capitalize()} it, as approved?",
            {},
        )
    stream, id_ = _named(wanted.stream), wanted.decision_id or uuid4()
    before = store.written_before(stream, subject, action, wanted.decision_id)
    if before is not None:
        row = {"id": id_, "key": before.key.text, "written": True}
        return verbs.Preview(row, (f"{before.key.text} was written before",), None, {})
    previewed = store.preview(stream, subject, action, id_, wanted.seen)
    decision: ByHand = previewed["decision"]
    row = {
        "id": id_,
        "key": decision.key.text,
        **{name: previewed[name] for name in ("sequence", "body", "endpoints", "overtakes")},
    }
    return verbs.Preview(
        row,
        _previewed(previewed),
        f"{action.value.capitalize()} it?" if previewed["overtakes"] is None else "Propose it?",
        {"decision_id": id_, "seen": previewed["last_sequence"]},
    )


def _previewed(previewed: Row) -> verbs.Text:
    decision: ByHand = previewed["decision"]
    newest = previewed["newest"]
    yield f"{decision.action.value} {visible(decision.subject)}, for stream {decision.stream}"
    if newest is None:
        yield "  newest     nobody has decided about it: check its name, it is compared exactly"
    else:
        yield (
            f"  newest     {newest['type']} of {display(newest['occurred_at'])} in stream"
            f" {newest['stream']}"
        )
    yield f"  receivers  {', '.join(previewed['endpoints'])}"
    yield f"  body       {previewed['body']}"
    yield "             (its timestamp is that of the write, and it has no window)"
    if (over := previewed["overtakes"]) is not None:
        yield f"  WARNING    it overtakes {visible(overtaken_text(over))}: a second person approves"


def _approved(detail: Row) -> verbs.Text:
    yield f"{detail['type']} of {visible(detail['subject'])}, for stream {detail['stream']}"
    yield f"  body       {detail['body']}"
    if detail["overtakes"]:
        yield f"  WARNING    it overtakes {visible(overtaken_text(detail['overtakes']))}"


def _named(stream: str | None) -> str:
    if stream is None:
        raise CommandError(
            "it takes the stream that decides about the subject (--stream, `stream`), or an"
            " approved proposal (--proposal, `proposal`). Nothing was changed.",
            ExitCode.USAGE,
            code="missing_parameter",
        )
    return stream


def _done(result: Row, _: Row) -> verbs.Text:
    name = visible(result["subject"])
    if result["written"]:
        number = "" if result["sequence"] is None else f", sequence {result['sequence']}"
        yield f"{result['type']} of {name} is decided{number}: {result['key']}"
        yield f"it is in stream {result['stream']}, and is delivered like any other entry"
        return
    short = result["proposal"].hex[:8]
    word = result["type"].rpartition(".")[2]
    yield f"This is a proposal; nothing was written. It overtakes {_over(result)}."
    yield f"A second person approves it with\n  holdfast proposal approve {short} --reason TEXT"
    again = (
        f"holdfast decide {word} --proposal {short} --reason TEXT {last_word(result['subject'])}"
    )
    yield f"Then apply it with\n  {again}"


def _over(result: Row) -> str:
    return visible(overtaken_text(result["overtakes"]))


def _run(
    store: Decisions, action: Action, subject: str, wanted: Wanted, reason: str, dsn: str | None
) -> Row:
    if wanted.proposal is not None:
        return apply(dsn, store, subject, action, wanted.proposal, reason)
    return decide(
        dsn,
        store,
        _named(wanted.stream),
        subject,
        action,
        id_=wanted.decision_id or uuid4(),
        seen=wanted.seen,
        reason=reason,
    )


def _ends(result: Row) -> ExitCode:
    return ExitCode.OK if result["written"] else ExitCode.DEGRADED


def _asks_block(store: Decisions, *, subject: str, wanted: Wanted, **_: Any) -> verbs.Preview:
    return _preview(store, Action.BLOCK, subject, wanted)


def _asks_release(store: Decisions, *, subject: str, wanted: Wanted, **_: Any) -> verbs.Preview:
    return _preview(store, Action.RELEASE, subject, wanted)


@GROUP.verb(
    "block",
    changes=True,
    help="Block a subject by hand: its payouts are held." + _ALONE,
    text=_done,
    asks=_asks_block,
    least=AccessRole.OPERATOR,
    route=verbs.Route("Block a subject by hand.", "/block"),
    body=verbs.Model("ToBlock", "A subject to block by hand, or an approved proposal of it."),
    result=Decided,
    ends=_ends,
)
def block_by_hand(
    store: Decisions, *, subject: Subject_, wanted: Wanted, reason: verbs.Reason, dsn: verbs.Dsn
) -> Row:
    """Write a block, or propose one that would follow a newer decision. With `decision_id`
    idempotent.
    """
    return _run(store, Action.BLOCK, subject, wanted, reason, dsn)


@GROUP.verb(
    "release",
    changes=True,
    help="Release a subject by hand: its payouts are no longer held." + _ALONE,
    text=_done,
    asks=_asks_release,
    least=AccessRole.OPERATOR,
    route=verbs.Route("Release a subject by hand.", "/release"),
    body=verbs.Model("ToRelease", "A subject to release by hand, or an approved proposal of it."),
    result=Decided,
    ends=_ends,
)
def release_by_hand(
    store: Decisions, *, subject: Subject_, wanted: Wanted, reason: verbs.Reason, dsn: verbs.Dsn
) -> Row:
    """Write a release, or propose one that would follow a newer decision. With `decision_id`
    idempotent.
    """
    return _run(store, Action.RELEASE, subject, wanted, reason, dsn)
