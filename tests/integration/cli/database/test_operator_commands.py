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

from holdfast.sink.contract.exits import ExitCode
from tests.support.command import holdfast
from tests.support.dispatch.delivery import live_dispatcher
from tests.support.dispatch.dispatching import drain
from tests.support.job.decisions import Decisions
from tests.support.job.driver import Driver

pytestmark = pytest.mark.rest

REF = "env:HOLDFAST_SECRET_S"
ABSENT = "env:HOLDFAST_SECRET_ABSENT"
ADOPT = ("stream", "adopt", "payouts", "--reason", "checkpoint lost")
ADD = ("endpoint", "add", "payouts", "--url", "https://payouts.example/webhooks")


def test_endpoint_is_added_with_its_audit_row(dsn: str, db: psycopg.Connection) -> None:
    done = holdfast(*ADD, "--secret-ref", REF, "--type", "payout_hold.block", "--json", dsn=dsn)
    assert done.returncode == ExitCode.OK, done.stderr
    assert json.loads(done.stdout)["name"] == "payouts"
    row = db.execute(
        "SELECT url, types, secret_refs, state::text FROM holdfast.endpoint"
    ).fetchone()
    assert row == (
        "https://payouts.example/webhooks",
        ["payout_hold.block"],
        [REF],
        "active",
    )
    audit = db.execute("SELECT action, target FROM holdfast.operator_action").fetchall()
    assert audit == [("endpoint.add", "payouts")]


def test_second_endpoint_of_one_name_is_refused(dsn: str, db: psycopg.Connection) -> None:
    assert holdfast(*ADD, "--secret-ref", REF, dsn=dsn).returncode == ExitCode.OK
    again = holdfast(*ADD, "--secret-ref", REF, dsn=dsn)
    assert again.returncode == ExitCode.FAILED
    assert "already" in again.stderr
    assert db.execute("SELECT count(*) FROM holdfast.operator_action").fetchone() == (1,)


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
def test_unsafe_endpoint_is_refused_in_one_line(
    dsn: str, arguments: list[str], complaint: str
) -> None:
    done = holdfast("endpoint", "add", "bad", *arguments, dsn=dsn)
    assert done.returncode == ExitCode.USAGE
    assert complaint in done.stderr
    assert "Traceback" not in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


@pytest.mark.parametrize(
    ("option", "number"), [("--total-timeout", "nan"), ("--connect-timeout", "inf")]
)
def test_timeout_that_is_no_number_is_a_usage_error(dsn: str, option: str, number: str) -> None:
    done = holdfast(*ADD, "--secret-ref", REF, option, number, dsn=dsn)
    assert done.returncode == ExitCode.USAGE
    assert f"'{number}' is not a valid number" in done.stderr
    assert "Traceback" not in done.stderr


def test_endpoint_from_the_beginning_gets_what_was_routed_before_it_existed(
    dsn: str, db: psycopg.Connection
) -> None:
    with Decisions(dsn) as decisions:
        decisions.write("m_1", "m_1", "m_2")
    db.execute("UPDATE holdfast.batch SET routed_at = now()")
    added = holdfast(*ADD, "--secret-ref", REF, "--from-beginning", dsn=dsn)
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


def test_endpoint_that_starts_later_is_not_backfilled_with_what_was_there_before(
    dsn: str, db: psycopg.Connection
) -> None:
    with Decisions(dsn) as decisions:
        decisions.write("m_1")
    db.execute("UPDATE holdfast.batch SET routed_at = now()")
    holdfast(*ADD, "--secret-ref", REF, dsn=dsn)
    done = holdfast("endpoint", "backfill", "payouts", "--json", dsn=dsn)
    assert json.loads(done.stdout) == {"name": "payouts", "lanes": 0}
    refused = holdfast("endpoint", "backfill", "other", dsn=dsn)
    assert refused.returncode == ExitCode.NOTHING_MATCHED
    assert db.execute("SELECT count(*) FROM holdfast.lane").fetchone() == (0,)


