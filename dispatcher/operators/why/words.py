"""The sentences and commands of `holdfast why`. Untrusted text goes through `one_line`. Pure."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from holdfast.dispatcher.operators.common.text import since, span
from holdfast.dispatcher.operators.quarantine.rules import reason_text
from holdfast.dispatcher.operators.why.lock_holders import Holder
from holdfast.dispatcher.shared.text import last_word, one_line
from holdfast.sink.contract.canonical import rfc3339
from holdfast.sink.contract.states import SuppressedCause

Facts = Mapping[str, Any]
"""A row of a statement: what is known of an endpoint, a batch or a dispatcher."""

LOGS = "holdfast status"

STOPPED = "its lane is stopped and no dead letter is open: a resolution did not release the lane"

DUE_COUNTED_MAX = 1_000
"""Maximum count of lanes before it."""


CONFIG_CHECK = "holdfast config check"
"""Where a dispatcher runs, it names the endpoints whose secrets are missing."""


def redeliver(key: str, endpoint: str) -> str:
    """Return the command that sends an entry again under its key, to this endpoint only."""
    return f"holdfast redeliver {key} --endpoint {endpoint} --reason TEXT"


def resume(name: str) -> str:
    """Return the command that resumes an endpoint."""
    return f"holdfast endpoint resume {name} --reason TEXT"


def resume_subject(subject: str, endpoint: str) -> str:
    """Return the command that resumes a subject on hold."""
    return f"holdfast subject resume --endpoint {endpoint} --reason TEXT {last_word(subject)}"


def on_hold(hold: Facts) -> str:
    """Who holds the subject at the endpoint, since when, until when and why."""
    until = "" if hold["until"] is None else f" until {_at(hold['until'])}"
    return (
        f"{one_line(hold['by'])} holds its subject at the endpoint since"
        f" {_at(hold['since'])}{until} ({one_line(hold['reason'])})"
    )


def cancelled(row: Facts) -> str:
    """Who cancelled it, when, where and why."""
    where = "at all endpoints" if row["endpoint"] is None else "at this endpoint"
    return (
        f"{one_line(row['cancelled_by'])} cancelled it {where} {_at(row['cancelled_at'])}, before"
        f" it left ({one_line(row['reason'])}); it is never sent, and later entries of its subject"
        " do not wait for it"
    )


def delivered(row: Facts) -> str:
    """When it was delivered, by which attempt, with which receipt."""
    sentence = (
        f"delivered {_at(row['delivered_at'])} by attempt {row['delivered_number']}"
        f" (HTTP {row['delivered_status']})"
    )
    proof: dict[str, Any] | None = row["receipt"]
    if proof is None:
        return f"{sentence}, without a receipt"
    outcome, moment = one_line(str(proof["outcome"])), one_line(str(proof["applied_at"]))
    return f"{sentence}; its receipt says {outcome} at {moment}"


def dead(row: Facts) -> str:
    """Which dead letter it is, why, and what waits behind it."""
    behind = (
        "; its lane waits behind it"
        if row["lane_stopped"]
        else "; its lane continued"
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
        f"it was dead letter {row['resolved_letter']}, {row['resolution']} by"
        f" {one_line(row['resolved_by'])} {_at(row['resolved_at'])}"
    )


def passed(row: Facts) -> str:
    """Why no delivery is on record although the lane has passed it."""
    tried = f", tried {_times(row['attempts'], 'time')}" if row["attempts"] else ""
    return (
        f"the lane has passed it{tried}, and no delivery is on record: the partitions of its"
        " attempts were dropped, or the endpoint did not take its type or stream then"
    )


def not_taken(row: Facts, type_: str) -> str:
    """Which streams or types the endpoint takes instead."""
    chosen, own = row["types"], type_
    if not row["takes_stream"]:
        chosen, own = row["streams"], f"stream {row['stream']}"
    taken = ", ".join(one_line(each) for each in chosen)
    tried = f"tried {_times(row['attempts'], 'time')}, and no longer sent there"
    begin = tried if row["attempts"] else "it is not sent there"
    return f"{begin}: the endpoint takes {taken}, not {one_line(own)}"


def not_taken_then(routed_at: datetime) -> str:
    """The endpoint took its type or stream only later."""
    return (
        f"it is not sent there: its batch was routed {_at(routed_at)}, before the endpoint was"
        " changed to take it"
    )


def before_start(row: Facts) -> str:
    """The endpoint was added after its batch."""
    return (
        "it is not sent there: its batch was committed before the endpoint was added, at"
        f" {_at(row['starts_at'])}"
    )


def not_backfilled(row: Facts) -> str:
    """Lanes of old entries are missing."""
    return (
        f"the endpoint was added {_at(row['added_at'])} to get entries from the beginning, and the"
        " backfill of those routed before is not complete"
    )


def backfill(name: str) -> str:
    """Return the command that creates the missing lanes of an endpoint."""
    return f"holdfast endpoint backfill {name}"


def lost_route(batch: Facts) -> str:
    """Routing and lane contradict each other."""
    return (
        f"{_batch(batch)} was routed {_at(batch['routed_at'])}, and the lane does not reach this"
        " entry: a defect"
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
        f"sequence {missing} of {one_line(subject)} is not stored, and the lane waits for it: it"
        " checks again each minute. Its partition was dropped while the endpoint was disabled"
        " (`holdfast audit list`), or it is lost (`holdfast check`) and may be in a backup; if it"
        " does not come back, skip it"
    )


def pass_missing(subject: str, endpoint: str) -> str:
    """Return the command that moves the lane past what is missing."""
    return f"holdfast subject pass --endpoint {endpoint} --reason TEXT {last_word(subject)}"


def behind(sequence: int, key: str) -> str:
    """Which entry is the head of the lane."""
    return f"waits behind sequence {sequence} ({key}), the head of its lane"


def sending(row: Facts, dispatchers: Sequence[Facts], at: datetime) -> str:
    """When the lease ends, and which dispatcher may have it."""
    left = span((row["lease_until"] - at).total_seconds())
    return (
        f"attempt {row['lane_attempt']} is in flight: leased until {_at(row['lease_until'])}"
        f" ({left} left) by {_who(dispatchers, at)}"
    )


def lease_over(row: Facts, at: datetime) -> str:
    """When the lease ended."""
    return (
        f"its lease ran out {since(row['lease_until'], at)} ago; a dispatcher records attempt"
        f" {row['lane_attempt']} as unknown and sends it again"
    )


def state(row: Facts) -> str:
    """Who paused or disabled the endpoint, when and why."""
    who = (
        f" by {one_line(row['acted_by'])} {_at(row['acted_at'])}" if row["acted_at"] else " by hand"
    )
    why = f" ({one_line(row['state_reason'])})" if row["state_reason"] else ""
    return f"the endpoint was {row['endpoint_state']}{who}{why}"


CANNOT_WRITE = "the server is read-only or a standby, so nothing can be claimed"


def no_dispatcher(dispatchers: Sequence[Facts], at: datetime) -> str:
    """Which dispatcher ran last."""
    draining = [each for each in dispatchers if each["alive"]]
    if draining:
        return f"the last dispatcher is draining: {_who(draining, at)}"
    if not dispatchers:
        return "no dispatcher runs"
    last = max(dispatchers, key=lambda each: each["heartbeat_at"])
    return (
        f"no dispatcher runs; the last heartbeat was of {_name(last)},"
        f" {since(last['heartbeat_at'], at)} ago"
    )


def locked(holder: Holder) -> str:
    """Which session holds a row that delivery needs."""
    return f"{holder} holds a row that delivery needs"


def breaker(row: Facts) -> str:
    """Until when the breaker is open, and why."""
    after = f", after {one_line(row['breaker_reason'])}" if row["breaker_reason"] else ""
    if row["breaker"] == "half_open":
        return f"the endpoint's breaker is half open: one entry of another lane is tried{after}"
    return f"the endpoint's breaker is open until {_at(row['breaker_until'])}{after}"


def receiver_asked(row: Facts) -> str:
    """Until when the receiver's Retry-After holds requests."""
    by = f" ({one_line(row['held_by'])})" if row["held_by"] else ""
    return f"the receiver asked for time{by}: nothing is sent before {_at(row['held_until'])}"


