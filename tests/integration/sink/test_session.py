"""The session: to which databases, as whom, under which TLS the sink writes, and what it says."""

import json
import logging
import os
import socket
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Thread
from typing import Any

import psycopg
import pytest
import trustme
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from holdfast.sink import OutboxSink, SchemaMismatch, Written
from holdfast.sink.errors import AccessDenied, SinkError, SinkUnavailable
from holdfast.sink.transaction.database import Timeouts, _refuse_unfit
from tests.support.dispatch.sender import decision
from tests.support.job.driver import PARTITIONS, MakeDriver
from tests.support.servers.postgres_proxy import TlsFront
from tests.support.waiting import eventually
from tests.support.world import World


def _database(dsn: str) -> sql.Identifier:
    return sql.Identifier(str(conninfo_to_dict(dsn)["dbname"]))


def test_the_sinks_role_is_all_that_a_batch_needs(driver: MakeDriver, app_dsn: str) -> None:
    seen: list[tuple[str, ...]] = []

    def also(connection: psycopg.Connection, _rows: object) -> None:
        row = connection.execute(
            "SELECT session_user::text, current_user::text, current_setting('lock_timeout')"
        ).fetchone()
        assert row is not None
        seen.append(row)

    spark = driver(app_dsn, also=also)
    assert isinstance(spark.batch(0, decision()), Written)
    assert seen == [(conninfo_to_dict(app_dsn)["user"], "holdfast_sink", "20s")]
    spark.sink.close()


def test_user_without_the_sink_role_is_reported(world: World, app_dsn: str) -> None:
    user = str(conninfo_to_dict(app_dsn)["user"])
    world.db.execute(sql.SQL("REVOKE holdfast_sink FROM {}").format(sql.Identifier(user)))
    with pytest.raises(SchemaMismatch, match=rf'GRANT holdfast_sink TO "{user}"'):
        world.driver(app_dsn).batch(0)


def test_database_without_the_schema_is_refused(
    world: World, make_database: Callable[[str | None], str]
) -> None:
    with pytest.raises(SchemaMismatch, match=r"no Holdfast schema.*`holdfast db upgrade`"):
        world.driver(make_database(None)).sink.check()


def test_other_schema_revision_is_refused(driver: MakeDriver, db: psycopg.Connection) -> None:
    db.execute("UPDATE holdfast.alembic_version SET version_num = '0003'")
    with pytest.raises(SchemaMismatch, match=r"revision 0003.*this version.*holdfast db upgrade"):
        driver().batch(0)


def test_missing_column_is_a_mismatch_and_nothing_is_written(world: World) -> None:
    world.db.execute("ALTER TABLE holdfast.entry RENAME COLUMN traceparent TO trace")
    with pytest.raises(SchemaMismatch, match=r"traceparent.*holdfast db doctor"):
        world.driver().batch(0, decision())
    assert world.db.execute("SELECT count(*) FROM holdfast.batch").fetchone() == (0,)


def test_read_only_server_is_refused_after_the_deadline(world: World) -> None:
    statement = "ALTER DATABASE {} SET default_transaction_read_only = on"
    world.db.execute(sql.SQL(statement).format(_database(world.dsn)))
    spark = world.driver(timeouts=Timeouts(deadline_seconds=0.3))
    with pytest.raises(SchemaMismatch, match="read-only or a standby"):
        spark.batch(0)
    with pytest.raises(SchemaMismatch, match="let the DSN name the primary"):
        spark.sink.check()


def test_read_only_server_is_waited_for(world: World, caplog: pytest.LogCaptureFixture) -> None:
    alter = "ALTER DATABASE {} SET default_transaction_read_only = {}"
    world.db.execute(sql.SQL(alter).format(_database(world.dsn), sql.SQL("on")))
    with ThreadPoolExecutor(1) as thread:
        writing = thread.submit(world.driver().batch, 0, decision())
        eventually(lambda: "attempt 2 failed" in caplog.text)
        world.db.execute(sql.SQL(alter).format(_database(world.dsn), sql.SQL("off")))
        assert isinstance(writing.result(60), Written)


