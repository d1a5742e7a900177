"""The payouts service: its command, its answers and its metrics."""

import asyncio
import hashlib
import json
import signal
import socket
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from secrets import token_hex

import httpx
import psycopg
import pytest
from click.testing import Result
from prometheus_client.parser import text_string_to_metric_families
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from typer.testing import CliRunner

from holdfast.deploy.payouts import database, server
from holdfast.deploy.payouts.app import build
from holdfast.deploy.payouts.cli import app
from holdfast.deploy.payouts.database import create_tables
from holdfast.receiver import Inbox, Secret
from holdfast.sink.contract.exits import CommandError, ExitCode
from holdfast.sink.contract.wire import ReceiptOutcome
from tests.support.command import holdfast
from tests.support.dispatch.payouts import Payouts, payouts
from tests.support.dispatch.sender import (
    KEY_BYTES,
    OTHER_KEY_BYTES,
    Sent,
    body,
    headers,
    hold,
    key_of,
    receipt,
    secret_text,
)

DUPLICATES = 50


@pytest.mark.rest
def test_hold_is_applied_shown_and_released(service: Payouts) -> None:
    blocked = service.send(Sent.of("m_482", "block", 1))
    assert blocked.status_code == 200
    assert blocked.json()["outcome"] == "applied"
    assert blocked.json()["receipt"] == receipt(blocked.json())

    (shown,) = httpx.get(f"{service.url}/holds.json").json()["held"]
    assert (shown["merchant_id"], shown["exposure_minor"]) == ("m_482", 8_500_000)
    assert (shown["window_end"], shown["key"]) == ("2026-11-02T12:15:00Z", key_of("m_482", 1))
    page = httpx.get(service.url).text
    assert "Exposure 85,000.00 USD is above the limit of 50,000.00 USD" in page

    again = service.send(Sent.of("m_482", "block", 1))
    assert again.headers["idempotency-replayed"] == "true"
    assert again.json()["outcome"] == "duplicate"
    assert again.json()["applied_at"] == blocked.json()["applied_at"]
    assert again.json()["receipt"] == receipt(again.json())

    assert service.send(Sent.of("m_482", "release", 2)).json()["outcome"] == "applied"
    assert httpx.get(f"{service.url}/holds.json").json() == {"held": [], "next": None}
    log = service.rows("SELECT sequence, outcome FROM payouts.delivery_log ORDER BY arrival")
    assert log == [(1, "applied"), (1, "duplicate"), (2, "applied")]


@pytest.mark.rest
def test_fifty_concurrent_duplicates_hold_once(service: Payouts) -> None:
    sent = Sent.of("m_482", "block", 1)

    async def flood() -> list[httpx.Response]:
        limits = httpx.Limits(max_connections=DUPLICATES)
        async with httpx.AsyncClient(base_url=service.url, limits=limits, timeout=30) as client:
            requests = [
                client.post("/webhooks", content=sent.content, headers=sent.headers)
                for _ in range(DUPLICATES)
            ]
            return await asyncio.gather(*requests)

    answers = asyncio.run(flood())
    outcomes = Counter((answer.status_code, answer.json()["outcome"]) for answer in answers)
    assert outcomes[200, "applied"] == 1
    assert outcomes[200, "duplicate"] + outcomes[409, "in_progress"] == DUPLICATES - 1
    waiting = [answer for answer in answers if answer.status_code == 409]
    assert all(answer.headers["retry-after"] == "1" for answer in waiting)
    assert service.rows("SELECT sequence, effect FROM payouts.hold_history") == [(1, "applied")]
    assert service.rows("SELECT count(*) FROM payouts.delivery_log") == [(DUPLICATES,)]