def retry(row: Facts, at: datetime) -> str:
    """When the next attempt is due, and how the last one ended."""
    left = span((row["due_at"] - at).total_seconds())
    due = f"attempt {row['lane_attempt'] + 1} is due {_at(row['due_at'])} (in {left})"
    if row["last_outcome"] is None:
        return due
    error = one_line(row["last_error"] or "")
    status = f"HTTP {row['last_status']}" if row["last_status"] else ""
    detail = " ".join(part for part in (status, error) if part)
    return (
        f"{due}, after attempt {row['last_number']} ended {row['last_outcome']}"
        f" {_at(row['last_tried_at'])}{f' ({detail})' if detail else ''}"
    )


def due(row: Facts, at: datetime) -> str:
    """Since when it is due, and what goes first."""
    return (
        f"due since {_at(row['due_at'])} ({since(row['due_at'], at)}); {_before(row)}, and"
        f" {_times(row['leased_lanes'], 'lane')} in flight{_rate(row)}"
    )


def not_claimed(row: Facts, at: datetime) -> str:
    """Which references a dispatcher that claims nothing of an endpoint may lack."""
    references = [
        *row["secret_refs"],
        *(row[name] for name in ("ca_ref", "client_cert_ref", "client_key_ref") if row[name]),
    ]
    taken = (
        f"due since {_at(row['due_at'])} ({since(row['due_at'], at)}), and no dispatcher claims"
        f" anything of the endpoint ({_before(row)})"
    )
    if row.get("not_allowed"):
        return f"{taken}: {one_line(row['not_allowed'])}"
    return (
        f"{taken}: one that cannot use"
        f" {', '.join(one_line(each) for each in references)} where it runs, or the URL, logs"
        " `endpoint.waiting` with the reason"
    )