def test_server_that_may_forget_a_commit_is_refused() -> None:
    server = {"read_only": False, "durable": False, "encoding": "UTF8", "installed": True}
    with pytest.raises(SchemaMismatch, match="fsync or full_page_writes is off"):
        _refuse_unfit(server)
    with pytest.raises(SchemaMismatch, match="encoding is LATIN1"):
        _refuse_unfit(server | {"durable": True, "encoding": "LATIN1"})


@pytest.mark.skipif("HOLDFAST_TEST_DSN" in os.environ, reason="it changes the server's settings")
@pytest.mark.parametrize("setting", ["fsync", "full_page_writes"])
def test_server_with_an_unsafe_setting_is_refused(world: World, setting: str) -> None:
    def becomes(value: str) -> bool:
        with psycopg.connect(world.dsn) as connection:
            return connection.execute(f"SHOW {setting}".encode()).fetchone() == (value,)

    world.db.execute(f"ALTER SYSTEM SET {setting} = off".encode())
    try:
        world.db.execute("SELECT pg_reload_conf()")
        eventually(lambda: becomes("off"))
        with pytest.raises(SchemaMismatch, match="it may lose committed data; set both on"):
            world.driver().batch(0, decision())
    finally:
        world.db.execute(f"ALTER SYSTEM RESET {setting}".encode())
        world.db.execute("SELECT pg_reload_conf()")
    eventually(lambda: becomes("on"))
    assert isinstance(world.driver().batch(0, decision()), Written)


def test_sink_commits_durably_whatever_the_database_default(world: World) -> None:
    world.db.execute(
        sql.SQL("ALTER DATABASE {} SET synchronous_commit = off").format(_database(world.dsn))
    )
    seen: list[object] = []

    def also(connection: psycopg.Connection, _rows: object) -> None:
        seen.append(connection.execute("SHOW synchronous_commit").fetchone())

    world.driver(also=also).batch(0)
    assert seen == [("on",)]


def test_nobody_at_the_address_is_one_line(world: World, tmp_path: Path) -> None:
    nobody = make_conninfo(host=str(tmp_path), user="app", password="canary", dbname="holdfast")
    spark = world.driver(nobody, timeouts=Timeouts(connect_seconds=2, deadline_seconds=0.5))
    for attempt in (lambda: spark.batch(0, decision()), spark.sink.check):
        with pytest.raises(SinkUnavailable) as raised:
            attempt()
        words = str(raised.value)
        assert "canary" not in words
        assert "\n" not in words
    with pytest.raises(SinkUnavailable, match=r"for 0\.5 s .*restart the query"):
        spark.batch(0)


def test_refused_connection_is_final(world: World, caplog: pytest.LogCaptureFixture) -> None:
    wrong = make_conninfo(world.dsn, dbname="nowhere")
    spark = world.driver(wrong, timeouts=Timeouts(deadline_seconds=3600))
    for attempt in (spark.sink.check, lambda: spark.batch(0, decision())):
        with pytest.raises(AccessDenied, match=r'database "nowhere" does not exist'):
            attempt()
    assert "trying again" not in caplog.text


def test_functions_give_dsn_and_password_of_each_connection(world: World, app_dsn: str) -> None:
    parts = conninfo_to_dict(app_dsn)
    passwords = iter(["wrong", *[str(parts.pop("password"))] * 2])
    spark = world.driver(lambda: make_conninfo("", **parts), password=lambda: next(passwords))
    with pytest.raises(AccessDenied):
        spark.batch(0, decision())
    assert isinstance(spark.batch(0, decision()), Written)
    spark.sink.close()
    assert isinstance(spark.batch(1, decision("m_2")), Written)
    assert list(passwords) == []
    assert "function" in repr(spark.sink)


