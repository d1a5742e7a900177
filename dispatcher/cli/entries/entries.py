"""`holdfast entries`: the decisions in the outbox, and where each stands at its endpoints."""

from typing import Annotated

import typer

from dispatcher.cli.common.shared import AsJson, Dsn, print_json, print_rows
from dispatcher.cli.common.shown import counted, moment_of, plain, query_id_of, visible
from dispatcher.cli.entries import tail as entries_tail
from dispatcher.operators.common.session import Row
from dispatcher.operators.entries.rules import Stage
from dispatcher.operators.entries.store import SCAN_MAX, Entries, Place, Wanted
from sink.contract.canonical import NotCanonical
from sink.contract.exits import CommandError, ExitCode
from sink.contract.key import Key

app = typer.Typer(
    help="Entries: list the newest, show one, follow what comes.", no_args_is_help=True
)
app.command("tail")(entries_tail.follow)

_LIST = ("key", "subject", "sequence", "type", "occurred_at", "created_at", "stream", "batch_id")
_FACTS = ("subject", "sequence", "type", "occurred_at", "created_at", "priority", "traceparent")
_BATCH = ("stream", "batch_id", "query_id", "routed_at")
_DELIVERY = ("endpoint", "state", "detail", "attempts", "last_outcome")


@app.command("list")
def list_(
    subject: Annotated[
        str | None, typer.Option("--subject", help="Only entries of this subject.")
    ] = None,
    stream: Annotated[
        str | None, typer.Option("--stream", help="Only entries of this stream.")
    ] = None,
    batch: Annotated[
        int | None,
        typer.Option("--batch", min=0, max=2**63 - 1, help="Only of this batch of --stream."),
    ] = None,
    query_id: Annotated[
        str | None,
        typer.Option("--query-id", help="The checkpoint of --batch; the adopted one, if none."),
    ] = None,
    type_: Annotated[str | None, typer.Option("--type", help="Only entries of this type.")] = None,
    since: Annotated[
        str | None, typer.Option("--since", help="Only written then or later (RFC 3339).")
    ] = None,
    until: Annotated[
        str | None, typer.Option("--until", help="Only written before then (RFC 3339).")
    ] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, max=1000, help="Entries at most.")] = 50,
    before: Annotated[
        str | None, typer.Option("--before", help="Only older ones: where the last page ended.")
    ] = None,
    dsn: Dsn = None,
    as_json: AsJson = False,
) -> None:
    """List entries, the newest first, without their bodies. Exit 3: none matches."""
    if batch is not None and stream is None:
        raise CommandError("--batch needs --stream. Nothing was changed.", ExitCode.USAGE)
    if query_id is not None and batch is None:
        raise CommandError("--query-id needs --batch. Nothing was changed.", ExitCode.USAGE)
    wanted = Wanted(
        subject=subject,
        type=type_,
        stream=stream,
        batch_id=batch,
        query_id=query_id_of(query_id),
        since=moment_of("--since", since),
        until=moment_of("--until", until),
    )
    place = None if before is None else Place.of(before)
    with Entries.connect(dsn) as store:
        rows, older = store.newest(wanted, limit=limit, before=place)
    if not rows and older is None:
        raise CommandError(
            "no entry matches. Nothing was changed; a type and a subject are compared exactly, and"
            " what was set aside is in `holdfast quarantine list`.",
            ExitCode.NOTHING_MATCHED,
        )
    if as_json:
        print_json({"entries": rows, "next_before": None if older is None else str(older)})
        return
    if rows:
        print_rows([{**row, "subject": visible(row["subject"])} for row in rows], _LIST, "Entries")
    if older is not None:
        if len(rows) < limit:
            typer.echo(f"that is all among the {SCAN_MAX} entries that were looked at")
        typer.echo(f"older ones: --before {older}")


@app.command()
def show(
    key: Annotated[str, typer.Argument(metavar="KEY", help="As receivers get it: hf_...")],
    dsn: Dsn = None,
    as_json: AsJson = False,
) -> None:
    """Show an entry: its body, its batch, and where it stands at each endpoint that wants it."""
    try:
        wanted = Key.parse(key)
    except NotCanonical as error:
        raise CommandError(f"{error}. Nothing was changed.", ExitCode.USAGE) from None
    with Entries.connect(dsn) as store:
        found = store.entry(wanted)
    if as_json:
        print_json(found)
    else:
        _show(found)


def _show(found: Row) -> None:
    typer.echo(f"entry {found['key']}")
    for fact in _FACTS:
        typer.echo(f"  {fact.replace('_', ' '):<11} {plain(found[fact])}")
    for fact in _BATCH:
        typer.echo(f"  {fact.replace('_', ' '):<11} {plain(found['batch'][fact])}")
    typer.echo(f"body, {counted(len(found['body'].encode()), 'byte')}:\n{visible(found['body'])}")
    if found["delivery"]:
        rows = [{**each, "detail": _detail(each)} for each in found["delivery"]]
        print_rows(rows, _DELIVERY, "Delivery")
    else:
        typer.echo("delivery: no endpoint wants it")


def _detail(each: Row) -> str:
    at = plain(each["at"])
    match Stage(each["state"]):
        case Stage.DELIVERED | Stage.DUE:
            said = at
        case Stage.DEAD:
            said = f"{at}, {each['dead_reason']}: {visible(each['dead_detail'])}"
        case Stage.PASSED:
            said = "the lane is beyond it; no delivery is on record"
        case Stage.UNROUTED:
            said = "waits for a dispatcher to route its batch"
        case Stage.SENDING:
            said = f"leased until {at}"
        case Stage.BEHIND if each["behind_sequence"] is None:
            said = "not sent any more: the endpoint takes its type no more"
        case Stage.BEHIND:
            said = f"waits behind sequence {each['behind_sequence']}"
        case Stage.STOPPED:
            said = "its lane waits for a person"
    return said if each["held_up"] is None else f"{said}; {each['held_up']}"
