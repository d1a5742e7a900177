"""TLS to the database: what the DSN asks for is what happens, and a refusal says why."""

import logging
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest
import trustme
from psycopg.conninfo import make_conninfo

from holdfast.sink import Written
from holdfast.sink.errors import SinkError
from holdfast.sink.transaction.database import Timeouts
from tests.support.dispatch.entries import decision
from tests.support.job.driver import Driver
from tests.support.servers.tls import TlsFront

MakeDriver = Callable[..., Driver]

HASTY = Timeouts(connect_seconds=5, deadline_seconds=0.5)


@pytest.fixture
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def root(authority: trustme.CA, tmp_path: Path) -> Path:
    """The authority's certificate, as a client is given it."""
    path = tmp_path / "root.pem"
    authority.cert_pem.write_to_path(path)
    return path


def _strict(dsn: str, root: Path) -> str:
    return make_conninfo(dsn, sslmode="verify-full", sslrootcert=str(root))


def test_server_of_the_own_authority_is_written_to_under_tls(
    driver: MakeDriver, dsn: str, authority: trustme.CA, root: Path
) -> None:
    seen: list[bool] = []

    def also(connection: psycopg.Connection, _rows: object) -> None:
        seen.append(bool(connection.pgconn.ssl_in_use))

    with TlsFront(dsn, authority) as front:
        spark = driver(_strict(front.dsn, root), also=also)
        assert isinstance(spark.batch(0, decision()), Written)
        spark.sink.close()
    assert seen == [True]


@pytest.mark.parametrize(
    ("front_of", "settings", "words"),
    [
        ("other authority", {"sslmode": "verify-full"}, "certificate verify failed"),
        ("other name", {"sslmode": "verify-full"}, "does not match host name"),
        ("no tls", {"sslmode": "require"}, "server does not support SSL, but SSL was required"),
        ("own", {"sslmode": "disable"}, r"no pg_hba\.conf entry for this host, no encryption"),
        ("own", {"sslmode": "verify-full", "sslrootcert": "gone.pem"}, "does not exist"),
    ],
)
def test_refusal_says_why_and_not_the_password(
    dsn: str,
    driver: MakeDriver,
    authority: trustme.CA,
    root: Path,
    caplog: pytest.LogCaptureFixture,
    front_of: str,
    settings: dict[str, str],
    words: str,
) -> None:
    caplog.set_level(logging.DEBUG)
    authorities = {"other authority": trustme.CA(), "no tls": None}
    name = "db.example.org" if front_of == "other name" else "localhost"
    with TlsFront(dsn, authorities.get(front_of, authority), name) as front:
        given = make_conninfo(front.dsn, password="canary")
        spark = driver(
            make_conninfo(given, **({"sslrootcert": str(root)} | settings)), timeouts=HASTY
        )
        for attempt in (spark.sink.check, lambda: spark.batch(0, decision())):
            with pytest.raises(SinkError, match=words) as raised:
                attempt()
            assert "canary" not in str(raised.value)
            assert "\n" not in str(raised.value)
    assert "canary" not in caplog.text
