"""Keys are recorded once, whichever way is tried first."""

import psycopg
import pytest

from holdfast.sink.rows.batch import BatchInput, prepare
from holdfast.sink.transaction.keys import add_keys
from tests.support.dispatch.entries import decision, table

FIRST, SECOND = 1, 2


@pytest.mark.parametrize("expect_known", [False, True])
def test_a_known_key_is_found_and_the_others_are_recorded(
    db: psycopg.Connection, *, expect_known: bool
) -> None:
    def entries(*minors: int) -> object:
        rows = [decision(f"m_{n}", minor=minor) for n, minor in enumerate(minors)]
        return prepare(BatchInput(table(*rows))).arrived

    connection = psycopg.connect(db.info.dsn, password=db.info.password, autocommit=True)
    with connection, connection.transaction():
        first = add_keys(connection, entries(1, 1), FIRST, expect_known=expect_known)
        second = add_keys(connection, entries(1, 2, 3), SECOND, expect_known=expect_known)
    assert (first.fresh.tolist(), first.differing) == ([True, True], 0)
    assert (second.fresh.tolist(), second.differing) == ([False, False, True], 1)
    found = db.execute("SELECT batch_no, count(*) FROM holdfast.entry_key GROUP BY 1 ORDER BY 1")
    assert found.fetchall() == [(FIRST, 2), (SECOND, 1)]


def test_no_key_is_no_work(db: psycopg.Connection) -> None:
    none = prepare(BatchInput(table())).arrived
    connection = psycopg.connect(db.info.dsn, password=db.info.password, autocommit=True)
    with connection, connection.transaction():
        assert add_keys(connection, none, FIRST, expect_known=False).fresh.tolist() == []
