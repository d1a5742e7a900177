"""`holdfast late`: events that the exposure job did not apply."""

from collections.abc import Sequence
from typing import Annotated

import typer

from holdfast.dispatcher.cli.options import (
    AsJson,
    BeforeId,
    Dsn,
    Limit,
    OfStream,
    Since,
    Wide,
    when_of,
)
from holdfast.dispatcher.cli.output import Page, print_page, print_rows
from holdfast.dispatcher.operators.common.session import Row
from holdfast.dispatcher.operators.late_events.store import LateEvents, Wanted
from holdfast.sink.contract.states import LateReason

app = typer.Typer(help="Events that the exposure job did not apply: list.", no_args_is_help=True)

_LIST = (
    *("id", "merchant_id", "event_id", "reason", "occurred_at", "watermark"),
    *("amount_minor", "currency", "stream", "written_at"),
)


@app.callback()
def group() -> None:
    """Keep `list` a subcommand where it is the only one."""


@app.command("list")
def list_(
    stream: OfStream = None,
    merchant: Annotated[str | None, typer.Option("--merchant", help="Only this merchant.")] = None,
    reason: Annotated[
        LateReason | None, typer.Option("--reason", help="Only events not applied for this reason.")
    ] = None,
    since: Since = None,
    limit: Limit = 50,
    before: BeforeId = None,
    dsn: Dsn = None,
    as_json: AsJson = False,
    _wide: Wide = False,
) -> None:
    """List events that were read and not applied, the newest first. Exit code 3: none match.

    `late`: behind the cutoff of its window. `future_dated`: too far ahead of its batch.
    `duplicate`: its id was absorbed before. `settled`: its window was published before the
    checkpoint began. `watermark` is the one that the batch ran with.
    """
    begin = when_of("--since", since)
    with LateEvents.connect(dsn) as store:
        wanted = Wanted(stream, merchant, reason, store.moment(begin))
        rows = store.newest(wanted, limit=limit, before=before)
    older = rows[-1]["id"] if len(rows) == limit else None
    nothing = (
        "no event matches: all that were read are applied, refused (`holdfast quarantine list`) or"
        " outside this filter. Nothing was changed."
    )
    print_page(Page("late_events", rows, older), _print_list, nothing, as_json=as_json)


def _print_list(rows: Sequence[Row]) -> None:
    print_rows(rows, _LIST, "Events that were not applied", ("written_at", "stream", "watermark"))
