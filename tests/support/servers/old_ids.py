"""A Postgres near the wraparound of its transaction IDs, because a replication slot is forgotten.

Two billion transactions are not run: `pg_resetwal` sets the next ID to where they would lead. From
there on the server itself warns, refuses, and recovers.
"""

import subprocess
from pathlib import Path

import psycopg

from holdfast.deploy.local.account import Account, account_for
from tests.support.servers.embedded import Server

_STOP_BEFORE_WRAP = 2**31 - 1 - 3_000_000
_MARGIN = 1_000
"""More than is vacuumed before the slot, so that the server refuses however far it has got."""

_SEGMENT_IDS = 1 << 20
_SEGMENT_BYTES = 256 << 10
"""A file of `pg_xact`: two bits of each transaction ID."""


class OldIds(Server):
    """A server with a logical slot that nobody reads."""

    SLOT = "forgotten"

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self._account: Account = account_for(self.data)
        # The autovacuum that recovers the server looks around at once.
        for name, value in (("wal_level", "logical"), ("autovacuum_naptime", "1s")):
            self._tell(f"ALTER SYSTEM SET {name} = '{value}'")
        self.stop()
        self.start()
        self._tell(f"SELECT pg_create_logical_replication_slot('{self.SLOT}', 'pgoutput')")

    def run_out(self) -> None:
        """Restart with so many transactions behind it that it gives out no further ID."""
        self.grow_old(_STOP_BEFORE_WRAP + _MARGIN)

    def grow_old(self, transactions: int) -> None:
        """Restart with so many transactions since the oldest row that is not frozen."""
        oldest = self._number("SELECT min(datfrozenxid::text::bigint) FROM pg_database")
        reached = oldest + transactions
        self.stop()
        segment = self.data / "pg_xact" / f"{reached // _SEGMENT_IDS:04X}"
        segment.write_bytes(bytes(_SEGMENT_BYTES))
        self._account.own(segment)
        program = Path(self._command[0]).with_name("pg_resetwal")
        command = [program, "-x", str(reached), "-D", self.data]
        done = self._account.spawn(command, subprocess.PIPE)
        output = done.communicate()[0]
        assert done.returncode == 0, output.decode()
        self.start()

    def drop_slot(self) -> None:
        """End what keeps the old rows from being frozen."""
        self._tell(f"SELECT pg_drop_replication_slot('{self.SLOT}')")

    def _tell(self, statement: str) -> None:
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            connection.execute(statement.encode())

    def _number(self, query: str) -> int:
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            (value,) = connection.execute(query.encode()).fetchone() or (0,)
            return int(value)
