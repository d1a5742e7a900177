"""The dispatcher's server dies, and forgets what it had not brought to disk.

Real: the server's processes, SIGSTOP, SIGKILL, recovery; the dispatcher and the receiver.
"""

import asyncio

import psutil
import psycopg
import pytest

from holdfast.dispatcher.delivery.store.postgres import PostgresStore
from tests.support.dispatch.delivery import attempts, stored
from tests.support.dispatch.dispatching import SECRET, add_endpoint, drain
from tests.support.dispatch.sender import secret_text
from tests.support.dispatch.webhooks import WebhookReceiver
from tests.support.job.decisions import Decisions
from tests.support.servers.databases import processes_on, server_directory
from tests.support.servers.embedded import Server

pytestmark = pytest.mark.faults

ROUTED = "SELECT routed_at IS NOT NULL FROM holdfast.batch"


def test_routing_lost_by_a_server_crash_is_repeated_and_sent_once(
    receiver: WebhookReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SECRET, secret_text())
    with server_directory() as directory:
        server = Server(directory)
        with Decisions(server.dsn) as decisions, psycopg.connect(server.dsn, autocommit=True) as db:
            add_endpoint(db, receiver.url)
            decisions.write("m_1", "m_2")
            _stop_the_wal_writer(server)

            async def route(store: PostgresStore) -> None:
                assert (await store.route(16)).lanes == 2

            asyncio.run(stored(server.dsn, route))
            assert db.execute(ROUTED).fetchall() == [(True,)]
        server.kill()
        server.start()
        with psycopg.connect(server.dsn, autocommit=True) as db:
            assert db.execute(ROUTED).fetchall() == [(False,)]
            drain(server.dsn)
            assert db.execute(ROUTED).fetchall() == [(True,)]
            assert sorted(seen.subject for seen in receiver.seen) == ["m_1", "m_2"]
            assert [row.outcome for row in attempts(db)] == ["delivered", "delivered"]


def _stop_the_wal_writer(server: Server) -> None:
    """Let nothing reach the disk but what somebody waits for."""
    (writer,) = (
        process
        for process in map(psutil.Process, processes_on(server.data))
        if "walwriter" in " ".join(process.cmdline())
    )
    writer.suspend()