@pytest.mark.rest
def test_refusals_are_answered_by_name_and_apply_nothing(service: Payouts) -> None:
    service.send(Sent.of("m_482", "block", 1))
    content = body("m_482", "block", 2)
    refused = [
        (Sent.of("m_482", "block", 1, data=hold("m_482", "block", revision=2)), 422, "conflict"),
        (Sent(content, headers(content, key=OTHER_KEY_BYTES)), 401, "no_match"),
        (Sent(content, headers(content, timestamp=1)), 401, "too_old"),
        (Sent(content), 400, "missing_header"),
        (Sent(bytes(256 * 1024 + 1)), 413, "body_too_large"),
        (Sent.of("m_482", "block", 2, type="refund.block"), 400, "unknown_type"),
        (Sent.of("m_482", "block", 2, data={}), 422, "bad_data"),
    ]
    for sent, status, word in refused:
        answer = service.send(sent)
        assert (answer.status_code, word in answer.text) == (status, True), answer.text
    assert service.rows("SELECT count(*) FROM payouts.hold_history") == [(1,)]
    log = service.rows("SELECT outcome FROM payouts.delivery_log ORDER BY arrival")
    assert [outcome for (outcome,) in log] == ["applied", "conflict", "refused", "refused"]


@pytest.mark.rest
def test_late_release_does_not_undo_a_newer_block(service: Payouts) -> None:
    assert service.send(Sent.of("m_482", "block", 3)).json()["outcome"] == "applied"
    late = service.send(Sent.of("m_482", "release", 2))
    assert (late.status_code, late.json()["outcome"]) == (200, "stale")
    assert service.rows("SELECT held, sequence FROM payouts.hold") == [(True, 3)]


@pytest.mark.rest
def test_impossible_transition_is_recorded_and_changes_nothing(service: Payouts) -> None:
    service.send(Sent.of("m_482", "release", 1))
    service.send(Sent.of("m_482", "block", 2))
    again = service.send(Sent.of("m_482", "block", 3))
    assert (again.status_code, again.json()["outcome"]) == (200, "applied")
    history = service.rows("SELECT sequence, effect FROM payouts.hold_history ORDER BY sequence")
    assert history == [(1, "refused_transition"), (2, "applied"), (3, "refused_transition")]
    assert service.rows("SELECT held, sequence FROM payouts.hold") == [(True, 2)]
    assert "Check: Refused transitions." in httpx.get(service.url).text


@pytest.mark.rest
def test_person_decides_without_a_window_also_what_is_so_already(service: Payouts) -> None:
    # As an older version had made them.
    with psycopg.connect(service.dsn) as older:
        for table in ("hold", "hold_history"):
            older.execute(f"ALTER TABLE payouts.{table} ALTER COLUMN window_end SET NOT NULL")
    database.create_tables(service.dsn, Inbox())
    assert service.send(Sent.of("m_482", "block", 1)).json()["outcome"] == "applied"
    since = "SELECT since FROM payouts.hold"
    before = service.rows(since)
    for sequence, action in enumerate(("block", "release", "release"), 2):
        data = {"merchant_id": "m_482", "action": action, "origin": "hand"}
        sent = Sent.of("m_482", action, sequence, data=data)
        assert service.send(sent).json()["outcome"] == "applied"
        if action == "block":
            assert service.rows(since) == before
            assert "A person decided it." in httpx.get(service.url).text
            [held] = httpx.get(f"{service.url}/holds.json").json()["held"]
            assert (held["sequence"], held["window_end"]) == (2, None)
            assert "by hand  sequence 2" in invoke("held", "--dsn", service.dsn).stdout
    history = service.rows("SELECT effect, window_end FROM payouts.hold_history ORDER BY sequence")
    assert history[1:] == [("applied", None)] * 3
    assert service.rows("SELECT held, sequence FROM payouts.hold") == [(False, 3)]
    contrary = {"merchant_id": "m_482", "action": "block", "origin": "hand"}
    refused = service.send(Sent.of("m_482", "release", 5, data=contrary))
    assert (refused.status_code, "bad_data" in refused.text) == (422, True)


@pytest.mark.rest
def test_page_runs_no_script_of_a_merchants_name(service: Payouts) -> None:
    merchant = "<script>alert(1)</script>"
    assert service.send(Sent.of(merchant, "block", 1)).status_code == 200
    page = httpx.get(service.url)
    assert "&lt;script&gt;alert(1)" in page.text
    assert "<script" not in page.text
    policy = page.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; style-src 'self'")
    assert page.headers["x-content-type-options"] == "nosniff"
    assert httpx.get(f"{service.url}/style.css").headers["content-type"].startswith("text/css")
    assert httpx.get(f"{service.url}/holds.json").json()["held"][0]["merchant_id"] == merchant