def test_pause_and_resume_are_audited_and_unknown_names_match_nothing(
    dsn: str, db: psycopg.Connection
) -> None:
    holdfast(*ADD, "--secret-ref", REF, dsn=dsn)
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
    done = holdfast(*ADOPT, "--query-id", after, "--force", dsn=dsn)
    assert done.returncode == ExitCode.OK, done.stderr
    assert f"(before: {before})" in done.stdout
    (adopted,) = db.execute("SELECT query_id::text FROM holdfast.stream").fetchone() or (None,)
    assert adopted == after
    audit = db.execute("SELECT reason, detail FROM holdfast.operator_action").fetchone()
    assert audit == ("checkpoint lost", {"query_id": after, "previous": before})


def test_adopting_what_is_adopted_changes_nothing_and_says_so(
    dsn: str, db: psycopg.Connection
) -> None:
    query_id = str(uuid4())
    db.execute(
        "INSERT INTO holdfast.stream (name, query_id, adopted_at)"
        " VALUES ('payouts', %s, '2026-11-02T12:00:00Z')",
        (query_id,),
    )
    done = holdfast(*ADOPT, "--query-id", query_id, dsn=dsn)
    assert done.returncode == ExitCode.OK, done.stderr
    assert "since 2026-11-02T12:00:00Z; nothing was changed" in done.stdout
    told = json.loads(holdfast(*ADOPT, "--query-id", query_id, "--json", dsn=dsn).stdout)
    assert (told["changed"], told["adopted_at"]) == (False, "2026-11-02T12:00:00Z")
    assert db.execute("SELECT count(*) FROM holdfast.operator_action").fetchone() == (0,)


def test_query_id_that_nothing_here_has_seen_is_not_adopted_by_mistake(
    dsn: str, db: psycopg.Connection, tmp_path: Path
) -> None:
    ours, wrong, theirs = str(uuid4()), str(uuid4()), str(uuid4())
    db.execute(
        "INSERT INTO holdfast.stream (name, query_id, checkpoint) VALUES ('payouts', %s, %s)",
        (str(uuid4()), f"file://{tmp_path}/new"),
    )
    for stream, query_id in (("payouts", ours), ("other", theirs)):
        spark = Driver(dsn, stream=stream, query_id=UUID(query_id))
        db.execute("UPDATE holdfast.stream SET query_id = %s WHERE name = %s", (query_id, stream))
        spark.batch(0)
        spark.sink.close()
    db.execute("UPDATE holdfast.stream SET query_id = %s WHERE name = 'payouts'", (str(uuid4()),))

    def adopt(query_id: str, *options: str) -> str:
        done = holdfast(*ADOPT, "--query-id", query_id, *options, dsn=dsn)
        assert done.returncode in (ExitCode.OK, ExitCode.FAILED), done.stderr
        return done.stderr

    assert "its checkpoint cannot be read from here" in adopt(wrong)
    assert "it writes stream other" in adopt(theirs)
    assert adopt(ours) == ""
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "metadata").write_text(json.dumps({"id": str(uuid4())}))
    assert "can be read from here is of query" in adopt(wrong)
    assert db.execute(
        "SELECT query_id::text FROM holdfast.stream WHERE name = 'payouts'"
    ).fetchone() == (ours,)
    (tmp_path / "new" / "metadata").write_text(json.dumps({"id": wrong}))
    assert adopt(wrong) == ""
    assert adopt(ours) == ""
    assert adopt(wrong, "--checkpoint", str(tmp_path / "new")) == ""


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


def test_status_without_a_dispatcher_is_degraded_though_nothing_is_due(
    dsn: str, db: psycopg.Connection
) -> None:
    assert _needs(dsn) == ["no_dispatcher"]
    live_dispatcher(db)
    db.execute("UPDATE holdfast.dispatcher_instance SET draining = true")
    assert _needs(dsn) == ["no_dispatcher"]
    overview = holdfast("overview", dsn=dsn)
    assert overview.returncode == ExitCode.DEGRADED
    assert "nothing needs a person" not in overview.stdout
    db.execute("UPDATE holdfast.dispatcher_instance SET draining = false")
    assert holdfast("overview", dsn=dsn).returncode == ExitCode.OK


def test_status_of_an_empty_database_is_ok_and_readable_by_machines(
    dsn: str, db: psycopg.Connection
) -> None:
    live_dispatcher(db)
    done = holdfast("status", "--json", dsn=dsn)
    assert done.returncode == ExitCode.OK, done.stderr
    report = json.loads(done.stdout)
    assert report["entries"] == 0
    assert report["degraded"] is False
    assert "\x1b[" not in holdfast("status", dsn=dsn).stdout


