"""What a check found, for a person."""

import typer

from dispatcher.cli.common.shown import plain, visible
from dispatcher.operators.check.rules import INVARIANT, MEANING, Checked, Violation
from dispatcher.operators.check.store import Range
from dispatcher.operators.check.views import violated

_LOOKED_AT = ("batches", "entries", "deliveries", "attempts", "lanes", "dead_letters")
_WORTH_KNOWING = {
    "unknown_outcomes": "so many duplicates a receiver may have seen (I10)",
    "lanes_due": "due now",
    "leases_run_out": "a dispatcher that runs books them as unknown",
    "batches_unrouted": "a dispatcher that runs routes them",
}


def show(range_: Range, checked: Checked) -> None:
    """Print the result for a person."""
    about = "".join(
        f", {name} {visible(value)}"
        for name, value in (("endpoint", range_.endpoint), ("stream", range_.stream))
        if value is not None
    )
    typer.echo(f"{plain(range_.since)} to {plain(range_.until)}{about}")
    if max(range_.entries_since, range_.attempts_since) > range_.since:
        typer.echo(
            f"  days were dropped: entries from {plain(range_.entries_since)} on, attempts from"
            f" {plain(range_.attempts_since)} on"
        )
    looked_at = [name for name in _LOOKED_AT if name in checked.counted]
    typer.echo(f"  looked at {', '.join(_counted(checked, name) for name in looked_at)}")
    for name, what in _WORTH_KNOWING.items():
        if checked.counted[name]:
            since = f", since {plain(checked.oldest[name])}" if name in checked.oldest else ""
            typer.echo(f"  {_counted(checked, name)}{since}: {what}")
    for name in (each for each in checked.counted if each.startswith("receiver_")):
        typer.echo(f"  {_counted(checked, name)}")
    for rule in violated(checked):
        count = checked.violated[rule]
        typer.echo(f"\n{INVARIANT[rule]} {rule.value} {count}: {MEANING[rule]}")
        for each in checked.kept[rule]:
            typer.echo(_line(each))
    if any(checked.violated[rule] > checked.limit for rule in checked.violated):
        typer.echo(f"\nof each rule {checked.limit} are shown; more with --limit")
    if checked.holds:
        typer.echo("every rule holds")


def _counted(checked: Checked, name: str) -> str:
    return f"{checked.counted[name]:,} {name.replace('_', ' ')}"


def _line(violation: Violation) -> str:
    """Return a violation as one line, its key in one piece: to be searched and copied."""
    words = [violation.key, violation.endpoint]
    if violation.subject is not None:
        words.append(f"{violation.subject} {violation.sequence}")
    if violation.stream is not None:
        words.append(f"{violation.stream} batch {violation.batch_id}")
    named = "  ".join(visible(each) for each in words if each)
    return f"  {named}{': ' if named else ''}{visible(violation.detail)}"
