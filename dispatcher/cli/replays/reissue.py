"""`holdfast reissue`: a business action repeated under a new key, because a person says so."""

import json
from collections.abc import Sequence
from typing import Annotated
from uuid import uuid4

import typer

from dispatcher.cli.common.confirm import askable, confirm
from dispatcher.cli.common.shared import AsJson, Dsn, Reason, print_json
from dispatcher.cli.common.shown import counted, plain, reason_of, shortened, visible
from dispatcher.cli.replays.options import Keys
from dispatcher.operators.common.person import ALONE_MAX
from dispatcher.operators.common.session import Row
from dispatcher.operators.reissue.actions import write_all
from dispatcher.operators.reissue.store import Reissues, actions_of
from dispatcher.operators.replays.rules import keys_of
from sink.contract.key import Key
from sink.contract.requeue import writer

Yes = Annotated[bool, typer.Option("--yes", help="Do not ask.")]
Limit = Annotated[
    int,
    typer.Option(
        "--limit",
        envvar="HOLDFAST_REISSUE_LIMIT",
        min=0,
        max=1000,
        help="More actions than so many, with those of the last 24 hours, need a second person's"
        f" approval; {ALONE_MAX} at most, as nobody raises their own limit.",
    ),
]

WARNING = (
    "REISSUE repeats the business action: each receiver gets a decision that it never saw, with a"
    " new key, and acts on it. To send the old one again, which is safe, use `holdfast redeliver`."
)


def reissue(
    keys: Keys,
    reason: Reason,
    limit: Limit = ALONE_MAX,
    yes: Yes = False,
    dsn: Dsn = None,
    as_json: AsJson = False,
) -> None:
    """Decide entries anew, under new keys: the business action is REPEATED at every receiver.

    An old one that is dead is given up, and its lane goes on. Where one person would repeat more
    actions in 24 hours than --limit, only a plan is written, which a second person has to approve.
    """
    why, wanted, limit = reason_of(reason), keys_of(keys), min(limit, ALONE_MAX)
    needs_approval = len(wanted) > limit
    if not needs_approval:
        askable(yes=yes)
        writer()  # What is missing here shall be said before anything is planned.
    with Reissues.connect(dsn) as store:
        looks = [store.preview(Key(key)) for key in wanted]
        if not as_json:
            _show(looks)
        id_, actions = uuid4(), actions_of(looks)
        needs_approval = needs_approval or store.needs_second(actions, limit, id_)
        if not needs_approval:
            confirm(f"Repeat {counted(actions, 'business action')}?", yes=yes)
        store.plan(looks, why, limit=limit, needs_approval=needs_approval, id_=id_)
        # Somebody's plan may have come in between, and used up the rest.
        needs_approval = store.waits(id_)
        done = [] if needs_approval else write_all(dsn, store, id_)
    short = id_.hex[:8]
    approve = f"holdfast replay approve {short} --reason TEXT" if needs_approval else None
    if as_json:
        print_json({"replay": id_, "reissued": done, "approve": approve})
        return
    tell(done)
    if approve is not None:
        typer.echo(
            f"nothing was written yet: {counted(actions, 'action')}, with those of the last 24"
            f" hours, are more than {limit}, so a second person has to say\n  {approve}\nand then"
            " anybody\n"
            f"  holdfast replay apply {short}"
        )


def tell(done: Sequence[Row]) -> None:
    """Say what was reissued."""
    for each in done:
        dead = ", ".join(map(str, each["dead_letters"]))
        typer.echo(
            f"{each['key']} reissued as {each['new_key']}, {each['detail']}"
            + (f"; dead letter {dead} resolved" if dead else "")
        )


def _show(looks: Sequence[Row]) -> None:
    typer.echo(WARNING)
    for look in looks:
        typer.echo(f"\n{look['key']}")
        for name, value in _facts(look):
            typer.echo(f"  {name:<9} {value}")


def _facts(look: Row) -> list[tuple[str, str]]:
    data = json.dumps(json.loads(look["body"])["data"], ensure_ascii=False)
    newest = look["newest"]
    facts = [
        ("subject", f"{visible(look['subject'])}, sequence {look['sequence']}"),
        ("action", f"{look['type']} of {plain(look['occurred_at'])}"),
        ("data", shortened(data)),
        *(
            (row["endpoint"], f"got it at {plain(row['delivered_at'])}, {_receipt(row)}")
            for row in look["delivered"]
        ),
        *(
            (row["endpoint"], f"dead, {row['dead_reason']}: given up, and its lane goes on")
            for row in look["delivery"]
            if row["state"] == "dead"
        ),
    ]
    if newest["last_sequence"] > look["sequence"]:
        later = newest["last_sequence"] - look["sequence"]
        facts.append(
            ("since then", f"{later} later, the newest {newest['last_type']}: this comes after it")
        )
    if look["earlier"]:
        facts.append(("before", f"reissued already, as {', '.join(look['earlier'])}"))
    facts.append(("new key", f"{look['new_key']}, for {', '.join(look['endpoints'])}"))
    return facts


def _receipt(row: Row) -> str:
    if row["receipt"] is None:
        return "without a receipt"
    said = json.loads(row["receipt"])
    return f"receipt: {visible(said['outcome'])} at {visible(said['applied_at'])}"
