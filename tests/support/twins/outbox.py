"""A real outbox that is driven step by step: sink, dispatchers, receiver and operators.

Each method is one step, taken by the functions that take it in production. `look` returns what a
twin of a model is compared with.
"""

import os
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from typing import Any, NamedTuple
from uuid import UUID, uuid4

import psycopg
import pytest

from holdfast.dispatcher.delivery.rules.lifecycle import state_of
from holdfast.dispatcher.delivery.store import postgres, replaying, settlement
from holdfast.dispatcher.operators.cancellations.store import Cancellations
from holdfast.dispatcher.operators.check.actions import check
from holdfast.dispatcher.operators.check.rules import Checked
from holdfast.dispatcher.operators.check.store import Checks
from holdfast.dispatcher.operators.common.session import acting_as, operator_connection
from holdfast.dispatcher.operators.common.times import When
from holdfast.dispatcher.operators.dead_letters.store import DeadLetters
from holdfast.dispatcher.operators.endpoints.settings import DEFAULTS
from holdfast.dispatcher.operators.endpoints.store import Endpoints
from holdfast.dispatcher.operators.entries.store import Entries
from holdfast.dispatcher.operators.reissue.actions import write_all
from holdfast.dispatcher.operators.reissue.store import Reissues
from holdfast.dispatcher.operators.replays.rules import ReplayFilter
from holdfast.dispatcher.operators.replays.store import Replays
from holdfast.dispatcher.operators.subjects.holding import Holding
from holdfast.dispatcher.outbound.reference_rule import rule_of
from holdfast.sink.contract.key import Key
from holdfast.sink.rows.batch import BatchInput, prepare
from holdfast.sink.rows.outcome import Written
from holdfast.sink.transaction.driver_path import InDriver
from holdfast.sink.transaction.writer import Writer
from tests.support.dispatch.delivery import age
from tests.support.dispatch.dispatching import LOOPBACK, SECRET
from tests.support.dispatch.sender import decision, table
from tests.support.twins.dispatchers import Dispatcher, Loop
from tests.support.twins.images import Image, Images
from tests.support.twins.receiver import Receiver

STREAM = "twin"

AGE_DAYS = 10
RETAIN_DAYS = 5

_LANES = """
    SELECT p.name, s.name, l.delivered_sequence,
           greatest(l.last_sequence, l.routed_sequence), l.claimed_sequence, l.attempt,
           l.rescued, l.token, l.due_at, l.on_hold_until IS NOT NULL
    FROM holdfast.lane l
    JOIN holdfast.subject s ON s.id = l.subject_id
    JOIN holdfast.endpoint p ON p.id = l.endpoint_id
"""
_ATTEMPTS = """
    SELECT p.name, s.name, a.sequence, a.number,
           CASE WHEN a.duration_ms IS NULL THEN 'rescued' ELSE a.outcome::text END
    FROM holdfast.attempt a
    JOIN holdfast.subject s ON s.id = a.subject_id
    JOIN holdfast.endpoint p ON p.id = a.endpoint_id
    ORDER BY 1, 2, 3, 4
"""
_DEAD = """
    SELECT p.name, s.name, d.sequence, d.reason::text, d.attempts, d.resolution::text
    FROM holdfast.dead_letter d
    JOIN holdfast.subject s ON s.id = d.subject_id
    JOIN holdfast.endpoint p ON p.id = d.endpoint_id
    ORDER BY d.id
"""
_OPEN_DEAD = """
    SELECT d.id
    FROM holdfast.dead_letter d
    JOIN holdfast.subject s ON s.id = d.subject_id
    JOIN holdfast.endpoint p ON p.id = d.endpoint_id
    WHERE p.name = %s AND s.name = %s AND d.sequence = %s AND d.resolution IS NULL
"""
_ENTRIES = """
    SELECT s.name, e.sequence, e.key, b.routed_at IS NOT NULL
    FROM holdfast.entry e
    JOIN holdfast.subject s ON s.id = e.subject_id
    JOIN holdfast.batch b USING (batch_no)
    ORDER BY 1, 2
"""
_ITEMS = """
    SELECT y.id, y.state::text, p.name, s.name, i.sequence, i.kind::text, i.token,
           i.settled_at IS NOT NULL, i.outcome::text
    FROM holdfast.replay y
    JOIN holdfast.replay_item i ON i.replay_id = y.id
    JOIN holdfast.subject s ON s.id = i.subject_id
    JOIN holdfast.endpoint p ON p.id = i.endpoint_id
    ORDER BY y.created_at, i.place
"""
_STATES = "SELECT name, state::text FROM holdfast.endpoint ORDER BY 1"
_UNROUTED = "SELECT batch_no FROM holdfast.batch WHERE routed_at IS NULL ORDER BY 1"
_EXPIRE = """
    UPDATE holdfast.{} SET lease_until = now() - interval '1 second' WHERE token = %s
"""
_IN_TRANSACTION = """
    SELECT pid FROM pg_stat_activity
    WHERE datname = current_database() AND application_name = %s AND state = 'idle in transaction'
"""


