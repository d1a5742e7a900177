"""`holdfast replay`: send entries again by a plan that is reviewed before it is applied."""

import re
from collections.abc import Sequence
from datetime import datetime
from typing import Annotated
from uuid import UUID, uuid4

import typer

from holdfast.dispatcher.cli import verbs
from holdfast.dispatcher.cli.options import (
    AsJson,
    Dsn,
    OfEndpoint,
    OfStream,
    OfSubject,
    Reason,
    Since,
    Until,
    Wide,
    confirm,
    reason_of,
    require_terminal,
    when_of,
)
from holdfast.dispatcher.cli.output import (
    counted,
    print_json,
)
from holdfast.dispatcher.cli.replays.redeliver import OutsideWindow, Rate, Wait
from holdfast.dispatcher.cli.replays.reissue import print_reissued
from holdfast.dispatcher.cli.replays.wait import exit_code, failures, watch
from holdfast.dispatcher.operators.common.session import Row
from holdfast.dispatcher.operators.reissue.actions import write_all
from holdfast.dispatcher.operators.reissue.store import Reissues
from holdfast.dispatcher.operators.replays.actions import planned
from holdfast.dispatcher.operators.replays.rules import (
    ReplayFilter,
    ReplayFilterError,
    ReplayScope,
    keys_of,
)
from holdfast.dispatcher.operators.replays.store import Replays
from holdfast.dispatcher.operators.replays.verbs import (
    GROUP,
    approval_command,
    plan_text,
    progress_text,
    short,
)
from holdfast.sink.contract.exits import CommandError, ExitCode
from holdfast.sink.contract.states import ReplayVerb

EXAMPLES = (
    "holdfast replay plan --endpoint payouts --state dead --reason 'receiver was repaired'",
    "holdfast replay plan --stream payouts --since 2026-11-02T06:00:00Z --reason 'database lost'",
    "holdfast replay plan --stream payouts --batch 120..125 --reason 'asked by payouts'",
)

OfBatch = Annotated[
    str | None, typer.Option("--batch", help="Only this batch of --stream, or a range N..M.")
]

States = Annotated[
    list[ReplayScope] | None,
    typer.Option("--state", help="Only entries in this state at their endpoint; repeatable."),
]

Types = Annotated[
    list[str] | None, typer.Option("--type", help="Only entries of this type; repeatable.")
]

KeyOptions = Annotated[
    list[str] | None, typer.Option("--key", help="Only the entry with this key; repeatable.")
]


ReplayId = Annotated[
    str,
    typer.Argument(
        metavar="ID", help="As `plan` and `list` show it; the first 8 hex digits are enough."
    ),
]


_BATCHES = re.compile(r"(\d{1,18})(?:\.\.(\d{1,18}))?", re.ASCII)


def filter_of(
    *,
    endpoint: str | None,
    subject: str | None,
    stream: str | None,
    batch: str | None,
    since: datetime | None,
    until: datetime | None,
    states: Sequence[ReplayScope] | None,
    types: Sequence[str] | None,
    keys: Sequence[str] | None,
) -> ReplayFilter:
    """Return the filter that the options describe; raises `CommandError` (usage) if it is not
    valid.
    """
    first, last = _batches(batch)
    wanted = ReplayFilter(
        endpoint=endpoint,
        subject=subject,
        stream=stream,
        first_batch=first,
        last_batch=last,
        since=since,
        until=until,
        states=tuple(dict.fromkeys(states or ())),
        types=tuple(dict.fromkeys(types or ())),
        keys=keys_of(keys or ()),
    )
    try:
        wanted.check()
    except ReplayFilterError as error:
        examples = "".join(f"\n  {each}" for each in EXAMPLES)
        raise CommandError(
            f"{error}. Nothing was planned. Examples:{examples}",
            ExitCode.USAGE,
            code="invalid_filter",
        ) from None
    return wanted