_CAUSES = {
    SuppressedCause.REPEATED: "the decision repeated its subject's last type",
    SuppressedCause.OVERTAKEN: "a later decision of its subject had overtaken it",
}


def suppressed(batch: Facts, cause: str | None = None) -> str:
    """A decision was recorded and not written; without a cause, both possible ones."""
    causes = _CAUSES.values() if cause is None else [_CAUSES[SuppressedCause(cause)]]
    return (
        f"{_batch(batch)} recorded the key {_at(batch['written_at'])} and wrote no entry:"
        f" {', or '.join(causes)}"
    )


def pruned(batch: Facts, cancelled_by: Facts | None = None) -> str:
    """The entry was dropped with its partition, some after a person had cancelled it."""
    ended = "all its entries had been delivered, given up or cancelled"
    if cancelled_by is not None:
        where = "" if cancelled_by["endpoint"] is None else f" at {cancelled_by['endpoint']}"
        ended = (
            f"{one_line(cancelled_by['cancelled_by'])} had cancelled it{where}"
            f" {_at(cancelled_by['cancelled_at'])} ({one_line(cancelled_by['reason'])})"
        )
    return (
        f"{_batch(batch)} wrote it {_at(batch['written_at'])}, and the partition of that day was"
        f" dropped since: {ended}"
    )


def quarantined(row: Facts) -> str:
    """Which quarantined row contains it."""
    became = f", {row['resolution']}" if row["resolution"] else ""
    batch = "" if row["stream"] is None else f" by {_batch(row)}"
    return (
        f"it is not an entry: row {row['id']} of the quarantine contains it, quarantined{batch}"
        f" {_at(row['quarantined_at'])} ({reason_text(row)}{became})"
    )


def unknown(what: str, being_written: Sequence[Holder]) -> str:
    """What was searched, and what is not visible yet."""
    sentence = f"{what} is unknown here, both as an entry and among the newest quarantined rows"
    if not being_written:
        return sentence
    names = ", ".join(each.application for each in being_written)
    return f"{sentence}; what {names} is writing now is not visible before it commits"


def nothing_waits(row: Facts) -> str:
    """What was delivered last of a subject."""
    if row["delivered_number"] is None:
        return "nothing waits, and no delivery is on record"
    return f"nothing waits; sequence {row['delivered_sequence']} was {delivered(row)}"


def replayed(replay: str) -> str:
    """Which replay will send it again."""
    return f"replay {replay} is being applied and will send it: `holdfast replay status`"


def snapshot(holder: Holder) -> str:
    """Which session blocks VACUUM."""
    return (
        f"{holder} holds a snapshot: VACUUM cannot remove old versions of the hot rows, and claims"
        " get slower"
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
        return "a dispatcher without a heartbeat"
    names = ", ".join(
        f"{_name(each)} ({each['in_flight']} in flight, up for {since(each['started_at'], at)})"
        for each in alive
    )
    return names if len(alive) == 1 else f"one of {names}"


def _name(dispatcher: Facts) -> str:
    return f"{one_line(dispatcher['host'])} pid {dispatcher['pid']}"


def _batch(batch: Facts) -> str:
    return f"batch {batch['batch_id']} of stream {batch['stream']}"


def _at(moment: datetime) -> str:
    return rfc3339(moment)


def _times(count: int, noun: str) -> str:
    return f"1 {noun}" if count == 1 else f"{count} {noun}s"
