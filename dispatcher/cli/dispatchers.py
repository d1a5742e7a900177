"""`holdfast dispatchers`: which processes deliver, and which of them died."""

import typer

from dispatcher.cli.common.shared import AsJson, Dsn, print_json, print_rows
from dispatcher.cli.common.shown import visible
from dispatcher.operators.common.session import Row
from dispatcher.operators.common.text import span
from dispatcher.operators.dispatchers.store import Dispatchers
from sink.contract.exits import CommandError, ExitCode

app = typer.Typer(help="Dispatchers: those that run, and those that died.", no_args_is_help=True)

_COLUMNS = ("host", "pid", "version", "state", "in_flight", "started_at", "heard_of", "id")


@app.command("list")
def list_(dsn: Dsn = None, as_json: AsJson = False) -> None:
    """List dispatchers, the one that was heard of last first. Exit 3: there is none.

    One that ended of itself is not listed; one that died stays as `dead`.
    """
    with Dispatchers.connect(dsn) as store:
        rows = store.instances()
    if not rows:
        raise CommandError(
            "no dispatcher runs, and none died. Nothing was changed; `holdfast dispatch` starts"
            " one.",
            ExitCode.NOTHING_MATCHED,
        )
    if as_json:
        print_json({"dispatchers": rows, "next_before": None})
        return
    print_rows([_seen(row) for row in rows], _COLUMNS, "Dispatchers")


def _seen(row: Row) -> Row:
    state = "dead" if not row["alive"] else "draining" if row["draining"] else "alive"
    return {
        **row,
        "host": visible(row["host"]),
        "state": state,
        "heard_of": f"{span(row['heartbeat_age_seconds'])} ago",
    }
