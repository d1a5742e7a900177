"""The inbox in a real transaction; each claim holds for all four drivers."""

from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import psycopg
import pytest

from holdfast.receiver import Delivery, Inbox, NoTransaction, Receipt
from holdfast.sink.contract.wire import ReceiptOutcome
from tests.support.dispatch.inboxes import DRIVERS, SUBJECT, Act, delivery, receiving
from tests.support.waiting import eventually

DUPLICATES, AT_ONCE = 50, 16
Deliver = Callable[..., Receipt]


def nothing(receipt: Receipt) -> None:
    """Apply nothing."""


@pytest.fixture(params=list(DRIVERS.values()), ids=list(DRIVERS))
def deliver(request: pytest.FixtureRequest, payouts_dsn: str) -> Deliver:
    """Deliver once on a connection of its own."""

    def run(message: Delivery, act: Act = nothing, subject: str = SUBJECT) -> Receipt:
        receipt: Receipt = request.param(payouts_dsn, message, act, subject)
        return receipt

    return run


@pytest.fixture
def other(payouts_dsn: str) -> Iterator[psycopg.Connection]:
    """Another transaction of the service."""
    with psycopg.connect(payouts_dsn) as connection:
        yield connection


def test_repeated_key_gets_the_first_result(deliver: Deliver) -> None:
    def act(receipt: Receipt) -> None:
        receipt.result = {"hold": 7}

    first = deliver(delivery(), act)
    again = deliver(delivery())
    assert (first.outcome, first.replayed) == (ReceiptOutcome.APPLIED, False)
    assert (again.outcome, again.replayed) == (ReceiptOutcome.DUPLICATE, True)
    assert again.applied_at == first.applied_at is not None
    assert again.result == {"hold": 7}


def test_action_and_key_are_rolled_back_together(deliver: Deliver) -> None:
    def act(_: Receipt) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        deliver(delivery(), act)
    assert deliver(delivery()).outcome is ReceiptOutcome.APPLIED


def test_key_belongs_to_the_services_own_transaction(
    deliver: Deliver, other: psycopg.Connection
) -> None:
    with other.transaction(force_rollback=True), receiving(other, delivery()) as receipt:
        assert receipt.outcome is ReceiptOutcome.APPLIED
    assert deliver(delivery()).outcome is ReceiptOutcome.APPLIED


def test_known_key_with_another_body_is_a_conflict_and_changes_nothing(
    deliver: Deliver, other: psycopg.Connection
) -> None:
    deliver(delivery())
    clash = deliver(delivery(data={"merchant_id": "m_1"}))
    assert (clash.outcome, clash.applied_at, clash.result) == (ReceiptOutcome.CONFLICT, None, None)
    # JSON that means the same is still another body: the bytes of one key never change.
    assert deliver(delivery(later=None)).outcome is ReceiptOutcome.CONFLICT
    assert deliver(delivery()).outcome is ReceiptOutcome.DUPLICATE
    assert other.execute("SELECT count(*) FROM payouts.inbox").fetchone() == (1,)


def test_lower_sequence_is_recorded_as_stale_and_stays_stale(
    deliver: Deliver, other: psycopg.Connection
) -> None:
    assert deliver(delivery(3)).outcome is ReceiptOutcome.APPLIED
    late = deliver(delivery(2))
    again = deliver(delivery(2))
    assert (late.outcome, late.replayed) == (ReceiptOutcome.STALE, False)
    assert (again.outcome, again.replayed) == (ReceiptOutcome.STALE, True)
    assert again.applied_at == late.applied_at
    assert deliver(delivery(4)).outcome is ReceiptOutcome.APPLIED
    assert deliver(delivery(1), subject="m_other").outcome is ReceiptOutcome.APPLIED
    fences = other.execute("SELECT * FROM payouts.inbox_subject ORDER BY subject").fetchall()
    assert fences == [("m_482", 4), ("m_other", 1)]


@pytest.mark.parametrize(
    ("sequence", "subject", "outcome"),
    [
        (1, SUBJECT, ReceiptOutcome.IN_PROGRESS),
        (2, SUBJECT, ReceiptOutcome.IN_PROGRESS),
        (1, "m_other", ReceiptOutcome.IN_PROGRESS),
        (2, "m_other", ReceiptOutcome.APPLIED),
    ],
    ids=["same key", "same subject", "same key elsewhere", "another subject"],
)
def test_running_transaction_is_not_waited_for(
    deliver: Deliver,
    other: psycopg.Connection,
    sequence: int,
    subject: str,
    outcome: ReceiptOutcome,
) -> None:
    with receiving(other, delivery()):
        # A wait here would be for ever: the other transaction ends after this block.
        receipt = deliver(delivery(sequence), subject=subject)
    assert receipt.outcome is outcome


def test_concurrent_delivery_is_applied_if_the_first_one_fails(
    deliver: Deliver, other: psycopg.Connection
) -> None:
    with other.transaction(force_rollback=True), receiving(other, delivery()):
        assert deliver(delivery()).outcome is ReceiptOutcome.IN_PROGRESS
    assert deliver(delivery()).outcome is ReceiptOutcome.APPLIED


