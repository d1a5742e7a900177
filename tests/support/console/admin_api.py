"""The admin API for tests: the real server in a thread, on a real database, with a token a role."""

import html
import json
import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Thread
from typing import Any
from uuid import UUID, uuid4

import httpx
import psycopg
import pyarrow as pa
import pytest
from fastapi.routing import APIRoute
from psycopg.rows import dict_row

from holdfast.dispatcher.api.console import routes
from holdfast.dispatcher.api.console.frame import login
from holdfast.dispatcher.api.serving import server
from holdfast.dispatcher.api.settings import ApiSettings
from holdfast.dispatcher.operators.common.session import operator_connection
from holdfast.dispatcher.operators.replays.rules import ReplayFilter
from holdfast.dispatcher.operators.replays.store import Replays
from holdfast.dispatcher.operators.tokens.store import Tokens
from holdfast.sink import BatchInput, ReplayDiverged
from holdfast.sink.contract.key import Key
from holdfast.sink.contract.states import AccessRole
from tests.support.dispatch import webhooks
from tests.support.dispatch.dispatching import SECRET, add_endpoint, drain
from tests.support.dispatch.sender import BLOCK, REFUSED, decision, receipt, secret_text
from tests.support.dispatch.webhooks import Behaviour, Seen, answer
from tests.support.job.decisions import Decisions
from tests.support.job.driver import Driver
from tests.support.servers.databases import copy_of
from tests.support.waiting import eventually

V1 = "/api/v1"
DAYS = 1


@dataclass
class Api:
    """A server that listens, and who may use it."""

    url: str
    dsn: str
    secrets: dict[str, str] = field(repr=False)
    """By the name of a role; the token is called after it."""

    client: httpx.Client = field(default_factory=lambda: httpx.Client(timeout=60))

    def ask(self, method: str, path: str, who: str | None = "admin", **more: Any) -> httpx.Response:
        """Ask as the holder of a role's token (None: as nobody), below /api/v1."""
        headers = more.pop("headers", {})
        if who is not None:
            headers = {"Authorization": f"Bearer {self.secrets[who]}", **headers}
        return self.client.request(method, self.url + V1 + path, headers=headers, **more)

    def rows(self, query: str, *parameters: object) -> list[dict[str, Any]]:
        """What the database has."""
        with psycopg.connect(self.dsn, autocommit=True, row_factory=dict_row) as connection:
            return connection.execute(query.encode(), parameters).fetchall()

    def audited(self) -> list[tuple[str, str, str, str]]:
        """The audit trail from its beginning: action, target, actor, reason."""
        rows = self.rows(
            "SELECT action, target, actor, reason FROM holdfast.operator_action ORDER BY id"
        )
        return [tuple(row.values()) for row in rows]  # type: ignore[misc]


@contextmanager
def serving(dsn: str, **settings: Any) -> Iterator[Api]:
    """Serve until the block ends; the server has ended then, whatever happened."""
    secrets = {}
    with operator_connection(dsn) as connection:
        for role in AccessRole:
            made = Tokens(connection).add(role.value, role, days=DAYS, reason="a test")
            secrets[role.value] = made["secret"]
    listener = socket.create_server(("127.0.0.1", 0))
    running = server(ApiSettings(dsn, **settings))
    thread = Thread(target=running.run, kwargs={"sockets": [listener]})
    thread.start()
    api = Api(f"http://127.0.0.1:{listener.getsockname()[1]}", dsn, secrets)
    try:
        eventually(lambda: running.started or not thread.is_alive())
        yield api
    finally:
        api.client.close()
        running.should_exit = True
        thread.join(30)
        listener.close()
    assert not thread.is_alive()


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


CSRF = re.compile(r'name="csrf" value="([0-9a-f]{64})"')
TAGS = re.compile(r"<[^>]*>")


@contextmanager
def logged_in(api: Api, role: str = "admin") -> Iterator[httpx.Client]:
    """Log in with a role's token."""
    with httpx.Client(base_url=api.url, timeout=60) as browser:
        answer = browser.post("/login", data={"token": api.secrets[role], "next": "/"})
        assert answer.status_code == 303, answer.text
        yield browser


def csrf_of(page: httpx.Response) -> str:
    """Return the token that the page's forms carry."""
    match = CSRF.search(page.text)
    assert match is not None, page.text
    return match[1]


def text_of(page: httpx.Response) -> str:
    """Return what a page says, without its tags, with single spaces."""
    return " ".join(html.unescape(TAGS.sub(" ", page.text)).split())


def link_to(page: httpx.Response, name: str) -> str | None:
    """Return where the link of this name leads, if it is there."""
    match = re.search(rf'<a [^>]*href="([^"]*)"[^>]*>{re.escape(name)}</a>', page.text)
    return None if match is None else html.unescape(match[1])


NAMES = {
    "key": key_text("m_1"),
    "id": str(UUID(int=1)),
    "replay_id": str(UUID(int=1)),
    "id_": str(UUID(int=1)),
    "number": "1",
    "name": "payouts",
    "do": "pause",
    "action": "block",
}

PATHS = {
    (method, route.path)
    for router in (login.router, *routes.ROUTERS)
    for route in router.routes
    if isinstance(route, APIRoute)
    for method in route.methods
}
CHANGES = sorted(path for method, path in PATHS if method == "POST" and path != "/login")
PAGES = sorted(path for method, path in PATHS if method == "GET" and path != "/login")


def filled(path: str) -> str:
    """Return the address of something that is there, or could be."""
    return re.sub(r"\{(\w+)\}", lambda match: NAMES[match[1]], path)
