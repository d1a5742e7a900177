"""A small batch on a large outbox: each statement finds its rows by the index its file names."""

from typing import Any
from uuid import UUID

import psycopg
import pytest
from psycopg import ClientCursor

from holdfast.sink.transaction.database import statement

pytestmark = pytest.mark.rest

SUBJECTS = KEYS = 250_000
LATEST = KEYS // 100
SOME_KEYS = f"{{{UUID(int=1)},{UUID(int=2)}}}"

EXPECTED: list[tuple[str, dict[str, Any], set[str]]] = [
    ("subjects/lock_subjects", {"names": '{"m_1","m_250000","m_250001"}'}, {"uq_subject_name"}),
    (
        "keys/known_keys",
        {"batch_no": LATEST, "keys": SOME_KEYS, "contents": SOME_KEYS},
        {"pk_entry_key"},
    ),
    (
        "subjects/advance_subjects",
        {
            "stream": "payouts",
            "ids": "{1,2}",
            "sequences": "{1,2}",
            "types": "{a,b}",
            "times": "{2026-11-02,2026-11-02}",
            "written_at": "2026-11-02",
        },
        {"pk_subject", "pk_transition"},
    ),
    ("subjects/read_transitions", {"ids": "{1,2}", "stream": "payouts"}, {"pk_transition"}),
    (
        "rows/compare_keys",
        {"batch_no": LATEST, "keys": SOME_KEYS, "contents": SOME_KEYS},
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
    db.execute(
        "INSERT INTO holdfast.transition SELECT id, 'payouts', 'a', now(), now()"
        " FROM holdfast.subject"
    )
    db.execute("VACUUM ANALYZE holdfast.subject, holdfast.entry_key, holdfast.transition")


def test_statements_use_their_indexes(db: psycopg.Connection) -> None:
    _fill(db)
    for name, values, indexes in EXPECTED:
        plan_lines = ClientCursor(db).execute(b"EXPLAIN " + statement(name), values).fetchall()
        plan = "\n".join(line for (line,) in plan_lines)
        assert {index for index in indexes if index in plan} == indexes, plan
        assert "Seq Scan on subject" not in plan
        assert "Seq Scan on entry_key" not in plan
        assert "Seq Scan on transition" not in plan