def test_tasks_of_the_staged_path_ask_for_the_password(world: World, app_dsn: str) -> None:
    parts = conninfo_to_dict(app_dsn)
    secret = str(parts.pop("password"))
    asked = []
    spark = world.driver(
        make_conninfo("", **parts), password=lambda: asked.append(1) or secret, staged=True
    )
    assert isinstance(spark.batch(0, decision(), decision("m_2")), Written)
    assert len(asked) > PARTITIONS


def test_function_that_fails_is_tried_again_and_never_quoted(
    world: World, app_dsn: str, caplog: pytest.LogCaptureFixture
) -> None:
    parts = conninfo_to_dict(app_dsn)
    secret = str(parts.pop("password"))
    answers = iter([RuntimeError("canary"), secret])

    def password() -> str:
        answer = next(answers)
        if isinstance(answer, str):
            return answer
        raise answer

    spark = world.driver(make_conninfo("", **parts), password=password)
    assert isinstance(spark.batch(0, decision()), Written)
    assert "the function for `password` raised RuntimeError" in caplog.text
    assert "canary" not in caplog.text
    answers = iter([RuntimeError("canary")] * 100)
    hasty = world.driver(make_conninfo("", **parts), password=password, timeouts=HASTY)
    with pytest.raises(SinkUnavailable) as raised:
        hasty.batch(0)
    assert "canary" not in "".join(traceback.format_exception(raised.value))
    other = world.driver(make_conninfo("", **parts), stream="other", password=lambda: None)
    with pytest.raises(AccessDenied, match="`password` returned NoneType, expected str"):
        other.batch(0)


def test_service_and_passfile_of_libpq_work(
    world: World, app_dsn: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = {name: str(value) for name, value in conninfo_to_dict(app_dsn).items()}
    passfile, services = tmp_path / "pgpass", tmp_path / "services"
    passfile.write_text(f"*:*:*:*:{parts.pop('password')}\n")
    passfile.chmod(0o600)
    lines = "\n".join(f"{name}={value}" for name, value in parts.items())
    services.write_text(f"[outbox]\n{lines}\n")
    monkeypatch.setenv("PGSERVICEFILE", str(services))
    spark = world.driver(f"service=outbox passfile={passfile}")
    assert isinstance(spark.batch(0, decision()), Written)


@pytest.mark.parametrize("staged", [False, True])
@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"password": "canary2"}, "password authentication failed"),
        ({"user": "nobody"}, "password authentication failed"),
        ({"dbname": "nowhere"}, "does not exist"),
        ({"passfile": "wrong"}, "password authentication failed"),
        ({"passfile": "readable by all"}, "give a password: .*a passfile"),
        ({"passfile": "gone"}, "give a password: .*a passfile"),
        ({"service": "gone"}, "a setting of the connection cannot be used: definition of service"),
        ({"sslmode": "strong"}, 'cannot be used: invalid sslmode value: "..."'),
        ({"require_auth": "none"}, "correct require_auth or channel_binding"),
        ({"channel_binding": "require", "sslmode": "disable"}, "correct require_auth or channel"),
    ],
    ids=str,
)
def test_wrong_login_is_final_and_shows_no_secret(
    world: World,
    app_dsn: str,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    wrong: dict[str, str],
    words: str,
    staged: bool,
) -> None:
    caplog.set_level(logging.DEBUG)
    parts: dict[str, Any] = conninfo_to_dict(app_dsn) | wrong
    if kind := wrong.get("passfile"):
        del parts["password"]
        parts["passfile"] = passfile = tmp_path / kind
        if kind != "gone":
            passfile.write_text("*:*:*:*:canary2\n")
            passfile.chmod(0o644 if kind == "readable by all" else 0o600)
    timeouts = Timeouts(deadline_seconds=3600)
    spark = world.driver(make_conninfo("", **parts), timeouts=timeouts, staged=staged)
    for attempt in (spark.sink.check, lambda: spark.batch(0, decision())):
        with pytest.raises(AccessDenied, match=words) as raised:
            attempt()
        assert "canary" not in "".join(traceback.format_exception(raised.value))
    assert "trying again" not in caplog.text
    assert "canary" not in caplog.text


