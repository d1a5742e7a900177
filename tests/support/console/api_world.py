"""An outbox with something of everything that the admin API can show, and a server on it."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

import psycopg
import pyarrow as pa
import pytest

from holdfast.dispatcher.operators.replays.rules import ReplayFilter
from holdfast.dispatcher.operators.replays.store import Replays
from holdfast.sink import BatchInput, ReplayDiverged
from holdfast.sink.contract.key import Key
from tests.support.console.admin_api import Api, serving
from tests.support.dispatch import webhooks
from tests.support.dispatch.dispatching import SECRET, add_endpoint, drain
from tests.support.dispatch.entries import BLOCK, REFUSED, decision
from tests.support.dispatch.sender import receipt, secret_text
from tests.support.dispatch.webhooks import Behaviour, Seen, answer
from tests.support.job.decisions import Decisions
from tests.support.job.driver import Driver
from tests.support.servers.databases import copy_of

ANSWERED = "what the receiver said"
SET_ASIDE = '{"line": "what was set aside"}'
STRANGE = "m/../?x=1&y#%2F z\u2028ü"
"""A subject that is easy to get wrong in an address."""

DEAD, RETRIED = "m_dead", "m_retried"
APPLIED_AT = "2026-11-02T12:15:01Z"

HISTORY = """
    INSERT INTO holdfast.dispatcher_instance (id, host, pid, version, heartbeat_at, draining)
    VALUES (gen_random_uuid(), 'there', 2, '9', now() - interval '2 hours', false)
"""
OFFSETS = """
    UPDATE holdfast.batch
    SET source_offsets = E'v1\\n{"batchWatermarkMs":0,"batchTimestampMs":1793620800000}\\n'
        || CASE batch_id WHEN 0 THEN E'{"events":{"0":90,"1":12}}\\n-'
                         ELSE E'{"events":{"0":117,"1":12,"2":4}}\\n{"logOffset":0}' END
    WHERE stream = 'repeats'
"""

SUPPRESSED = (decision("j_1", 3), decision("j_1", 4), decision("j_1", 1, key=["overtaken"]))
"""Of stream `repeats`, not written: two repeat a block and one was overtaken by it."""


def key_text(subject: str, window: int = 1) -> str:
    """Return the key of a decision of `Decisions`, as receivers get it."""
    return Key.of(decision(subject, window, BLOCK)["key"]).text


def _behaviour(seen: Seen) -> Behaviour:
    if seen.subject == DEAD and seen.sequence == 1:
        return answer(400, ANSWERED.encode())
    if seen.subject == RETRIED:
        return answer(503, ANSWERED.encode())
    content: dict[str, Any] = {
        "key": seen.content["key"],
        "outcome": "applied",
        "applied_at": APPLIED_AT,
    }
    content["receipt"] = receipt(content)
    return answer(200, json.dumps(content).encode())


def fill(dsn: str) -> None:
    """Write batches of two streams, deliver them, let some die and some diverge, plan a replay."""
    with psycopg.connect(dsn, autocommit=True) as db, webhooks.listening() as receiver:
        receiver.script = _behaviour
        add_endpoint(db, receiver.url, schedule_seconds=[3600])
        add_endpoint(db, receiver.url, name="later", state="paused", types=[BLOCK])
        with Decisions(dsn) as decisions:
            decisions.write(DEAD, DEAD, "m_1", STRANGE)
            decisions.write(RETRIED, "m_1", "m_2")
            for number in range(3):
                decisions.write(f"m_{number}")
        _job(dsn)
        drain(dsn)
        db.execute(HISTORY)
        db.execute(OFFSETS)
    with Replays.connect(dsn) as store:
        store.plan(ReplayFilter(endpoint="payouts"), reason="again")
        store.plan(ReplayFilter(subject="m_1"), reason="once more", rate=5)


def _job(dsn: str) -> None:
    refused = [
        {"reason": reason, "detail": "cannot be read", "row": SET_ASIDE}
        for reason in ("malformed", "bad_time", "malformed")
    ]
    table = pa.Table.from_pylist(refused, REFUSED)
    spark = Driver(dsn, select=lambda rows: BatchInput(rows, table), query_id=uuid4())
    spark.batch(0, decision("j_1"), decision("j_2"))
    with pytest.raises(ReplayDiverged):
        spark.batch(0, decision("j_1"), decision("j_3"))
    spark.sink.close()
    repeats = Driver(dsn, stream="repeats", query_id=uuid4())
    repeats.batch(0, decision("j_1", 2))
    repeats.batch(1, *SUPPRESSED)
    repeats.sink.close()


@contextmanager
def world(server_dsn: str, template: str) -> Iterator[Api]:
    """Serve a database that is filled."""
    with pytest.MonkeyPatch.context() as environment, copy_of(server_dsn, template) as dsn:
        environment.setenv(SECRET, secret_text())
        fill(dsn)
        with serving(dsn) as api:
            yield api
