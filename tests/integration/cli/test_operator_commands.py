"""The operator's commands on a real database: what they change, what they refuse, how they end."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest

from sink.contract.exits import ExitCode
from tests.support.command import holdfast
from tests.support.decisions import Decisions

ADD = ("endpoint", "add", "payouts", "--url", "https://payouts.example/webhooks")


def test_endpoint_is_added_with_its_audit_row(dsn: str, db: psycopg.Connection) -> None:
    done = holdfast(*ADD, "--secret-ref", "env:S", "--type", "payout_hold.block", "--json", dsn=dsn)
    assert done.returncode == ExitCode.OK, done.stderr
    assert json.loads(done.stdout)["name"] == "payouts"
    row = db.execute(
        "SELECT url, types, secret_refs, state::text FROM holdfast.endpoint"
    ).fetchone()
    assert row == (
        "https://payouts.example/webhooks",
        ["payout_hold.block"],
        ["env:S"],
        "active",
    )
    audit = db.execute("SELECT action, target FROM holdfast.operator_action").fetchall()
    assert audit == [("endpoint.add", "payouts")]


def test_second_endpoint_of_one_name_is_refused(dsn: str, db: psycopg.Connection) -> None:
    assert holdfast(*ADD, "--secret-ref", "env:S", dsn=dsn).returncode == ExitCode.OK
    again = holdfast(*ADD, "--secret-ref", "env:S", dsn=dsn)
    assert again.returncode == ExitCode.FAILED
    assert "already" in again.stderr
    assert db.execute("SELECT count(*) FROM holdfast.operator_action").fetchone() == (1,)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--url", "ftp://x/y", "--secret-ref", "env:S"], "http"),
        (["--url", "https://u:p@x/y", "--secret-ref", "env:S"], "password"),
        (["--url", "https://x:notaport/", "--secret-ref", "env:S"], "not a URL"),
        (["--url", "https://x/ y", "--secret-ref", "env:S"], "spaces"),
        (["--url", "https://x/", "--secret-ref", "whsec_c2VjcmV0"], "env:VAR"),
        (["--url", "https://x/", "--secret-ref", "env:S", "--allow-cidr", "10.0.0.1/8"], "cidr"),
        (["--url", "https://x/", "--secret-ref", "env:S", "--schedule", "5,x"], "schedule"),
        (["--url", "https://x/", "--secret-ref", "env:S", "--total-timeout", "nan"], "seconds"),
        (["--url", "https://x/", "--secret-ref", "env:S", "--connect-timeout", "inf"], "seconds"),
        (["--url", "https://x/", "--secret-ref", "env:S", "--total-timeout", "9999"], "seconds"),
        (["--url", "https://x/", "--secret-ref", "env:S", "--type", "a b"], "no type"),
        (["--url", "https://127.0.0.1/", "--secret-ref", "env:S"], "private"),
        (["--url", "http://x/", "--secret-ref", "env:S"], "--allow-cidr"),
        (["--url", "https://\u00e9/", "--secret-ref", "env:S"], "ASCII"),
    ],
)
def test_unsafe_endpoint_is_refused_in_one_line(
    dsn: str, arguments: list[str], complaint: str
) -> None:
    done = holdfast("endpoint", "add", "bad", *arguments, dsn=dsn)
    assert done.returncode == ExitCode.USAGE
    assert complaint in done.stderr
    assert "Traceback" not in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_endpoint_from_the_beginning_gets_what_was_routed_before_it_existed(
    dsn: str, db: psycopg.Connection
) -> None:
    with Decisions(dsn) as decisions:
        decisions.write("m_1", "m_1", "m_2")
    db.execute("UPDATE holdfast.batch SET routed_at = now()")
    added = holdfast(*ADD, "--secret-ref", "env:S", "--from-beginning", dsn=dsn)
    assert added.returncode == ExitCode.OK, added.stderr
    query = """
        SELECT name, delivered_sequence, lane.last_sequence, due_at <= clock_timestamp()
        FROM holdfast.lane JOIN holdfast.subject ON subject.id = subject_id ORDER BY name
    """
    lanes = [("m_1", 0, 2, True), ("m_2", 0, 1, True)]
    assert db.execute(query).fetchall() == lanes
    again = holdfast("endpoint", "backfill", "payouts", "--json", dsn=dsn)
    assert json.loads(again.stdout) == {"name": "payouts", "lanes": 0}
    assert db.execute(query).fetchall() == lanes


def test_only_an_endpoint_from_the_beginning_is_backfilled(
    dsn: str, db: psycopg.Connection
) -> None:
    with Decisions(dsn) as decisions:
        decisions.write("m_1")
    db.execute("UPDATE holdfast.batch SET routed_at = now()")
    holdfast(*ADD, "--secret-ref", "env:S", dsn=dsn)
    refused = holdfast("endpoint", "backfill", "payouts", dsn=dsn)
    assert refused.returncode == ExitCode.NOTHING_MATCHED
    assert db.execute("SELECT count(*) FROM holdfast.lane").fetchone() == (0,)


def test_pause_and_resume_are_audited_and_unknown_names_match_nothing(
    dsn: str, db: psycopg.Connection
) -> None:
    holdfast(*ADD, "--secret-ref", "env:S", dsn=dsn)
    for verb in ("pause", "resume"):
        done = holdfast("endpoint", verb, "payouts", "--reason", "maintenance", dsn=dsn)
        assert done.returncode == ExitCode.OK, done.stderr
    actions = db.execute("SELECT action FROM holdfast.operator_action ORDER BY id").fetchall()
    assert [action for (action,) in actions] == [
        "endpoint.add",
        "endpoint.paused",
        "endpoint.active",
    ]
    missing = holdfast("endpoint", "pause", "nobody", "--reason", "x", dsn=dsn)
    assert missing.returncode == ExitCode.NOTHING_MATCHED


def test_adopting_a_query_id_is_recorded_with_the_one_before(
    dsn: str, db: psycopg.Connection
) -> None:
    before, after = str(uuid4()), str(uuid4())
    db.execute("INSERT INTO holdfast.stream (name, query_id) VALUES ('payouts', %s)", (before,))
    done = holdfast(
        "stream", "adopt", "payouts", "--query-id", after, "--reason", "checkpoint lost", dsn=dsn
    )
    assert done.returncode == ExitCode.OK, done.stderr
    (adopted,) = db.execute("SELECT query_id::text FROM holdfast.stream").fetchone() or (None,)
    assert adopted == after
    audit = db.execute("SELECT reason, detail FROM holdfast.operator_action").fetchone()
    assert audit == ("checkpoint lost", {"query_id": after, "previous": before})


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["payouts", "--query-id", "not-a-uuid", "--reason", "x"], ExitCode.USAGE),
        (["payouts", "--query-id", str(uuid4()), "--reason", " "], ExitCode.USAGE),
        (["nobody", "--query-id", str(uuid4()), "--reason", "x"], ExitCode.NOTHING_MATCHED),
    ],
)
def test_adoption_that_makes_no_sense_changes_nothing(
    dsn: str, db: psycopg.Connection, arguments: list[str], code: ExitCode
) -> None:
    done = holdfast("stream", "adopt", *arguments, dsn=dsn)
    assert done.returncode == code
    assert "hanged" in done.stderr
    assert db.execute("SELECT count(*) FROM holdfast.operator_action").fetchone() == (0,)


def test_status_of_an_empty_database_is_ok_and_readable_by_machines(dsn: str) -> None:
    done = holdfast("status", "--json", dsn=dsn)
    assert done.returncode == ExitCode.OK, done.stderr
    report = json.loads(done.stdout)
    assert report["entries"] == 0
    assert report["degraded"] is False
    assert "\x1b[" not in holdfast("status", dsn=dsn).stdout


def test_status_is_degraded_while_a_dead_letter_waits(dsn: str, db: psycopg.Connection) -> None:
    holdfast(*ADD, "--secret-ref", "env:S", dsn=dsn)
    db.execute(
        "INSERT INTO holdfast.dead_letter (endpoint_id, subject_id, sequence, key, created_at,"
        " reason, detail, attempts)"
        " SELECT id, 1, 1, gen_random_uuid(), now(), 'rejected', '', 1 FROM holdfast.endpoint"
    )
    assert holdfast("status", dsn=dsn).returncode == ExitCode.DEGRADED


def test_status_is_degraded_until_every_quarantined_row_is_resolved(
    dsn: str, db: psycopg.Connection
) -> None:
    db.execute(
        "INSERT INTO holdfast.quarantine (batch_no, reason, detail, row, quarantined_at)"
        " VALUES (1, 'bad_data', 'd', '{}', now())"
    )
    done = holdfast("status", dsn=dsn)
    assert done.returncode == ExitCode.DEGRADED
    assert "1 open rows in quarantine" in done.stdout
    db.execute("UPDATE holdfast.quarantine SET resolution = 'dismissed', resolved_at = now()")
    done = holdfast("status", dsn=dsn)
    assert done.returncode == ExitCode.OK
    assert "0 open rows in quarantine" in done.stdout


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
    done = holdfast("status", dsn=dsn_given)
    assert done.returncode == code
    assert complaint in done.stderr
    assert "hunter2" not in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_database_without_or_with_an_old_schema_is_named(
    make_database: Callable[[str | None], str], dsn: str, db: psycopg.Connection
) -> None:
    empty = holdfast("status", dsn=make_database(None))
    assert empty.returncode == ExitCode.FAILED
    assert "holdfast db upgrade" in empty.stderr
    db.execute("UPDATE holdfast.alembic_version SET version_num = '0001'")
    old = holdfast("status", dsn=dsn)
    assert old.returncode == ExitCode.FAILED
    assert "0001" in old.stderr


def test_names_that_look_like_markup_are_shown_as_they_are(dsn: str) -> None:
    url = "http://[fd00::1]:80/[/a]"
    options = ("--url", url, "--secret-ref", "env:S", "--allow-cidr", "fd00::/8")
    added = holdfast("endpoint", "add", "odd", *options, dsn=dsn)
    assert added.returncode == ExitCode.OK, added.stderr
    listed = holdfast("endpoint", "list", dsn=dsn)
    assert listed.returncode == ExitCode.OK, listed.stderr
    assert url in listed.stdout


def test_output_that_cannot_be_written_is_one_line(dsn: str) -> None:
    command = [sys.executable, "-m", "dispatcher.cli.main", "stream", "list", "--dsn", dsn]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == ExitCode.FAILED
    assert "No space left" in done.stderr
    assert "Traceback" not in done.stderr


def test_help_lists_every_group() -> None:
    done = holdfast("--help")
    assert done.returncode == ExitCode.OK
    for group in ("db", "demo", "dispatch", "endpoint", "job", "local", "payouts", "status"):
        assert group in done.stdout
