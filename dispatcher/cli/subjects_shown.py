"""Subjects for a person."""

from collections.abc import Sequence

import typer

from dispatcher.cli.shared import print_rows
from dispatcher.cli.shown import plain, visible
from dispatcher.core.text import last_word, shell_word
from dispatcher.store.operator_session import Row
from dispatcher.store.subjects import WAITING_MAX

_LIST = (
    *("name", "last_sequence", "last_type", "last_created_at", "lanes"),
    *("stopped", "retrying", "behind", "undelivered", "oldest_due_at"),
)
_FACTS = ("last_sequence", "last_type", "last_occurred_at", "last_created_at")
_LANES = (
    *("endpoint", "state", "held", "delivered", "last", "waiting", "head", "attempt"),
    *("due_at", "lease_until", "stopped_by", "kept_by"),
)
_TRANSITIONS = ("stream", "last_type", "last_occurred_at", "updated_at", "ahead")
_ENTRIES = ("sequence", "key", "type", "occurred_at", "created_at", "stream", "batch_id")


def listed(rows: Sequence[Row], further: str | None) -> None:
    """Print a page of subjects, and how to get the next one."""
    texts = [{**row, "name": visible(row["name"])} for row in rows]
    print_rows(texts, _LIST, "Subjects")
    if further is not None:
        said = "more" if rows else "none of the names up to here; more"
        typer.echo(f"{said}: --after {shell_word(further)}")


def shown(found: Row) -> None:
    """Print one subject."""
    typer.echo(f"subject {visible(found['name'])}")
    for fact in _FACTS:
        typer.echo(f"  {fact.replace('_', ' '):<17} {plain(found[fact])}")
    print_rows(found["transitions"], _TRANSITIONS, "Transition states")
    if found["lanes"]:
        print_rows([_lane(lane) for lane in found["lanes"]], _LANES, "Lanes")
    else:
        typer.echo("lanes: no endpoint has got anything of it yet")
    print_rows(found["entries"], _ENTRIES, "Last entries")
    if any(lane["held"] for lane in found["lanes"]):
        typer.echo(f"what it waits for: holdfast why {last_word(found['name'])}")


def _lane(lane: Row) -> Row:
    head, waiting = lane["head_sequence"], lane["waiting"]
    return {
        **lane,
        "delivered": lane["delivered_sequence"],
        "last": lane["last_sequence"],
        "waiting": f"{waiting - 1} or more" if waiting == WAITING_MAX else waiting,
        "head": None if head is None else f"{head} {plain(lane['head_type'])}",
        "stopped_by": _stopped(lane),
        "kept_by": _kept(lane),
    }


def _stopped(lane: Row) -> str | None:
    if lane["dead_letter"] is None:
        return None
    return f"dead letter {lane['dead_letter']}, {lane['dead_reason']} {plain(lane['died_at'])}"


def _kept(lane: Row) -> str | None:
    """What of the endpoint keeps every lane of it from being sent to."""
    if lane["endpoint_state"] != "active":
        return str(lane["endpoint_state"])
    if lane["breaker"] != "closed":
        return f"breaker {lane['breaker']} until {plain(lane['breaker_until'])}"
    if lane["held_until"] is not None:
        return f"receiver, until {plain(lane['held_until'])}"
    return None
