"""An outbox in which every text that a stranger can choose would be markup, if a page let it."""

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from uuid import uuid4

import psycopg
import pyarrow as pa
import pytest
from psycopg.types.json import Jsonb

from holdfast.dispatcher.operators.common.session import acting_as
from holdfast.dispatcher.operators.endpoints.store import Endpoints
from holdfast.dispatcher.operators.replays.rules import ReplayFilter
from holdfast.dispatcher.operators.replays.store import Replays
from holdfast.sink import BatchInput, ReplayDiverged
from holdfast.sink.contract.key import Key
from tests.support.console import api_world
from tests.support.console.admin_api import Api, serving
from tests.support.console.browser import aside
from tests.support.dispatch import webhooks
from tests.support.dispatch.dispatching import SECRET, add_endpoint, drain
from tests.support.dispatch.entries import REFUSED, RELEASE, decision
from tests.support.dispatch.sender import secret_text
from tests.support.dispatch.webhooks import Behaviour, Seen, answer
from tests.support.job.decisions import Decisions
from tests.support.job.driver import Driver
from tests.support.servers.databases import copy_of

MARKUP = """"'><img class=canary src=/canary onerror=alert(1)><script>alert(2)</script>{{7*7}} """
"""It leaves an attribute, draws an element, runs a script, and is an expression of templates."""

WITHHELD = "value-of-a-header"
"""No page shows it to anybody."""

NOBODY = "http://127.0.0.1:9/"
"""Where nothing listens."""

INSTANCE = """
    INSERT INTO holdfast.dispatcher_instance (id, host, pid, version, heartbeat_at, draining)
    VALUES (gen_random_uuid(), %s, 3, %s, now(), false)
"""
CHECKPOINT = "UPDATE holdfast.stream SET checkpoint = %s WHERE name = 'foreign'"
OFFSETS = "UPDATE holdfast.batch SET source_offsets = %s WHERE stream = 'foreign'"
LOSE = """
    DELETE FROM holdfast.entry
    WHERE sequence = 2 AND subject_id = (SELECT id FROM holdfast.subject WHERE name = %s)
"""
BREAKER = """
    UPDATE holdfast.endpoint_pace
    SET breaker = 'open', breaker_until = now() + interval '1 day', breaker_reason = %s
    WHERE endpoint_id = %s
"""


def canary(place: str) -> str:
    """Return a text that would be markup, and names the place that it was put into."""
    return f"{MARKUP}canary-{place}"


SUBJECT, LOST = canary("subject"), canary("lost")
KEY = Key.of(decision(SUBJECT, 1)["key"])


def _behaviour(seen: Seen) -> Behaviour:
    if seen.subject == LOST:
        return answer()
    text = json.dumps({"error": canary("answer")}).encode()
    return answer(422, text, content_type="application/json")


def fill(dsn: str, folder: Path) -> None:
    """Write, deliver, refuse, diverge and plan: first what is harmless, then what is not."""
    api_world.fill(dsn)
    with psycopg.connect(dsn, autocommit=True) as db, webhooks.listening() as receiver:
        receiver.script = _behaviour
        headers = Jsonb({"x-team": WITHHELD})
        add_endpoint(db, receiver.url, name="foreign", headers=headers)
        add_endpoint(db, receiver.url, name="refused", allow_cidrs=[], types=[RELEASE])
        down = add_endpoint(db, NOBODY, name="down", types=[RELEASE], schedule_seconds=[0])
        with Decisions(dsn, "foreign") as decisions:
            decisions.write("m_released", type_=RELEASE)
            decisions.write(SUBJECT, SUBJECT, LOST)
            _refused(dsn)
            drain(dsn)
            decisions.write(LOST, LOST)
        db.execute(LOSE, [LOST])
        drain(dsn)
        db.execute(INSTANCE, [canary("host"), canary("version")])
        db.execute(CHECKPOINT, [str(folder)])
        db.execute(OFFSETS, [f'v1\n{{"batchWatermarkMs":0}}\n"{canary("offsets")}"'])
        db.execute(BREAKER, [canary("breaker"), down])
    with acting_as(canary("actor")):
        _act(dsn)


def _refused(dsn: str) -> None:
    row = {"reason": "malformed", "detail": canary("detail"), "row": canary("row")}
    table = pa.Table.from_pylist([row], REFUSED)
    spark = Driver(
        dsn, stream="diverging", select=lambda rows: BatchInput(rows, table), query_id=uuid4()
    )
    spark.batch(0, decision(canary("then")), decision("same"))
    with pytest.raises(ReplayDiverged):
        spark.batch(0, decision(canary("now")), decision("same", minor=1))
    spark.sink.close()


def _act(dsn: str) -> None:
    reason = canary("reason")
    with Endpoints.connect(dsn) as store:
        store.set_endpoint_state("down", "paused", canary("paused"))
    with Replays.connect(dsn) as store:
        cancelled = store.plan(ReplayFilter(stream="test"), reason=reason)
        store.cancel(cancelled["id"], reason)
        begun = store.plan(ReplayFilter(endpoint="payouts", subject="m_0"), reason=reason)
        store.apply(begun["id"])
        store.plan(ReplayFilter(subject=SUBJECT), reason=reason)


def plan_of_one(dsn: str) -> str:
    """Plan to send the canary's first entry again; returns the address that asks for the yes."""
    with Replays.connect(dsn) as store:
        row = store.plan(ReplayFilter(keys=(KEY.digest,)), reason="a test")
    return f"/entries/{KEY.text}/redeliver/{row['id']}"


@contextmanager
def world(server_dsn: str, template: str, folder: Path) -> Iterator[Api]:
    """Serve such an outbox."""
    with ExitStack() as stack:
        environment = stack.enter_context(pytest.MonkeyPatch.context())
        environment.setenv(SECRET, secret_text())
        dsn = stack.enter_context(copy_of(server_dsn, template))
        aside(fill, dsn, folder)
        name = psycopg.conninfo.make_conninfo(dsn, application_name="<img class=canary>program")
        stack.enter_context(psycopg.connect(name, autocommit=True))
        yield stack.enter_context(serving(dsn))
