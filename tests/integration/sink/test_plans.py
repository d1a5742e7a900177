"""A small batch on a large outbox: each statement finds its rows by the index its file names."""

from typing import Any

import psycopg

from sink.batch import BatchInput, prepare
from sink.database import Timeouts, open_session, statement
from sink.driver_path import InDriver
from tests.support.entries import decision, table

SUBJECTS = KEYS = 250_000
LATEST = KEYS // 100

EXPECTED: list[tuple[str, dict[str, Any], set[str]]] = [
    ("lock_subjects", {}, {"uq_subject_name"}),
    ("number_entries", {"batch_no": LATEST, "suppress": True}, {"uq_subject_name"}),
    ("count_differing", {"batch_no": LATEST}, {"pk_entry_key"}),
    (
        "compare_keys",
        {"batch_no": LATEST},
        {"ix_entry_key_batch_no", "pk_entry_key"},
    ),
]


def _fill(db: psycopg.Connection) -> None:
    db.execute(
        "INSERT INTO holdfast.subject (name) SELECT 'm_' || n FROM generate_series(1, %s) AS n",
        [SUBJECTS],
    )
    db.execute(
        "INSERT INTO holdfast.entry_key (key, content, batch_no)"
        " SELECT gen_random_uuid(), gen_random_uuid(), n / 100 FROM generate_series(1, %s) AS n",
        [KEYS],
    )
    db.execute("VACUUM ANALYZE holdfast.subject, holdfast.entry_key")


def test_statements_use_their_indexes(dsn: str, db: psycopg.Connection) -> None:
    _fill(db)
    rows = table(*(decision(f"m_{n}") for n in (1, SUBJECTS, SUBJECTS + 1)))
    session = open_session(dsn, "payouts", Timeouts())
    with session, session.transaction():
        InDriver(prepare(BatchInput(rows))).stage(session)
        for name, values, indexes in EXPECTED:
            found = session.execute(b"EXPLAIN " + statement(name), values).fetchall()
            plan = "\n".join(line for (line,) in found)
            assert {index for index in indexes if index in plan} == indexes, plan
            assert "Seq Scan on subject" not in plan
            assert "Seq Scan on entry_key" not in plan
