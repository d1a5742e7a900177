"""What the inbox's columns take, in tables of today and in those of the first version."""

import psycopg
import pytest
from psycopg.errors import CheckViolation

from holdfast.receiver import Delivery, Inbox, Secret, verify
from holdfast.sink.contract.wire import ReceiptOutcome
from tests.support.dispatch.inboxes import DRIVERS, Driver, receiving
from tests.support.dispatch.sender import KEY_BYTES, Sent

FIRST_VERSION = """
    DROP SCHEMA payouts CASCADE;
    CREATE SCHEMA payouts;
    CREATE TABLE payouts.inbox (
        key         text        NOT NULL CONSTRAINT pk_inbox PRIMARY KEY,
        body_sha256 bytea       NOT NULL,
        subject     text        NOT NULL,
        sequence    bigint      NOT NULL,
        outcome     text        NOT NULL,
        result      jsonb,
        received_at timestamptz NOT NULL DEFAULT now(),
        CONSTRAINT ck_inbox_key CHECK (key ~ '^hf_[0-9a-f]{32}$'),
        CONSTRAINT ck_inbox_body_sha256 CHECK (octet_length(body_sha256) = 32),
        CONSTRAINT ck_inbox_sequence CHECK (sequence >= 1),
        CONSTRAINT ck_inbox_outcome CHECK (outcome IN ('applied', 'stale'))
    );
    CREATE INDEX ix_inbox_received_at ON payouts.inbox (received_at);
    CREATE TABLE payouts.inbox_subject (
        subject       text   NOT NULL CONSTRAINT pk_inbox_subject PRIMARY KEY,
        last_sequence bigint NOT NULL,
        CONSTRAINT ck_inbox_subject_last_sequence CHECK (last_sequence >= 1)
    ) WITH (fillfactor = 70);
"""
WITHOUT_FUNCTIONS = """
    DROP TRIGGER tr_inbox_commit ON payouts.inbox;
    DROP FUNCTION payouts.inbox_receive, payouts.inbox_result, payouts.inbox_find,
        payouts.inbox_prune, payouts.inbox_commit, payouts.inbox_version;
    DROP INDEX payouts.ix_inbox_received_at
"""
NEW = """
    INSERT INTO payouts.inbox (key, body_sha256, subject, sequence, outcome)
    VALUES ('hf_' || repeat('a', 32), sha256('x'), 'm_482', 1, 'applied')
"""


VERSIONS = {
    "of today": "SELECT",
    "before the functions": WITHOUT_FUNCTIONS,
    "of the first version": FIRST_VERSION,
}


@pytest.fixture(params=VERSIONS.values(), ids=VERSIONS)
def tables(request: pytest.FixtureRequest, payouts_dsn: str) -> str:
    """Tables of one version, which today's DDL leaves as they are."""
    with psycopg.connect(payouts_dsn) as connection:
        connection.execute(request.param)
        connection.execute(Inbox().ddl)
    return payouts_dsn


def delivery(sequence: int) -> Delivery:
    sent = Sent.of("m_482", "block", sequence)
    return verify(sent.headers, sent.content, [Secret(KEY_BYTES)])


@pytest.mark.parametrize("driver", list(DRIVERS.values()), ids=list(DRIVERS))
def test_every_driver_delivers_into_tables_of_either_version(tables: str, driver: Driver) -> None:
    """A key that comes again and a sequence that comes late take the other statements."""
    later, earlier = delivery(2), delivery(1)
    outcomes = [
        driver(tables, message, lambda _receipt: None, "m_482").outcome
        for message in (later, later, earlier)
    ]
    assert outcomes == [ReceiptOutcome.APPLIED, ReceiptOutcome.DUPLICATE, ReceiptOutcome.STALE]


@pytest.mark.parametrize(
    "change",
    [
        "key = 'hf_1'",
        "key = upper(key)",
        "key = key || 'a'",
        "key = 'HF_' || substr(key, 4)",
        "key = substr(key, 1, 34) || 'g'",
        "key = substr(key, 1, 34) || e'\\n'",
        "body_sha256 = 'x'",
        "sequence = 0",
        "outcome = 'duplicate'",
    ],
)
def test_what_no_delivery_can_have_is_refused(tables: str, change: str) -> None:
    with psycopg.connect(tables) as connection:
        connection.execute(NEW)
        with pytest.raises(CheckViolation):
            connection.execute(f"UPDATE payouts.inbox SET {change}".encode())


def test_fence_below_the_first_sequence_is_refused(tables: str) -> None:
    with psycopg.connect(tables) as connection, pytest.raises(CheckViolation):
        connection.execute("INSERT INTO payouts.inbox_subject VALUES ('m_482', 0)")


@pytest.mark.parametrize("version", VERSIONS.values(), ids=VERSIONS)
def test_keys_of_an_older_inbox_stay_known(payouts_dsn: str, version: str) -> None:
    known, late = delivery(2), delivery(1)
    with psycopg.connect(payouts_dsn) as connection:
        connection.execute(version.encode())
        connection.execute(
            "INSERT INTO payouts.inbox (key, body_sha256, subject, sequence, outcome, result)"
            " VALUES (%s, sha256(%s), 'm_482', 2, 'applied', '{\"hold\": 7}')",
            [known.key, known.raw],
        )
        connection.execute("INSERT INTO payouts.inbox_subject VALUES ('m_482', 2)")
        connection.commit()
        connection.execute(Inbox().ddl)
        receipts = [
            Inbox().receive_sync(connection, each, subject="m_482") for each in (known, late)
        ]
    duplicate, stale = ReceiptOutcome.DUPLICATE, ReceiptOutcome.STALE
    assert [receipt.outcome for receipt in receipts] == [duplicate, stale]
    assert receipts[0].result == {"hold": 7}


def test_connection_goes_on_where_the_tables_are_made_anew(payouts_dsn: str) -> None:
    """What it has prepared was planned for columns of types that are gone."""
    inbox = Inbox()
    with (
        psycopg.connect(payouts_dsn, autocommit=True, prepare_threshold=0) as connection,
        psycopg.connect(payouts_dsn, autocommit=True) as other,
    ):
        outcomes = []
        for _ in range(2):
            for sequence in (2, 3, 1):
                with receiving(connection, delivery(sequence)) as receipt:
                    pass
                outcomes.append(receipt.outcome)
            other.execute("DROP SCHEMA payouts CASCADE")
            other.execute(inbox.ddl)
    applied, stale = ReceiptOutcome.APPLIED, ReceiptOutcome.STALE
    assert outcomes == [applied, applied, stale] * 2