def _batches(text: str | None) -> tuple[int | None, int | None]:
    if text is None:
        return None, None
    found = _BATCHES.fullmatch(text)
    if found is None:
        raise CommandError(
            f"--batch {text!r} is neither a batch id nor a range such as 120..125. Nothing was"
            " planned.",
            ExitCode.USAGE,
            code="invalid_batch_range",
        )
    first, last = found.groups()
    return int(first), int(last or first)


app = verbs.group(GROUP)


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
        int | None,
        typer.Option("--limit", min=1, help="Maximum number of entries, the oldest first."),
    ] = None,
    outside_window: OutsideWindow = False,
    dsn: Dsn = None,
    as_json: AsJson = False,
    _wide: Wide = False,
) -> None:
    """Find what would be sent again, and store it as a plan. Nothing is sent. Exit code 3: none
    match.

    Keys and bytes stay the same, so a receiver that honours keys does not act twice.
    """
    why = reason_of(reason)
    begin, end = when_of("--since", since), when_of("--until", until)
    with Replays.connect(dsn) as store:
        wanted = filter_of(
            endpoint=endpoint,
            subject=subject,
            stream=stream,
            batch=batch,
            since=store.moment(begin),
            until=store.moment(end),
            states=states,
            types=types,
            keys=keys,
        )
        row = planned(
            *(store, uuid4(), wanted),
            reason=why,
            rate=rate,
            outside_window=outside_window,
            limit=limit,
        )
    if as_json:
        apply_ = f"holdfast replay apply {short(row)}" if row["item_count"] else None
        print_json({**row, "apply": apply_, "approve": approval_command(row)})
    else:
        verbs.show(plan_text(row, {}))


@app.command()
def apply(
    replay: ReplayId,
    wait: Wait = False,
    yes: Annotated[
        bool, typer.Option("--yes", help="For a reissue: do not ask for confirmation.")
    ] = False,
    dsn: Dsn = None,
    as_json: AsJson = False,
    _wide: Wide = False,
) -> None:
    """Apply a plan: the dispatchers send it. Refused if the plan is outdated.

    It continues without this command, also across restarts. Idempotent. With --wait, exit code 4:
    some items failed; 1: it was cancelled.
    """
    with Replays.connect(dsn) as store:
        id_ = store.find(replay)
        if store.show(id_)["verb"] == ReplayVerb.REISSUE:
            _reissue(dsn, id_, yes=yes, as_json=as_json)
            return
        row = store.apply(id_)
        if not wait:
            _print_applying(row, as_json=as_json)
            return
        row = watch(store, id_, row["obstacles"])
    _print_progress(row, as_json=as_json)
    raise typer.Exit(exit_code(row))


@app.command()
def status(
    replay: ReplayId,
    wait: Wait = False,
    dsn: Dsn = None,
    as_json: AsJson = False,
    _wide: Wide = False,
) -> None:
    """Show a replay's progress and what holds it up. Exit code 4: some items failed."""
    with Replays.connect(dsn) as store:
        id_ = store.find(replay)
        row = watch(store, id_, store.show(id_)["obstacles"]) if wait else store.status(id_)
    _print_progress(row, as_json=as_json)
    raise typer.Exit(exit_code(row) if wait else failures(row))


def _reissue(dsn: str | None, id_: UUID, *, yes: bool, as_json: bool) -> None:
    require_terminal(yes=yes)
    with Reissues.connect(dsn) as store:
        count = len(store.left(id_))
        confirm(f"Repeat {counted(count, 'business action')} under new keys?", yes=yes)
        done = write_all(dsn, store, id_)
    if as_json:
        print_json({"replay": id_, "reissued": done})
    else:
        print_reissued(done)


def _print_applying(row: Row, *, as_json: bool) -> None:
    if as_json:
        print_json(row)
        return
    typer.echo(
        f"replay {short(row)} is {row['state']}: {counted(row['item_count'], 'item')}, at lower"
        f" priority than live traffic.\n  holdfast replay status {short(row)} --wait"
    )
    for obstacle in row["obstacles"]:
        typer.echo(f"note: {obstacle}")


def _print_progress(row: Row, *, as_json: bool) -> None:
    if as_json:
        print_json(row)
    else:
        verbs.show(progress_text(row, {}))
