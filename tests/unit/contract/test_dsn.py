"""A DSN that is shown never shows a password."""

import pytest

from holdfast.sink.contract.dsn import redact


@pytest.mark.parametrize(
    "dsn",
    [
        "postgresql://app:hunter2@db:5432/holdfast",
        "postgresql://app:x@hunter2@db:5432/holdfast",
        "postgresql://app:x/hunter2@db:5432/holdfast",
        "postgres://app:hunter2@db/holdfast?sslmode=require",
        "postgresql://db/holdfast?user=app&password=hunter2&sslmode=require",
        "host=db password=hunter2 dbname=holdfast",
        "host=db password = 'hunter2' dbname=holdfast",
        r"host=db password='it\'s hunter2' dbname=holdfast",
        'connection failed: "postgresql://app:hunter2@db/x"',
    ],
)
def test_password_is_replaced(dsn: str) -> None:
    shown = redact(dsn)
    assert "hunter2" not in shown
    assert "***" in shown


def test_everything_else_stays() -> None:
    assert redact("host=/tmp/socket dbname=holdfast") == "host=/tmp/socket dbname=holdfast"
