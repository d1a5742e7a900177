"""Decisions by hand: written by the sink's transaction, or proposed to a second person."""

from uuid import UUID

from holdfast.dispatcher.operators.common.overtaking import may_overtake
from holdfast.dispatcher.operators.common.session import Row
from holdfast.dispatcher.operators.decisions.rules import Action, ByHand, moved
from holdfast.dispatcher.operators.decisions.store import Decisions
from holdfast.dispatcher.operators.reissue.rules import batch_id_of
from holdfast.sink.contract.exits import CommandError
from holdfast.sink.contract.requeue import DECIDED, Outcome, Overtakes, stream_of, writer


def decide(
    dsn: str | None,
    store: Decisions,
    stream: str,
    subject: str,
    action: Action,
    *,
    id_: UUID,
    seen: int | None,
    reason: str,
) -> Row:
    """Write a decision by hand, or propose one that would overtake a newer decision.

    A repeated call with the same id writes nothing twice. Returns the values of `Decided`.
    """
    writer()  # Report a missing package before anything is recorded.
    before = store.written_before(stream, subject, action, id_)
    if before is not None:
        store.complete(before, reason)
        return _result(before, store.written(before))
    previewed = store.preview(stream, subject, action, id_, seen)
    decision = previewed["decision"]
    if previewed["overtakes"] is not None:
        made = store.propose_decision(previewed, reason)
        return _result(decision, None, proposal=made["id"], overtakes=previewed["overtakes"])
    with store.writing(previewed, reason):
        _write(dsn, decision, None, previewed["last_sequence"])
    return _result(decision, store.written(decision))


def apply(
    dsn: str | None, store: Decisions, subject: str, action: Action, proposal: UUID, reason: str
) -> Row:
    """Write a decision that a second person approved, once."""
    with store.writing_approved(action, subject, proposal, reason) as (decision, detail):
        if store.written(decision) is None:
            overtakes = may_overtake(detail["overtakes"])
            _write(dsn, decision, overtakes, detail["last_sequence"])
    return _result(decision, store.written(decision), proposal=proposal)


def _write(dsn: str | None, decision: ByHand, overtakes: Overtakes | None, seen: int) -> None:
    [outcome] = writer()(
        dsn or "",
        decision.stream,
        {batch_id_of(decision.key.digest): decision.text},
        suppress_repeats=overtakes is None,
        suffix=DECIDED,
        overtakes=overtakes,
        last_sequence=seen,
    )
    if outcome.outcome is Outcome.WRITTEN:
        return
    if outcome.outcome in (Outcome.CHANGED, Outcome.NEWER_DECISION, Outcome.REPEATED):
        # Not when it was previewed, so something was written since.
        raise moved(decision.subject)
    raise CommandError(
        f"the decision was not written: {outcome.detail}. Nothing was changed.",
        code="write_refused",
    )


def _result(
    decision: ByHand,
    entry: Row | None,
    *,
    proposal: UUID | None = None,
    overtakes: Row | None = None,
) -> Row:
    return {
        "id": decision.id,
        "key": decision.key.text,
        "subject": decision.subject,
        "type": decision.action.type,
        "occurred_at": decision.occurred_at,
        "stream": stream_of(decision.stream, DECIDED),
        "written": entry is not None,
        "sequence": None if entry is None else entry["sequence"],
        "proposal": proposal,
        "overtakes": overtakes,
    }
