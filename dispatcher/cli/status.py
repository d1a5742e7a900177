"""`holdfast status`: what is on its way, what is late, what needs a person."""

import typer

from dispatcher.cli.shared import AsJson, Dsn, console, print_json, print_rows
from dispatcher.store.operator import Row, operator_store
from sink.contract.exits import ExitCode

STREAM_COLUMNS = ("name", "query_id", "epoch", "last_batch_id", "last_written_at")
ENDPOINT_COLUMNS = ("name", "url", "state", "waiting_lanes", "leased_lanes", "dead_letters")
DISPATCHER_COLUMNS = ("host", "pid", "in_flight", "heartbeat_at")


def status(dsn: Dsn = None, as_json: AsJson = False) -> None:
    """Show streams, endpoints and backlog.

    Exit code 4 when something needs a person: a dead letter, a row in quarantine, a diverged
    replay.
    """
    with operator_store(dsn) as store:
        totals = store.totals()
        report = {
            **totals,
            "degraded": _needs_a_person(totals),
            "streams": store.streams(),
            "endpoints": store.endpoints(),
            "dispatchers": store.dispatchers(),
        }
    if as_json:
        print_json(report)
    else:
        _show(report)
    if report["degraded"]:
        raise typer.Exit(ExitCode.DEGRADED)


def _needs_a_person(totals: Row) -> bool:
    return any(
        totals[what] for what in ("dead_letters", "open_quarantined_rows", "diverged_replays")
    )


def _show(report: Row) -> None:
    out = console()
    oldest = report["oldest_waiting_seconds"]
    waiting = f", the oldest for {oldest:.0f} s" if oldest is not None else ""
    out.print(
        f"{report['entries']} entries written; {report['unrouted_batches']} batches to route,"
        f" {report['due_lanes']} lanes due, {report['leased_lanes']} leased,"
        f" {report['retrying_lanes']} waiting for a retry{waiting}"
    )
    out.print(
        f"{report['open_quarantined_rows']} open rows in quarantine, {report['dead_letters']} dead"
        f" letters, {report['diverged_replays']} diverged replays"
    )
    print_rows(report["streams"], STREAM_COLUMNS, "Streams")
    print_rows(report["endpoints"], ENDPOINT_COLUMNS, "Endpoints")
    print_rows(report["dispatchers"], DISPATCHER_COLUMNS, "Dispatchers")
