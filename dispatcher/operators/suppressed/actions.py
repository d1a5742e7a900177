"""Writes an overtaken decision that two people approved: through the sink, then records it."""

from uuid import UUID

from holdfast.dispatcher.operators.common.overtaking import may_overtake
from holdfast.dispatcher.operators.common.session import Row
from holdfast.dispatcher.operators.reissue.rules import batch_id_of
from holdfast.dispatcher.operators.suppressed.rules import new_key_of
from holdfast.dispatcher.operators.suppressed.store import OvertakenDecisions
from holdfast.sink.contract.exits import CommandError
from holdfast.sink.contract.key import Key
from holdfast.sink.contract.requeue import REISSUED, writer


def write_overtaken(
    dsn: str | None, store: OvertakenDecisions, key: Key, proposal: UUID, reason: str
) -> Row:
    """Write an approved decision; return `key`, `new_key`, `subject`, `type`, `proposal`, `detail`.

    The sink compares it with the subject's state in its own transaction too, under the subject's
    lock, so it never follows a newer decision of the job.
    """
    new_key, write = new_key_of(key), writer()
    with store.writing(key, proposal, reason) as (decision, text, overtakes):
        [outcome] = write(
            dsn or "",
            decision["batch"]["stream"],
            {batch_id_of(new_key.digest): text},
            suppress_repeats=True,
            suffix=REISSUED,
            overtakes=may_overtake(overtakes),
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
