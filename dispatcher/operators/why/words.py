"""The sentences of `holdfast why`. What strangers wrote goes through `one_line`."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from dispatcher.operators.common.text import since, span
from dispatcher.operators.why.lock_holders import Holder
from dispatcher.shared.text import last_word, one_line
from sink.contract.canonical import rfc3339
from sink.contract.states import SuppressedCause

Facts = Mapping[str, Any]
"""A row of a statement: what is known of an endpoint, a batch or a dispatcher."""

LOGS = "holdfast status"

STOPPED = "its lane is stopped and no dead letter is open: a resolution did not let it go on"

DUE_COUNTED_MAX = 1_000
"""Up to how many lanes before it are counted."""


CONFIG_CHECK = "holdfast config check"
"""Where a dispatcher runs, it says which endpoint lacks what."""


def redeliver(key: str, endpoint: str) -> str:
    """Return the command that sends it again under its key, there and nowhere else."""
    return f"holdfast redeliver {key} --endpoint {endpoint} --reason TEXT"


def resume(name: str) -> str:
    """Return the command that lets an endpoint be sent to."""
    return f"holdfast endpoint resume {name} --reason TEXT"


def delivered(row: Facts) -> str:
    """When, by which attempt, and what proves it."""
    said = (
        f"delivered {_at(row['delivered_at'])} by attempt {row['delivered_number']}"
        f" (HTTP {row['delivered_status']})"
    )
    proof: dict[str, Any] | None = row["receipt"]
    if proof is None:
        return f"{said}, without a receipt"
    outcome, moment = one_line(str(proof["outcome"])), one_line(str(proof["applied_at"]))
    return f"{said}; its receipt says {outcome} at {moment}"


def dead(row: Facts) -> str:
    """Which dead letter, why, and what it holds up."""
    behind = (
        "; its lane waits behind it"
        if row["lane_stopped"]
        else "; its lane went on"
        if row["order_policy"] == "skip"
        else ""
    )
    return (
        f"dead letter {row['dead_letter']} since {_at(row['died_at'])}: {row['dead_reason']} after"
        f" {_times(row['dead_attempts'], 'attempt')}, {one_line(row['dead_detail'])}{behind}"
    )


def given_up(row: Facts) -> str:
    """Who resolved its dead letter, and how."""
    return (
        f"it was dead letter {row['resolved_letter']}, and {one_line(row['resolved_by'])} set it"
        f" down as {row['resolution']} {_at(row['resolved_at'])}"
    )


def passed(row: Facts) -> str:
    """Why nothing is on record of what the lane is beyond."""
    tried = f", tried {_times(row['attempts'], 'time')}" if row["attempts"] else ""
    return (
        f"the lane is beyond it{tried}, and no delivery is on record: the days of its attempts"
        " were dropped, or the endpoint did not take its type then"
    )


def not_taken(row: Facts, type_: str) -> str:
    """Which types the endpoint takes instead."""
    taken = ", ".join(one_line(each) for each in row["types"])
    tried = f"tried {_times(row['attempts'], 'time')}, and not sent there any more"
    said = tried if row["attempts"] else "it is not sent there"
    return f"{said}: the endpoint takes {taken}, not {one_line(type_)}"


def not_taken_then(routed_at: datetime) -> str:
    """Say that its type came later."""
    return (
        f"it is not sent there: its batch was routed {_at(routed_at)}, before the endpoint was"
        " changed to take it"
    )


def before_start(row: Facts) -> str:
    """Since when the endpoint is sent to."""
    return (
        "it is not sent there: its batch was committed before the endpoint was added, at"
        f" {_at(row['starts_at'])}"
    )


def not_backfilled(row: Facts) -> str:
    """Say that lanes of old entries are missing."""
    return (
        f"the endpoint was added {_at(row['added_at'])} to get everything from the beginning, and"
        " what had been routed before was not handed over to the end"
    )


def backfill(name: str) -> str:
    """Return the command that makes the lanes that an endpoint misses."""
    return f"holdfast endpoint backfill {name}"


def lost_route(batch: Facts) -> str:
    """Say that routing and lane do not agree."""
    return (
        f"{_batch(batch)} was routed {_at(batch['routed_at'])}, and its lane does not reach this"
        " entry: that should not be"
    )


def unrouted(batch: Facts, at: datetime) -> str:
    """Which batch waits, and since when."""
    return (
        f"{_batch(batch)} waits for a dispatcher to route it, since {_at(batch['written_at'])}"
        f" ({since(batch['written_at'], at)})"
    )


def gap(subject: str, missing: int) -> str:
    """Which sequence is missing."""
    return (
        f"sequence {missing} of {one_line(subject)} is not stored, and nothing is sent past it:"
        " the lane looks again each minute. Its day was dropped while the endpoint was disabled"
        " (`holdfast audit list`), or it is lost (`holdfast check`) and may be in a backup; if it"
        " does not come back, give it up"
    )


def pass_missing(subject: str, endpoint: str) -> str:
    """Return the command that lets the lane go on behind what is missing."""
    return f"holdfast subjects pass --endpoint {endpoint} --reason TEXT {last_word(subject)}"


def behind(sequence: int, key: str) -> str:
    """Which entry goes first."""
    return f"waits behind sequence {sequence} ({key}), the head of its lane"


def sending(row: Facts, dispatchers: Sequence[Facts], at: datetime) -> str:
    """Until when the lease lasts, and who may have it."""
    left = span((row["lease_until"] - at).total_seconds())
    return (
        f"attempt {row['lane_attempt']} is under way: leased until {_at(row['lease_until'])}"
        f" ({left} left) by {_who(dispatchers, at)}"
    )


def lease_over(row: Facts, at: datetime) -> str:
    """Since when nobody has it."""
    return (
        f"its lease ran out {since(row['lease_until'], at)} ago; a dispatcher books attempt"
        f" {row['lane_attempt']} as unknown and sends it again"
    )


def state(row: Facts) -> str:
    """Who paused or disabled the endpoint, when and why."""
    who = (
        f" by {one_line(row['acted_by'])} {_at(row['acted_at'])}" if row["acted_at"] else " by hand"
    )
    why = f" ({one_line(row['state_reason'])})" if row["state_reason"] else ""
    return f"the endpoint was {row['endpoint_state']}{who}{why}"


def no_dispatcher(dispatchers: Sequence[Facts], at: datetime) -> str:
    """Who was here last."""
    draining = [each for each in dispatchers if each["alive"]]
    if draining:
        return f"the last dispatcher is winding down: {_who(draining, at)}"
    if not dispatchers:
        return "no dispatcher runs"
    last = max(dispatchers, key=lambda each: each["heartbeat_at"])
    return (
        f"no dispatcher runs; the last sign of life was of {_name(last)},"
        f" {since(last['heartbeat_at'], at)} ago"
    )


def locked(holder: Holder) -> str:
    """Who holds what delivery needs."""
    return f"{holder} holds a row that delivery needs"


def breaker(row: Facts) -> str:
    """Until when the breaker is open, and after what."""
    after = f", after {one_line(row['breaker_reason'])}" if row["breaker_reason"] else ""
    if row["breaker"] == "half_open":
        return f"the endpoint's breaker is half open: one entry of another lane is tried{after}"
    return f"the endpoint's breaker is open until {_at(row['breaker_until'])}{after}"


def receiver_asked(row: Facts) -> str:
    """Until when the receiver asked to be left alone."""
    by = f" ({one_line(row['held_by'])})" if row["held_by"] else ""
    return f"the receiver asked for time{by}: nothing is sent before {_at(row['held_until'])}"


def retry(row: Facts, at: datetime) -> str:
    """When the next attempt is due, and after what."""
    left = span((row["due_at"] - at).total_seconds())
    due = f"attempt {row['lane_attempt'] + 1} is due {_at(row['due_at'])} (in {left})"
    if row["last_outcome"] is None:
        return due
    said = one_line(row["last_error"] or "")
    status = f"HTTP {row['last_status']}" if row["last_status"] else ""
    detail = " ".join(part for part in (status, said) if part)
    return (
        f"{due}, after attempt {row['last_number']} ended {row['last_outcome']}"
        f" {_at(row['last_tried_at'])}{f' ({detail})' if detail else ''}"
    )


def due(row: Facts, at: datetime) -> str:
    """What goes before it."""
    return (
        f"due since {_at(row['due_at'])} ({since(row['due_at'], at)}); {_before(row)}, and"
        f" {_times(row['leased_lanes'], 'lane')} under way{_rate(row)}"
    )


def not_claimed(row: Facts, at: datetime) -> str:
    """What a dispatcher that takes nothing of an endpoint lacks, or may not resolve."""
    references = [
        *row["secret_refs"],
        *(row[name] for name in ("ca_ref", "client_cert_ref", "client_key_ref") if row[name]),
    ]
    taken = (
        f"due since {_at(row['due_at'])} ({since(row['due_at'], at)}), and no dispatcher takes"
        f" anything of the endpoint ({_before(row)})"
    )
    if row.get("not_allowed"):
        return f"{taken}: {one_line(row['not_allowed'])}"
    return (
        f"{taken}: one that cannot use"
        f" {', '.join(one_line(each) for each in references)} where it runs, or the URL, says"
        " `endpoint.waiting` with the reason in its log"
    )


_CAUSES = {
    SuppressedCause.REPEATED: "the decision repeated its subject's last type",
    SuppressedCause.OVERTAKEN: "a later decision of its subject had overtaken it",
}


def suppressed(batch: Facts, cause: str | None = None) -> str:
    """Say that a decision was recorded and not written; without a cause, why it may be so."""
    causes = _CAUSES.values() if cause is None else [_CAUSES[SuppressedCause(cause)]]
    return (
        f"{_batch(batch)} recorded the key {_at(batch['written_at'])} and wrote no entry:"
        f" {', or '.join(causes)}"
    )


def pruned(batch: Facts) -> str:
    """Say that an entry was dropped with its day."""
    return (
        f"{_batch(batch)} wrote it {_at(batch['written_at'])}, and that day was dropped since:"
        " everything of it had been delivered or given up"
    )


def quarantined(row: Facts) -> str:
    """Which row of the quarantine names it."""
    became = f", {row['resolution']}" if row["resolution"] else ""
    batch = "" if row["stream"] is None else f" by {_batch(row)}"
    return (
        f"it is no entry: row {row['id']} of the quarantine names it, set aside{batch}"
        f" {_at(row['quarantined_at'])} ({row['reason']}{became})"
    )


def unknown(what: str, being_written: Sequence[Holder]) -> str:
    """Say what was looked through, and what cannot be seen yet."""
    said = f"{what} was never seen here, neither as an entry nor among the newest quarantined rows"
    if not being_written:
        return said
    names = ", ".join(each.application for each in being_written)
    return f"{said}; what {names} is writing now cannot be seen before it commits"


def nothing_waits(row: Facts) -> str:
    """What was delivered last of a subject."""
    if row["delivered_number"] is None:
        return "nothing waits, and no delivery is on record"
    return f"nothing waits; sequence {row['delivered_sequence']} was {delivered(row)}"


def replayed(replay: str) -> str:
    """Which replay will send it again."""
    return f"replay {replay} is being applied and has it on its list: `holdfast replay status`"


def snapshot(holder: Holder) -> str:
    """Who keeps the database from cleaning up."""
    return (
        f"{holder} holds a snapshot: old versions of the hot rows cannot be cleaned away, and"
        " claims get slower"
    )


def _before(row: Facts) -> str:
    count = row["due_before"]
    more = "more than " if count > DUE_COUNTED_MAX else ""
    return f"{more}{_times(min(count, DUE_COUNTED_MAX), 'lane')} due before it"


def _rate(row: Facts) -> str:
    return f", at {row['rate_per_second']} a second" if row["rate_per_second"] else ""


def _who(dispatchers: Sequence[Facts], at: datetime) -> str:
    alive = [each for each in dispatchers if each["alive"]]
    if not alive:
        return "a dispatcher that gives no sign of life"
    said = ", ".join(
        f"{_name(each)} ({each['in_flight']} in flight, up for {since(each['started_at'], at)})"
        for each in alive
    )
    return said if len(alive) == 1 else f"one of {said}"


def _name(dispatcher: Facts) -> str:
    return f"{one_line(dispatcher['host'])} pid {dispatcher['pid']}"


def _batch(batch: Facts) -> str:
    return f"batch {batch['batch_id']} of stream {batch['stream']}"


def _at(moment: datetime) -> str:
    return rfc3339(moment)


def _times(count: int, noun: str) -> str:
    return f"1 {noun}" if count == 1 else f"{count} {noun}s"
