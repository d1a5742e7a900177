"""`holdfast reissue`: repeat a business action under a new key."""

import json
from collections.abc import Sequence
from typing import Annotated
from uuid import uuid4

import typer

from holdfast.dispatcher.cli.options import (
    AsJson,
    Dsn,
    Keys,
    Reason,
    Yes,
    confirm,
    reason_of,
    require_terminal,
)
from holdfast.dispatcher.cli.output import counted, display, print_json, shortened, visible
from holdfast.dispatcher.operators.common.overtaking import overtaken_text
from holdfast.dispatcher.operators.common.person import ALONE_MAX
from holdfast.dispatcher.operators.common.session import Row
from holdfast.dispatcher.operators.reissue.actions import write_all
from holdfast.dispatcher.operators.reissue.store import Reissues, actions_of
from holdfast.dispatcher.operators.replays.rules import keys_of
from holdfast.sink.contract.key import Key
from holdfast.sink.contract.requeue import writer

Limit = Annotated[
    int,
    typer.Option(
        "--limit",
        envvar="HOLDFAST_REISSUE_LIMIT",
        min=0,
        max=1000,
        help="Number of actions, including those of the last 24 hours, that need no approval"
        f" by a second person; at most {ALONE_MAX}.",
    ),
]

WARNING = (
    "REISSUE repeats the business action: each receiver gets a new decision with a new key, and"
    " acts on it. To send the original again, which is safe, use `holdfast redeliver`."
)


def reissue(
    keys: Keys,
    reason: Reason,
    limit: Limit = ALONE_MAX,
    yes: Yes = False,
    dsn: Dsn = None,
    as_json: AsJson = False,
) -> None:
    """Issue entries again under new keys: the business action is REPEATED at every receiver.

    Open dead letters of the original are dismissed, and their lanes continue. If one person would
    repeat more than --limit actions in 24 hours, or an entry is older than its subject's newest
    decision, only a plan is written, which a second person has to approve.
    """
    why, wanted, limit = reason_of(reason), keys_of(keys), min(limit, ALONE_MAX)
    needs_approval = len(wanted) > limit
    if not needs_approval:
        require_terminal(yes=yes)
        writer()  # Report a missing package before anything is planned.
    with Reissues.connect(dsn) as store:
        previews = [store.preview(Key(key)) for key in wanted]
        if not as_json:
            _show(previews)
        id_, actions = uuid4(), actions_of(previews)
        overtaking = sum(preview["overtakes"] is not None for preview in previews)
        needs_approval = needs_approval or overtaking > 0 or store.needs_second(actions, limit, id_)
        if not needs_approval:
            confirm(f"Repeat {counted(actions, 'business action')}?", yes=yes)
        store.plan(previews, why, limit=limit, needs_approval=needs_approval, id_=id_)
        # A concurrent plan may have used up the limit meanwhile.
        needs_approval = store.waits(id_)
        done = [] if needs_approval else write_all(dsn, store, id_)
    short = id_.hex[:8]
    approve = f"holdfast replay approve {short} --reason TEXT" if needs_approval else None
    if as_json:
        print_json({"replay": id_, "reissued": done, "approve": approve})
        return
    print_reissued(done)
    if approve is not None:
        typer.echo(
            f"nothing was written yet: {_why_two(overtaking, actions, limit)}. A second person"
            f" approves it with\n  {approve}\nThen apply it with\n  holdfast replay apply {short}"
        )


def print_reissued(done: Sequence[Row]) -> None:
    """Print what was reissued."""
    for each in done:
        dead = ", ".join(map(str, each["dead_letters"]))
        typer.echo(
            f"{each['key']} reissued as {each['new_key']}, {each['detail']}"
            + (f"; dead letter {dead} resolved" if dead else "")
        )


def _why_two(overtaking: int, actions: int, limit: int) -> str:
    if overtaking:
        return f"{counted(overtaking, 'decision')} would overtake a newer one of the same subject"
    return (
        f"{counted(actions, 'action')}, with those of the last 24 hours, exceed the limit of"
        f" {limit}"
    )


def _show(previews: Sequence[Row]) -> None:
    typer.echo(WARNING)
    for preview in previews:
        typer.echo(f"\n{preview['key']}")
        for name, value in _facts(preview):
            typer.echo(f"  {name:<9} {value}")


def _facts(preview: Row) -> list[tuple[str, str]]:
    data = json.dumps(json.loads(preview["body"])["data"], ensure_ascii=False)
    newest = preview["newest"]
    facts = [
        ("subject", f"{visible(preview['subject'])}, sequence {preview['sequence']}"),
        ("action", f"{preview['type']} of {display(preview['occurred_at'])}"),
        ("data", shortened(data)),
        *(
            (row["endpoint"], f"delivered at {display(row['delivered_at'])}, {_receipt(row)}")
            for row in preview["delivered"]
        ),
        *(
            (
                row["endpoint"],
                f"dead letter ({row['dead_reason']}): will be dismissed, and its lane continues",
            )
            for row in preview["delivery"]
            if row["state"] == "dead"
        ),
    ]
    if newest["last_sequence"] > preview["sequence"]:
        later = newest["last_sequence"] - preview["sequence"]
        facts.append(
            (
                "since then",
                f"{later} later entries, the newest {newest['last_type']}; it comes after them",
            )
        )
    if (over := preview["overtakes"]) is not None:
        facts.append(("WARNING", f"it overtakes {visible(overtaken_text(over))}"))
    if preview["earlier"]:
        facts.append(("before", f"already reissued as {', '.join(preview['earlier'])}"))
    facts.append(("new key", f"{preview['new_key']}, for {', '.join(preview['endpoints'])}"))
    return facts


def _receipt(row: Row) -> str:
    if row["receipt"] is None:
        return "without a receipt"
    said = json.loads(row["receipt"])
    return f"receipt: {visible(said['outcome'])} at {visible(said['applied_at'])}"