class LaneSeen(NamedTuple):
    """A lane as the database has it."""

    delivered: int
    last: int
    claimed: int
    attempt: int
    rescued: int
    state: str
    token: UUID | None
    is_held: bool


class DeadSeen(NamedTuple):
    """A dead letter."""

    endpoint: str
    subject: str
    sequence: int
    reason: str
    attempts: int
    resolution: str | None


class ItemSeen(NamedTuple):
    """An item of a replay."""

    replay: UUID
    state: str
    endpoint: str
    subject: str
    sequence: int
    kind: str
    token: UUID | None
    is_settled: bool
    outcome: str | None


Place = tuple[str, str, int]
"""Endpoint, subject and sequence."""


class Seen(NamedTuple):
    """What the database and the receiver have."""

    entries: dict[tuple[str, int], tuple[str, bool]]
    """By subject and sequence: the key, and whether its batch is routed."""
    lanes: dict[tuple[str, str], LaneSeen]
    attempts: dict[Place, list[tuple[int, str]]]
    """Numbers and outcomes; `rescued`: unknown by a rescue."""
    dead: list[DeadSeen]
    items: list[ItemSeen]
    endpoints: dict[str, str]
    inbox: dict[str, tuple[Any, ...]]
    """By key: subject, sequence, first outcome."""
    fences: dict[str, int]
    """By subject: the receiver's newest sequence."""
    actions: list[str]
    """The keys on which the receiver acted, in order."""
    duplicates: dict[str, int]
    """By key: requests that came after the first."""


