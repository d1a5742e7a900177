"""`holdfast database`: what holds the database up, how large it is, what it lacks."""

import typer

from dispatcher.cli.common.shared import AsJson, Dsn, print_json
from dispatcher.cli.database import shown as database_shown
from dispatcher.operators.database.store import Database
from sink.contract.exits import ExitCode


def look(dsn: Dsn = None, as_json: AsJson = False) -> None:
    """Show snapshots, dead rows, partitions, connections, schema and clock.

    Exit code 4 when something needs a person: an old snapshot, or too few days ahead. Whether the
    server keeps what it acknowledged is for `holdfast db doctor`.
    """
    with Database.connect(dsn) as store:
        found = store.report()
    if as_json:
        print_json(found)
    else:
        database_shown.shown(found)
    if found["needs"]:
        raise typer.Exit(ExitCode.DEGRADED)
