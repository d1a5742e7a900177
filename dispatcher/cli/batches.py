"""`holdfast batch`: the ledger of a stream, and replays that diverged from it."""

from typing import Annotated

import typer

from holdfast.dispatcher.cli.options import (
    NUMBER_MAX,
    AsJson,
    Dsn,
    Limit,
    QueryId,
    Wide,
    query_id_of,
)
from holdfast.dispatcher.cli.output import (
    Page,
    counted,
    display,
    print_facts,
    print_json,
    print_page,
    print_rows,
    shortened,
)
from holdfast.dispatcher.operators.common.session import Row
from holdfast.dispatcher.operators.streams.store import Streams
from holdfast.sink.contract.source_offsets import range_lines

app = typer.Typer(help="Batches: list, show, compare a diverged replay.", no_args_is_help=True)

Stream = Annotated[str, typer.Argument(help="The stream.")]
BatchId = Annotated[int, typer.Argument(min=0, max=NUMBER_MAX, help="Spark's batch id.")]
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
    limit: Limit = 20,
    before: Annotated[
        int | None,
        typer.Option(
            "--before", min=0, max=NUMBER_MAX, help="Only batches with an id below this one."
        ),
    ] = None,
    query_id: QueryId = None,
    dsn: Dsn = None,
    as_json: AsJson = False,
    _wide: Wide = False,
) -> None:
    """List the batches of one checkpoint, the newest first. Exit code 3: there are none."""
    given = query_id_of(query_id)
    with Streams.connect(dsn) as store:
        meant, rows = store.page(stream, given, limit=limit, before=before)
    older = rows[-1]["batch_id"] if len(rows) == limit else None
    page = Page("batches", rows, older, about={"query_id": meant})
    title = f"Batches of query {display(meant)}"
    nothing = f"stream {stream} has no batch of this query id in this range. Nothing was changed."
    print_page(page, lambda rows: print_rows(rows, _LIST, title), nothing, as_json=as_json)


@app.command()
def show(
    stream: Stream,
    batch_id: BatchId,
    query_id: QueryId = None,
    dsn: Dsn = None,
    as_json: AsJson = False,
    _wide: Wide = False,
) -> None:
    """Show a batch: its ledger row, its source offsets, and the delivery state of its entries."""
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
        typer.Option(
            "--divergence", min=1, max=NUMBER_MAX, help="The divergence's id. Default: the newest."
        ),
    ] = None,
    limit: Annotated[
        int, typer.Option("--limit", min=1, max=10_000, help="Maximum number of rows.")
    ] = 100,
    dsn: Dsn = None,
    as_json: AsJson = False,
) -> None:
    """Compare a diverged replay with what was written, row by row. Exit code 3: none diverged.

    `now` is what the replay would have written. It has no sequence of its own; it is shown with the
    sequence that its key got then, or with `null`.
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
    facts = ("batch_no", "run_id", "epoch", "written_at", "routed_at", "digest")
    print_facts({name: found[name] for name in facts}, 11)
    typer.echo(
        f"{counted(found['row_count'], 'row')} = {counted(found['entry_count'], 'entry')}"
        f" + {counted(found['duplicate_count'], 'duplicate')}"
        f" + {found['suppressed_count']} suppressed + {found['quarantined_count']} quarantined;"
        f" {counted(found['differing_count'], 'duplicate')} with other content"
    )
    for line in _offsets(found["source_offsets"], found["batch_id"]):
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


def _offsets(offsets: Row | None, batch_id: int) -> list[str]:
    if offsets is None:
        return ["source offsets: not stored (the sink was not given the checkpoint)"]
    if "text" in offsets:
        return ["source offsets:", f"  {shortened(offsets['text'])}"]
    times = (
        f"batch time {display(offsets['batch_time'])}, watermark {display(offsets['watermark'])}"
    )
    lines = [line for each in offsets["ranges"] for line in range_lines(each)]
    if any(each.get("last_entry") is not None for each in offsets["ranges"]):
        command = f"holdfast job checkpoints input --checkpoint PATH --batch {batch_id}"
        lines.append(f"names of the files: {command}")
    return [f"read, {times}:", *(f"  {shortened(line)}" for line in lines)]


def _show_difference(found: Row) -> None:
    batch, divergence, rows = found["batch"], found["divergence"], found["rows"]
    typer.echo(
        f"{_title(batch)}, written {display(batch['written_at'])}: run {divergence['run_id']}"
        f" brought other content on {display(divergence['found_at'])}"
    )
    typer.echo(
        f"rows {batch['row_count']} then, {divergence['row_count']} now; quarantined"
        f" {batch['quarantined_count']} then, {divergence['quarantined_count']} now;"
        f" {counted(divergence['differing_count'], 'key')} of the two differ"
    )
    if not divergence["differing_count"]:
        typer.echo("the keys are equal, so another column or table of the batch differs")
    for row in rows:
        typer.echo(
            f"\n{_SIDES[row['side']]}: {row['key']} {display(row['subject'])}"
            f" {display(row['type'])}"
        )
        typer.echo(f"  then {_body(row['body_then'], row['side'] == 'only_in_replay')}")
        typer.echo(f"  now  {_body(row['body_now'], row['side'] == 'only_in_ledger')}")
    if len(rows) < divergence["kept_count"]:
        kept = counted(divergence["kept_count"], "row")
        typer.echo(f"\n{len(rows)} of {kept} shown; more with --limit")
    if divergence["kept_count"] < divergence["differing_count"]:
        keys = counted(divergence["differing_count"], "key")
        typer.echo(f"\nof {keys} {divergence['kept_count']} are stored")
    if found["others"]:
        others = ", ".join(map(str, found["others"]))
        typer.echo(f"\nother diverged replays of this batch: --divergence {others}")


def _body(body: str | None, absent: bool) -> str:
    if body is not None:
        return shortened(body)
    # Only its key is stored: it was suppressed, or its partition was dropped.
    return "(nothing)" if absent else "(only its key is stored)"
