"""`holdfast entries`: the decisions in the outbox and their delivery state."""

import json
import time
from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import IO, Annotated, Any

import typer

from holdfast.dispatcher.cli.options import (
    NUMBER_MAX,
    AsJson,
    BeforeCursor,
    Dsn,
    KeyArgument,
    Limit,
    OfStream,
    OfSubject,
    Since,
    Until,
    Wide,
    key_of,
    query_id_of,
    when_of,
)
from holdfast.dispatcher.cli.output import (
    Page,
    counted,
    display,
    json_default,
    open_output,
    print_facts,
    print_json,
    print_page,
    print_rows,
    visible,
)
from holdfast.dispatcher.operators.common.session import Row
from holdfast.dispatcher.operators.entries.rules import Stage
from holdfast.dispatcher.operators.entries.store import SCAN_MAX, Entries, Place, Tail, Wanted
from holdfast.sink.contract.exits import CommandError, ExitCode

app = typer.Typer(help="Entries: list the newest, show one, follow new ones.", no_args_is_help=True)

_LIST = ("key", "subject", "sequence", "type", "occurred_at", "written_at", "stream", "batch_id")

OfData = Annotated[
    str | None,
    typer.Option(
        "--data",
        help="Only entries whose data has this member with this value: policy_version=v2. Shows"
        " which endpoints got each, and what the receipt says.",
    ),
]
ShowOfData = Annotated[
    list[str] | None,
    typer.Option("--show", help="With --data: also this member of data. May be repeated."),
]

_OF_DATA = ("key", "subject", "sequence", "type", "occurred_at")

_FACTS = ("subject", "sequence", "type", "occurred_at", "written_at", "priority", "traceparent")

_BATCH = ("stream", "batch_id", "query_id", "routed_at")

_DELIVERY = ("endpoint", "state", "detail", "attempts", "last_outcome")


@app.command("list")
def list_(
    subject: OfSubject = None,
    stream: OfStream = None,
    batch: Annotated[
        int | None,
        typer.Option(
            "--batch", min=0, max=NUMBER_MAX, help="Only entries of this batch of --stream."
        ),
    ] = None,
    query_id: Annotated[
        str | None,
        typer.Option(
            "--query-id", help="The query id of --batch's checkpoint. Default: the adopted one."
        ),
    ] = None,
    type_: Annotated[str | None, typer.Option("--type", help="Only entries of this type.")] = None,
    since: Since = None,
    until: Until = None,
    data: OfData = None,
    show: ShowOfData = None,
    limit: Limit = 50,
    before: BeforeCursor = None,
    dsn: Dsn = None,
    as_json: AsJson = False,
    _wide: Wide = False,
) -> None:
    """List entries, the newest first, without their bodies. Exit code 3: none match."""
    if batch is not None and stream is None:
        raise CommandError(
            "--batch needs --stream. Nothing was changed.", ExitCode.USAGE, code="missing_parameter"
        )
    if query_id is not None and batch is None:
        raise CommandError(
            "--query-id needs --batch. Nothing was changed.",
            ExitCode.USAGE,
            code="missing_parameter",
        )
    begin, end, member = when_of("--since", since), when_of("--until", until), _member(data, show)
    query = query_id_of(query_id)
    place = None if before is None else Place.of(before)
    with Entries.connect(dsn) as store:
        wanted = Wanted(
            subject=subject,
            type=type_,
            stream=stream,
            batch_id=batch,
            query_id=query,
            data=member,
            since=store.moment(begin),
            until=store.moment(end),
        )
        rows, older = store.newest(wanted, limit=limit, before=place)
    nothing = (
        "no entry matches. Nothing was changed; types and subjects are compared exactly, and rows"
        " that were set aside are in `holdfast quarantine list`."
    )
    if older is not None and len(rows) < limit and not as_json:
        typer.echo(f"{SCAN_MAX} entries were scanned for this page")
    page = Page("entries", rows, None if older is None else str(older))
    show_rows = _print_list if data is None else partial(_print_with_data, members=show or [])
    print_page(page, show_rows, nothing, as_json=as_json)


def _print_list(rows: Sequence[Row]) -> None:
    texts = [{**row, "subject": visible(row["subject"])} for row in rows]
    print_rows(texts, _LIST, "Entries", ("batch_id", "stream", "written_at"))


def _member(data: str | None, show: list[str] | None) -> tuple[str, str] | None:
    if data is None:
        if show:
            raise CommandError(
                "--show needs --data. Nothing was changed.",
                ExitCode.USAGE,
                code="missing_parameter",
            )
        return None
    member, _, value = data.partition("=")
    if not member or "=" not in data:
        raise CommandError(
            "--data is NAME=VALUE. Nothing was changed.", ExitCode.USAGE, code="invalid_value"
        )
    return member, value


