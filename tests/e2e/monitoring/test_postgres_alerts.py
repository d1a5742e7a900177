"""Each alert about Postgres itself is fired by a real fault, in a real Prometheus.

Real: the dispatcher in its own process, Postgres, the receiver, Prometheus.
"""

from pathlib import Path

import psycopg
import pytest

from tests.support.dispatch.dispatching import dispatching
from tests.support.monitoring.prometheus import MISSING, Watcher, program
from tests.support.servers.databases import server_directory
from tests.support.servers.embedded import OldIds
from tests.support.waiting import eventually
from tests.support.world import LEASE_SECONDS, World

pytestmark = [
    pytest.mark.rest,
    pytest.mark.faults,
    pytest.mark.skipif(program("prometheus") is None, reason=MISSING.format("prometheus")),
]

OFTEN = (
    *("tests.support.dispatch.bent_dispatch", "--set"),
    "holdfast.dispatcher.delivery.service.SERVER_SECONDS=1",
)
"""The command, which reads the server every second."""

SUBJECTS = 300
"""Each delivery leaves two dead rows in `lane`; the rules of the test fire above 200."""

TRANSACTIONS = 100
OLD = 1_100_000_000


def vacuumed(world: World) -> bool:
    """VACUUM lanes and subjects; whether none of their dead rows was too young for it."""
    world.db.execute("VACUUM holdfast.lane, holdfast.subject")
    dead = "SELECT sum(n_dead_tup) FROM pg_stat_user_tables WHERE relname IN ('lane', 'subject')"
    return int(world.value(dead)) == 0


def test_alerts_of_vacuum_are_fired_by_a_session_that_keeps_its_snapshot(
    world: World, watch: Watcher, address: str
) -> None:
    world.endpoint()
    options = ("--listen", address, "--lease-seconds", str(LEASE_SECONDS))
    with world.dispatch("log", *options, launcher=OFTEN) as running:
        seen = watch(address)
        seen.sees("holdfast_postgres_dead_rows")
        seen.none_fires("HoldfastSnapshotHeld", "HoldfastDeadRows")
        with psycopg.connect(world.dsn, application_name="a report") as report:
            report.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            report.execute("SELECT count(*) FROM holdfast.lane")
            world.decisions.write(*(f"m_{number}" for number in range(SUBJECTS)))
            running.until(lambda: world.value("SELECT count(*) FROM holdfast.attempt") == SUBJECTS)
            for _ in range(TRANSACTIONS):
                world.db.execute("SELECT pg_current_xact_id()")
            assert not vacuumed(world)
            seen.fires("HoldfastSnapshotHeld", holder="other")
            seen.fires("HoldfastDeadRows", table="lane")
        seen.is_quiet("HoldfastSnapshotHeld")
        eventually(lambda: vacuumed(world))
        seen.is_quiet("HoldfastDeadRows")


def test_unread_slot_fires_the_wraparound_alert(
    watch: Watcher, address: str, tmp_path: Path
) -> None:
    with server_directory() as directory:
        server = OldIds(directory)
        with dispatching(server.dsn, tmp_path / "log", "--listen", address, launcher=OFTEN):
            seen = watch(address)
            seen.sees("holdfast_postgres_frozen_age")
            seen.none_fires("HoldfastWraparoundNear")
            server.grow_old(OLD)
            seen.fires("HoldfastWraparoundNear", counter="transaction")
            server.drop_slot()
            seen.is_quiet("HoldfastWraparoundNear")
        server.stop()
