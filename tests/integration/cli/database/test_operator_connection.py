"""The connection of a command, however the command ends."""

import pytest

from holdfast.dispatcher.operators.common.session import operator_connection
from holdfast.migrations.upgrade import upgrade
from holdfast.sink.contract.exits import CommandError
from tests.support.servers.postgres_proxy import Fault, PostgresProxy


def test_returning_during_a_statement_only_closes(dsn: str) -> None:
    with operator_connection(dsn) as connection:
        connection.pgconn.send_query(b"SELECT pg_sleep(60)")
    assert connection.closed


def test_lost_answer_to_a_commit_is_not_taken_for_no_change(dsn: str) -> None:
    with PostgresProxy(dsn, Fault.ANSWER_LOST, 1) as proxy:
        with (
            pytest.raises(CommandError) as raised,
            operator_connection(proxy.dsn) as connection,
            connection.transaction(),
        ):
            connection.execute("SELECT")
        assert proxy.struck.is_set()
    assert "changed nothing" not in str(raised.value)


def test_upgrade_with_unanswered_commit_is_not_reported_as_failed(dsn: str) -> None:
    with PostgresProxy(dsn, Fault.ANSWER_LOST, 2) as proxy:
        with pytest.raises(CommandError) as raised:
            upgrade(proxy.dsn)
        assert proxy.struck.is_set()
    assert "not upgraded" not in str(raised.value)
    assert "No table was changed" not in str(raised.value)
