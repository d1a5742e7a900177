"""The jobs: written by our sink and read back for the peers, so that all send the same bytes."""

import json
import random
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import psycopg
import pyarrow as pa

from holdfast.sink.contract.key import Key
from holdfast.sink.rows.batch import BatchInput, prepare
from holdfast.sink.transaction.driver_path import InDriver
from holdfast.sink.transaction.writer import Writer
from tests.support.dispatch.delivery import add_days

STREAM: Final = "bench"
START: Final = datetime(2026, 11, 2, 12, 15, tzinfo=UTC)
WINDOW: Final = timedelta(minutes=15)
SECRET_NAME: Final = "HOLDFAST_SECRET_BENCH"
SECRET: Final = "whsec_" + "YmVuY2htYXJrLXNlY3JldC1vZi10aGlydHktdHdvLWI="
IN_A_ROW: Final = 4

_TIME = pa.timestamp("us", "UTC")
_SCHEMA: Final = pa.schema(
    {
        "subject": pa.string(),
        "type": pa.string(),
        "key": pa.list_(pa.string()),
        "occurred_at": _TIME,
        "data": pa.struct(
            {"merchant_id": pa.string(), "action": pa.string()}
            | {"window_start": _TIME, "window_end": _TIME, "revision": pa.int64()}
            | {"exposure_minor": pa.int64(), "limit_minor": pa.int64()}
            | {"release_level_minor": pa.int64(), "currency": pa.string()}
            | {"policy_version": pa.string()}
        ),
    }
)

_ENDPOINT: Final = """
INSERT INTO holdfast.endpoint (name, url, secret_refs, allow_cidrs, concurrency)
VALUES ('payouts', 'http://127.0.0.1:1/webhooks', %s, '{127.0.0.0/8}', %s)
"""
_ENTRIES: Final = """
SELECT name, sequence, convert_from(body, 'UTF8')
FROM holdfast.entry JOIN holdfast.subject ON subject.id = entry.subject_id
"""


class Outbox:
    """Writes jobs as a Spark job's batches would."""

    def __init__(self, dsn: str) -> None:
        self._writer = Writer(dsn, STREAM)
        self._writer.begin_run(uuid4(), uuid4())
        self._batch_id = 0
        self._sequences: Counter[int] = Counter()

    def write(self, subjects: Sequence[int]) -> list[str]:
        """Write one batch with a job for each; returns their keys."""
        rows = [self._row(subject) for subject in subjects]
        table = pa.Table.from_pylist(rows, _SCHEMA)
        written = self._writer.write(self._batch_id, InDriver(prepare(BatchInput(table))))
        if written.counts.entries != len(rows):
            raise RuntimeError(f"{len(rows)} rows went in and {written.counts} came of them")
        self._batch_id += 1
        return [Key.of(row["key"]).text for row in rows]

    def close(self) -> None:
        """Close the connection."""
        self._writer.close()

    def _row(self, subject: int) -> dict[str, Any]:
        self._sequences[subject] += 1
        number, name = self._sequences[subject], f"m_{subject:08}"
        action = "block" if number % 2 else "release"
        end = START + number * WINDOW
        return {
            "subject": name,
            "type": f"payout_hold.{action}",
            "key": ["bench/v1", name, str(number)],
            "occurred_at": end,
            "data": {
                "merchant_id": name,
                "action": action,
                "window_start": end - WINDOW,
                "window_end": end,
                "revision": 1,
                "exposure_minor": 5_000_000 + number,
                "limit_minor": 5_000_000,
                "release_level_minor": 4_500_000,
                "currency": "USD",
                "policy_version": "2026-11-01",
            },
        }


def add_endpoint(dsn: str, connections: int, days: int = 0) -> None:
    """Add the one endpoint, which gets its port when a run begins, and the days behind."""
    with psycopg.connect(dsn, autocommit=True) as db:
        add_days(db, days)
        db.execute(_ENDPOINT, [[f"env:{SECRET_NAME}"], connections])


def point_endpoint(dsn: str, url: str, state: str = "active") -> None:
    """Let our endpoint be this receiver."""
    with psycopg.connect(dsn, autocommit=True) as db:
        db.execute("UPDATE holdfast.endpoint SET url = %s, state = %s", [url, state])


def shuffled(jobs: int, subjects: int) -> list[int]:
    """Return the subject of each of so many jobs, mixed; the n-th job of one has sequence n."""
    subjects_of = [number % subjects for number in range(jobs)]
    random.Random(jobs).shuffle(subjects_of)  # noqa: S311 - an order, not a secret
    return subjects_of


def burst(jobs: int, subjects: int) -> list[int]:
    """Return the subjects with IN_A_ROW jobs of one in a row."""
    return [number // IN_A_ROW % (subjects // IN_A_ROW) for number in range(jobs)]


def write(dsn: str, subjects: Sequence[int], batch: int, connections: int, days: int = 0) -> None:
    """Add the endpoint, and a job for each of `subjects`, `batch` of them in a transaction."""
    add_endpoint(dsn, connections, days)
    outbox = Outbox(dsn)
    for first in range(0, len(subjects), batch):
        outbox.write(subjects[first : first + batch])
    outbox.close()
    with psycopg.connect(dsn, autocommit=True) as db:
        db.execute("VACUUM (ANALYZE)")


def export(dsn: str, subjects: Sequence[int], path: Path) -> None:
    """Write the jobs, in the order in which they were added, one JSON document a line."""
    with psycopg.connect(dsn) as db:
        bodies = {(name, sequence): body for name, sequence, body in db.execute(_ENTRIES)}
    sequences: Counter[int] = Counter()
    with path.open("w") as lines:
        for subject in subjects:
            sequences[subject] += 1
            name = f"m_{subject:08}"
            body = bodies[name, sequences[subject]]
            job = {"subject": name, "key": json.loads(body)["key"], "body": body}
            lines.write(json.dumps(job) + "\n")
