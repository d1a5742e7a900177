"""`holdfast overview`: rates, times and backlog of the last minutes, and what needs a person."""

from typing import Annotated

import typer

from dispatcher.cli.common.shared import AsJson, Dsn, print_json, print_rows
from dispatcher.cli.common.shown import counted, plain
from dispatcher.cli.database.shown import told
from dispatcher.cli.subjects.suppressed_shown import told_overtaken
from dispatcher.operators.common.session import Row
from dispatcher.operators.common.text import span
from dispatcher.operators.overview.store import MINUTES_MAX, Overview
from sink.contract.exits import ExitCode

_ENDPOINTS = ("name", "state", "breaker", "due_lanes", "leased_lanes", "oldest_due")
_BATCHES = ("stream", "batch_id", "written_at", "entry_count", "quarantined_count", "routed_at")


def show(
    minutes: Annotated[
        int, typer.Option("--minutes", min=1, max=MINUTES_MAX, help="How far back it looks.")
    ] = 60,
    dsn: Dsn = None,
    as_json: AsJson = False,
) -> None:
    """Show how delivery does: rates, times, backlog. The rates of each minute are in the --json.

    Exit code 4 when something needs a person; each such thing stands with its command.
    """
    with Overview.connect(dsn) as store:
        found = store.overview(minutes)
    if as_json:
        print_json(found)
    else:
        _show(found)
    if found["needs"]:
        raise typer.Exit(ExitCode.DEGRADED)


def _show(found: Row) -> None:
    totals = found["totals"]
    others = ", ".join(
        f"{count:,} {name}" for name, count in totals["outcomes"].items() if name != "delivered"
    )
    typer.echo(
        f"since {plain(found['complete_since'])}: {totals['entries']:,} entries written,"
        f" {totals['deliveries']:,} delivered{f'; {others}' if others else ''}"
    )
    typer.echo(f"  {_percentiles('a request', found['duration_ms'], 'attempts', 0.001)}")
    typer.echo(f"  {_percentiles('to delivery', found['latency_seconds'], 'deliveries', 1)}")
    oldest = found["oldest_due_age_seconds"]
    due = f"the first that is due has been for {span(oldest)}" if oldest else "nothing is due"
    typer.echo(
        f"  {due};"
        f" {counted(found['unrouted_batches'], 'batch')} to route,"
        f" {counted(found['dispatchers_alive'], 'dispatcher')} alive"
    )
    endpoints = [
        {**each, "oldest_due": span(each["oldest_due_age_seconds"]) if each["due_lanes"] else None}
        for each in found["endpoints"]
    ]
    print_rows(endpoints, _ENDPOINTS, "Endpoints")
    print_rows(found["batches"], _BATCHES, "Last batches")
    told_overtaken(found)
    told(found["needs"])
    if not found["needs"]:
        typer.echo("nothing needs a person")


def _percentiles(what: str, found: Row, of: str, seconds: float) -> str:
    if not found["of"]:
        return f"{what}: no {of} in that time"
    times = ", ".join(f"{name} {span(found[name] * seconds)}" for name in ("p50", "p95", "p99"))
    return f"{what}: {times} ({found['of']:,} {of})"
