"""`holdfast batch`: the ledger of a stream, and replays that were not what was written."""

import json
from typing import Annotated, Any

import typer

from dispatcher.cli.common.shared import AsJson, Dsn, print_json, print_rows
from dispatcher.cli.common.shown import counted, plain, query_id_of, shortened
from dispatcher.operators.common.session import Row
from dispatcher.operators.streams.store import Streams

app = typer.Typer(
    help="Batches: list and show them, compare a diverged replay.", no_args_is_help=True
)

Stream = Annotated[str, typer.Argument(help="The stream.")]
BatchId = Annotated[int, typer.Argument(min=0, max=2**63 - 1, help="Spark's number of the batch.")]
QueryId = Annotated[
    str | None,
    typer.Option(
        "--query-id", help="The checkpoint; the one that the stream has adopted, if none."
    ),
]

_LIST = (
    *("batch_id", "written_at", "row_count", "entry_count", "duplicate_count"),
    *("suppressed_count", "quarantined_count", "routed_at", "divergences"),
)
_DELIVERY = ("endpoint", "state", "entries", "delivered", "waiting", "dead_letters")
_SIDES = {
    "only_in_ledger": "only then",
    "only_in_replay": "only now",
    "changed": "changed",
}


@app.command("list")
def list_(
    stream: Stream,
    limit: Annotated[int, typer.Option("--limit", min=1, max=1000, help="Batches at most.")] = 20,
    before: Annotated[
        int | None, typer.Option("--before", min=0, max=2**63 - 1, help="Only ids below this one.")
    ] = None,
    query_id: QueryId = None,
    dsn: Dsn = None,
    as_json: AsJson = False,
) -> None:
    """List the batches of one checkpoint, the newest first."""
    given = query_id_of(query_id)
    with Streams.connect(dsn) as store:
        meant, rows = store.page(stream, given, limit=limit, before=before)
    older = rows[-1]["batch_id"] if len(rows) == limit else None
    if as_json:
        print_json({"query_id": meant, "batches": rows, "next_before": older})
        return
    print_rows(rows, _LIST, f"Batches of query {plain(meant)}")
    if older is not None:
        typer.echo(f"older ones: --before {older}")


@app.command()
def show(
    stream: Stream,
    batch_id: BatchId,
    query_id: QueryId = None,
    dsn: Dsn = None,
    as_json: AsJson = False,
) -> None:
    """Show a batch: its row of the ledger, where it was read from, and what became of it."""
    given = query_id_of(query_id)
    with Streams.connect(dsn) as store:
        found = store.batch(stream, batch_id, given)
    if as_json:
        print_json(found)
    else:
        _show(found)


@app.command()
def diff(
    stream: Stream,
    batch_id: BatchId,
    query_id: QueryId = None,
    number: Annotated[
        int | None,
        typer.Option("--divergence", min=1, max=2**63 - 1, help="Which one; the newest, if none."),
    ] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, max=10_000, help="Rows at most.")] = 100,
    dsn: Dsn = None,
    as_json: AsJson = False,
) -> None:
    """Compare a replay that diverged with what was written, row by row. Exit 3: none diverged.

    `now` is what the replay would have written. It has no sequence of its own, and is shown with
    the one that its key got then, or with `null`.
    """
    given = query_id_of(query_id)
    with Streams.connect(dsn) as store:
        found = store.divergence(stream, batch_id, given, number=number, limit=limit)
    if as_json:
        print_json(found)
    else:
        _show_difference(found)


def _show(found: Row) -> None:
    typer.echo(_title(found))
    for fact in ("batch_no", "run_id", "epoch", "written_at", "routed_at", "digest"):
        typer.echo(f"  {fact.replace('_', ' '):<11} {plain(found[fact])}")
    typer.echo(
        f"{counted(found['row_count'], 'row')} = {counted(found['entry_count'], 'entry')}"
        f" + {counted(found['duplicate_count'], 'duplicate')}"
        f" + {found['suppressed_count']} suppressed + {found['quarantined_count']} quarantined;"
        f" {counted(found['differing_count'], 'duplicate')} with other content"
    )
    for line in _offsets(found["source_offsets"]):
        typer.echo(line)
    print_rows(found["types"], ("type", "entries", "subjects"), "Entries by type")
    print_rows(found["delivery"], _DELIVERY, "Delivery")
    if found["refused"]:
        print_rows(found["refused"], ("reason", "rows", "open"), "Quarantined")
    if found["divergences"]:
        columns = ("id", "run_id", "differing_count", "row_count", "found_at")
        print_rows(found["divergences"], columns, "Diverged replays")


def _title(batch: Row) -> str:
    return f"batch {batch['batch_id']} of stream {batch['stream']}, query {batch['query_id']}"


def _offsets(offsets: Row | None) -> list[str]:
    if offsets is None:
        return ["source offsets: not kept (the sink was not told the checkpoint)"]
    if "text" in offsets:
        return ["source offsets:", f"  {shortened(offsets['text'])}"]
    sources: list[Any] = offsets["sources"]
    times = f"batch time {plain(offsets['batch_time'])}, watermark {plain(offsets['watermark'])}"
    lines = (
        f"  source {number}: {'nothing' if source is None else shortened(json.dumps(source))}"
        for number, source in enumerate(sources)
    )
    return [f"source offsets, {times}:", *lines]


def _show_difference(found: Row) -> None:
    batch, divergence, rows = found["batch"], found["divergence"], found["rows"]
    typer.echo(
        f"{_title(batch)}, written {plain(batch['written_at'])}:"
        f" run {divergence['run_id']} brought other content on {plain(divergence['found_at'])}"
    )
    typer.echo(
        f"rows {batch['row_count']} then, {divergence['row_count']} now; quarantined"
        f" {batch['quarantined_count']} then, {divergence['quarantined_count']} now;"
        f" {counted(divergence['differing_count'], 'key')} of the two differ"
    )
    if not divergence["differing_count"]:
        typer.echo("the keys are the same, so another column or table of the batch differs")
    for row in rows:
        typer.echo(
            f"\n{_SIDES[row['side']]}: {row['key']} {plain(row['subject'])} {plain(row['type'])}"
        )
        typer.echo(f"  then {_body(row['body_then'], row['side'] == 'only_in_replay')}")
        typer.echo(f"  now  {_body(row['body_now'], row['side'] == 'only_in_ledger')}")
    if len(rows) < divergence["kept_count"]:
        kept = counted(divergence["kept_count"], "row")
        typer.echo(f"\n{len(rows)} of {kept} shown; more with --limit")
    if divergence["kept_count"] < divergence["differing_count"]:
        keys = counted(divergence["differing_count"], "key")
        typer.echo(f"\nof {keys} {divergence['kept_count']} on record")
    if found["others"]:
        others = ", ".join(map(str, found["others"]))
        typer.echo(f"\nother replays of this batch diverged too: --divergence {others}")


def _body(body: str | None, absent: bool) -> str:
    if body is not None:
        return shortened(body)
    # Its key alone is recorded: it was suppressed, or its day is no longer kept.
    return "(nothing)" if absent else "(its key only: no entry is stored)"