@pytest.mark.rest
def test_holds_are_listed_page_by_page(service: Payouts) -> None:
    service.rows(
        "INSERT INTO payouts.hold SELECT 'm_' || to_char(n, 'FM0000'), true, now(), 1, 1, 0, 'USD',"
        " now(), now() + interval '1 s', 'hf' FROM generate_series(1, 1001) n RETURNING sequence"
    )
    first = httpx.get(f"{service.url}/holds.json").json()
    assert (len(first["held"]), first["next"]) == (1000, "m_1000")
    rest = httpx.get(f"{service.url}/holds.json", params={"after": first["next"]}).json()
    assert [row["merchant_id"] for row in rest["held"]] == ["m_1001"]
    assert rest["next"] is None
    assert 'href="/?after=m_0100"' in httpx.get(service.url).text
    assert httpx.get(f"{service.url}/?after=%00%ff%27").status_code == 200


@pytest.mark.rest
def test_inquiry_tells_what_the_first_delivery_was_answered(service: Payouts) -> None:
    sent, late = Sent.of("m_482", "block", 3), Sent.of("m_482", "release", 2)
    assert service.ask(key_of("m_482", 3)).status_code == 404
    first = service.send(sent)
    service.send(sent)
    service.send(late)
    known = service.ask(key_of("m_482", 3))
    assert known.status_code == 200
    assert known.json() == {**first.json(), "body_sha256": hashlib.sha256(sent.content).hexdigest()}
    assert known.headers["holdfast-key-window"] == first.headers["holdfast-key-window"] == "3888000"
    stale = service.ask(key_of("m_482", 2))
    assert stale.json()["outcome"] == "stale"
    assert stale.json()["receipt"] == receipt(stale.json())


@pytest.mark.rest
def test_inquiry_is_answered_only_to_signers(service: Payouts) -> None:
    sent = Sent.of("m_482", "block", 1)
    service.send(sent)
    key = key_of("m_482", 1)
    path = f"{service.url}/holdfast/keys/{key}"
    asked = [
        (service.ask(key, OTHER_KEY_BYTES), 401, "no_match"),
        (httpx.get(path), 400, "missing_header"),
        (httpx.get(path, headers=sent.headers), 401, "no_match"),
        (httpx.post(path, content=sent.content, headers=sent.headers), 405, "method_not_allowed"),
        (service.ask(f"{key}/x"), 400, "bad_id"),
    ]
    for answer, status, reason in asked:
        assert (answer.status_code, answer.json()["reason"]) == (status, reason)
        assert "applied" not in answer.text
    assert asked[3][0].headers["allow"] == "GET"


@pytest.mark.rest
def test_published_story_is_what_the_service_answers(service: Payouts) -> None:
    path = Path(__file__).parents[3] / "dispatcher" / "receiver" / "vectors.json"
    for step in json.loads(path.read_text(encoding="utf-8"))["story"]:
        content = step["body"].encode()
        answer = service.send(Sent(content, headers(content)))
        data = answer.status_code, answer.json().get("outcome")
        assert data == (step["status"], step["outcome"]), step["does"]
        assert ("idempotency-replayed" in answer.headers) is step["replayed"], step["does"]


@pytest.mark.rest
def test_lost_database_is_answered_503_and_found_again(service: Payouts, server_dsn: str) -> None:
    assert httpx.get(f"{service.url}/healthz").json() == {"status": "ok"}
    with psycopg.connect(service.dsn) as connection:
        database = connection.info.dbname
    name = sql.Identifier(database)
    with psycopg.connect(server_dsn, autocommit=True) as server:
        server.execute(sql.SQL("ALTER DATABASE {} ALLOW_CONNECTIONS false").format(name))
        server.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE application_name = 'holdfast-payouts' AND datname = %s",
            [database],
        )
        assert service.ask(key_of("m_482", 1)).status_code == 503
        lost = service.send(Sent.of("m_482", "block", 1))
        assert (lost.status_code, lost.headers["retry-after"]) == (503, "1")
        server.execute(sql.SQL("ALTER DATABASE {} ALLOW_CONNECTIONS true").format(name))
    while (answer := service.send(Sent.of("m_482", "block", 1))).status_code == 503:
        pass
    assert answer.json()["outcome"] == "applied"


