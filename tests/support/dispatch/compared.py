"""An outbox and its receiver after real deliveries, the last of which lost its answer.

Three subjects were delivered and proven. The fourth was applied and committed, and the service was
killed before it answered.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pyarrow as pa
from psycopg.conninfo import conninfo_to_dict

from holdfast.sink import OutboxSink
from holdfast.sink.contract.key import Key
from holdfast.sink.foreach_batch import Identity
from tests.support.dispatch.dispatching import add_endpoint, drain
from tests.support.dispatch.payouts import payouts
from tests.support.dispatch.sender import BLOCK, NOON, hold
from tests.support.servers.databases import copy_of

DELIVERED = ("m_1", "m_2", "m_3")
UNANSWERED = "m_4"
SUBJECTS = (*DELIVERED, UNANSWERED)


@dataclass(frozen=True)
class Sides:
    """The two databases, and a connection to each for bending what is in it."""

    dsn: str
    receiver_dsn: str
    db: psycopg.Connection
    receiver: psycopg.Connection

    def at_receiver(self, query: str, subject: str = "m_2") -> None:
        """Change the inbox's row of a subject."""
        done = self.receiver.execute(query.encode(), [key_text(subject)])
        assert done.rowcount == 1


def key_of_subject(subject: str) -> list[str]:
    return ["receipts/v1", subject]


def key_text(subject: str) -> str:
    return Key.of(key_of_subject(subject)).text


def decisions(*subjects: str) -> pa.Table:
    """Decisions that the payouts service applies."""
    rows: list[dict[str, Any]] = [
        {
            "subject": each,
            "type": BLOCK,
            "key": key_of_subject(each),
            "occurred_at": NOON,
            "data": hold(each, "block"),
        }
        for each in subjects
    ]
    return pa.Table.from_pylist(rows)


def deliver_all(dsn: str, receiver_dsn: str) -> None:
    """Write and deliver the decisions, one after another, to a service that dies in the end."""
    sink = OutboxSink(dsn, stream="payouts")
    try:
        sink.apply(decisions(*SUBJECTS), Identity(UUID(int=1), uuid4(), 0))
    finally:
        sink.close()
    point = f"R4=kill@{len(SUBJECTS)}"
    with (
        payouts(receiver_dsn, failpoints=point) as service,
        psycopg.connect(dsn, autocommit=True) as db,
    ):
        url = f"{service.url}/webhooks"
        add_endpoint(db, url, schedule_seconds=[3600], concurrency=1, total_timeout_ms=20_000)
        drain(dsn)
        service.wait()


@contextmanager
def copies(server_dsn: str, dsn: str, receiver_dsn: str) -> Iterator[Sides]:
    """Yield both databases as copies, which a test may bend."""
    names = [str(conninfo_to_dict(each)["dbname"]) for each in (dsn, receiver_dsn)]
    with (
        copy_of(server_dsn, names[0]) as ours,
        copy_of(server_dsn, names[1]) as theirs,
        psycopg.connect(ours, autocommit=True) as db,
        psycopg.connect(theirs, autocommit=True) as receiver,
    ):
        yield Sides(ours, theirs, db, receiver)