def test_outcome_is_what_the_ledger_has_in_any_process(world: World) -> None:
    spark = world.driver()
    assert spark.sink.outcome() is None
    written = [spark.batch(number, decision(f"m_{number}")) for number in range(2)]
    elsewhere = world.driver().sink
    assert [elsewhere.outcome(number) for number in range(3)] == [*written, None]
    assert elsewhere.outcome() == written[1]


def test_outcome_is_that_of_the_own_query_and_of_its_checkpoint(world: World) -> None:
    checkpoint, older = world.tmp_path / "checkpoint", world.driver()
    (checkpoint / "metadata").parent.mkdir()
    (checkpoint / "metadata").write_text(json.dumps({"id": str(older.query_id)}))
    [*_, last] = [older.batch(number, decision(f"m_{number}")) for number in range(3)]
    newer = world.driver()
    words = ("stream", "adopt", "payouts", "--query-id", str(newer.query_id), "--force")
    world.holdfast(*words, "--reason", "moved", code=0)
    newest = newer.batch(0, decision("m_9"))
    assert (older.sink.outcome(), newer.sink.outcome()) == (last, newest)
    assert world.driver().sink.outcome() == newest
    assert world.driver(checkpoint=checkpoint).sink.outcome() == last


@pytest.mark.parametrize("host", ["nowhere.invalid", "nowhere.invalid,elsewhere.invalid"])
def test_host_that_nobody_knows_is_final(world: World, host: str) -> None:
    timeouts = Timeouts(deadline_seconds=3600)
    spark = world.driver(f"host={host} user=app password=canary dbname=x", timeouts=timeouts)
    for attempt in (spark.sink.check, lambda: spark.batch(0, decision())):
        with pytest.raises(AccessDenied, match=r"nobody knows this host.*restart policy") as raised:
            attempt()
        assert "canary" not in str(raised.value)


@pytest.mark.parametrize("host", ["db..example", "x" * 64])
def test_host_that_cannot_be_a_name_is_final(world: World, host: str) -> None:
    spark = world.driver(f"host={host} user=app dbname=x")
    with pytest.raises(AccessDenied, match="the host of the DSN cannot be a name"):
        spark.batch(0, decision())


def test_host_that_was_known_is_waited_for(world: World, app_dsn: str) -> None:
    addresses = iter([app_dsn, "host=nowhere.invalid", app_dsn])
    spark = world.driver(lambda: next(addresses))
    assert isinstance(spark.batch(0, decision()), Written)
    spark.sink.close()
    assert isinstance(spark.batch(1, decision("m_2")), Written)
    assert list(addresses) == []