@pytest.mark.rest
def test_history_and_log_cannot_be_rewritten(service: Payouts) -> None:
    service.send(Sent.of("m_482", "block", 1))
    for statement in (
        "UPDATE payouts.hold_history SET sequence = 9",
        "DELETE FROM payouts.delivery_log",
        "TRUNCATE payouts.delivery_log",
    ):
        with (
            psycopg.connect(service.dsn) as connection,
            pytest.raises(psycopg.errors.RestrictViolation, match="append-only"),
        ):
            connection.execute(statement)


REFERENCE = ("--secret-ref", "env:TEST_SECRET")
WITH_SECRET = ("payouts", "serve", "--port", "0", *REFERENCE)


def invoke(*arguments: str, environment: Mapping[str, str] | None = None) -> Result:
    """Run the command in this process, for what is decided before a server starts."""
    clean = {"PAYOUTS_DSN": None, "TEST_SECRET": None}
    return CliRunner().invoke(app, arguments, env=clean | dict(environment or {}))


@pytest.mark.rest
def test_service_writes_its_port_and_ends_cleanly_on_sigterm(
    make_database: Callable[[str | None], str], tmp_path: Path
) -> None:
    port_file = tmp_path / "port"
    with payouts(make_database(None), "--port-file", str(port_file)) as running:
        assert running.url == f"http://127.0.0.1:{int(port_file.read_text())}"
        assert running.send(Sent.of()).status_code == 200
        running.process.send_signal(signal.SIGTERM)
        assert running.wait() == ExitCode.OK
    assert [path.name for path in tmp_path.iterdir()] == ["port"]


@pytest.mark.rest
def test_unwritable_port_file_stops_the_service_in_one_line(
    payouts_dsn: str, tmp_path: Path
) -> None:
    done = holdfast(
        *WITH_SECRET,
        "--port-file",
        str(tmp_path / "missing" / "port"),
        environment={"PAYOUTS_DSN": payouts_dsn, "TEST_SECRET": secret_text()},
    )
    assert (done.returncode, done.stdout) == (ExitCode.FAILED, "")
    assert "cannot be written" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


@pytest.mark.rest
def test_held_merchants_are_listed_for_people_and_for_programs(service: Payouts) -> None:
    assert invoke("held", "--dsn", service.dsn).stdout == "No merchant is held.\n"
    service.send(Sent.of("m_482", "block", 1))
    service.send(Sent.of("m_\x1b[2J", "block", 1))
    text = invoke("held", "--dsn", service.dsn).stdout
    assert "m_482  held since" in text
    assert "exposure 85,000.00 USD above 50,000.00 USD" in text
    assert "\x1b" not in text
    shown = json.loads(invoke("held", "--json", environment={"PAYOUTS_DSN": service.dsn}).stdout)
    assert {row["merchant_id"] for row in shown} == {"m_482", "m_\x1b[2J"}
    assert shown[0]["window_end"] == "2026-11-02T12:15:00Z"


@pytest.mark.rest
def test_database_without_the_tables_is_named(make_database: Callable[[str | None], str]) -> None:
    error = invoke("held", "--dsn", make_database(None)).exception
    assert isinstance(error, CommandError)
    assert "`holdfast payouts serve`" in str(error)


