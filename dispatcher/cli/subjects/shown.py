"""Subjects for a person."""

from collections.abc import Sequence

import typer

from dispatcher.cli.common.shared import print_rows
from dispatcher.cli.common.shown import plain, visible
from dispatcher.operators.common.session import Row
from dispatcher.operators.subjects.rules import repair_commands
from dispatcher.operators.subjects.store import WAITING_MAX
from dispatcher.shared.text import last_word, shell_word

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
_OVERTAKEN = ("key", "type", "occurred_at", "suppressed_at", "stream", "batch_id")
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
    for command in repair_commands(found):
        typer.echo(f"it is silenced: {command}")


def repair_proposed(told: Row, approve: str, apply: str) -> None:
    """Print what a repair would change, and what it takes to do it."""
    state, name = told["state"], told["subject"]
    now = {name: plain(state[name]) for name in ("last_type", "last_occurred_at")}
    typer.echo(f"subject {visible(name)}, stream {told['stream']}")
    typer.echo(f"  state is  {_state(now)}, written {plain(state['updated_at'])}")
    typer.echo(f"  becomes   {_state(told['after'])}")
    typer.echo(f"  overtaken {state['overtaken_count']:,} since then")
    if state["overtaken"]:
        print_rows(state["overtaken"], _OVERTAKEN, "Overtaken decisions")
        more = state["overtaken_count"] - len(state["overtaken"])
        typer.echo(
            f"{f'and {more:,} more. ' if more else ''}A repair writes none of them:"
            " they stay in `holdfast suppressed list`, and receivers never got them. After it,"
            " `holdfast suppressed write KEY --reason TEXT` proposes to write one."
        )
    typer.echo(
        "This is only proposed; nothing was changed."
        + (
            f" {told['approved_by']} approved it; anybody does it with\n  {apply}"
            if told["approved_by"]
            else f" A second person says\n  {approve}\nand then anybody\n  {apply}"
        )
    )


def repaired(done: Row) -> None:
    """Print what was changed."""
    typer.echo(
        f"{visible(done['subject'])} in {done['stream']}: {_state(done['before'])} became"
        f" {_state(done['after'])}"
    )


def _state(state: Row | None) -> str:
    if state is None:
        return "no state: the next decision is written whatever it is"
    return f"{state['last_type']} of {state['last_occurred_at']}"


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
