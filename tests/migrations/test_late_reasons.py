"""Events of settled windows are kept beside late ones, and a downgrade loses none of them."""

import psycopg

from holdfast.migrations.upgrade import downgrade, upgrade

ROWS = "SELECT event_id, reason::text, amount_minor FROM holdfast.late_event ORDER BY id"


def _add(db: psycopg.Connection, event_id: str, reason: str) -> None:
    db.execute(
        "INSERT INTO holdfast.late_event (stream, reason, event_id, merchant_id, type,"
        " amount_minor, currency, occurred_at) VALUES ('payouts', %s, %s, 'm_1',"
        " 'payout_submitted', 5, 'USD', '2024-11-04 12:01Z')",
        [reason, event_id],
    )


def test_a_downgrade_keeps_events_of_settled_windows_as_late(
    dsn: str, db: psycopg.Connection
) -> None:
    for event_id, reason in (("e1", "late"), ("e2", "settled"), ("e3", "duplicate")):
        _add(db, event_id, reason)
    downgrade(dsn, "0022")
    assert db.execute(ROWS).fetchall() == [
        ("e1", "late", 5),
        ("e2", "late", 5),
        ("e3", "duplicate", 5),
    ]
    upgrade(dsn)
    _add(db, "e4", "settled")
    assert db.execute(ROWS).fetchall()[3:] == [("e4", "settled", 5)]
