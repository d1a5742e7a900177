"""`holdfast subjects|attempts|dispatchers|audit|database|overview`: what operators look at."""

from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

from holdfast.dispatcher.operators.attempts import store as attempts_store
from holdfast.dispatcher.operators.attempts.store import AttemptFilter, Attempts, NewestPlace
from holdfast.dispatcher.operators.overview import rules as needs
from holdfast.dispatcher.operators.overview import store as overview_store
from holdfast.dispatcher.operators.subjects import store as subjects_store
from holdfast.dispatcher.operators.subjects.store import Held, SubjectFilter, Subjects
from holdfast.sink.contract.exits import ExitCode
from tests.support.command import holdfast
from tests.support.dispatch import webhooks
from tests.support.dispatch.dispatching import SECRET, add_endpoint, drain
from tests.support.dispatch.sender import BLOCK, RELEASE, secret_text
from tests.support.dispatch.webhooks import Behaviour, Seen, answer
from tests.support.job.decisions import Decisions
from tests.support.servers.databases import copy_of
from tests.support.world import World

STRANGE = "z\x1b[2J"
NAMES = ["M_9", "m_dead", "m_late", "m_ok", "m_retry", STRANGE]
ANSWERS = {"m_dead": answer(400, b"no\x1b[2J such merchant"), "m_retry": answer(500)}

HISTORY = """
    INSERT INTO holdfast.dispatcher_instance (id, host, pid, version, heartbeat_at, draining)
    VALUES (gen_random_uuid(), 'here', 1, '9', now() + interval '1 hour', true),
        (gen_random_uuid(), E'there\\x1b[2J', 2, '9', now() - interval '2 hours', false);
    INSERT INTO holdfast.operator_action (acted_at, actor, action, target, reason, detail)
    SELECT '2026-01-01T00:00:00Z'::timestamptz + n * interval '1 hour',
        (ARRAY['ann', 'bob'])[1 + n % 2],
        (ARRAY['endpoint.add', 'endpoint.set', 'endpointer'])[1 + n % 3],
        'payouts', E'why\\x1b[2J', jsonb_build_object('n', n)
    FROM generate_series(0, 5) n
"""


def _behaviour(seen: Seen) -> Behaviour:
    refuses = seen.target.endswith("/payouts") and seen.sequence == 1
    return ANSWERS.get(seen.subject, answer()) if refuses else answer()


@pytest.fixture(scope="module")
def scene(server_dsn: str, template_database: str) -> Iterator[str]:
    """A lane of each kind at `payouts`, everything delivered at `ledger`, one behind at `later`."""
    with (
        pytest.MonkeyPatch.context() as environment,
        copy_of(server_dsn, template_database) as dsn,
        psycopg.connect(dsn, autocommit=True) as db,
        webhooks.listening() as receiver,
    ):
        environment.setenv(SECRET, secret_text())
        receiver.script = _behaviour
        add_endpoint(db, f"{receiver.url}/payouts", types=[BLOCK], schedule_seconds=[3600])
        add_endpoint(db, f"{receiver.url}/ledger", name="ledger", types=[BLOCK])
        add_endpoint(db, receiver.url, name="later", types=[RELEASE], state="paused")
        with Decisions(dsn) as decisions:
            decisions.write("m_dead", "m_dead", "m_retry", "m_ok", "m_ok", STRANGE, "M_9")
            decisions.write("m_late", type_=RELEASE)
        drain(dsn)
        db.execute(HISTORY)
        yield dsn