def test_status_is_degraded_while_a_dead_letter_waits(dsn: str, db: psycopg.Connection) -> None:
    holdfast(*ADD, "--secret-ref", REF, dsn=dsn)
    db.execute(
        "INSERT INTO holdfast.dead_letter (endpoint_id, subject_id, sequence, key, created_at,"
        " reason, detail, attempts)"
        " SELECT id, 1, 1, gen_random_uuid(), now(), 'rejected', '', 1 FROM holdfast.endpoint"
    )
    assert holdfast("status", dsn=dsn).returncode == ExitCode.DEGRADED


def test_status_says_what_the_overview_says_needs_a_person(
    dsn: str, db: psycopg.Connection
) -> None:
    holdfast(*ADD, "--secret-ref", REF, dsn=dsn)
    live_dispatcher(db)
    db.execute("UPDATE holdfast.endpoint SET state = 'disabled', state_reason = 'answered 410'")
    db.execute(
        "INSERT INTO holdfast.quarantine (batch_no, reason, detail, row, quarantined_at)"
        " VALUES (1, 'bad_data', 'd', '{}', now())"
    )
    done = holdfast("status", "--json", dsn=dsn)
    assert done.returncode == ExitCode.DEGRADED
    needs = json.loads(done.stdout)["needs"]
    assert [need["kind"] for need in needs] == ["disabled_endpoints", "quarantine"]
    assert needs == json.loads(holdfast("overview", "--json", dsn=dsn).stdout)["needs"]
    text = holdfast("status", dsn=dsn).stdout
    assert "1 endpoint is disabled: payouts\n    holdfast endpoint show payouts" in text


def test_status_is_degraded_where_work_waits_and_nobody_takes_it(
    dsn: str, db: psycopg.Connection
) -> None:
    holdfast(*ADD, "--secret-ref", ABSENT, dsn=dsn)
    with Decisions(dsn) as decisions:
        decisions.write("m_1")
    assert _needs(dsn) == ["no_dispatcher"]
    drain(dsn)
    db.execute("UPDATE holdfast.lane SET due_at = due_at - interval '10 minutes'")
    live_dispatcher(db)
    assert _needs(dsn) == ["not_claimed"]
    waits = (
        "UPDATE holdfast.endpoint SET state = 'paused'",
        "UPDATE holdfast.endpoint SET state = 'active', rate_per_second = 1",
        "UPDATE holdfast.endpoint_pace SET held_until = now() + interval '1 hour'",
    )
    for change in waits:
        db.execute(change)
        assert _needs(dsn, ExitCode.OK) == [], change


def _needs(dsn: str, code: ExitCode = ExitCode.DEGRADED) -> list[str]:
    done = holdfast("status", "--json", dsn=dsn)
    assert done.returncode == code, done.stdout
    return [need["kind"] for need in json.loads(done.stdout)["needs"]]


def test_status_is_degraded_until_every_quarantined_row_is_resolved(
    dsn: str, db: psycopg.Connection
) -> None:
    db.execute(
        "INSERT INTO holdfast.quarantine (batch_no, reason, detail, row, quarantined_at)"
        " VALUES (1, 'bad_data', 'd', '{}', now())"
    )
    done = holdfast("status", dsn=dsn)
    assert done.returncode == ExitCode.DEGRADED
    assert "1 open row in quarantine, 0 dead letters, 0 diverged replays" in done.stdout
    live_dispatcher(db)
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
    options = ("--url", url, "--secret-ref", REF, "--allow-cidr", "fd00::/8")
    added = holdfast("endpoint", "add", "odd", *options, dsn=dsn)
    assert added.returncode == ExitCode.OK, added.stderr
    listed = holdfast("endpoint", "list", dsn=dsn)
    assert listed.returncode == ExitCode.OK, listed.stderr
    assert url in listed.stdout


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_output_that_cannot_be_written_is_one_line(dsn: str, unbuffered: str) -> None:
    with Path("/dev/full").open("w") as full:
        done = _listed(dsn, full, unbuffered)
    assert done.returncode == ExitCode.FAILED
    assert "No space left" in done.stderr
    assert "Traceback" not in done.stderr
    assert len(done.stderr.splitlines()) == 1


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


def test_help_lists_every_group() -> None:
    done = holdfast("--help")
    assert done.returncode == ExitCode.OK
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
