"""The operator's commands on a real database: what they change, what they refuse, how they end."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import IO
from uuid import UUID, uuid4

import psycopg
import pytest

from holdfast.dispatcher.operators.common.session import operator_connection
from holdfast.migrations.upgrade import upgrade
from holdfast.sink.contract.exits import CommandError, ExitCode
from tests.support.command import holdfast
from tests.support.dispatch.delivery import live_dispatcher
from tests.support.job.decisions import Decisions
from tests.support.job.driver import Driver
from tests.support.servers.postgres_proxy import Fault, PostgresProxy
from tests.support.world import World

REF = "env:HOLDFAST_SECRET_S"
ABSENT = "env:HOLDFAST_SECRET_ABSENT"
ADOPT = ("stream", "adopt", "payouts", "--reason", "checkpoint lost")
ADD = ("endpoint", "add", "payouts", "--url", "https://payouts.example/webhooks")


@pytest.mark.rest
def test_endpoint_is_added_with_its_audit_row(dsn: str, db: psycopg.Connection) -> None:
    done = holdfast(*ADD, "--secret-ref", REF, "--type", "payout_hold.block", "--json", dsn=dsn)
    assert done.returncode == ExitCode.OK, done.stderr
    assert json.loads(done.stdout)["name"] == "payouts"
    row = db.execute(
        "SELECT url, types, secret_refs, state::text FROM holdfast.endpoint"
    ).fetchone()
    assert row == ("https://payouts.example/webhooks", ["payout_hold.block"], [REF], "active")
    audit = db.execute("SELECT action, target FROM holdfast.operator_action").fetchall()
    assert audit == [("endpoint.add", "payouts")]


@pytest.mark.rest
def test_second_endpoint_of_one_name_is_refused(dsn: str, db: psycopg.Connection) -> None:
    assert holdfast(*ADD, "--secret-ref", REF, dsn=dsn).returncode == ExitCode.OK
    again = holdfast(*ADD, "--secret-ref", REF, dsn=dsn, code=ExitCode.FAILED)
    assert "already" in again.stderr
    assert db.execute("SELECT count(*) FROM holdfast.operator_action").fetchone() == (1,)


@pytest.mark.rest
@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--url", "ftp://x/y", "--secret-ref", REF], "http"),
        (["--url", "https://u:p@x/y", "--secret-ref", REF], "password"),
        (["--url", "https://x:notaport/", "--secret-ref", REF], "--url must be"),
        (["--url", "https://x/ y", "--secret-ref", REF], "spaces"),
        (["--url", "https://x/", "--secret-ref", "whsec_c2VjcmV0"], "env:VAR"),
        (["--url", "https://x/", "--secret-ref", REF, "--allow-cidr", "10.0.0.1/8"], "cidr"),
        (["--url", "https://x/", "--secret-ref", REF, "--schedule", "5,x"], "schedule"),
        (["--url", "https://x/", "--secret-ref", REF, "--total-timeout", "9999"], "seconds"),
        (["--url", "https://x/", "--secret-ref", REF, "--type", "a b"], "--type"),
        (["--url", "https://127.0.0.1/", "--secret-ref", REF], "private"),
        (["--url", "http://x/", "--secret-ref", REF], "--allow-cidr"),
        (["--url", "https://\u00e9/", "--secret-ref", REF], "ASCII"),
    ],
)
def test_unsafe_endpoint_is_refused(world: World, arguments: list[str], complaint: str) -> None:
    done = world.holdfast("endpoint", "add", "bad", *arguments, code=ExitCode.USAGE)
    assert complaint in done.stderr
    assert "Traceback" not in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


@pytest.mark.rest
@pytest.mark.parametrize(
    ("option", "number"), [("--total-timeout", "nan"), ("--connect-timeout", "inf")]
)
def test_timeout_that_is_no_number_is_a_usage_error(dsn: str, option: str, number: str) -> None:
    done = holdfast(*ADD, "--secret-ref", REF, option, number, dsn=dsn, code=ExitCode.USAGE)
    assert f"'{number}' is not a valid number" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.rest
def test_endpoint_from_the_beginning_gets_what_was_routed_before_it(world: World) -> None:
    with Decisions(world.dsn) as decisions:
        decisions.write("m_1", "m_1", "m_2")
    world.db.execute("UPDATE holdfast.batch SET routed_at = now()")
    world.holdfast(*ADD, "--secret-ref", REF, "--from-beginning", code=ExitCode.OK)
    query = """
        SELECT name, delivered_sequence, lane.last_sequence, due_at <= clock_timestamp()
        FROM holdfast.lane JOIN holdfast.subject ON subject.id = subject_id ORDER BY name
    """
    lanes = [("m_1", 0, 2, True), ("m_2", 0, 1, True)]
    assert world.db.execute(query).fetchall() == lanes
    again = world.holdfast("endpoint", "backfill", "payouts", "--json")
    assert again.json == {"name": "payouts", "lanes": 0}
    assert world.db.execute(query).fetchall() == lanes


@pytest.mark.rest
def test_endpoint_that_starts_later_is_not_backfilled(world: World) -> None:
    with Decisions(world.dsn) as decisions:
        decisions.write("m_1")
    world.db.execute("UPDATE holdfast.batch SET routed_at = now()")
    world.holdfast(*ADD, "--secret-ref", REF)
    done = world.holdfast("endpoint", "backfill", "payouts", "--json")
    assert done.json == {"name": "payouts", "lanes": 0}
    world.holdfast("endpoint", "backfill", "other", code=ExitCode.NOTHING_MATCHED)
    assert world.db.execute("SELECT count(*) FROM holdfast.lane").fetchone() == (0,)


@pytest.mark.rest
def test_pause_and_resume_are_audited_and_unknown_names_ignored(world: World) -> None:
    world.holdfast(*ADD, "--secret-ref", REF)
    for verb in ("pause", "resume"):
        world.holdfast("endpoint", verb, "payouts", "--reason", "maintenance", code=ExitCode.OK)
    actions = world.db.execute("SELECT action FROM holdfast.operator_action ORDER BY id").fetchall()
    assert [action for (action,) in actions] == [
        "endpoint.add",
        "endpoint.paused",
        "endpoint.active",
    ]
    world.holdfast("endpoint", "pause", "nobody", "--reason", "x", code=ExitCode.NOTHING_MATCHED)


@pytest.mark.rest
def test_adoption_is_recorded_with_the_query_id_before(dsn: str, db: psycopg.Connection) -> None:
    before, after = str(uuid4()), str(uuid4())
    db.execute("INSERT INTO holdfast.stream (name, query_id) VALUES ('payouts', %s)", (before,))
    done = holdfast(*ADOPT, "--query-id", after, "--force", dsn=dsn, code=ExitCode.OK)
    assert f"(before: {before})" in done.stdout
    (adopted,) = db.execute("SELECT query_id::text FROM holdfast.stream").fetchone() or (None,)
    assert adopted == after
    audit = db.execute("SELECT reason, detail FROM holdfast.operator_action").fetchone()
    assert audit == ("checkpoint lost", {"query_id": after, "previous": before})


@pytest.mark.rest
def test_adopting_what_is_adopted_changes_nothing_and_says_so(world: World) -> None:
    query_id = str(uuid4())
    world.db.execute(
        "INSERT INTO holdfast.stream (name, query_id, adopted_at)"
        " VALUES ('payouts', %s, '2026-11-02T12:00:00Z')",
        (query_id,),
    )
    done = world.holdfast(*ADOPT, "--query-id", query_id, code=ExitCode.OK)
    assert "since 2026-11-02T12:00:00Z; nothing was changed" in done.stdout
    reply = world.holdfast(*ADOPT, "--query-id", query_id, "--json").json
    assert (reply["changed"], reply["adopted_at"]) == (False, "2026-11-02T12:00:00Z")
    assert world.db.execute("SELECT count(*) FROM holdfast.operator_action").fetchone() == (0,)


@pytest.mark.rest
def test_unseen_query_id_is_not_adopted_by_mistake(world: World, tmp_path: Path) -> None:
    ours, wrong, theirs = str(uuid4()), str(uuid4()), str(uuid4())
    world.db.execute(
        "INSERT INTO holdfast.stream (name, query_id, checkpoint) VALUES ('payouts', %s, %s)",
        (str(uuid4()), f"file://{tmp_path}/new"),
    )
    for stream, query_id in (("payouts", ours), ("other", theirs)):
        spark = Driver(world.dsn, stream=stream, query_id=UUID(query_id))
        world.db.execute(
            "UPDATE holdfast.stream SET query_id = %s WHERE name = %s", (query_id, stream)
        )
        spark.batch(0)
        spark.sink.close()
    world.db.execute(
        "UPDATE holdfast.stream SET query_id = %s WHERE name = 'payouts'", (str(uuid4()),)
    )

    def adopt(query_id: str, *options: str) -> str:
        done = world.holdfast(*ADOPT, "--query-id", query_id, *options)
        assert done.returncode in (ExitCode.OK, ExitCode.FAILED), done.stderr
        return done.stderr

    assert "its checkpoint cannot be read from here" in adopt(wrong)
    assert "it writes stream other" in adopt(theirs)
    assert adopt(ours) == ""
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "metadata").write_text(json.dumps({"id": str(uuid4())}))
    assert "can be read from here is of query" in adopt(wrong)
    assert world.db.execute(
        "SELECT query_id::text FROM holdfast.stream WHERE name = 'payouts'"
    ).fetchone() == (ours,)
    (tmp_path / "new" / "metadata").write_text(json.dumps({"id": wrong}))
    assert adopt(wrong) == ""
    assert adopt(ours) == ""
    assert adopt(wrong, "--checkpoint", str(tmp_path / "new")) == ""


@pytest.mark.rest
@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["payouts", "--query-id", "not-a-uuid", "--reason", "x"], ExitCode.USAGE),
        (["payouts", "--query-id", str(uuid4()), "--reason", " "], ExitCode.USAGE),
        (["nobody", "--query-id", str(uuid4()), "--reason", "x"], ExitCode.NOTHING_MATCHED),
    ],
)
def test_nonsense_adoption_is_refused(world: World, arguments: list[str], code: ExitCode) -> None:
    done = world.holdfast("stream", "adopt", *arguments, code=code)
    assert "hanged" in done.stderr
    assert world.db.execute("SELECT count(*) FROM holdfast.operator_action").fetchone() == (0,)


@pytest.mark.rest
def test_status_without_a_dispatcher_is_degraded_though_nothing_is_due(world: World) -> None:
    assert _needs(world.dsn) == ["no_dispatcher"]
    live_dispatcher(world.db)
    world.db.execute("UPDATE holdfast.dispatcher_instance SET draining = true")
    assert _needs(world.dsn) == ["no_dispatcher"]
    overview = world.holdfast("overview", code=ExitCode.DEGRADED)
    assert "nothing needs a person" not in overview.stdout
    world.db.execute("UPDATE holdfast.dispatcher_instance SET draining = false")
    assert world.holdfast("overview").returncode == ExitCode.OK


@pytest.mark.rest
def test_status_of_an_empty_database_is_ok_and_readable_by_machines(world: World) -> None:
    live_dispatcher(world.db)
    done = world.holdfast("status", "--json", code=ExitCode.OK)
    report = done.json
    assert report["entries"] == 0
    assert report["degraded"] is False
    assert "\x1b[" not in world.holdfast("status").stdout


@pytest.mark.rest
def test_status_is_degraded_while_a_dead_letter_waits(dsn: str, db: psycopg.Connection) -> None:
    holdfast(*ADD, "--secret-ref", REF, dsn=dsn)
    db.execute(
        "INSERT INTO holdfast.dead_letter (endpoint_id, subject_id, sequence, key, created_at,"
        " reason, detail, attempts)"
        " SELECT id, 1, 1, gen_random_uuid(), now(), 'rejected', '', 1 FROM holdfast.endpoint"
    )
    assert holdfast("status", dsn=dsn).returncode == ExitCode.DEGRADED


@pytest.mark.rest
def test_status_says_what_the_overview_says_needs_a_person(world: World) -> None:
    holdfast(*ADD, "--secret-ref", REF, dsn=world.dsn)
    live_dispatcher(world.db)
    world.db.execute(
        "UPDATE holdfast.endpoint SET state = 'disabled', state_reason = 'answered 410'"
    )
    world.db.execute(
        "INSERT INTO holdfast.quarantine (batch_no, reason, detail, row, quarantined_at)"
        " VALUES (1, 'bad_data', 'd', '{}', now())"
    )
    done = holdfast("status", "--json", dsn=world.dsn, code=ExitCode.DEGRADED)
    needs = done.json["needs"]
    assert [need["kind"] for need in needs] == ["disabled_endpoints", "quarantine"]
    assert needs == holdfast("overview", "--json", dsn=world.dsn).json["needs"]
    text = holdfast("status", dsn=world.dsn).stdout
    assert "1 endpoint is disabled: payouts\n    holdfast endpoint show payouts" in text


@pytest.mark.rest
def test_status_is_degraded_if_work_waits_unclaimed(world: World) -> None:
    world.holdfast(*ADD, "--secret-ref", ABSENT)
    with Decisions(world.dsn) as decisions:
        decisions.write("m_1")
    assert _needs(world.dsn) == ["no_dispatcher"]
    world.drain()
    world.db.execute("UPDATE holdfast.lane SET due_at = due_at - interval '10 minutes'")
    live_dispatcher(world.db)
    assert _needs(world.dsn) == ["not_claimed"]
    waits = (
        "UPDATE holdfast.endpoint SET state = 'paused'",
        "UPDATE holdfast.endpoint SET state = 'active', rate_per_second = 1",
        "UPDATE holdfast.endpoint_pace SET held_until = now() + interval '1 hour'",
    )
    for change in waits:
        world.db.execute(change)
        assert _needs(world.dsn, ExitCode.OK) == [], change


def _needs(dsn: str, code: ExitCode = ExitCode.DEGRADED) -> list[str]:
    done = holdfast("status", "--json", dsn=dsn, code=code)
    return [need["kind"] for need in done.json["needs"]]


@pytest.mark.rest
def test_status_is_degraded_until_every_quarantined_row_is_resolved(world: World) -> None:
    world.db.execute(
        "INSERT INTO holdfast.quarantine (batch_no, reason, detail, row, quarantined_at)"
        " VALUES (1, 'bad_data', 'd', '{}', now())"
    )
    done = world.holdfast("status", code=ExitCode.DEGRADED)
    assert "1 open row in quarantine, 0 dead letters, 0 diverged replays" in done.stdout
    live_dispatcher(world.db)
    world.db.execute("UPDATE holdfast.quarantine SET resolution = 'dismissed', resolved_at = now()")
    done = world.holdfast("status", code=ExitCode.OK)
    assert "0 open rows in quarantine" in done.stdout


@pytest.mark.rest
@pytest.mark.parametrize(
    ("dsn_given", "complaint", "code"),
    [
        (None, "HOLDFAST_DSN", ExitCode.USAGE),
        ("postgresql://app:hunter2@127.0.0.1:1/x", "cannot be used", ExitCode.FAILED),
        ("nonsense", "cannot be read", ExitCode.USAGE),
        ("host=localhost password=my hunter2 dbname=x", "cannot be read", ExitCode.USAGE),
        ("postgresql://u:p%zzhunter2@h/db", "cannot be read", ExitCode.USAGE),
    ],
)
def test_missing_or_wrong_dsn_is_one_line_without_a_password(
    dsn_given: str | None, complaint: str, code: ExitCode
) -> None:
    done = holdfast("status", dsn=dsn_given, code=code)
    assert complaint in done.stderr
    assert "hunter2" not in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


@pytest.mark.rest
def test_database_without_or_with_an_old_schema_is_named(
    world: World, make_database: Callable[[str | None], str]
) -> None:
    empty = holdfast("status", dsn=make_database(None), code=ExitCode.FAILED)
    assert "holdfast db upgrade" in empty.stderr
    world.db.execute("UPDATE holdfast.alembic_version SET version_num = '0001'")
    old = world.holdfast("status", code=ExitCode.FAILED)
    assert "0001" in old.stderr


@pytest.mark.rest
def test_names_that_look_like_markup_are_shown_as_they_are(dsn: str) -> None:
    url = "http://[fd00::1]:80/[/a]"
    options = ("--url", url, "--secret-ref", REF, "--allow-cidr", "fd00::/8")
    holdfast("endpoint", "add", "odd", *options, dsn=dsn, code=ExitCode.OK)
    listed = holdfast("endpoint", "list", dsn=dsn, code=ExitCode.OK)
    assert url in listed.stdout


@pytest.mark.rest
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_output_that_cannot_be_written_is_one_line(dsn: str, unbuffered: str) -> None:
    with Path("/dev/full").open("w") as full:
        done = _listed(dsn, full, unbuffered)
    assert done.returncode == ExitCode.FAILED
    assert "No space left" in done.stderr
    assert "Traceback" not in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.rest
def test_reader_that_closes_its_end_is_not_an_error(dsn: str) -> None:
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "w") as closed:
        done = _listed(dsn, closed, "", "--json")
    assert (done.returncode, done.stderr) == (ExitCode.OK, "")


def _listed(
    dsn: str, stdout: IO[str], unbuffered: str, *options: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [
            sys.executable,
            "-m",
            "holdfast.dispatcher.cli.main",
            "config",
            "show",
            "--dsn",
            dsn,
            *options,
        ],
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
        env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
    )


@pytest.mark.rest
def test_help_lists_every_group() -> None:
    done = holdfast("--help", code=ExitCode.OK)
    for group in (
        "db",
        "demo",
        "dispatch",
        "endpoint",
        "entries",
        "job",
        "local",
        "payouts",
        "status",
    ):
        assert group in done.stdout


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


SETTINGS = ("--url", "https://payouts.example/", "--secret-ref", "env:S")


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["status"], ExitCode.DEGRADED),
        (["stream", "show", "nobody", "--json"], ExitCode.NOTHING_MATCHED),
        (["endpoint", "add", "payouts", *SETTINGS, "--rate", "fast"], ExitCode.USAGE),
    ],
)
def test_command_says_same_in_process(world: World, arguments: list[str], code: ExitCode) -> None:
    done = world.holdfast(*arguments)
    result = holdfast(*arguments, dsn=world.dsn, process=True)
    assert (done.returncode, done.stdout, done.stderr) == (code, result.stdout, result.stderr)
    assert result.returncode == code
    assert done.stdout or done.stderr


def test_command_here_leaves_nothing_of_its_settings(dsn: str) -> None:
    before = dict(os.environ)
    holdfast("status", dsn=dsn, environment={"HOLDFAST_X": "1"}, code=ExitCode.DEGRADED)
    assert dict(os.environ) == before
    help_texts = [holdfast("db", "--help").stdout for _ in range(2)]
    assert help_texts[0] == help_texts[1] != ""