@pytest.fixture(scope="module")
def db(scene: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(scene, autocommit=True) as connection:
        yield connection


def _json(dsn: str, *arguments: str, code: ExitCode = ExitCode.OK) -> dict[str, Any]:
    return holdfast(*arguments, "--json", dsn=dsn, code=code).json


def _pages(dsn: str, key: str, option: str, *arguments: str) -> Iterator[list[dict[str, Any]]]:
    """All pages of a list, each read with what the page before it said."""
    place: list[str] = []
    while True:
        page = _json(dsn, *arguments, *place)
        yield page[key]
        further = page[f"next_{option}"]
        if further is None:
            return
        place = [f"--{option}", str(further)]


def _names(dsn: str, *arguments: str) -> list[str]:
    pages = _pages(dsn, "subjects", "after", "subject", "list", *arguments)
    return [row["name"] for page in pages for row in page]


def test_subjects_are_listed_in_the_order_of_their_bytes_page_by_page(scene: str) -> None:
    for few in ("1", "4", "6", "50"):
        assert _names(scene, "--limit", few) == NAMES
    assert _names(scene, "--prefix", "m_", "--limit", "2") == NAMES[1:5]
    assert _names(scene, "--after", "m_late") == NAMES[3:]
    rows = {row["name"]: row for row in _json(scene, "subject", "list")["subjects"]}
    counted = ("lanes", "stopped", "retrying", "behind", "undelivered", "last_sequence")
    assert [rows["m_dead"][each] for each in counted] == [2, 1, 0, 0, 2, 2]
    assert [rows["m_retry"][each] for each in counted] == [2, 0, 1, 0, 1, 1]
    assert [rows["m_late"][each] for each in counted] == [1, 0, 0, 1, 1, 1]
    assert [rows["m_ok"][each] for each in counted] == [2, 0, 0, 0, 0, 2]
    text = holdfast("subject", "list", "--limit", "5", dsn=scene).stdout
    assert "more rows: --after m_retry" in text
    assert "\x1b" not in holdfast("subject", "list", dsn=scene).stdout


@pytest.mark.parametrize(("most", "at_first", "at_most"), [(20_000, 9, 9), (1, 1, 50), (1, 2, 2)])
def test_blocked_subjects_are_listed_when_names_are_walked(
    most: int, at_first: int, at_most: int, scene: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subjects_store, "HELD_MAX", most)
    monkeypatch.setattr(subjects_store, "SCAN_FIRST", at_first)
    monkeypatch.setattr(subjects_store, "SCAN_MAX", at_most)
    with Subjects.connect(scene) as store:

        def found(limit: int, held: Held, prefix: str = "") -> list[str]:
            names: list[str] = []
            after: str | None = ""
            while after is not None:
                wanted = SubjectFilter(prefix, held)
                rows, after = store.subjects(wanted, limit=limit, after=after)
                names += [row["name"] for row in rows]
            return names

        for limit in (1, 50):
            assert found(limit, Held.STOPPED) == ["m_dead"]
            assert found(limit, Held.RETRYING) == ["m_retry"]
            assert found(limit, Held.BEHIND) == ["m_late"]
            assert found(limit, Held.ANY) == ["m_dead", "m_late", "m_retry"]
            assert found(limit, Held.ANY, "m_r") == ["m_retry"]
    assert _names(scene, "--held", "retrying", "--prefix", "m_re") == ["m_retry"]


def test_empty_walk_says_where_it_continues(scene: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HELD_MAX", "SCAN_FIRST", "SCAN_MAX"):
        monkeypatch.setattr(subjects_store, name, 1)
    done = holdfast("subject", "list", "--held", "stopped", dsn=scene)
    assert (done.returncode, "no match up to here" in done.stdout) == (ExitCode.OK, True)
    assert "--after M_9" in done.stdout


def test_subject_is_shown_with_each_lane_and_what_stops_it(scene: str) -> None:
    subjects = _json(scene, "subject", "show", "m_dead")
    ledger, payouts = subjects["lanes"]
    assert (ledger["endpoint"], ledger["state"], ledger["held"]) == ("ledger", "idle", None)
    assert (ledger["delivered_sequence"], ledger["waiting"], ledger["head_key"]) == (2, 0, None)
    assert (payouts["state"], payouts["held"], payouts["waiting"]) == ("stopped", "stopped", 2)
    assert (payouts["head_sequence"], payouts["dead_reason"]) == (1, "rejected")
    assert [entry["sequence"] for entry in subjects["entries"]] == [2, 1]
    assert payouts["head_key"] == subjects["entries"][1]["key"]
    text = holdfast("subject", "show", "m_dead", dsn=scene).stdout
    assert f"dead letter {payouts['dead_letter']}, rejected" in text
    assert "holdfast why m_dead" in text
    [retrying] = _json(scene, "subject", "show", "m_retry")["lanes"][1:]
    assert (retrying["held"], retrying["attempt"], retrying["due_at"] is None) == (
        "retrying",
        1,
        False,
    )
    [later] = _json(scene, "subject", "show", "m_late")["lanes"]
    assert (later["endpoint_state"], later["state"], later["held"]) == ("paused", "due", "behind")
    strange = holdfast("subject", "show", STRANGE, dsn=scene).stdout
    assert "\x1b" not in strange


IN_ORDER = """
    SELECT p.name, s.name, a.sequence, a.outcome::text
    FROM holdfast.attempt a JOIN holdfast.endpoint p ON p.id = a.endpoint_id
    JOIN holdfast.subject s ON s.id = a.subject_id
    ORDER BY finished_at DESC, endpoint_id DESC, subject_id DESC, sequence DESC
"""


@pytest.mark.parametrize(("at_first", "at_most"), [(1_000, 100_000), (1, 100_000), (2, 2)])
def test_attempts_of_all_subjects_are_listed_with_small_limits(
    world: World, at_first: int, at_most: int, scene: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    everything = world.db.execute(IN_ORDER).fetchall()
    assert len(everything) == 13
    assert {each[3] for each in everything} == {"delivered", "failed", "rejected"}
    monkeypatch.setattr(attempts_store, "SCAN_FIRST", at_first)
    monkeypatch.setattr(attempts_store, "SCAN_MAX", at_most)
    with Attempts.connect(scene) as store:

        def found(limit: int, **wanted: str) -> list[tuple[str, str, int, str]]:
            rows: list[dict[str, Any]] = []
            place = None
            while True:
                page, place = store.of_all_subjects(
                    AttemptFilter(**wanted), limit=limit, before=place
                )
                rows += page
                if place is None:
                    break
                place = NewestPlace.of(str(place))
            columns = ("endpoint", "subject", "sequence", "outcome")
            return [tuple(row[column] for column in columns) for row in rows]

        for limit in (1, 3, 50):
            assert found(limit) == everything
            for name, column in (("endpoint", 0), ("outcome", 3)):
                for value in {each[column] for each in everything}:
                    wanted = [each for each in everything if each[column] == value]
                    assert found(limit, **{name: value}) == wanted


def test_attempts_of_everybody_are_listed_the_newest_first(world: World, scene: str) -> None:
    everything = world.db.execute(IN_ORDER).fetchall()
    pages = list(_pages(scene, "attempts", "before", "attempt", "list", "--limit", "5"))
    rows = [row for page in pages for row in page]
    assert [len(page) for page in pages] == [5, 5, 3]
    assert [(row["endpoint"], row["subject"]) for row in rows] == [each[:2] for each in everything]
    newest = rows[0]["finished_at"]
    for option, wanted in (
        ("--since", [row for row in rows if row["finished_at"] >= newest]),
        ("--until", [row for row in rows if row["finished_at"] < newest]),
    ):
        # What one transaction settled has one time: there may be none before the newest.
        code = ExitCode.OK if wanted else ExitCode.NOTHING_MATCHED
        done = holdfast("attempt", "list", option, newest, "--json", dsn=scene, code=code)
        assert (done.json["attempts"] if wanted else []) == wanted
    of = ("--outcome", "rejected", "--endpoint", "payouts")
    [rejected] = _json(scene, "attempt", "list", *of)["attempts"]
    assert rejected["subject"] == "m_dead"
    assert "\x1b" not in holdfast("attempt", "list", dsn=scene).stdout


def test_no_newest_attempts_name_older(scene: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SCAN_FIRST", "SCAN_MAX"):
        monkeypatch.setattr(attempts_store, name, 1)
    done = holdfast("attempt", "list", "--endpoint", "later", dsn=scene, code=ExitCode.OK)
    assert "older rows: --before" in done.stdout


def test_dispatchers_are_listed_with_those_that_died(scene: str) -> None:
    alive, dead = _json(scene, "dispatcher", "list")["dispatchers"]
    assert (alive["host"], alive["alive"], alive["draining"]) == ("here", True, True)
    assert (dead["pid"], dead["alive"]) == (2, False)
    assert 7190 < dead["heartbeat_age_seconds"] < 7800
    text = holdfast("dispatcher", "list", dsn=scene).stdout
    assert "draining" in text
    assert r"there\x1b[2J" in text
    assert "2 h" in text


def _actions(dsn: str, *arguments: str) -> list[int]:
    pages = _pages(dsn, "actions", "before", "audit", "list", *arguments)
    return [row["detail"]["n"] for page in pages for row in page]


def test_audit_trail_is_listed_the_newest_first_by_any_filter(scene: str) -> None:
    for few in ("1", "4", "50"):
        assert _actions(scene, "--target", "payouts", "--limit", few) == [5, 4, 3, 2, 1, 0]
    assert _actions(scene, "--actor", "bob") == [5, 3, 1]
    assert _actions(scene, "--action", "endpoint.set") == [4, 1]
    assert _actions(scene, "--action", "endpoint") == [4, 3, 1, 0]
    assert _actions(scene, "--since", "2026-01-01T04:00:00+00:00") == [5, 4]
    assert _actions(scene, "--until", "2026-01-01T02:00:00+01:00") == [0]
    text = holdfast("audit", "list", dsn=scene).stdout
    assert r"why\x1b[2J" in text
    assert "2026-01-01T05:00:00Z" in text


@pytest.mark.parametrize(
    ("complaint", "arguments"),
    [
        ("no subject matches", ["subject", "list", "--prefix", "nobody"]),
        ("no subject is called", ["subject", "show", "nobody"]),
        ("no action matches", ["audit", "list", "--actor", "nobody"]),
        ("no attempt matches", ["attempt", "list", "--outcome", "gone"]),
        ("no attempt matches", ["attempt", "list", "--endpoint", "later"]),
        ("no endpoint is called", ["attempt", "list", "--endpoint", "nobody"]),
    ],
)
def test_unknown_object_is_exit_code_3(complaint: str, arguments: list[str], scene: str) -> None:
    done = holdfast(*arguments, "--json", dsn=scene, code=ExitCode.NOTHING_MATCHED)
    assert complaint in done.stderr
    # A list has its envelope, also when it is empty.
    assert done.stdout == "" or [] in done.json.values()
    assert holdfast(*arguments, dsn=scene).stdout == ""


@pytest.mark.parametrize(
    "arguments",
    [
        ["subject", "list", "--held", "up"],
        ["subject", "list", "--prefix", "a\0"],
        ["subject", "list", "--limit", "0"],
        ["subject", "show", "a\0"],
        ["audit", "list", "--since", "tomorrow"],
        ["audit", "list", "--target", "a\0"],
        ["attempt", "list", "--before", "1.2.3"],
        ["attempt", "list", "hf_1", "--subject", "m_1"],
        ["overview", "--minutes", "181"],
    ],
)
def test_senseless_options_are_a_usage_error(arguments: list[str]) -> None:
    done = holdfast(*arguments, dsn="postgresql://nobody@127.0.0.1:9/x")
    assert (done.returncode, done.stdout) == (ExitCode.USAGE, "")
    assert "Traceback" not in done.stderr


def test_database_shows_what_holds_it_up(
    scene: str, make_snapshot: Callable[[], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    pid = make_snapshot()
    database = _json(scene, "database")
    [snapshot] = [each for each in database["snapshots"] if each["pid"] == pid]
    # Postgres itself replaces what is not printable, since 16 by its escape.
    named = r"old\x1b" if int(database["server_version"].split(".")[0]) >= 16 else "old?"
    assert (snapshot["application"], snapshot["state"]) == (named, "idle in transaction")
    assert database["revision"] == database["revision_needed"]
    assert abs(database["clock_ahead_seconds"]) < 60
    entry, attempt = database["partitions"]
    assert (entry["parent"], attempt["parent"]) == ("entry", "attempt")
    assert attempt["days_ahead"] >= 6
    assert (attempt["days_behind"], len(attempt["newest"])) == (1, attempt["days"])
    assert {"lane", "subject", "endpoint_pace"} <= {each["name"] for each in database["tables"]}
    assert database["needs"] == []
    monkeypatch.setattr(needs, "SNAPSHOT_SECONDS", 0.0)
    [need] = _json(scene, "database", code=ExitCode.DEGRADED)["needs"]
    assert (need["kind"], need["count"]) == ("old_snapshot", 1)
    assert need["command"].endswith(f"'SELECT pg_terminate_backend({pid})'")
    done = holdfast("database", dsn=scene, code=ExitCode.DEGRADED)
    assert need["command"] in done.stdout


@pytest.fixture
def make_snapshot(scene: str) -> Iterator[Callable[[], int]]:
    """Open a transaction that holds a snapshot; returns the process of its session."""
    with psycopg.connect(scene, application_name="old\x1b") as session:

        def make() -> int:
            session.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            session.execute("SELECT 1")
            return session.info.backend_pid

        yield make


def test_overview_counts_events_and_lists_what_needs_a_person(world: World, scene: str) -> None:
    overview = _json(scene, "overview", code=ExitCode.DEGRADED)
    assert overview["totals"] == {
        "entries": 8,
        "attempts": 13,
        "deliveries": 11,
        "outcomes": {"delivered": 11, "failed": 1, "rejected": 1},
    }
    assert len(overview["series"]) == 60
    assert sum(each["attempts"] for each in overview["series"]) == 13
    assert overview["complete_since"] == overview["since"] == overview["series"][0]["minute"]
    assert (overview["duration_ms"]["of"], overview["latency_seconds"]["of"]) == (13, 11)
    assert 0 <= overview["latency_seconds"]["p50"] <= overview["latency_seconds"]["p99"] < 60
    later, ledger, payouts = overview["endpoints"]
    assert (later["state"], later["due_lanes"], ledger["due_lanes"]) == ("paused", 1, 0)
    assert (payouts["breaker"], overview["oldest_due_age_seconds"]) == ("closed", 0)
    assert [batch["entry_count"] for batch in overview["batches"]] == [1, 7]
    assert {need["kind"]: need["count"] for need in overview["needs"]} == {
        "no_dispatcher": 1,
        "stopped_lanes": 1,
        "dead_letters": 1,
    }
    for need in overview["needs"][1:]:
        command = need["command"].removeprefix("holdfast ").split()
        assert holdfast(*command, dsn=scene).returncode == ExitCode.OK
    text = holdfast("overview", "--minutes", "59", dsn=scene).stdout
    assert "8 entries written, 11 delivered; 1 failed, 1 rejected" in text
    assert overview["needs"][0]["sentence"] in text
    world.db.execute(
        "UPDATE holdfast.lane SET due_at = now() - interval '1 hour' WHERE attempt > 0"
    )
    [first, *_] = _json(scene, "overview", code=ExitCode.DEGRADED)["needs"]
    assert first["kind"] == "no_dispatcher"
    world.db.execute(
        "UPDATE holdfast.lane SET due_at = now() + interval '1 hour' WHERE attempt > 0"
    )


def test_overview_says_since_when_it_counts(scene: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overview_store, "ATTEMPTS_MAX", 3)
    overview = _json(scene, "overview", code=ExitCode.DEGRADED)
    assert overview["totals"]["attempts"] == 3
    assert overview["complete_since"] > overview["since"]
