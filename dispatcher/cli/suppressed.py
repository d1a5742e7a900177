"""`holdfast suppressed`: decisions that were recorded but not written."""

import json
from collections.abc import Sequence
from typing import Annotated

import typer

from holdfast.dispatcher.cli.options import (
    AsJson,
    BeforeCursor,
    Dsn,
    KeyArgument,
    Limit,
    OfStream,
    OfSubject,
    Reason,
    Since,
    Until,
    Wide,
    key_of,
    reason_of,
    when_of,
)
from holdfast.dispatcher.cli.output import (
    Page,
    counted,
    display,
    print_json,
    print_page,
    print_rows,
    shortened,
    visible,
)
from holdfast.dispatcher.operators.common.overtaking import overtaken_text
from holdfast.dispatcher.operators.common.session import Row
from holdfast.dispatcher.operators.suppressed.actions import write_overtaken
from holdfast.dispatcher.operators.suppressed.rules import write_command
from holdfast.dispatcher.operators.suppressed.store import (
    OvertakenDecisions,
    Place,
    SuppressedDecisions,
    Wanted,
)
from holdfast.sink.contract.exits import CommandError, ExitCode
from holdfast.sink.contract.requeue import writer
from holdfast.sink.contract.states import SuppressedCause

app = typer.Typer(
    help="Suppressed decisions (repeated or overtaken): list, show, write.",
    no_args_is_help=True,
)


_LIST = ("key", "subject", "type", "occurred_at", "cause", "suppressed_at", "stream", "batch_id")

_FACTS = ("subject", "type", "occurred_at", "cause", "suppressed_at", "priority", "traceparent")

_BATCH = ("stream", "batch_id", "query_id")

_STATE = ("last_type", "last_occurred_at")


@app.command("list")
def list_(
    stream: OfStream = None,
    subject: OfSubject = None,
    cause: Annotated[
        SuppressedCause | None,
        typer.Option("--cause", help="Only decisions suppressed for this cause."),
    ] = None,
    since: Since = None,
    until: Until = None,
    limit: Limit = 50,
    before: BeforeCursor = None,
    dsn: Dsn = None,
    as_json: AsJson = False,
    _wide: Wide = False,
) -> None:
    """List suppressed decisions, the newest first, without their content. Exit code 3: none match.

    `repeated`: the subject already had this type. `overtaken`: a decision of the subject that
    occurred later was written first. Both are decided within one stream.
    """
    begin, end = when_of("--since", since), when_of("--until", until)
    place = None if before is None else Place.of(before)
    with SuppressedDecisions.connect(dsn) as store:
        wanted = Wanted(
            stream=stream,
            subject=subject,
            cause=cause,
            since=store.moment(begin),
            until=store.moment(end),
        )
        rows, older = store.newest(wanted, limit=limit, before=place)
    page = Page("suppressed", rows, None if older is None else str(older))
    nothing = "no suppressed decision matches. Nothing was changed."
    print_page(page, _print_list, nothing, as_json=as_json)


@app.command()
def show(
    key: KeyArgument,
    dsn: Dsn = None,
    as_json: AsJson = False,
) -> None:
    """Show a suppressed decision with its content. Exit code 3: the key was not suppressed."""
    wanted = key_of(key)
    with SuppressedDecisions.connect(dsn) as store:
        found = store.decision(wanted)
    if as_json:
        print_json(found)
    else:
        _print_decision(found)


@app.command()
def write(
    key: KeyArgument,
    reason: Reason,
    proposal: Annotated[
        str | None, typer.Option("--proposal", help="Write what a second person approved.")
    ] = None,
    despite_later: Annotated[
        bool,
        typer.Option(
            "--despite-later",
            help="Allow it although later decisions of the subject were suppressed.",
        ),
    ] = False,
    dsn: Dsn = None,
    as_json: AsJson = False,
) -> None:
    """Write an overtaken decision under a new key. Its receivers act on it.

    Proposes it (exit code 4). After a second person has approved it, --proposal writes it once.
    Repair a silenced subject first (`holdfast subjects repair`). Exit code 3: no such decision is
    stored.
    """
    wanted, why = key_of(key), reason_of(reason)
    if proposal is not None and despite_later:
        raise CommandError(
            "--proposal and --despite-later exclude each other. Nothing was changed.",
            ExitCode.USAGE,
            code="conflicting_parameters",
        )
    writer()  # Report a missing package before anything is proposed.
    with OvertakenDecisions.connect(dsn) as store:
        if proposal is not None:
            done = write_overtaken(dsn, store, wanted, store.find_proposal(proposal), why)
            if as_json:
                print_json(done)
            else:
                typer.echo(f"{done['key']} written as {done['new_key']}, {done['detail']}")
            return
        proposed = store.propose_write(wanted, why, despite_later=despite_later)
    short = proposed["proposal"].hex[:8]
    approve = f"holdfast proposal approve {short} --reason TEXT"
    apply = f"holdfast suppressed write --proposal {short} --reason TEXT {proposed['key']}"
    if as_json:
        print_json({**proposed, "approve": approve, "apply": apply})
    else:
        _print_proposed(proposed, approve, apply)
    raise typer.Exit(ExitCode.DEGRADED)


def _print_list(rows: Sequence[Row]) -> None:
    texts = [{**row, "subject": visible(row["subject"])} for row in rows]
    print_rows(texts, _LIST, "Suppressed decisions", ("batch_id", "stream", "suppressed_at"))


def _print_decision(found: Row) -> None:
    typer.echo(found["key"])
    state = found["state"] or dict.fromkeys(_STATE)
    facts = {
        **{name: found[name] for name in _FACTS},
        **{name: found["batch"][name] for name in _BATCH},
        **{f"now {name}": state[name] for name in _STATE},
        "written as": found["written_as"],
        "key parts": json.dumps(found["key_parts"], ensure_ascii=False),
    }
    for name, value in facts.items():
        typer.echo(f"  {name.replace('_', ' '):<21} {display(value)}")
    typer.echo(f"\n{shortened(found['data'])}")
    if found["cause"] == SuppressedCause.OVERTAKEN and found["written_as"] is None:
        typer.echo(f"to write it: {write_command(found['key'])}")


def _print_proposed(proposed: Row, approve: str, apply: str) -> None:
    newest = proposed["newest"]
    typer.echo(f"subject {visible(proposed['subject'])}, stream {proposed['batch']['stream']}")
    typer.echo(
        f"  newest is {display(newest['last_type'])} of {display(newest['last_occurred_at'])},"
        f" sequence {newest['last_sequence']}"
    )
    typer.echo(f"  write     {proposed['type']} of {display(proposed['occurred_at'])}, after it")
    typer.echo(f"  data      {shortened(proposed['data'])}")
    typer.echo(f"  new key   {proposed['new_key']}, for every endpoint that takes this type")
    if (over := proposed["overtakes"]) is not None:
        typer.echo(f"  WARNING   it overtakes {visible(overtaken_text(over))}")
    if (last := proposed["newest_later"]) is not None:
        typer.echo(
            f"  WARNING   {counted(proposed['later'], 'later decision')} of the subject suppressed"
            f" too, the newest {last['type']} of {last['occurred_at']} ({last['key']}), which"
            " contradicts this one"
        )
    typer.echo(
        "This is a proposal; nothing was written."
        + (
            f" {proposed['approved_by']} approved it. Apply it with\n  {apply}"
            if proposed["approved_by"]
            else f" A second person approves it with\n  {approve}\nThen apply it with\n  {apply}"
        )
    )