def _print_with_data(rows: Sequence[Row], members: Sequence[str]) -> None:
    shown = [
        {
            **{name: row[name] for name in _OF_DATA},
            # An entry's own field may have the same name.
            **{f"data.{name}": _of_data(row["data"].get(name)) for name in members},
            "subject": visible(row["subject"]),
            "delivered": ", ".join(
                f"{each['endpoint']} {each['outcome']}" for each in row["delivered"]
            ),
        }
        for row in rows
    ]
    columns = [f"data.{name}" for name in members]
    print_rows(shown, (*_OF_DATA, *columns, "delivered"), "Entries")
    outcomes = Counter(each["outcome"] for row in rows for each in row["delivered"])
    told = ", ".join(f"{count} {outcome}" for outcome, count in sorted(outcomes.items()))
    waiting = sum(not row["delivered"] for row in rows)
    typer.echo(f"{counted(len(rows), 'entry')}: {told or '0 applied'}, {waiting} waiting")


def _of_data(value: Any) -> str:
    """Return a member as `--data` compares it."""
    if value is None:
        return "-"
    return visible(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))


@app.command()
def show(
    key: KeyArgument,
    dsn: Dsn = None,
    as_json: AsJson = False,
    _wide: Wide = False,
) -> None:
    """Show an entry: its body, its batch, and its delivery state at each endpoint."""
    wanted = key_of(key)
    with Entries.connect(dsn) as store:
        found = store.entry(wanted)
    if as_json:
        print_json(found)
    else:
        _show(found)


def _show(found: Row) -> None:
    typer.echo(f"entry {found['key']}")
    print_facts({name: found[name] for name in _FACTS}, 11)
    print_facts({name: found["batch"][name] for name in _BATCH}, 11)
    typer.echo(f"body, {counted(len(found['body'].encode()), 'byte')}:\n{visible(found['body'])}")
    if found["delivery"]:
        rows = [{**each, "detail": _detail(each)} for each in found["delivery"]]
        print_rows(rows, _DELIVERY, "Delivery")
    else:
        typer.echo("delivery: no endpoint takes it")


def _detail(each: Row) -> str:
    at = display(each["at"])
    match Stage(each["state"]):
        case Stage.DELIVERED | Stage.DUE:
            said = at
        case Stage.DEAD:
            said = f"{at}, {each['dead_reason']}: {visible(each['dead_detail'])}"
        case Stage.PASSED:
            said = "the lane has passed it; no delivery is recorded"
        case Stage.UNROUTED:
            said = "its batch is not routed yet"
        case Stage.SENDING:
            said = f"leased until {at}"
        case Stage.BEHIND if each["behind_sequence"] is None:
            said = "will not be sent: the endpoint no longer takes its type"
        case Stage.BEHIND:
            said = f"waits behind sequence {each['behind_sequence']}"
        case Stage.STOPPED:
            said = "its lane waits for a person"
    return said if each["held_up"] is None else f"{said}; {each['held_up']}"


POLL_SECONDS = 0.5


@app.command("tail")
def follow(
    subject: OfSubject = None,
    stream: OfStream = None,
    type_: Annotated[str | None, typer.Option("--type", help="Only entries of this type.")] = None,
    lines: Annotated[
        int,
        typer.Option(
            "--lines", "-n", min=0, max=1000, help="Number of newest entries to begin with."
        ),
    ] = 10,
    follow_: Annotated[
        bool,
        typer.Option(
            "--follow", "-f", help="Follow: print entries as batches commit, until Ctrl-C."
        ),
    ] = False,
    dsn: Dsn = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object per line.")
    ] = False,
) -> None:
    """Print the newest entries without their bodies, one per line, the newest last."""
    wanted = Wanted(subject=subject, type=type_, stream=stream)
    with Tail.connect(dsn) as store, open_output(None) as out:
        _print(store.begin(wanted, lines), out, as_json=as_json)
        try:
            while follow_:
                for rows in store.more():
                    _print(rows, out, as_json=as_json)
                time.sleep(POLL_SECONDS)
        except KeyboardInterrupt:
            return


def _print(rows: list[Row], out: IO[str], *, as_json: bool) -> None:
    for row in rows:
        line = json.dumps(row, default=json_default, ensure_ascii=False) if as_json else _line(row)
        out.write(f"{line}\n")
    out.flush()


def _line(row: Row) -> str:
    return (
        f"{display(row['written_at'])}  {row['key']}  {visible(row['type'])}"
        f"  {visible(row['subject'])} {row['sequence']}  {row['stream']} batch {row['batch_id']}"
    )
