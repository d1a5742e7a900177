"""What an upgrade does once for a whole cluster, on clusters that have never seen Holdfast."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Barrier

import psycopg
import pytest

from holdfast.migrations.doctor import judge
from holdfast.migrations.facts import gather
from holdfast.migrations.upgrade import Upgraded, downgrade, head, script, upgrade
from holdfast.sink.contract.checks import Level
from holdfast.sink.contract.exits import CommandError
from holdfast.sink.contract.roles import ALL, OWNER, READER, SINK

pytestmark = pytest.mark.rest


Make = Callable[..., str]


@contextmanager
def _connected(dsn: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(dsn, autocommit=True) as connection:
        yield connection


def test_superuser_upgrades_a_new_cluster(bare_database: Make) -> None:
    dsn = bare_database()
    assert upgrade(dsn) == Upgraded(before=None, after=head())
    with _connected(dsn) as connection:
        assert {check.level for check in judge(gather(connection))} == {Level.OK}


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


def test_membership_gives_nothing_before_set_role(bare_database: Make, bare_user: Make) -> None:
    dsn = bare_database(owner=bare_user(createrole=True))
    upgrade(dsn)
    with _connected(dsn) as connection:
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute("SELECT FROM holdfast.stream")
        connection.execute(f"SET ROLE {READER}".encode())
        connection.execute("SELECT FROM holdfast.stream")


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


def test_user_without_createrole_is_told(bare: str, bare_database: Make, bare_user: Make) -> None:
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


def test_user_without_create_is_told_so(bare: str, bare_database: Make, bare_user: Make) -> None:
    connection_info = psycopg.conninfo.conninfo_to_dict(bare_user(createrole=True))
    dbname = psycopg.conninfo.conninfo_to_dict(bare_database())["dbname"]
    dsn = psycopg.conninfo.make_conninfo(**{**connection_info, "dbname": dbname})
    with pytest.raises(CommandError, match=f"`GRANT CREATE ON DATABASE {dbname} TO") as caught:
        upgrade(dsn)
    with _connected(bare) as admin:
        admin.execute(str(caught.value).split("`")[1].encode())
    assert upgrade(dsn).after == head()


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
