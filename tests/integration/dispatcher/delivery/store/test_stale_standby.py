"""A standby that is behind the upgrade of its primary ends nobody: the schema is judged there.

Real: Postgres, the store and the pool. Doubled: the standby, by a read-only session.
"""

import asyncio
import os
import socket
from contextlib import closing
from uuid import uuid4

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from holdfast.dispatcher.delivery.rules.values import Instance
from holdfast.dispatcher.delivery.store.postgres import PostgresStore
from holdfast.dispatcher.operators.common.pool import OperatorPool
from holdfast.dispatcher.operators.common.session import operator_connection
from holdfast.dispatcher.shared.errors import StoreRefusedError, UnservedCommandError, UnservedError
from holdfast.sink.contract.exits import CommandError

pytestmark = pytest.mark.rest

BEHIND = b"UPDATE holdfast.alembic_version SET version_num = '0030', serves_from = '0030'"


def _read_only(dsn: str) -> str:
    return make_conninfo(dsn, options="-c default_transaction_read_only=on")


async def _beat(dsn: str, db: psycopg.Connection) -> None:
    """One heartbeat of a dispatcher, after the revision has become an older one."""
    store = PostgresStore(dsn, connections_max=1)
    await store.open()
    try:
        db.execute(BEHIND)
        me = Instance(uuid4(), socket.gethostname(), os.getpid(), "1")
        await store.beat(me, 0, draining=False)
    finally:
        await store.close()


def test_dispatcher_waits_on_a_read_only_server_of_an_older_revision(
    dsn: str, db: psycopg.Connection
) -> None:
    with pytest.raises(StoreRefusedError, match="0030"):
        asyncio.run(_beat(_read_only(dsn), db))


def test_dispatcher_ends_on_a_primary_of_an_older_revision(
    dsn: str, db: psycopg.Connection
) -> None:
    with pytest.raises(UnservedError, match="0030"):
        asyncio.run(_beat(dsn, db))


def test_dispatcher_that_starts_on_a_stale_standby_may_start_again(
    dsn: str, db: psycopg.Connection
) -> None:
    db.execute(BEHIND)
    with pytest.raises(StoreRefusedError, match="0030"):
        asyncio.run(PostgresStore(_read_only(dsn)).open())


@pytest.mark.parametrize("read_only", [True, False], ids=["standby", "primary"])
def test_api_server_ends_on_a_primary_of_an_older_revision_alone(
    dsn: str, db: psycopg.Connection, read_only: bool
) -> None:
    given = _read_only(dsn) if read_only else dsn
    with closing(OperatorPool(given, 1)) as pool:
        pool.open()
        assert pool.misfit() is None
        db.execute(BEHIND)
        assert (pool.misfit() is None) is read_only
    with pytest.raises(CommandError, match="0030") as refused, operator_connection(given):
        pass
    assert isinstance(refused.value, UnservedCommandError) is not read_only
