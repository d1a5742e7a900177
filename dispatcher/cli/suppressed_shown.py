"""Suppressed decisions for a person."""

import json
from collections.abc import Sequence

import typer

from dispatcher.cli.shared import print_rows
from dispatcher.cli.shown import counted, plain, shortened, visible
from dispatcher.store.operator_session import Row

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
        "key parts": json.dumps(found["key_parts"], ensure_ascii=False),
    }
    for name, value in facts.items():
        typer.echo(f"  {name.replace('_', ' '):<21} {plain(value)}")
    typer.echo(f"\n{shortened(found['data'])}")


def told_overtaken(report: Row) -> None:
    """Say how many decisions were overtaken, and how to list them; nothing where none was."""
    if report["overtaken_rows"]:
        typer.echo(f"{counted(report['overtaken_rows'], 'decision')} overtaken: {OVERTAKEN}")