@contextmanager
def _other_service() -> Iterator[int]:
    """Yield a port where no Postgres answers."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def answer() -> None:
            with suppress(OSError):  # the end of the test closes it
                while True:
                    line, _ = listening.accept()
                    with line:
                        line.recv(100)
                        line.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        Thread(target=answer, daemon=True).start()
        yield listening.getsockname()[1]


@pytest.mark.parametrize("place", ["DSN", "PGPORT", "service"])
def test_port_of_another_service_is_final(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    with _other_service() as port:
        (tmp_path / "services").write_text(f"[outbox]\nport={port}\n")
        monkeypatch.setenv("PGSERVICEFILE", str(tmp_path / "services"))
        if place == "PGPORT":
            monkeypatch.setenv("PGPORT", str(port))
        port_of = {"DSN": f"port={port}", "PGPORT": "", "service": "service=outbox"}[place]
        spark = world.driver(f"host=127.0.0.1 {port_of} user=app dbname=x", timeouts=HASTY)
        with pytest.raises(AccessDenied, match="what answers there is no Postgres"):
            spark.batch(0, decision())


def test_service_that_expects_tls_at_once_is_waited_for(world: World) -> None:
    with _other_service() as port:
        direct = "sslmode=require sslnegotiation=direct user=app dbname=x"
        spark = world.driver(f"host=127.0.0.1 port={port} {direct}", timeouts=HASTY)
        with pytest.raises(SinkUnavailable):
            spark.batch(0, decision())


def test_name_beside_an_address_need_not_be_known(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = world.driver("host=nowhere.invalid port=1 user=app dbname=x").sink
    with monkeypatch.context() as patch:
        patch.setenv("PGHOSTADDR", "127.0.0.1")
        with pytest.raises(SinkUnavailable):
            sink.check()


def test_sink_without_a_dsn_says_so() -> None:
    for nothing in ("", None):
        with pytest.raises(ValueError, match="there is no DSN"):
            OutboxSink(nothing, stream="payouts")  # type: ignore[arg-type]


def test_partitions_are_made_when_the_database_day_changes(world: World) -> None:
    spark = world.driver()
    spark.batch(0)
    tomorrow = datetime.now(UTC).date() + timedelta(days=1)
    partition = sql.Identifier("holdfast", f"entry_{tomorrow:%Y%m%d}")
    world.db.execute(sql.SQL("DROP TABLE {}").format(partition))
    exists = "SELECT to_regclass(%s) IS NOT NULL"

    spark.batch(1)
    assert world.db.execute(exists, [partition.as_string()]).fetchone() == (False,)
    spark.sink._writer._partitions_of = tomorrow - timedelta(days=2)
    spark.batch(2)
    assert world.db.execute(exists, [partition.as_string()]).fetchone() == (True,)


def test_password_is_in_no_text_of_the_sink(
    world: World, app_dsn: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    spark = world.driver(app_dsn)
    spark.batch(0, decision())
    texts = [repr(spark.sink), repr(spark.sink._writer), repr(vars(spark.sink)["last"])]

    def fail(rows: dict[str, Any]) -> None:
        with pytest.raises(SinkError) as raised:
            spark.batch(0, rows)
        error: BaseException | None = raised.value
        while error is not None:
            texts.extend((str(error), repr(error)))
            error = error.__cause__

    fail(decision("m_2"))
    world.db.execute("REVOKE SELECT ON holdfast.batch FROM holdfast_sink")
    fail(decision())
    world.db.execute("GRANT SELECT ON holdfast.batch TO holdfast_sink")
    newer = world.driver(query_id=spark.query_id)
    newer.sink.start(newer.query_id, newer.run_id)
    fail(decision())
    spark.sink.close()
    assert "canary" in app_dsn
    assert len(texts) > 8
    assert "canary" not in "\n".join([*texts, caplog.text])


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


def test_own_authority_is_written_to_by_tls(
    world: World, authority: trustme.CA, root: Path
) -> None:
    seen: list[bool] = []

    def also(connection: psycopg.Connection, _rows: object) -> None:
        seen.append(bool(connection.pgconn.ssl_in_use))

    with TlsFront(world.dsn, authority) as front:
        spark = world.driver(_strict(front.dsn, root), also=also)
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
    world: World,
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
    with TlsFront(world.dsn, authorities.get(front_of, authority), name) as front:
        connection_info = make_conninfo(front.dsn, password="canary")
        spark = world.driver(
            make_conninfo(connection_info, **({"sslrootcert": str(root)} | settings)),
            timeouts=HASTY,
        )
        for attempt in (spark.sink.check, lambda: spark.batch(0, decision())):
            with pytest.raises(AccessDenied, match=words) as raised:
                attempt()
            assert "canary" not in str(raised.value)
            assert "\n" not in str(raised.value)
    assert "canary" not in caplog.text
