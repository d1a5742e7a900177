"""What must hold after every fault, once it is healed and drained: one checker for all of them.

It compares what the outbox holds, what the dispatcher recorded and what receivers saw. The names
(I1, ...) are those of docs/operators/checking.md. Each violation names the key and the difference.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple
from uuid import UUID

import psycopg
from psycopg.rows import namedtuple_row

from holdfast.dispatcher.delivery.rules.lifecycle import state_of
from holdfast.dispatcher.shared.states import LaneState
from tests.support.dispatch.webhooks import Seen

ENTRIES = """
    SELECT p.name AS endpoint, s.name AS subject, e.sequence, e.key, e.body,
           l.delivered_sequence >= e.sequence AS passed, d.reason IS NOT NULL AS dead
    FROM holdfast.entry e
    JOIN holdfast.subject s ON s.id = e.subject_id
    JOIN holdfast.endpoint p ON (p.types = {} OR e.type = ANY (p.types))
        AND (p.starts_after IS NULL OR e.batch_no > p.starts_after OR e.batch_no <@ p.starts_late)
    LEFT JOIN holdfast.lane l ON l.endpoint_id = p.id AND l.subject_id = e.subject_id
    LEFT JOIN holdfast.dead_letter d
        ON d.endpoint_id = p.id AND d.subject_id = e.subject_id AND d.sequence = e.sequence
    WHERE {}
    ORDER BY 1, 2, 3
"""
CANCELLED = """
    NOT EXISTS (
        SELECT FROM holdfast.cancellation c
        WHERE c.subject_id = e.subject_id AND c.sequence = e.sequence
          AND coalesce(c.endpoint_id, p.id) = p.id
    )
"""
KNOWS_CANCELLED = "SELECT to_regclass('holdfast.cancellation') IS NOT NULL AS it"
ATTEMPTS = """
    SELECT p.name AS endpoint, s.name AS subject, a.sequence, a.number, a.outcome::text AS outcome,
           a.status, a.token, a.retry_at < a.finished_at AS backwards
    FROM holdfast.attempt a
    JOIN holdfast.subject s ON s.id = a.subject_id
    JOIN holdfast.endpoint p ON p.id = a.endpoint_id
    ORDER BY a.finished_at, 1, 2, a.sequence, a.number
"""
LANES = """
    SELECT p.name, s.name, l.token, l.due_at, l.delivered_sequence, l.last_sequence
    FROM holdfast.lane l
    JOIN holdfast.subject s ON s.id = l.subject_id
    JOIN holdfast.endpoint p ON p.id = l.endpoint_id
