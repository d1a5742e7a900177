"""The checker of the other fault tests finds each violation, and names the key.

Real: a delivery that went well, in Postgres and at a receiver. Then one thing is made wrong, in
the tables or in what was seen. Asserted: what the checker says.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace

import psycopg
import pytest

from tests.support.dispatch import webhooks
from tests.support.dispatch.dispatching import SECRET, add_endpoint, drain
from tests.support.dispatch.invariants import check, check_applied_once
from tests.support.dispatch.sender import secret_text
from tests.support.dispatch.webhooks import Seen
from tests.support.job.decisions import Decisions
from tests.support.servers.databases import copy_of

pytestmark = pytest.mark.faults

Received = list[Seen]


@pytest.fixture(scope="module")
def delivered(server_dsn: str, template_database: str) -> Iterator[tuple[str, Received]]:
    """A database in which three decisions of one subject were delivered, and their requests."""
    with (
        copy_of(server_dsn, template_database) as dsn,
        webhooks.listening() as receiver,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setenv(SECRET, secret_text())
        with psycopg.connect(dsn, autocommit=True) as db, Decisions(dsn) as decisions:
            add_endpoint(db, receiver.url)
            decisions.write("m_1", "m_1", "m_1")
        drain(dsn)
        yield dsn, receiver.seen


@pytest.fixture
def db(delivered: tuple[str, Received]) -> Iterator[psycopg.Connection]:
    """A connection whose changes are undone."""
    with psycopg.connect(delivered[0]) as db:
        yield db
        db.rollback()


@pytest.fixture
def seen(delivered: tuple[str, Received]) -> Received:
    return list(delivered[1])


def _complaint(db: psycopg.Connection, seen: Received) -> str:
    with pytest.raises(AssertionError) as caught:
        check(db, {"payouts": seen})
    return str(caught.value)


def test_correct_delivery_has_no_complaint(db: psycopg.Connection, seen: Received) -> None:
    assert len(seen) == 3
    check(db, {"payouts": seen})


SEEN: dict[str, tuple[Callable[[Received], Received], str]] = {
    "one is lost": (lambda seen: seen[:-1], "I1"),
    "one came twice": (lambda seen: [*seen, seen[-1]], "I10"),
    "two are swapped": (lambda seen: [seen[1], seen[0], seen[2]], "I11"),
    "one has other bytes": (
        lambda seen: [*seen[:2], replace(seen[2], body=seen[2].body + b" ")],
        "I4",
    ),
}


@pytest.mark.parametrize("name", SEEN)
def test_wrong_arrival_is_reported_with_its_key(
    db: psycopg.Connection, seen: Received, name: str
) -> None:
    change, invariant = SEEN[name]
    complaint = _complaint(db, change(seen))
    assert f"{invariant} hf_" in complaint


TABLES = {
    "attempt missing": ("DELETE FROM holdfast.attempt WHERE sequence = 2", "I5 hf_"),
    "attempts with a gap": ("UPDATE holdfast.attempt SET number = 2 WHERE sequence = 2", "I7 hf_"),
    "unknown and delivered": (
        "UPDATE holdfast.attempt SET outcome = 'unknown', status = NULL WHERE sequence = 2",
        "I5 hf_",
    ),
    "tried after delivery": (
        (
            "INSERT INTO holdfast.attempt (endpoint_id, subject_id, sequence, number, finished_at,"
            " token, outcome) SELECT endpoint_id, subject_id, sequence, 2, now(), token, 'unknown'"
            " FROM holdfast.attempt WHERE sequence = 2"
        ),
        "I8 hf_",
    ),
    "lane left behind": ("UPDATE holdfast.lane SET delivered_sequence = 2", "I5 hf_"),
    "lane in limbo": ("UPDATE holdfast.lane SET due_at = now()", "I9 lane payouts/m_1"),
    "batch not routed": ("UPDATE holdfast.batch SET routed_at = NULL", "I9 batch"),
}


@pytest.mark.parametrize("name", TABLES)
def test_wrong_row_is_reported_with_its_key(
    db: psycopg.Connection, seen: Received, name: str
) -> None:
    statement, invariant = TABLES[name]
    db.execute(statement.encode())
    assert invariant in _complaint(db, seen)


def test_key_applied_twice_or_never_is_reported(db: psycopg.Connection, seen: Received) -> None:
    keys = [each.header("webhook-id") for each in seen]
    check_applied_once(db, keys)
    with pytest.raises(AssertionError, match=f"I3 {keys[0]}: applied 2 times"):
        check_applied_once(db, [*keys, keys[0]])
    with pytest.raises(AssertionError, match=f"I3 {keys[2]}: applied 0 times"):
        check_applied_once(db, keys[:2])
