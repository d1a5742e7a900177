"""`holdfast status` and `overview`: how delivery is doing, and what needs a person."""

from typing import Annotated

import typer

from holdfast.dispatcher.cli.options import AsJson, Dsn, UndeliveredMinutes, Wide
from holdfast.dispatcher.cli.output import (
    console,
    counted,
    display,
    print_json,
    print_needs,
    print_rows,
)
from holdfast.dispatcher.operators.common.session import Row
from holdfast.dispatcher.operators.common.text import span
from holdfast.dispatcher.operators.overview.rules import UNDELIVERED_MINUTES
from holdfast.dispatcher.operators.overview.store import MINUTES_MAX, Overview
from holdfast.sink.contract.exits import ExitCode

_STREAMS = ("name", "query_id", "epoch", "last_batch_id", "last_written_at")
_ENDPOINTS = ("name", "url", "state", "waiting_lanes", "leased_lanes", "dead_letters")
_DISPATCHERS = ("host", "pid", "in_flight", "heartbeat_at")
_ENDPOINT_RATES = ("name", "state", "breaker", "due_lanes", "leased_lanes", "oldest_due")
_BATCHES = ("stream", "batch_id", "written_at", "entry_count", "quarantined_count", "routed_at")


def status(
    undelivered_minutes: UndeliveredMinutes = UNDELIVERED_MINUTES,
    dsn: Dsn = None,
    as_json: AsJson = False,
    _wide: Wide = False,
) -> None:
    """Show streams, endpoints and backlog.

    Exit code 4 when something needs a person; each case is listed at the end with its command.
    """
    with Overview.connect(dsn) as store:
        report = store.status(undelivered_minutes)
    if as_json:
        print_json(report)
    else:
        _show_status(report)
    if report["degraded"]:
        raise typer.Exit(ExitCode.DEGRADED)


def overview(
    minutes: Annotated[
        int, typer.Option("--minutes", min=1, max=MINUTES_MAX, help="Minutes to look back.")
    ] = 60,
    undelivered_minutes: UndeliveredMinutes = UNDELIVERED_MINUTES,
    dsn: Dsn = None,
    as_json: AsJson = False,
    _wide: Wide = False,
) -> None:
    """Show delivery rates, latency and backlog. --json includes the counts of each minute.

    Exit code 4 when something needs a person; each case is listed with its command.
    """
    with Overview.connect(dsn) as store:
        found = store.overview(minutes, undelivered_minutes)
    if as_json:
        print_json(found)
    else:
        _show_overview(found)
    if found["needs"]:
        raise typer.Exit(ExitCode.DEGRADED)


def _show_status(report: Row) -> None:
    out = console()
    oldest = report["oldest_waiting_seconds"]
    waiting = f", the oldest for {oldest:.0f} s" if oldest is not None else ""
    out.print(
        f"{counted(report['entries'], 'entry')} written;"
        f" {counted(report['unrouted_batches'], 'batch')} to route,"
        f" {counted(report['due_lanes'], 'lane')} due, {report['leased_lanes']} leased,"
        f" {report['retrying_lanes']} waiting for a retry{waiting}"
    )
    out.print(
        f"{counted(report['open_quarantined_rows'], 'open row')} in quarantine,"
        f" {counted(report['dead_letters'], 'dead letter')},"
        f" {counted(report['diverged_replays'], 'diverged replay')}"
    )
    _print_overtaken(report)
    print_rows(report["streams"], _STREAMS, "Streams")
    print_rows(report["endpoints"], _ENDPOINTS, "Endpoints")
    print_rows(report["dispatchers"], _DISPATCHERS, "Dispatchers")
    print_needs(report["needs"])


def _show_overview(found: Row) -> None:
    totals = found["totals"]
    others = ", ".join(
        f"{count:,} {name}" for name, count in totals["outcomes"].items() if name != "delivered"
    )
    typer.echo(
        f"since {display(found['complete_since'])}: {totals['entries']:,} entries written,"
        f" {totals['deliveries']:,} delivered{f'; {others}' if others else ''}"
    )
    typer.echo(f"  {_percentiles('attempt duration', found['duration_ms'], 'attempts', 0.001)}")
    typer.echo(f"  {_percentiles('time to delivery', found['latency_seconds'], 'deliveries', 1)}")
    oldest = found["oldest_due_age_seconds"]
    due = f"oldest due lane: due for {span(oldest)}" if oldest else "nothing is due"
    undelivered = found["oldest_undelivered_age_seconds"]
    if undelivered:
        due += f"; oldest undelivered entry: {span(undelivered)} old"
    typer.echo(
        f"  {due};"
        f" {counted(found['unrouted_batches'], 'batch')} to route,"
        f" {counted(found['dispatchers_alive'], 'dispatcher')} alive"
    )
    endpoints = [
        {**each, "oldest_due": span(each["oldest_due_age_seconds"]) if each["due_lanes"] else None}
        for each in found["endpoints"]
    ]
    print_rows(endpoints, _ENDPOINT_RATES, "Endpoints")
    print_rows(found["batches"], _BATCHES, "Newest batches")
    _print_overtaken(found)
    print_needs(found["needs"])
    if not found["needs"]:
        typer.echo("nothing needs a person")


def _print_overtaken(report: Row) -> None:
    if report["overtaken_rows"]:
        typer.echo(
            f"{counted(report['overtaken_rows'], 'decision')} overtaken:"
            " holdfast suppressed list --cause overtaken"
        )


def _percentiles(what: str, found: Row, of: str, seconds: float) -> str:
    if not found["of"]:
        return f"{what}: no {of} in this time"
    times = ", ".join(f"{name} {span(found[name] * seconds)}" for name in ("p50", "p95", "p99"))
    return f"{what}: {times} ({found['of']:,} {of})"
