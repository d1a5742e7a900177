"""Reissues: planned once for each id, and written."""

from collections.abc import Sequence
from uuid import UUID

from holdfast.dispatcher.operators.common.session import Row
from holdfast.dispatcher.operators.reissue.rules import batch_id_of, entry_text, parts_behind
from holdfast.dispatcher.operators.reissue.store import Reissues
from holdfast.dispatcher.operators.replays.actions import taken
from holdfast.dispatcher.operators.replays.store import Replays
from holdfast.sink.contract.exits import CommandError, ExitCode
from holdfast.sink.contract.key import Key
from holdfast.sink.contract.requeue import REISSUED, writer
from holdfast.sink.contract.states import ReplayState, ReplayVerb


def planned_before(store: Replays, id_: UUID, keys: Sequence[UUID], reason: str) -> Row | None:
    """Return the reissue that was planned under this id, as `Replays.show` does, or None.

    Raises `CommandError` for the id of another plan.
    """
    try:
        row = store.show(id_)
    except CommandError as error:
        if error.exit_code is not ExitCode.NOTHING_MATCHED:
            raise
        return None
    requested = (ReplayVerb.REISSUE, {"keys": [Key(key).text for key in keys]}, reason)
    if requested != (row["verb"], row["filter"], row["reason"]):
        raise taken(id_)
    return row


def written_before(store: Replays, id_: UUID) -> bool:
    """Return whether all of a reissue is written; raises `CommandError` for another replay."""
    row = store.show(id_)
    if row["verb"] != ReplayVerb.REISSUE:
        raise CommandError(
            f"replay {id_.hex[:8]} keeps its keys: it is not a reissue. Nothing was changed; apply"
            " it as a replay.",
            code="wrong_replay_kind",
        )
    return bool(row["state"] == ReplayState.APPLIED)


def write_all(dsn: str | None, store: Reissues, id_: UUID) -> list[Row]:
    """Write the rest of a reissue; return `key`, `new_key`, `detail`, `dead_letters` of each.

    Raises `CommandError` when one cannot be written: earlier ones stand, and `holdfast replay
    apply` continues without writing anything twice.
    """
    done: list[Row] = []
    left = store.left(id_)
    store.try_audit()
    write = writer()
    for item in left:
        key = Key(item["key"])
        entry = store.entry(key)
        text = entry_text(entry, parts_behind(key, item["new_key"]))
        number, stream = batch_id_of(item["new_key"]), entry["batch"]["stream"]
        with store.lock_item(id_, item) as mine:
            if not mine:
                continue
            sequence = store.last_sequence(entry)
            [outcome] = write(
                dsn or "",
                stream,
                {number: text},
                suppress_repeats=False,
                suffix=REISSUED,
                overtakes=store.overtakes(entry, item),
                last_sequence=sequence,
            )
            if not outcome.written:
                raise CommandError(
                    f"{key.text} was not reissued: {outcome.detail}. {len(done)} before it were;"
                    " when the cause is gone, continue with `holdfast replay apply"
                    f" {id_.hex[:8]}`.",
                    code="write_refused",
                )
            given_up = store.settle(id_, item, outcome.detail)
        done.append(
            {
                "key": key.text,
                "new_key": Key(item["new_key"]).text,
                "detail": outcome.detail,
                "dead_letters": given_up,
            }
        )
    return done
