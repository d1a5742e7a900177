"""Owners of tables and tokens, and upgrades of a cluster without superuser rights."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Barrier

import psycopg
import pytest

from holdfast.migrations.doctor import gather, judge
from holdfast.migrations.upgrade import Upgraded, downgrade, head, script, upgrade
from holdfast.sink.contract.checks import Level
from holdfast.sink.contract.exits import CommandError
from holdfast.sink.contract.roles import ALL, OWNER, READER, SINK
from tests.support.command import holdfast
from tests.support.dispatch.dispatching import add_endpoint
from tests.support.job.decisions import Decisions
from tests.support.world import World

TOKEN = """
    INSERT INTO holdfast.access_token (id, name, role, sha256, created_by, expires_at)
    VALUES (gen_random_uuid(), %s, 'admin', sha256(%s), 'a', now())
"""
REPLAY = """
    INSERT INTO holdfast.replay (id, verb, filter, item_count, reason, actor)
    VALUES (gen_random_uuid(), 'redeliver', '{"subject": "m"}', 0, 'r', %s)
"""
PROPOSAL = """
    INSERT INTO holdfast.proposal (id, verb, target, detail, sha256, reason, actor, person)
    VALUES (gen_random_uuid(), 'v', 't', '{}', sha256('x'), 'r', 'Alice', 'alice')
"""


def test_tokens_and_replays_get_their_persons(dsn: str, db: psycopg.Connection) -> None:
    downgrade(dsn, "0023")
    db.execute(TOKEN, ["alice", b"1"])
    for actor in ("Alice", "token alice"):
        db.execute(REPLAY, [actor])
    upgrade(dsn)
    # As the previous version does while both run.
    db.execute(TOKEN, ["bob", b"2"])
    db.execute(REPLAY, ["token bob"])
    owners = db.execute("SELECT name, owner FROM holdfast.access_token ORDER BY name").fetchall()
    assert owners == [("alice", "alice"), ("bob", "bob")]
    persons = db.execute("SELECT person FROM holdfast.replay ORDER BY created_at").fetchall()
    assert persons == [("alice",), ("alice",), (None,)]
    downgrade(dsn, "0023")
    assert db.execute("SELECT count(*) FROM holdfast.access_token").fetchone() == (2,)


def test_downgrade_keeps_tokens_of_one_owner_as_one_person(world: World) -> None:
    for name in ("al-1", "al-2", "bob"):
        world.db.execute(TOKEN, [name, name.encode()])
    world.db.execute("UPDATE holdfast.access_token SET owner = 'alice' WHERE name LIKE 'al-%'")
    world.db.execute("UPDATE holdfast.access_token SET expires_at = now() + interval '1 day'")
    world.db.execute("UPDATE holdfast.access_token SET revoked_at = created_at WHERE name = 'al-2'")
    downgrade(world.dsn, "0024")
    upgrade(world.dsn)
    query = "SELECT name, revoked_at = created_at FROM holdfast.access_token ORDER BY name"
    assert world.db.execute(query).fetchall() == [("al-1", False), ("al-2", True), ("bob", None)]


@pytest.mark.parametrize("owner", ["Alice", " alice", "", "\u0430lice"])
def test_owner_has_one_spelling(db: psycopg.Connection, owner: str) -> None:
    db.execute(TOKEN, ["alice", b"1"])
    with pytest.raises(psycopg.errors.CheckViolation):
        db.execute("UPDATE holdfast.access_token SET owner = %s", [owner])


def test_proposal_needs_the_approval_of_another_person(world: World) -> None:
    world.db.execute(PROPOSAL)
    approve = (
        "UPDATE holdfast.proposal SET approved_by = 'token x', approved_by_person = %s,"
        " approved_at = now()"
    )
    with pytest.raises(psycopg.errors.CheckViolation):
        world.db.execute(approve, ["alice"])
    with pytest.raises(psycopg.errors.CheckViolation):
        world.db.execute("UPDATE holdfast.proposal SET applied_by = 'a', applied_at = now()")
    with pytest.raises(psycopg.errors.UniqueViolation):
        world.db.execute(PROPOSAL)
    world.db.execute(approve, ["bob"])


BEFORE = "0023"
START = "now() - interval '3 hours'"
STREAM = "INSERT INTO holdfast.stream (name) VALUES ('test')"
BATCH = f"""
    INSERT INTO holdfast.batch (stream, query_id, batch_id, run_id, epoch, row_count, entry_count,
        duplicate_count, differing_count, suppressed_count, quarantined_count, digest, written_at,
        routed_at)
    VALUES ('test', gen_random_uuid(), 0, gen_random_uuid(), 1, 0, 0, 0, 0, 0, 0,
        decode(repeat('00', 32), 'hex'), {START} + %s * interval '1 minute', now())
