"""`holdfast redeliver`: single entries sent again, under their old keys."""

from collections.abc import Sequence
from typing import Annotated
from uuid import uuid4

import typer

from dispatcher.cli.common.confirm import askable, confirm
from dispatcher.cli.common.shared import AsJson, Dsn, Reason, print_json, print_rows
from dispatcher.cli.common.shown import counted, reason_of, visible
from dispatcher.cli.replays.options import Keys, OutsideWindow, Rate
from dispatcher.cli.replays.shown import approving, exit_code, short, show_progress
from dispatcher.cli.replays.watch import watch
from dispatcher.operators.common.session import Row
from dispatcher.operators.entries.store import Entries
from dispatcher.operators.replays.actions import (
    NOT_APPLIED,
    NOTHING_TO_DO,
    plan_of_keys,
    standing_of,
)
from dispatcher.operators.replays.rules import few_keys_of
from dispatcher.operators.replays.store import Replays
from sink.contract.exits import CommandError, ExitCode

OfEndpoint = Annotated[
    str | None, typer.Option("--endpoint", help="Only there; where each stands, if none.")
]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask.")]
Wait = Annotated[bool, typer.Option("--wait", help="Show how far it is, until it has ended.")]

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
) -> None:
    """Send entries again: the same key, the same bytes. Safe where the receiver honours the key.

    It is `replay plan` and `replay apply` of these keys; with --outside-window only a plan, where a
    second person has to approve it. Exit 3: nothing is to be done, and why.
    """
    why, wanted = reason_of(reason), few_keys_of(keys)
    askable(yes=yes)
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
            store.cancel(row["id"], NOTHING_TO_DO)
            if as_json:
                print_json({"replay": None, "items": [], "nothing": nothing})
            raise typer.Exit(ExitCode.NOTHING_MATCHED)
        approve = approving(row)
        if approve is None:
            row = _applied(store, row, yes=yes)
            if wait:
                row = watch(store, row["id"])
    if as_json:
        print_json({"replay": row, "items": items, "nothing": nothing, "approve": approve})
    elif approve is not None:
        typer.echo(
            "nothing was sent yet: receivers may have forgotten these keys, and more actions would"
            f" be repeated in 24 hours than one person may. A second person has to say\n  {approve}"
            f"\nand then anybody\n  holdfast replay apply {short(row)}"
        )
    elif wait:
        show_progress(row)
    else:
        typer.echo(
            f"replay {short(row)} is {row['state']}: holdfast replay status {short(row)} --wait"
        )
    if wait and approve is None:
        raise typer.Exit(exit_code(row))


def _applied(store: Replays, row: Row, *, yes: bool) -> Row:
    """Apply the plan; one that is not confirmed, or is refused, is cancelled."""
    count = counted(row["item_count"], "delivery")
    try:
        confirm(f"{count} under the old keys?", yes=yes)
        return store.apply(row["id"])
    except (CommandError, typer.Abort):
        store.cancel(row["id"], NOT_APPLIED)
        raise


def _show(items: Sequence[Row], nothing: Sequence[Row], obstacles: Sequence[str]) -> None:
    if items:
        seen = [{**item, "subject": visible(item["subject"])} for item in items]
        print_rows(seen, _ITEMS, "To be sent again, with the same key and the same bytes")
    for obstacle in obstacles:
        typer.echo(f"note: {obstacle}")
    for each in nothing:
        where = f" at {each['endpoint']}" if each["endpoint"] else ""
        typer.echo(f"nothing is done about {each['key']}{where}: {each['why']}")
