"""Suppressed decisions for a person."""

import json
from collections.abc import Sequence

import typer

from dispatcher.cli.common.shared import print_rows
from dispatcher.cli.common.shown import counted, plain, shortened, visible
from dispatcher.operators.common.session import Row
from dispatcher.operators.suppressed.rules import write_command
from sink.contract.states import SuppressedCause

OVERTAKEN = "holdfast suppressed list --cause overtaken"

_LIST = ("key", "subject", "type", "occurred_at", "cause", "suppressed_at", "stream", "batch_id")
_FACTS = ("subject", "type", "occurred_at", "cause", "suppressed_at", "priority", "traceparent")
_BATCH = ("stream", "batch_id", "query_id")
_STATE = ("last_type", "last_occurred_at")


def listed(rows: Sequence[Row], older: str | None) -> None:
    """Print a page of decisions, and how to get the next one."""
    texts = [{**row, "subject": visible(row["subject"])} for row in rows]
    print_rows(texts, _LIST, "Suppressed decisions")
    if older is not None:
        typer.echo(f"older ones: --before {older}")


def shown(found: Row) -> None:
    """Print one decision with its content."""
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
        typer.echo(f"  {name.replace('_', ' '):<21} {plain(value)}")
    typer.echo(f"\n{shortened(found['data'])}")
    if found["cause"] == SuppressedCause.OVERTAKEN and found["written_as"] is None:
        typer.echo(f"to write it after all: {write_command(found['key'])}")


def proposed(told: Row, approve: str, apply: str) -> None:
    """Print what would be written, behind what, and what it takes to do it."""
    newest = told["newest"]
    typer.echo(f"subject {visible(told['subject'])}, stream {told['batch']['stream']}")
    typer.echo(
        f"  newest is {plain(newest['last_type'])} of {plain(newest['last_occurred_at'])},"
        f" sequence {newest['last_sequence']}"
    )
    typer.echo(f"  write     {told['type']} of {plain(told['occurred_at'])}, after it")
    typer.echo(f"  data      {shortened(told['data'])}")
    typer.echo(f"  new key   {told['new_key']}, for every endpoint that takes this type")
    if (last := told["newest_later"]) is not None:
        typer.echo(
            f"  WARNING   {counted(told['later'], 'later decision')} of the subject suppressed too,"
            f" the newest {last['type']} of {last['occurred_at']} ({last['key']}): this contradicts"
            " it"
        )
    typer.echo(
        "This is only proposed; nothing was written."
        + (
            f" {told['approved_by']} approved it; anybody does it with\n  {apply}"
            if told["approved_by"]
            else f" A second person says\n  {approve}\nand then anybody\n  {apply}"
        )
    )


def written(done: Row) -> None:
    """Print what was written."""
    typer.echo(f"{done['key']} written as {done['new_key']}, {done['detail']}")


def told_overtaken(report: Row) -> None:
    """Say how many decisions were overtaken, and how to list them; nothing where none was."""
    if report["overtaken_rows"]:
        typer.echo(f"{counted(report['overtaken_rows'], 'decision')} overtaken: {OVERTAKEN}")