"""
ENDPOINT = f"""
    INSERT INTO holdfast.endpoint (name, url, secret_refs, starts_at, created_at) VALUES
        ('now', 'https://a.example/', '{{env:S}}', {START}, {START}),
        ('all', 'https://b.example/', '{{env:S}}', NULL, {START})
"""
MARKS = "SELECT name, starts_after, starts_late::text FROM holdfast.endpoint ORDER BY id"


@pytest.mark.parametrize(
    ("written", "first"),
    [
        ([], 0),
        ([-2, -1], 2),
        ([-2, -1, 1, 2], 2),
        # Set back after a batch of its own: what comes then is its own, too.
        ([-2, 1, -30, -20, 2], 1),
        # Set back right after it was added, or right before: nothing may be lost.
        ([-2, -1, -30, -20, 2], 2),
        # Long before; and not by what is only out of order.
        ([-100, -130, -20, -1, 1], 4),
        ([-2, -1, -1.5, -0.5, 1], 4),
    ],
)
def test_old_endpoint_begins_at_its_own(world: World, written: Sequence[float], first: int) -> None:
    downgrade(world.dsn, BEFORE)
    world.db.execute(STREAM)
    for minutes in written:
        world.db.execute(BATCH.encode(), [minutes])
    world.db.execute(ENDPOINT)
    upgrade(world.dsn)
    assert world.db.execute(MARKS).fetchall() == [("now", first, "{}"), ("all", None, "{}")]


@pytest.mark.parametrize("moved", ["starts_at", "created_at"])
def test_endpoint_of_the_future_had_its_clock_set_back(world: World, moved: str) -> None:
    downgrade(world.dsn, BEFORE)
    world.db.execute(STREAM)
    for minutes in (10, 120) if moved == "created_at" else (-10,):
        world.db.execute(BATCH.encode(), [minutes])
    world.db.execute(ENDPOINT)
    for minutes in (15, 20):
        world.db.execute(BATCH.encode(), [minutes])
    world.db.execute(
        "UPDATE holdfast.endpoint SET starts_at = now() + interval '1 hour' WHERE id = 1"
    )
    if moved == "created_at":
        world.db.execute("UPDATE holdfast.endpoint SET created_at = starts_at WHERE id = 1")
    upgrade(world.dsn)
    expected = 2 if moved == "created_at" else 1
    assert world.db.execute(MARKS).fetchone() == ("now", expected, "{}")


def test_check_finds_what_was_lost_before_the_upgrade(dsn: str, db: psycopg.Connection) -> None:
    with Decisions(dsn) as decisions:
        decisions.write("old")
        add_endpoint(db, "http://127.0.0.1:1/", starts_at="2999-01-01T00:00:00Z")
        decisions.write("lost")
    db.execute("UPDATE holdfast.batch SET routed_at = now()")
    downgrade(dsn, BEFORE)
    upgrade(dsn)
    done = holdfast("check", "--json", "--endpoint", "payouts", dsn=dsn)
    assert '"subject": "lost"' in done.stdout
    assert '"subject": "old"' not in done.stdout


def test_version_before_adds_an_endpoint_that_begins_now(db: psycopg.Connection) -> None:
    """It names `starts_at` alone; numbers that are not there yet may still be on their way."""
    db.execute(STREAM)
    for minutes in (0, 1, 2, 3, 4):
        db.execute(BATCH.encode(), [minutes])
    db.execute("DELETE FROM holdfast.batch WHERE batch_no IN (2, 3)")
    db.execute(ENDPOINT)
    assert db.execute(MARKS).fetchall() == [("now", 5, "{[2,4)}"), ("all", None, "{}")]
    db.execute("UPDATE holdfast.endpoint SET starts_at = now() + interval '1 year' WHERE id = 1")
    assert db.execute(MARKS).fetchone() == ("now", 5, "{[2,4)}")
    db.execute("UPDATE holdfast.endpoint SET starts_at = NULL WHERE id = 1")
    assert db.execute(MARKS).fetchone() == ("now", None, "{}")


@pytest.mark.parametrize("routed", [False, True])
def test_downgrade_waits_for_a_late_batch(world: World, routed: bool) -> None:
    with Decisions(world.dsn) as decisions:
        decisions.write("late")
        decisions.write("early")
        world.add_endpoint("http://127.0.0.1:1/", starts_at="2999-01-01T00:00:00Z")
    # The endpoint was added after the second batch was committed and before the first one was.
    world.db.execute("UPDATE holdfast.endpoint SET starts_at = now(), starts_late = '{[1,2)}'")
    world.db.execute(
        "UPDATE holdfast.batch SET routed_at = now() WHERE batch_no = 2 OR %s", [routed]
    )
    before = world.db.execute(MARKS).fetchall()
    if routed:
        downgrade(world.dsn, "0026")
        return
    with pytest.raises(CommandError, match=r"1 batch.*payouts.*No table was changed"):
        downgrade(world.dsn, "0026")
    assert world.db.execute(MARKS).fetchall() == before == [("payouts", 2, "{[1,2)}")]


def test_downgrade_keeps_former_names_of_streams(world: World) -> None:
    """Without them, a sink that starts under one begins an empty ledger."""
    world.db.execute(
        "INSERT INTO holdfast.stream (name, former_names) VALUES ('holds', '{payouts}')"
    )
    with pytest.raises(CommandError, match=r"holds \(before: payouts\).*No table was changed"):
        downgrade(world.dsn, "0035")
    assert world.value("SELECT former_names FROM holdfast.stream") == ["payouts"]
    world.db.execute("UPDATE holdfast.stream SET former_names = '{}'")
    downgrade(world.dsn, "0035")


ROWS = "SELECT event_id, reason::text, amount_minor FROM holdfast.late_event ORDER BY id"


def _add(db: psycopg.Connection, event_id: str, reason: str) -> None:
    db.execute(
        "INSERT INTO holdfast.late_event (stream, reason, event_id, merchant_id, type,"
        " amount_minor, currency, occurred_at) VALUES ('payouts', %s, %s, 'm_1',"
        " 'payout_submitted', 5, 'USD', '2024-11-04 12:01Z')",
        [reason, event_id],
    )


def test_a_downgrade_keeps_events_of_settled_windows_as_late(world: World) -> None:
    for event_id, reason in (("e1", "late"), ("e2", "settled"), ("e3", "duplicate")):
        _add(world.db, event_id, reason)
    downgrade(world.dsn, "0022")
    assert world.db.execute(ROWS).fetchall() == [
        ("e1", "late", 5),
        ("e2", "late", 5),
        ("e3", "duplicate", 5),
    ]
    upgrade(world.dsn)
    _add(world.db, "e4", "settled")
    assert world.db.execute(ROWS).fetchall()[3:] == [("e4", "settled", 5)]


Make = Callable[..., str]


@contextmanager
def _connected(dsn: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(dsn, autocommit=True) as connection:
        yield connection


@pytest.mark.rest
def test_superuser_upgrades_a_new_cluster(bare_database: Make) -> None:
    dsn = bare_database()
    assert upgrade(dsn) == Upgraded(before=None, after=head())
    with _connected(dsn) as connection:
        assert {check.level for check in judge(gather(connection))} == {Level.OK}


@pytest.mark.rest
def test_user_with_createrole_upgrades_its_database(bare_database: Make, bare_user: Make) -> None:
    dsn = bare_database(owner=bare_user(createrole=True))
    assert upgrade(dsn).after == head()
    assert not upgrade(dsn).changed
    assert downgrade(dsn, "base").after is None
    assert upgrade(dsn).after == head()
    with _connected(dsn) as connection:
        assert {check.level for check in judge(gather(connection))} == {Level.OK}
        owners = connection.execute("""
            SELECT DISTINCT relowner::regrole::text FROM pg_class
            WHERE relnamespace = 'holdfast'::regnamespace
        """).fetchall()
    assert owners == [(OWNER,)]


@pytest.mark.rest
def test_membership_gives_nothing_before_set_role(bare_database: Make, bare_user: Make) -> None:
    dsn = bare_database(owner=bare_user(createrole=True))
    upgrade(dsn)
    with _connected(dsn) as connection:
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute("SELECT FROM holdfast.stream")
        connection.execute(f"SET ROLE {READER}".encode())
        connection.execute("SELECT FROM holdfast.stream")


@pytest.mark.rest
def test_two_databases_at_once_share_their_roles(bare_database: Make) -> None:
    dsns = [bare_database() for _ in range(3)]
    barrier = Barrier(len(dsns))

    def run(dsn: str) -> Upgraded:
        barrier.wait()
        return upgrade(dsn)

    with ThreadPoolExecutor(len(dsns)) as pool:
        done = list(pool.map(run, dsns))
    assert done == [Upgraded(before=None, after=head())] * len(dsns)
    with _connected(dsns[0]) as connection:
        rows = connection.execute("SELECT rolname FROM pg_roles WHERE rolname LIKE 'holdfast_%'")
        assert {name for (name,) in rows} == set(ALL)


@pytest.mark.rest
def test_user_without_createrole_is_reported(
    bare: str, bare_database: Make, bare_user: Make
) -> None:
    user = bare_user()
    dsn = bare_database(owner=user)
    name = psycopg.conninfo.conninfo_to_dict(dsn)["user"]
    with pytest.raises(CommandError, match=f"`ALTER ROLE {name} CREATEROLE`") as caught:
        upgrade(dsn)
    assert "Nothing was changed" in str(caught.value)
    assert "\n" not in str(caught.value)

    upgrade(bare_database())
    with pytest.raises(CommandError, match=f"`GRANT {OWNER}, .* TO {name}`") as caught:
        upgrade(dsn)
    with _connected(bare) as admin:
        admin.execute(str(caught.value).split("`")[1].encode())
    assert upgrade(dsn).after == head()


@pytest.mark.rest
def test_user_without_create_is_reported(bare: str, bare_database: Make, bare_user: Make) -> None:
    connection_info = psycopg.conninfo.conninfo_to_dict(bare_user(createrole=True))
    dbname = psycopg.conninfo.conninfo_to_dict(bare_database())["dbname"]
    dsn = psycopg.conninfo.make_conninfo(**{**connection_info, "dbname": dbname})
    with pytest.raises(CommandError, match=f"`GRANT CREATE ON DATABASE {dbname} TO") as caught:
        upgrade(dsn)
    with _connected(bare) as admin:
        admin.execute(str(caught.value).split("`")[1].encode())
    assert upgrade(dsn).after == head()


@pytest.mark.rest
def test_sink_may_stage_where_public_may_not(bare_database: Make) -> None:
    dsn = bare_database()
    dbname = psycopg.conninfo.conninfo_to_dict(dsn)["dbname"]
    with _connected(dsn) as connection:
        connection.execute(f"REVOKE TEMPORARY ON DATABASE {dbname} FROM PUBLIC".encode())
        upgrade(dsn)
        connection.execute(f"SET ROLE {SINK}".encode())
        connection.execute("CREATE TEMPORARY TABLE staged ()")
        connection.execute(f"SET ROLE {READER}".encode())
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute("CREATE TEMPORARY TABLE other ()")


@pytest.mark.rest
def test_user_of_one_role_may_not_upgrade(bare: str, bare_database: Make, bare_user: Make) -> None:
    dsn = bare_database()
    upgrade(dsn)
    connection_info = psycopg.conninfo.conninfo_to_dict(bare_user())
    dbname = psycopg.conninfo.conninfo_to_dict(dsn)["dbname"]
    mine = psycopg.conninfo.make_conninfo(**{**connection_info, "dbname": dbname})
    with _connected(mine) as connection:
        levels = {check.name: check.level for check in judge(gather(connection))}
        assert levels["schema revision"] == levels["memberships"] == Level.FAIL
    with pytest.raises(CommandError, match="any Holdfast role"):
        script(mine)
    with _connected(bare) as admin:
        admin.execute(f"GRANT {READER} TO {connection_info['user']}".encode())
    with _connected(mine) as connection:
        levels = {check.name: check.level for check in judge(gather(connection))}
    assert {name for name, level in levels.items() if level != Level.OK} == {"memberships"}
    assert levels["memberships"] == Level.WARN
