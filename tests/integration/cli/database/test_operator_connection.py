"""The connection of a command, however the command ends."""

from dispatcher.operators.common.session import operator_connection


def test_block_that_returns_while_a_statement_is_under_way_only_closes(dsn: str) -> None:
    with operator_connection(dsn) as connection:
        connection.pgconn.send_query(b"SELECT pg_sleep(60)")
    assert connection.closed
