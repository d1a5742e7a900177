"""`holdfast replay`: entries sent again by a plan that is looked at before it is applied."""

from typing import Annotated
from uuid import UUID

import typer

from dispatcher.cli.common.confirm import askable, confirm
from dispatcher.cli.common.shared import AsJson, Dsn, Reason, print_json, print_rows
from dispatcher.cli.common.shown import counted, moment_of, reason_of, visible
from dispatcher.cli.replays.options import (
    KeyOptions,
    OfBatch,
    OfEndpoint,
    OfStream,
    OfSubject,
    OutsideWindow,
    Rate,
    ReplayId,
    Since,
    States,
    Types,
    Until,
    filter_of,
)
from dispatcher.cli.replays.reissue import tell
from dispatcher.cli.replays.shown import (
    approving,
    exit_code,
    failures,
    short,
    show_list,
    show_plan,
    show_progress,
)
from dispatcher.cli.replays.watch import watch
from dispatcher.operators.common.session import Row
from dispatcher.operators.reissue.actions import write_all
from dispatcher.operators.reissue.store import Reissues
from dispatcher.operators.replays.store import Replays
from dispatcher.operators.replays.views import item_row
from sink.contract.states import ReplayVerb

app = typer.Typer(
    help="Replays, under the old keys: plan, look, apply, watch, cancel.", no_args_is_help=True
)

Wait = Annotated[bool, typer.Option("--wait", help="Show how far it is, until it has ended.")]

_ITEMS = ("place", "endpoint", "subject", "sequence", "key", "kind", "outcome", "settled_at")


@app.command()
def plan(
    reason: Reason,
    endpoint: OfEndpoint = None,
    subject: OfSubject = None,
    stream: OfStream = None,
    batch: OfBatch = None,
    since: Since = None,
    until: Until = None,
    states: States = None,
    types: Types = None,
    keys: KeyOptions = None,
    rate: Rate = None,
    limit: Annotated[
        int | None, typer.Option("--limit", min=1, help="Only the first so many, the oldest.")
    ] = None,
    outside_window: OutsideWindow = False,
    dsn: Dsn = None,
    as_json: AsJson = False,
) -> None:
    """Find what would be sent again, and write it down. Nothing is sent. Exit 3: nothing matches.

    Everything keeps its key and its bytes, so a receiver that honours keys acts on nothing twice.
    """
    why = reason_of(reason)
    wanted = filter_of(
        endpoint=endpoint,
        subject=subject,
        stream=stream,
        batch=batch,
        since=since,
        until=until,
        states=states,
        types=types,
        keys=keys,
    )
    with Replays.connect(dsn) as store:
        row = store.plan(wanted, reason=why, rate=rate, outside_window=outside_window, limit=limit)
    if as_json:
        apply_ = f"holdfast replay apply {short(row)}" if row["item_count"] else None
        print_json({**row, "apply": apply_, "approve": approving(row)})
    else:
        show_plan(row)


@app.command()
def show(
    replay: ReplayId,
    items: Annotated[bool, typer.Option("--items", help="Its items too, in their order.")] = False,
    limit: Annotated[int, typer.Option("--limit", min=1, max=1000, help="Items at most.")] = 50,
    after: Annotated[
        int, typer.Option("--after", min=0, max=2**63 - 1, help="Only items behind this place.")
    ] = 0,
    dsn: Dsn = None,
    as_json: AsJson = False,
) -> None:
    """Show a replay as it was planned, with --items one by one."""
    with Replays.connect(dsn) as store:
        id_ = store.find(replay)
        row = store.show(id_)
        found = list(store.items(id_, after=after, limit=limit)) if items else []
    further = found[-1]["place"] if len(found) == limit else None
    if as_json:
        listed = {"items": [item_row(each) for each in found], "next_after": further}
        print_json({**row, **listed} if items else row)
        return
    show_plan(row)
    if items:
        seen = [{**item_row(each), "subject": visible(each["subject"])} for each in found]
        print_rows(seen, (*_ITEMS, "detail"), "Items")
        if further is not None:
            typer.echo(f"further ones: --after {further}")


