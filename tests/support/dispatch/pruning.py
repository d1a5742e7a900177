"""Pruning as the command does it, and the remaining days."""

import psycopg

from holdfast.migrations.prune import Day, Outcome, prune


def pruned_days(dsn: str, *, older_than: int = 90, dry_run: bool = False) -> list[Day]:
    """Prune once; returns the days that were checked."""
    return prune(dsn, days=older_than, dry_run=dry_run, reason="test")


def outcomes(days: list[Day], table: str = "entry") -> set[Outcome]:
    """What became of the days of a table."""
    return {day.outcome for day in days if day.table == table}


def count(db: psycopg.Connection, table: str) -> int:
    """Rows of a table."""
    row = db.execute(f"SELECT count(*) FROM holdfast.{table}".encode()).fetchone()
    return int((row or (0,))[0])