@pytest.fixture
def stranger(make_database: Callable[[str | None], str]) -> Iterator[tuple[str, str]]:
    """A database with the tables, and its DSN for a role that may do nothing there."""
    dsn, role, password = make_database(None), f"holdfast_test_{token_hex(6)}", token_hex(16)
    create_tables(dsn, Inbox())
    with psycopg.connect(dsn, autocommit=True) as db:
        db.execute(f"CREATE ROLE {role} LOGIN PASSWORD '{password}'".encode())
        try:
            yield dsn, make_conninfo(dsn, user=role, password=password)
        finally:
            db.execute(f"DROP OWNED BY {role}".encode())
            db.execute(f"DROP ROLE {role}".encode())


def _refusals(*dsns: str) -> list[str]:
    """What `held` and `serve` say; both must end in one line, without a stack trace."""
    texts = []
    environment = {"TEST_SECRET": secret_text()}
    for dsn in dsns:
        for arguments in (("held",), ("serve", "--port", "0", *REFERENCE)):
            error = invoke(*arguments, "--dsn", dsn, environment=environment).exception
            assert isinstance(error, CommandError), repr(error)
            assert (error.exit_code, "\n" in str(error)) == (ExitCode.FAILED, False)
            texts.append(str(error))
    return texts


@pytest.mark.rest
def test_role_that_may_not_read_the_tables_is_reported(stranger: tuple[str, str]) -> None:
    dsn, theirs = stranger
    held, serve = _refusals(theirs)
    assert "permission denied for schema payouts. Nothing was changed" in held
    assert "permission denied for schema payouts. They are created together" in serve
    with psycopg.connect(dsn, autocommit=True) as db:
        role = conninfo_to_dict(theirs)["user"]
        db.execute(f"GRANT USAGE ON SCHEMA payouts TO {role}".encode())
    held = str(invoke("held", "--dsn", theirs).exception)
    assert "permission denied for table hold. Nothing was changed; " in held


@pytest.mark.rest
def test_read_only_database_cannot_be_given_the_tables(
    make_database: Callable[[str | None], str],
) -> None:
    dsn = make_conninfo(make_database(None), options="-c default_transaction_read_only=on")
    _, serve = _refusals(dsn)
    assert "in a read-only transaction. They are created together" in serve


