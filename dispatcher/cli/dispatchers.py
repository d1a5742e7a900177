"""`holdfast dispatchers`: the dispatcher processes, running and crashed."""

from collections.abc import Sequence

import typer

from holdfast.dispatcher.cli.options import AsJson, Dsn, Wide
from holdfast.dispatcher.cli.output import Page, print_page, print_rows, visible
from holdfast.dispatcher.operators.common.session import Row
from holdfast.dispatcher.operators.common.text import span
from holdfast.dispatcher.operators.dispatchers.store import Dispatchers

app = typer.Typer(help="Dispatcher processes, running and crashed.", no_args_is_help=True)

_COLUMNS = ("host", "pid", "version", "state", "in_flight", "started_at", "last_heartbeat", "id")


@app.command("list")
def list_(dsn: Dsn = None, as_json: AsJson = False, _wide: Wide = False) -> None:
    """List dispatchers, the most recent heartbeat first. Exit code 3: there are none.

    A dispatcher that stopped normally is not listed; one that crashed stays listed as `dead`.
    """
    with Dispatchers.connect(dsn) as store:
        rows = store.instances()
    nothing = (
        "no dispatcher runs, and none crashed. Nothing was changed; `holdfast dispatch` starts one."
    )
    print_page(Page("dispatchers", rows), _print_list, nothing, as_json=as_json)


def _print_list(rows: Sequence[Row]) -> None:
    print_rows([_table_row(row) for row in rows], _COLUMNS, "Dispatchers")


def _table_row(row: Row) -> Row:
    state = "dead" if not row["alive"] else "draining" if row["draining"] else "alive"
    return {
        **row,
        "host": visible(row["host"]),
        "state": state,
        "last_heartbeat": f"{span(row['heartbeat_age_seconds'])} ago",
    }