"""
UNROUTED = "SELECT batch_no FROM holdfast.batch WHERE routed_at IS NULL"

SHOWN_MAX = 20


class Place(NamedTuple):
    """One entry, for one endpoint."""

    endpoint: str
    subject: str
    sequence: int


class Entry(NamedTuple):
    """A decision that an endpoint is to get."""

    key: str
    body: bytes
    passed: bool
    dead: bool


class Tried(NamedTuple):
    """One attempt on record."""

    place: Place
    number: int
    outcome: str
    status: int | None
    token: UUID
    backwards: bool


def check(db: psycopg.Connection, received: Mapping[str, Sequence[Seen]]) -> None:
    """Fail with every violation; `received` is what the receiver of each endpoint saw, by name.

    Call it when everything was drained: nothing may wait, be leased or be unrouted.
    """
    entries, tried = _entries(db), _attempts(db)
    violations = [
        *_limbo(db, entries),
        *_lost(entries, received),
        *_changed(entries, received),
        *_misrecorded(entries, tried),
        *_repeated(entries, tried, received),
        *_disordered(entries, received),
    ]
    shown = "\n".join(violations[:SHOWN_MAX])
    assert not violations, f"{len(violations)} violations of {len(entries)} entries:\n{shown}"


def check_applied_once(db: psycopg.Connection, applied: Sequence[str]) -> None:
    """Fail unless a receiver applied each key exactly once (I3); `applied` has one for each."""
    counts = Counter(applied)
    keys = {entry.key for entry in _entries(db).values()}
    violations = [
        f"I3 {key}: applied {counts[key]} times" for key in sorted(keys) if counts[key] != 1
    ]
    violations += [f"I1 {key}: applied, but never decided" for key in sorted(counts.keys() - keys)]
    assert not violations, "\n".join(violations[:SHOWN_MAX])


def _entries(db: psycopg.Connection) -> dict[Place, Entry]:
    """Read what each endpoint is to get: not what a person cancelled there."""
    with db.cursor(row_factory=namedtuple_row) as cursor:
        (known,) = cursor.execute(KNOWS_CANCELLED).fetchone() or (False,)
        wanted = ENTRIES.format("'{}'", CANCELLED if known else "true").encode()
        return {
            Place(row.endpoint, row.subject, row.sequence): Entry(
                f"hf_{row.key.hex}", bytes(row.body), bool(row.passed), row.dead
            )
            for row in cursor.execute(wanted)
        }


def _attempts(db: psycopg.Connection) -> list[Tried]:
    with db.cursor(row_factory=namedtuple_row) as cursor:
        return [
            Tried(
                Place(row.endpoint, row.subject, row.sequence),
                row.number,
                row.outcome,
                row.status,
                row.token,
                bool(row.backwards),
            )
            for row in cursor.execute(ATTEMPTS)
        ]


def _limbo(db: psycopg.Connection, entries: Mapping[Place, Entry]) -> Iterator[str]:
    """I9: every entry is delivered or a dead letter; none waits unseen."""
    for (batch_no,) in db.execute(UNROUTED):
        yield f"I9 batch {batch_no}: not routed"
    for endpoint, subject, token, due, delivered, last in db.execute(LANES):
        state = state_of(token, due, delivered, last)
        if state not in (LaneState.IDLE, LaneState.STOPPED):
            yield f"I9 lane {endpoint}/{subject}: {state.value} at {delivered} of {last}, due {due}"
        dead = entries.get(Place(endpoint, subject, delivered + 1))
        if state is LaneState.STOPPED and (dead is None or not dead.dead):
            yield f"I9 lane {endpoint}/{subject}: stopped at {delivered} without a dead letter"


def _lost(entries: Mapping[Place, Entry], received: Mapping[str, Sequence[Seen]]) -> Iterator[str]:
    """I1: what was decided arrived, and nothing else did."""
    arrived = {
        (name, seen.header("webhook-id")) for name, all_ in received.items() for seen in all_
    }
    wanted = {(place.endpoint, entry.key): place for place, entry in entries.items()}
    behind_dead = {place[:2] for place, entry in entries.items() if entry.dead}
    for (name, key), place in wanted.items():
        if (name, key) not in arrived and place[:2] not in behind_dead:
            yield f"I1 {key}: {place} never arrived"
    for name, key in arrived - wanted.keys():
        yield f"I1 {key}: arrived at {name}, but is not a decision of the outbox"


def _changed(
    entries: Mapping[Place, Entry], received: Mapping[str, Sequence[Seen]]
) -> Iterator[str]:
    """I4: the same key comes with the same bytes, those that were stored."""
    bodies = {entry.key: entry.body for entry in entries.values()}
    for seen in (seen for all_ in received.values() for seen in all_):
        key = seen.header("webhook-id")
        if seen.header("idempotency-key") != f'"{key}"':
            yield f"I4 {key}: came with idempotency-key {seen.header('idempotency-key')}"
        stored = bodies.get(key)
        if stored is not None and seen.body != stored:
            yield f"I4 {key}: stored {stored!r}, arrived {seen.body!r}"


def _misrecorded(entries: Mapping[Place, Entry], tried: Sequence[Tried]) -> Iterator[str]:
    """I5, I7, I8: recorded attempts are consistent with each other and with the lanes."""
    of_entry: dict[Place, list[Tried]] = defaultdict(list)
    of_lane: dict[tuple[str, str], list[UUID]] = defaultdict(list)
    for each in tried:
        of_entry[each.place].append(each)
        tokens = of_lane[each.place[:2]]
        if each.token in tokens[:-1]:
            yield f"I8 {each.place}: lease {each.token} wrote after lease {tokens[-1]}"
        elif tokens[-1:] != [each.token]:
            tokens.append(each.token)
        if each.backwards:
            yield f"I16 {each.place}: attempt {each.number} is to be repeated before it ended"
    for place, entry in entries.items():
        attempts = of_entry.pop(place, [])
        numbers = [each.number for each in attempts]
        if numbers != list(range(1, len(numbers) + 1)):
            yield f"I7 {entry.key}: {place} has attempts {numbers}"
        good = [each.number for each in attempts if each.outcome == "delivered"]
        if len(good) != int(entry.passed and not entry.dead):
            yield f"I5 {entry.key}: {place} passed={entry.passed}, but attempts {good} delivered"
        if good and good[-1] != numbers[-1]:
            yield f"I8 {entry.key}: {place} tried again (attempts {numbers}) after {good[-1]}"
    for place in of_entry:
        yield f"I1 {place}: has attempts, but is not a decision of the outbox"


def _repeated(
    entries: Mapping[Place, Entry], tried: Sequence[Tried], received: Mapping[str, Sequence[Seen]]
) -> Iterator[str]:
    """I10: an entry arrives once for each answer, and at most once for each unknown outcome."""
    arrived = Counter(
        (name, seen.header("webhook-id")) for name in received for seen in received[name]
    )
    known = Counter(each.place for each in tried if each.status is not None)
    unknown = Counter(each.place for each in tried if each.outcome == "unknown")
    for place, entry in entries.items():
        count = arrived[place.endpoint, entry.key]
        if not known[place] <= count <= known[place] + unknown[place]:
            yield (
                f"I10 {entry.key}: {place} arrived {count} times,"
                f" with {known[place]} answers and {unknown[place]} unknown outcomes"
            )


def _disordered(
    entries: Mapping[Place, Entry], received: Mapping[str, Sequence[Seen]]
) -> Iterator[str]:
    """I11: the first arrivals of a subject are in sequence order, without a gap."""
    wanted: dict[tuple[str, str], list[int]] = defaultdict(list)
    for place in sorted(entries):
        wanted[place[:2]].append(place.sequence)
    for name, all_ in received.items():
        first: dict[str, dict[int, str]] = defaultdict(dict)
        for seen in all_:
            first[seen.subject].setdefault(seen.sequence, seen.header("webhook-id"))
        for subject, keys in first.items():
            order, due = list(keys), wanted[name, subject][: len(keys)]
            for place, sequence in enumerate(order):
                if due[place : place + 1] != [sequence]:
                    yield (
                        f"I11 {keys[sequence]}: {name}/{subject} first arrived as {order},"
                        f" not {due}"
                    )
                    break
