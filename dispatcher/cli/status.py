"""`holdfast status`: what is on its way, what is late, what needs a person."""

import typer

from dispatcher.cli.common.shared import AsJson, Dsn, console, print_json, print_rows
from dispatcher.cli.common.shown import counted
from dispatcher.cli.database.shown import told
from dispatcher.cli.subjects.suppressed_shown import told_overtaken
from dispatcher.operators.common.session import Row
from dispatcher.operators.overview.store import Overview
from sink.contract.exits import ExitCode

STREAM_COLUMNS = ("name", "query_id", "epoch", "last_batch_id", "last_written_at")
ENDPOINT_COLUMNS = ("name", "url", "state", "waiting_lanes", "leased_lanes", "dead_letters")
DISPATCHER_COLUMNS = ("host", "pid", "in_flight", "heartbeat_at")


def status(dsn: Dsn = None, as_json: AsJson = False) -> None:
    """Show streams, endpoints and backlog.

    Exit code 4 when something needs a person; each such thing stands at the end, with its command.
    """
    with Overview.connect(dsn) as store:
        report = store.status()
    if as_json:
        print_json(report)
    else:
        _show(report)
    if report["degraded"]:
        raise typer.Exit(ExitCode.DEGRADED)


def _show(report: Row) -> None:
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
    told_overtaken(report)
    print_rows(report["streams"], STREAM_COLUMNS, "Streams")
    print_rows(report["endpoints"], ENDPOINT_COLUMNS, "Endpoints")
    print_rows(report["dispatchers"], DISPATCHER_COLUMNS, "Dispatchers")
    told(report["needs"])