@pytest.mark.rest
def test_losing_the_database_at_start_ends_in_one_line(
    payouts_dsn: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Its tables are there, and then no connection is to be had."""
    monkeypatch.setattr(database, "POOL_START_SECONDS_MAX", 0.5)
    gone = make_conninfo(payouts_dsn, dbname="holdfast_test_gone")
    failures: list[CommandError] = []
    service = build(gone, Inbox(), [Secret(KEY_BYTES)], failures.append)
    with server.bind("127.0.0.1", 0) as listener, pytest.raises(CommandError, match="database"):
        server.run(service, listener, lambda: _raise(failures))
    [failure] = failures
    assert failure.exit_code == ExitCode.FAILED
    assert "safe" in str(failure)
    assert "Traceback" not in caplog.text


def _raise(failures: list[CommandError]) -> None:
    for each in failures:
        raise each


@pytest.mark.rest
def test_busy_port_is_one_clear_line_and_touches_nothing(
    make_database: Callable[[str | None], str],
) -> None:
    dsn = make_database(None)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        done = holdfast(
            *WITH_SECRET,
            "--port",
            port,
            environment={"PAYOUTS_DSN": dsn, "TEST_SECRET": secret_text()},
        )
    assert done.returncode == ExitCode.FAILED
    assert f"port {port} on 127.0.0.1 is already in use" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    with psycopg.connect(dsn) as connection:
        assert connection.execute("SELECT to_regnamespace('payouts')").fetchone() == (None,)


@pytest.mark.rest
def test_unreachable_database_is_one_clear_line_without_its_password() -> None:
    dsn = "postgresql://u:canary-password@127.0.0.1:1/x"
    done = holdfast(*WITH_SECRET, environment={"PAYOUTS_DSN": dsn, "TEST_SECRET": secret_text()})
    assert (done.returncode, done.stdout) == (ExitCode.FAILED, "")
    assert "the payouts database did not answer" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert "canary-password" not in done.stderr


@pytest.mark.rest
@pytest.mark.parametrize(
    ("options", "environment", "code", "words"),
    [
        ((), {}, ExitCode.USAGE, "--secret-ref"),
        (("--secret-ref", secret_text()), {}, ExitCode.USAGE, "never the secret itself"),
        (REFERENCE, {}, ExitCode.USAGE, "TEST_SECRET is empty or not set"),
        (REFERENCE, {"TEST_SECRET": "whsec_short"}, ExitCode.USAGE, "env:TEST_SECRET"),
        (REFERENCE, {"TEST_SECRET": secret_text()}, ExitCode.USAGE, "PAYOUTS_DSN"),
        (
            (*REFERENCE, "--key-days", "3"),
            {"TEST_SECRET": secret_text(), "PAYOUTS_DSN": "postgresql:///x"},
            ExitCode.USAGE,
            "--key-days: ",
        ),
        (
            (*REFERENCE, "--host", "no such host"),
            {"TEST_SECRET": secret_text(), "PAYOUTS_DSN": "postgresql:///x"},
            ExitCode.FAILED,
            "cannot listen on no such host",
        ),
    ],
)
def test_wrong_setting_is_one_clear_line(
    options: tuple[str, ...], environment: dict[str, str], code: ExitCode, words: str
) -> None:
    error = invoke("serve", *options, environment=environment).exception
    assert isinstance(error, CommandError)
    assert (error.exit_code, words in str(error)) == (code, True), str(error)
    assert "\n" not in str(error)
    assert secret_text()[6:] not in str(error)


Samples = dict[tuple[str, ...], float]


def scraped(service: Payouts) -> Samples:
    """Every sample by its name and the values of its labels."""
    answer = httpx.get(f"{service.url}/metrics", timeout=30)
    assert answer.status_code == httpx.codes.OK
    return {
        (sample.name.removeprefix("holdfast_payouts_"), *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(answer.text)
        for sample in family.samples
    }


def test_counters_and_the_hold_gauge_match_the_table(service: Payouts) -> None:
    before = scraped(service)
    assert before["held",] == 0
    service.send(Sent.of("m_482", "block", 1))
    service.send(Sent.of("m_482", "block", 1))
    service.send(Sent.of("m_483", "block", 1))
    service.send(Sent.of("m_483", "release", 2))
    service.send(Sent.of("m_482", "block", 2))
    forged = body("m_482", "release", 3)
    service.send(Sent(forged, headers(forged, key=OTHER_KEY_BYTES)))
    after = scraped(service)
    grown = {name: value - before[name] for name, value in after.items() if value != before[name]}
    assert grown == {
        ("held",): 1,
        ("actions_total", "block", "applied"): 2,
        ("actions_total", "release", "applied"): 1,
        ("actions_total", "block", "refused_transition"): 1,
        ("deliveries_total", "applied"): 4,
        ("deliveries_total", "duplicate"): 1,
        ("answers_total", "200"): 5,
        ("answers_total", "401"): 1,
    }
    assert service.rows("SELECT merchant_id FROM payouts.hold WHERE held") == [("m_482",)]


def test_signed_delivery_that_is_no_hold_is_counted_as_refused(service: Payouts) -> None:
    before = scraped(service)
    service.send(Sent.of("m_482", "block", 1, data={"merchant_id": "m_482"}))
    after = scraped(service)
    assert after["deliveries_total", "refused"] - before["deliveries_total", "refused"] == 1
    assert after["answers_total", "422"] - before.get(("answers_total", "422"), 0) == 1


@pytest.mark.parametrize("outcome", [*ReceiptOutcome, "refused"])
def test_every_outcome_is_shown_before_the_first_one(service: Payouts, outcome: str) -> None:
    assert ("deliveries_total", outcome) in scraped(service)


def test_missing_table_costs_the_gauge_only(service: Payouts) -> None:
    with psycopg.connect(service.dsn, autocommit=True) as db:
        db.execute("ALTER TABLE payouts.hold RENAME TO moved")
        try:
            contents = scraped(service)
        finally:
            db.execute("ALTER TABLE payouts.moved RENAME TO hold")
    assert ("held",) not in contents
    assert ("answers_total", "200") in contents