class Outbox:
    """The real side."""

    def __init__(self, dsn: str, dispatchers: Sequence[str], stack: ExitStack) -> None:
        """`stack` ends what is opened here; the secret's variable is set."""
        self.dsn = dsn
        self.loop = Loop()
        stack.callback(self.loop.close)
        self.db = stack.enter_context(psycopg.connect(dsn, autocommit=True))
        self.receiver = Receiver(dsn)
        self.loop.run(self.receiver.open())
        stack.callback(lambda: self.loop.run(self.receiver.close()))
        self.dispatchers = {}
        for name in dispatchers:
            each = Dispatcher(name, dsn, self.receiver, rule_of(os.environ))
            self.loop.run(each.open())
            stack.callback(self._close, each)
            self.dispatchers[name] = each
        self._operator = stack.enter_context(operator_connection(dsn))
        self.endpoints = Endpoints(self._operator)
        self.replays = Replays(self._operator)
        self.reissues = Reissues(self._operator)
        self.dead_letters = DeadLetters(self._operator)
        self.holding = Holding(self._operator)
        self.entries = Entries(self._operator)
        self.cancellations = Cancellations(self._operator)
        self._checks = [stack.enter_context(Checks.connect(dsn)) for _ in range(2)]
        self._writer = Writer(dsn, STREAM, suppress_repeats=False, first_batch=1)
        stack.callback(self._writer.close)
        self._query_id = uuid4()
        self._writer.begin_run(self._query_id, uuid4())
        self._images = Images(self.db)
        self._batch_id = 0

    def _close(self, dispatcher: Dispatcher) -> None:
        self.loop.run(dispatcher.close())

    # People.

    def add_endpoint(self, name: str, **settings: Any) -> None:
        """Add an endpoint of the receiver, which retries at once."""
        row = {
            "name": name,
            "url": f"{self.receiver.url}/{name}",
            "secret_refs": [f"env:{SECRET}"],
            "allow_cidrs": [LOOPBACK],
            "schedule_seconds": [0] * 3,
            "breaker_threshold": 0,
            **settings,
        }
        self.endpoints.add_endpoint({**DEFAULTS, **row}, from_beginning=True, reason="a test")

    def set_state(self, name: str, state: str) -> None:
        """Pause, resume or disable an endpoint."""
        self.endpoints.set_endpoint_state(name, state, "a test")

    def hold(self, endpoint: str, subject: str) -> bool:
        """Hold a subject; returns whether something of it is in flight."""
        in_flight: bool = self.holding.hold(subject, endpoint, None, "a test")["in_flight"]
        return in_flight

    def resume(self, endpoint: str, subject: str) -> None:
        """Resume a subject on hold."""
        self.holding.resume(subject, endpoint, "a test")

    def cancel(self, key: str) -> None:
        """Cancel an entry at all endpoints; raises `CommandError` where something was begun."""
        parsed = Key.parse(key)
        self.cancellations.cancel(parsed, self.entries.entry(parsed), None, "a test")

    def redeliver(self, key: str, endpoint: str | None = None) -> UUID:
        """Plan and apply a replay of one key; raises `CommandError` if there is nothing to do."""
        wanted = ReplayFilter(endpoint=endpoint, keys=(Key.parse(key).digest,))
        return self.replay(wanted)

    def replay(self, wanted: ReplayFilter) -> UUID:
        """Plan and apply a replay."""
        id_: UUID = self.replays.plan(wanted, reason="a test")["id"]
        self.replays.apply(id_)
        return id_

    def dismiss(self, endpoint: str, subject: str, sequence: int) -> None:
        """Dismiss the open dead letter of an entry, so that its lane continues behind it."""
        (id_,) = self.db.execute(_OPEN_DEAD, [endpoint, subject, sequence]).fetchone() or (0,)
        self.dead_letters.dismiss([id_], "a test", skip=True)

    def reissue(self, key: str) -> str:
        """Plan and write a reissue, by two people where it needs them; returns the new key."""
        preview = self.reissues.preview(Key.parse(key))
        id_ = self.reissues.plan([preview], "a test")
        if self.replays.waits(id_):
            with acting_as("second"):
                self.replays.approve(id_, "a test")
        [done] = write_all(self.dsn, self.reissues, id_)
        return str(done["new_key"])

    # The sink.

    def ingest(self, *entries: tuple[str, int]) -> list[str]:
        """Write one batch with the decision of a subject at the nth window; returns their keys."""
        rows = [decision(subject, window) for subject, window in entries]
        self._batch_id += 1
        written = self._writer.write(self._batch_id, InDriver(prepare(BatchInput(table(*rows)))))
        assert isinstance(written, Written)
        return [Key.of(row["key"]).text for row in rows]

    # Time, faults and memory.

    def expire(self, token: UUID, *, is_item: bool = False) -> None:
        """Let the lease of this token end."""
        table_name = "replay_item" if is_item else "lane"
        self.db.execute(_EXPIRE.format(table_name).encode(), [token])

    @contextmanager
    def cut_at(self, point: str, dispatcher: Dispatcher) -> Iterator[list[int]]:
        """Cut the connection of a dispatcher that passes a failpoint in a transaction.

        Yields the processes of the server that were ended.
        """
        ended: list[int] = []

        def cut(name: str) -> None:
            if name == point:
                for (pid,) in self.db.execute(_IN_TRANSACTION, [dispatcher.application]).fetchall():
                    self.db.execute("SELECT pg_terminate_backend(%s, 5000)", [pid])
                    ended.append(pid)

        with pytest.MonkeyPatch.context() as patch:
            for module in (settlement, postgres, replaying):
                patch.setattr(module, "failpoint", cut)
            yield ended
        if ended:
            self.loop.run(dispatcher.reconnect())

    @contextmanager
    def hold_batch(self) -> Iterator[None]:
        """Let another router hold the oldest unrouted batch: a later one is routed first."""
        with psycopg.connect(self.dsn) as holder:
            holder.execute(f"{_UNROUTED} LIMIT 1 FOR UPDATE".encode())
            yield
            holder.rollback()

    def age(self) -> None:
        """Let days pass, less than a receiver keeps keys."""
        age(self.db, AGE_DAYS)

    def prune(self, dispatcher: Dispatcher) -> dict[str, set[str]]:
        """Drop old days as a dispatcher does with `--retain`; returns the outcomes by table."""
        outcomes: dict[str, set[str]] = defaultdict(set)
        store = dispatcher.store
        for name, day in self.loop.run(store.old_days(RETAIN_DAYS)).days:
            outcomes[name].add(self.loop.run(store.prune(name, day, RETAIN_DAYS)).outcome)
        return outcomes

    def take(self) -> tuple[Image, int]:
        """Return a backup: the rows, and the newest batch."""
        return self._images.take(), self._batch_id

    def put_back(self, backup: tuple[Image, int]) -> None:
        """Restore a backup, and start the sink's query again; the others keep what they know."""
        image, self._batch_id = backup
        self._images.put_back(image)
        self._writer.begin_run(self._query_id, uuid4())

    def begin(self, backup: tuple[Image, int]) -> None:
        """Begin again from a backup; no process remembers anything."""
        for each in self.dispatchers.values():
            self.loop.run(each.kill())
        self.loop.run(self.receiver.drop())
        self.put_back(backup)
        self.receiver.forget()
        for each in self.dispatchers.values():
            self.loop.run(each.load())

    # Looking.

    def subject(self, subject_id: int) -> str:
        """Return the name of a subject."""
        query = "SELECT name FROM holdfast.subject WHERE id = %s"
        (name,) = self.db.execute(query, [subject_id]).fetchone() or ("",)
        return str(name)

    def check(self) -> None:
        """Run the check that operators run; it finds nothing."""
        checked = Checked(20)
        range_ = self._checks[0].range(When(back=timedelta(days=1)), When(), None, None)
        check(self._checks, range_, checked, lambda *_: None)
        assert checked.holds, checked.kept

    def look(self) -> Seen:
        """Return everything that a twin is compared with."""
        queries = (_ENTRIES, _LANES, _ATTEMPTS, _DEAD, _ITEMS, _STATES)
        with self.db.pipeline(), self.db.transaction():
            self.db.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            cursors = [self.db.execute(each.encode()) for each in queries]
            stored, places, tried, dead, items, states = [each.fetchall() for each in cursors]
        attempts: dict[Place, list[tuple[int, str]]] = defaultdict(list)
        for endpoint, subject, sequence, number, outcome in tried:
            attempts[endpoint, subject, sequence].append((number, outcome))
        lanes: dict[tuple[str, str], LaneSeen] = {}
        for endpoint, subject, *counts, token, due_at, is_held in places:
            state = state_of(token, due_at, counts[0], counts[1])
            lanes[endpoint, subject] = LaneSeen._make([*counts, state.value, token, is_held])
        return Seen(
            entries={(name, n): (Key(key).text, routed) for name, n, key, routed in stored},
            lanes=lanes,
            attempts=dict(attempts),
            dead=[DeadSeen(*row) for row in dead],
            items=[ItemSeen(*row) for row in items],
            endpoints=dict(states),
            inbox={key: (subject, *rest) for key, subject, *rest in self.receiver.inbox()},
            fences=self.receiver.fences(),
            actions=list(self.receiver.actions),
            duplicates=dict(self.receiver.duplicates),
        )
