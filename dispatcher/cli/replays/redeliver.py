"""`holdfast redeliver`: send single entries again, under their original keys."""

from collections.abc import Sequence
from typing import Annotated
from uuid import uuid4

import typer

from holdfast.dispatcher.cli import verbs
from holdfast.dispatcher.cli.options import (
    AsJson,
    Dsn,
    Keys,
    Reason,
    Wide,
    Yes,
    confirm,
    reason_of,
    require_terminal,
)
from holdfast.dispatcher.cli.output import counted, print_json, print_rows, visible
from holdfast.dispatcher.cli.replays.wait import exit_code, watch
from holdfast.dispatcher.operators.common.session import Row
from holdfast.dispatcher.operators.entries.store import Entries
from holdfast.dispatcher.operators.replays.actions import (
    Redelivery,
    apply_keys,
    cancel_keys,
    plan_of_keys,
    standing_of,
)
from holdfast.dispatcher.operators.replays.redelivery import ENDPOINT, OUTSIDE_WINDOW
from holdfast.dispatcher.operators.replays.rules import few_keys_of
from holdfast.dispatcher.operators.replays.store import Replays
from holdfast.dispatcher.operators.replays.verbs import approval_command, progress_text, short
from holdfast.sink.contract.exits import CommandError, ExitCode

OfEndpoint = Annotated[
    str | None,
    typer.Option(
        "--endpoint",
        help=ENDPOINT,
    ),
]
Rate = Annotated[
    int | None,
    typer.Option(
        "--rate",
        min=1,
        max=1_000_000,
        help="Maximum number of entries per second, over all dispatchers.",
    ),
]
OutsideWindow = Annotated[
    bool,
    typer.Option(
        "--outside-window",
        help=OUTSIDE_WINDOW,
    ),
]
Wait = Annotated[bool, typer.Option("--wait", help="Show progress until it has ended.")]

_ITEMS = ("key", "subject", "endpoint", "what_happens")


def redeliver(
    keys: Keys,
    reason: Reason,
    endpoint: OfEndpoint = None,
    rate: Rate = None,
    outside_window: OutsideWindow = False,
    yes: Yes = False,
    wait: Wait = False,
    dsn: Dsn = None,
    as_json: AsJson = False,
    _wide: Wide = False,
) -> None:
    """Send entries again with the same key and bytes. Safe if the receiver honours the key.

    Equivalent to `replay plan` and `replay apply` of these keys; with --outside-window only a plan,
    if a second person has to approve it. Exit code 3: nothing to do; the reason is printed.
    """
    why, wanted = reason_of(reason), few_keys_of(keys)
    require_terminal(yes=yes)
    with Entries.connect(dsn) as found:
        standing = standing_of(found, wanted)
    with Replays.connect(dsn) as store:
        plan = plan_of_keys(
            store,
            uuid4(),
            standing,
            endpoint=endpoint,
            reason=why,
            rate=rate,
            outside_window=outside_window,
        )
        row, items, nothing = plan.row, plan.items, plan.nothing
        if not as_json:
            _show(items, nothing, row["obstacles"])
        if not items:
            if as_json:
                print_json({"replay": None, "items": [], "nothing": nothing})
            raise typer.Exit(ExitCode.NOTHING_MATCHED)
        approve = approval_command(row)
        if approve is None:
            row = _applied(store, plan, yes=yes)
            if wait:
                row = watch(store, row["id"])
    if as_json:
        print_json({"replay": row, "items": items, "nothing": nothing, "approve": approve})
    elif approve is not None:
        typer.echo(
            "nothing was sent yet: receivers may have forgotten these keys, and one person may"
            " not repeat this many actions in 24 hours. A second person approves it with\n "
            f" {approve}\nThen apply it with\n  holdfast replay apply {short(row)}"
        )
    elif wait:
        verbs.show(progress_text(row, {}))
    else:
        typer.echo(
            f"replay {short(row)} is {row['state']}: holdfast replay status {short(row)} --wait"
        )
    if wait and approve is None:
        raise typer.Exit(exit_code(row))


def _applied(store: Replays, plan: Redelivery, *, yes: bool) -> Row:
    """Apply the plan; cancel it if it is not confirmed or is refused."""
    count = counted(plan.row["item_count"], "delivery")
    try:
        confirm(f"Send {count} again under the original keys?", yes=yes)
    except (CommandError, typer.Abort):
        cancel_keys(store, plan)
        raise
    apply_keys(store, plan)
    return store.show(plan.row["id"])


def _show(items: Sequence[Row], nothing: Sequence[Row], obstacles: Sequence[str]) -> None:
    if items:
        seen = [{**item, "subject": visible(item["subject"])} for item in items]
        print_rows(seen, _ITEMS, "To be sent again, with the same key and bytes")
    for obstacle in obstacles:
        typer.echo(f"note: {obstacle}")
    for each in nothing:
        where = f" at {each['endpoint']}" if each["endpoint"] else ""
        typer.echo(f"nothing to do for {each['key']}{where}: {each['why']}")
