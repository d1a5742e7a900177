"""A database whose clock was set back while an endpoint was stalled."""

import psycopg

from tests.support.command import holdfast
from tests.support.dispatching import add_endpoint

STALL = """
    UPDATE holdfast.endpoint_pace
    SET stalled_since = now() - interval '1 minute', stalled_until = now() - interval '2 minutes'"""
STANDS = "SELECT paused, stalled_us, stalled_until FROM holdfast.endpoint_pace"


def test_endpoint_is_paused_and_resumed_though_its_stall_ended_before_it_began(
    dsn: str, db: psycopg.Connection
) -> None:
    add_endpoint(db, "http://127.0.0.1:1/")
    db.execute(STALL.encode())
    done = holdfast("endpoint", "pause", "payouts", "--reason", "tests", dsn=dsn)
    assert done.returncode == 0, done.stderr
    assert db.execute(STANDS).fetchall() == [(True, 0, None)]
    db.execute("""
        UPDATE holdfast.endpoint_pace
        SET held_until = now() + interval '1 minute', stalled_since = now() + interval '2 minutes'
    """)
    done = holdfast("endpoint", "resume", "payouts", "--reason", "tests", dsn=dsn)
    assert done.returncode == 0, done.stderr
    query = "SELECT stalled_until >= stalled_since FROM holdfast.endpoint_pace"
    assert db.execute(query).fetchall() == [(True,)]