@app.command()
def apply(
    replay: ReplayId,
    wait: Wait = False,
    yes: Annotated[bool, typer.Option("--yes", help="Of a reissue: do not ask.")] = False,
    dsn: Dsn = None,
    as_json: AsJson = False,
) -> None:
    """Let the dispatchers do what was planned, unless it is no longer so.

    It goes on without this command, also after everything was killed; giving the command again
    changes nothing. With --wait, exit 4: some items failed; exit 1: it was cancelled.
    """
    with Replays.connect(dsn) as store:
        id_ = store.find(replay)
        if store.show(id_)["verb"] == ReplayVerb.REISSUE:
            _reissue(dsn, id_, yes=yes, as_json=as_json)
            return
        row = store.apply(id_)
        if not wait:
            _tell_begun(row, as_json=as_json)
            return
        row = watch(store, id_, row["obstacles"])
    _tell_progress(row, as_json=as_json)
    raise typer.Exit(exit_code(row))


@app.command()
def approve(replay: ReplayId, reason: Reason, dsn: Dsn = None, as_json: AsJson = False) -> None:
    """Agree, as a second person, to what somebody else planned and may repeat actions.

    That is a reissue, or a replay that was planned with --outside-window. Look at it before.
    """
    why = reason_of(reason)
    with Replays.connect(dsn) as store:
        id_ = store.find(replay)
        store.approve(id_, why)
        row = store.show(id_)
    apply_ = f"holdfast replay apply {id_.hex[:8]}"
    if as_json:
        print_json({**row, "apply": apply_})
    else:
        typer.echo(f"approved. To repeat the actions:\n  {apply_}")


@app.command()
def status(replay: ReplayId, wait: Wait = False, dsn: Dsn = None, as_json: AsJson = False) -> None:
    """Show how far a replay has come, and what keeps it. Exit 4: some items failed."""
    with Replays.connect(dsn) as store:
        id_ = store.find(replay)
        row = watch(store, id_, store.show(id_)["obstacles"]) if wait else store.status(id_)
    _tell_progress(row, as_json=as_json)
    raise typer.Exit(exit_code(row) if wait else failures(row))


@app.command()
def cancel(replay: ReplayId, reason: Reason, dsn: Dsn = None, as_json: AsJson = False) -> None:
    """End a replay: nothing more of it is sent. What is in flight ends and is booked."""
    why = reason_of(reason)
    with Replays.connect(dsn) as store:
        row = store.cancel(store.find(replay), why)
    _tell_progress(row, as_json=as_json)


@app.command("list")
def list_(
    limit: Annotated[int, typer.Option("--limit", min=1, max=1000, help="As many at most.")] = 50,
    before: Annotated[
        str | None, typer.Option("--before", help="Only those made before then (RFC 3339).")
    ] = None,
    dsn: Dsn = None,
    as_json: AsJson = False,
) -> None:
    """List replays, the newest first."""
    moment = moment_of("--before", before)
    with Replays.connect(dsn) as store:
        rows = list(store.list(limit=limit, before=moment))
    older = rows[-1]["created_at"] if len(rows) == limit else None
    if as_json:
        print_json({"replays": rows, "next_before": older})
        return
    show_list(rows)
    if older is not None:
        typer.echo(f"older ones: --before {older.isoformat()}")


def _reissue(dsn: str | None, id_: UUID, *, yes: bool, as_json: bool) -> None:
    askable(yes=yes)
    with Reissues.connect(dsn) as store:
        count = len(store.left(id_))
        confirm(f"Repeat {counted(count, 'business action')} under new keys?", yes=yes)
        done = write_all(dsn, store, id_)
    if as_json:
        print_json({"replay": id_, "reissued": done})
    else:
        tell(done)


def _tell_begun(row: Row, *, as_json: bool) -> None:
    if as_json:
        print_json(row)
        return
    typer.echo(
        f"replay {short(row)} is {row['state']}: {counted(row['item_count'], 'item')}, behind live"
        f" traffic.\n  holdfast replay status {short(row)} --wait"
    )
    for obstacle in row["obstacles"]:
        typer.echo(f"note: {obstacle}")


def _tell_progress(row: Row, *, as_json: bool) -> None:
    if as_json:
        print_json(row)
    else:
        show_progress(row)