def test_key_is_safe_from_a_writer_that_takes_no_lock(
    payouts_dsn: str, other: psycopg.Connection
) -> None:
    """The unique key is the guarantee; the locks only spare the waiting."""
    other.execute(
        "INSERT INTO payouts.inbox (key, body_sha256, subject, sequence, outcome)"
        " VALUES (%s, sha256(''), 'm_482', 1, 'applied')",
        [delivery().key],
    )
    with (
        psycopg.connect(payouts_dsn, options="-c lock_timeout=50ms") as connection,
        pytest.raises(psycopg.errors.LockNotAvailable),
        receiving(connection, delivery()),
    ):
        pytest.fail("the action must not run")


def test_fifty_concurrent_duplicates_are_applied_once(
    deliver: Deliver, other: psycopg.Connection
) -> None:
    applied: list[str] = []
    with ThreadPoolExecutor(AT_ONCE) as threads:
        receipts = list(
            threads.map(
                lambda _: deliver(
                    delivery(),
                    lambda receipt: (
                        applied.append(receipt.key)
                        if receipt.outcome is ReceiptOutcome.APPLIED
                        else None
                    ),
                ),
                range(DUPLICATES),
            )
        )
    outcomes = Counter(receipt.outcome for receipt in receipts)
    absorbed = outcomes[ReceiptOutcome.DUPLICATE] + outcomes[ReceiptOutcome.IN_PROGRESS]
    assert (outcomes[ReceiptOutcome.APPLIED], absorbed) == (1, DUPLICATES - 1)
    assert applied == [delivery().key]
    assert other.execute("SELECT count(*) FROM payouts.inbox").fetchone() == (1,)


NEW_KEY = (
    "INSERT INTO payouts.inbox (key, body_sha256, subject, sequence, outcome)"
    " VALUES (%(key)s, sha256(%(raw)s), 'm_482', 1, 'applied')"
)
NEW_FENCE = "INSERT INTO payouts.inbox_subject VALUES ('m_482', 7)"


@pytest.mark.parametrize(
    ("written", "outcome", "kept"),
    [
        (NEW_KEY, ReceiptOutcome.DUPLICATE, [("applied",)]),
        (NEW_FENCE, ReceiptOutcome.STALE, [("stale",)]),
    ],
    ids=["key", "fence"],
)
def test_commit_during_a_claim_is_seen(
    deliver: Deliver,
    other: psycopg.Connection,
    payouts_dsn: str,
    written: str,
    outcome: ReceiptOutcome,
    kept: list[tuple[str]],
) -> None:
    message = delivery()
    other.execute(written, {"key": message.key, "raw": message.raw})
    with ThreadPoolExecutor() as threads, psycopg.connect(payouts_dsn, autocommit=True) as watch:
        running = threads.submit(deliver, message)
        waiting = "SELECT FROM pg_locks WHERE NOT granted AND transactionid IS NOT NULL"
        try:
            eventually(lambda: watch.execute(waiting.encode()).fetchone() is not None)
        finally:
            other.commit()
        assert running.result().outcome is outcome
    assert other.execute("SELECT outcome FROM payouts.inbox").fetchall() == kept


@pytest.mark.parametrize("pipeline", [False, True])
def test_delivery_without_a_transaction_is_refused_before_it_writes(
    payouts_dsn: str, *, pipeline: bool
) -> None:
    with psycopg.connect(payouts_dsn, autocommit=True) as connection, ExitStack() as stack:
        if pipeline:
            stack.enter_context(connection.pipeline())
        with pytest.raises(NoTransaction):
            Inbox().receive_sync(connection, delivery(), subject=SUBJECT)
        with Inbox().transaction_sync(connection):
            receipt = Inbox().receive_sync(connection, delivery(), subject=SUBJECT)
        assert receipt.outcome is ReceiptOutcome.APPLIED


def test_delivery_joins_a_transaction_of_the_services_own(
    deliver: Deliver, payouts_dsn: str
) -> None:
    for autocommit in (True, False):
        with psycopg.connect(payouts_dsn, autocommit=autocommit) as connection:
            connection.execute("BEGIN" if autocommit else "SELECT 1")
            receipt = Inbox().receive_sync(connection, delivery(), subject=SUBJECT)
            assert receipt.outcome is ReceiptOutcome.APPLIED
            connection.rollback()
    assert deliver(delivery()).outcome is ReceiptOutcome.APPLIED


def test_schema_is_the_services_choice_and_schemas_do_not_meet(
    payouts_dsn: str, deliver: Deliver
) -> None:
    elsewhere = Inbox(schema='Pay"outs {2} 5%(s:x')
    with psycopg.connect(payouts_dsn) as connection, connection.transaction(force_rollback=True):
        for _ in range(2):
            connection.execute(elsewhere.ddl)
        receipt = elsewhere.receive_sync(connection, delivery(), subject=SUBJECT)
        assert receipt.outcome is ReceiptOutcome.APPLIED
        assert deliver(delivery()).outcome is ReceiptOutcome.APPLIED
