"""When an entry may be cancelled: nothing of it was begun where it is cancelled. Pure."""

from collections.abc import Sequence
from typing import Any

from holdfast.dispatcher.shared.text import last_word
from holdfast.sink.contract.canonical import rfc3339
from holdfast.sink.contract.exits import CommandError, ExitCode

Row = dict[str, Any]


def begun(row: Row, sequence: int) -> str | None:
    """Return what was begun at the endpoint of a row of `standing`; None: nothing was."""
    lane = row["delivered_sequence"]
    if row["cancelled"]:
        return None
    if row["delivered_at"] is not None:
        return f"{row['endpoint']} got it {rfc3339(row['delivered_at'])}"
    if row["attempts"]:
        return f"it was tried at {row['endpoint']}, whose receiver may have it"
    if row["leased"] and sequence <= row["claimed_sequence"]:
        return f"it is on its way to {row['endpoint']}"
    if row["replay_id"] is not None:
        replay = row["replay_id"].hex[:8]
        ends = f"`holdfast replay cancel {replay} --reason TEXT`"
        return f"replay {replay} sends it to {row['endpoint']} ({ends})"
    if row["takes"] and lane is not None and lane >= sequence:
        return f"its lane at {row['endpoint']} has passed it"
    return None


def must_pass(row: Row, sequence: int) -> bool:
    """Return whether the lane of a row of `standing` has to know that the entry is cancelled.

    What the lane has passed is never claimed again, and neither is what its claims left out.
    """
    lane = row["delivered_sequence"]
    if row["cancelled"] or lane is None or lane >= sequence:
        return False
    return sequence > row["claimed_sequence"] or (row["takes"] and not row["leased"])


def refusal(key: str, subject: str, sequence: int, rows: Sequence[Row]) -> None:
    """Raise `CommandError` if the entry was begun at one of the endpoints, with what to do."""
    by_endpoint = {row["endpoint"]: begun(row, sequence) for row in rows}
    reasons = [why for why in by_endpoint.values() if why is not None]
    if not reasons:
        return
    begun_at = [name for name, why in by_endpoint.items() if why is not None]
    rest = [row["endpoint"] for row in rows if row["takes"] and row["endpoint"] not in begun_at]
    hold = f"holdfast subject hold --endpoint {begun_at[0]} --reason TEXT {last_word(subject)}"
    others = f" It can still be cancelled with `--endpoint {rest[0]}`." if rest else ""
    raise CommandError(
        f"{key} cannot be cancelled: {'; '.join(reasons)}. Nothing was changed.{others} To keep"
        f" back what waits, hold its subject: `{hold}`. What the receiver may have is undone only"
        " by the opposite decision.",
        code="delivery_begun",
    )


def not_sent(key: str, endpoint: str) -> CommandError:
    """Return the error for an endpoint that does not get the entry."""
    return CommandError(
        f"{endpoint} does not get {key}, so there is nothing to cancel there. Nothing was changed;"
        f" see `holdfast why {key}`.",
        ExitCode.NOTHING_MATCHED,
        code="not_taken",
    )


def cancelled_before(key: str, row: Row) -> CommandError:
    """Return the error for an entry that is cancelled already; a row of `of_entry`."""
    where = "at all endpoints" if row["endpoint"] is None else f"at {row['endpoint']}"
    return CommandError(
        f"{key} is cancelled {where} since {rfc3339(row['cancelled_at'])}, by"
        f" {row['cancelled_by']}. Nothing was changed; see `holdfast why {key}`.",
        ExitCode.NOTHING_MATCHED,
        code="already_cancelled",
    )


def never_sent(key: str, row: Row) -> CommandError:
    """Return the error for a replay of an entry that is cancelled; a row of `of_key`."""
    where = "" if row["endpoint"] is None else f" at {row['endpoint']}"
    return CommandError(
        f"{key} is cancelled{where} since {rfc3339(row['cancelled_at'])}, by"
        f" {row['cancelled_by']}: it is never sent. Nothing was planned. `holdfast reissue"
        f" {key} --reason TEXT` decides it again under a new key.",
        ExitCode.NOTHING_MATCHED,
        code="entry_cancelled",
    )


def cancellation(rows: Sequence[Row], endpoint: str) -> Row | None:
    """Return the row of `of_entry` by which an entry is cancelled at an endpoint, or None."""
    return next((row for row in rows if applies(row, endpoint)), None)


def applies(row: Row, endpoint: str | None) -> bool:
    """Return whether a cancellation is of an endpoint (None: of all), or of all."""
    return row["endpoint"] is None or row["endpoint"] == endpoint
