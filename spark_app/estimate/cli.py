"""`holdfast job estimate`: what a rate of events costs, before it arrives."""

import json
from collections.abc import Iterator
from dataclasses import asdict
from typing import Annotated, Any

import typer

from holdfast.sink.contract.exits import CommandError, ExitCode
from holdfast.sink.contract.numbers import milliseconds
from holdfast.spark_app.estimate.model import Estimate, Load, estimate
from holdfast.spark_app.estimate.units import COMMAND, DATE, GROUPS, MACHINE
from holdfast.spark_app.exposure.settings import MILLISECOND_US, Settings


def estimate_job(
    events_per_second: Annotated[float, typer.Option(help="Mean rate of events.")],
    merchants: Annotated[int, typer.Option(help="Merchants with an event in a window.")],
    ids_open: Annotated[
        int | None,
        typer.Option(
            help="Event ids in the state.", show_default="those of a window, its cutoff and delay"
        ),
    ] = None,
    interval: Annotated[
        str | None,
        typer.Option(help="The trigger interval.", show_default="the recommended one"),
    ] = None,
    key_groups: Annotated[
        int,
        typer.Option(
            min=1,
            max=4096,
            help="Number of key groups of the state.",
            show_default=f"{GROUPS}, as measured",
        ),
    ] = GROUPS,
    watermark_delay: Annotated[
        str, typer.Option(help="Delay of the watermark behind the newest event.")
    ] = "30s",
    late_cutoff: Annotated[
        str, typer.Option(help="Time after its end in which a window accepts corrections.")
    ] = "2m",
    detection: Annotated[
        str | None,
        typer.Option(help="Time until the job is started again.", show_default="a guess of 10s"),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")] = False,
) -> None:
    """Estimate interval, state, checkpoint, memory and recovery time from measured unit costs.

    Starts nothing and reads nothing. Exit code 4 if one machine like the measured one is not
    enough.
    """
    try:
        load = Load(
            events_per_second=events_per_second,
            merchants=merchants,
            ids_open=ids_open,
            interval_s=None if interval is None else milliseconds(interval) / 1000,
            key_groups=key_groups,
            detection_s=None if detection is None else milliseconds(detection) / 1000,
            settings=Settings(
                watermark_delay_us=milliseconds(watermark_delay) * MILLISECOND_US,
                late_cutoff_us=milliseconds(late_cutoff) * MILLISECOND_US,
            ),
        )
    except ValueError as error:
        raise CommandError(f"{error}. Nothing was estimated.", ExitCode.USAGE) from error
    found = estimate(load)
    typer.echo(json.dumps(document(found), indent=2) if as_json else text(found))
    if found.warnings:
        raise typer.Exit(ExitCode.DEGRADED)


def document(found: Estimate) -> dict[str, Any]:
    """Return what `--json` prints; seconds and bytes."""
    return {
        **asdict(found),
        "recovery": {**asdict(found.recovery), "total_s": found.recovery.total_s},
        "measured": {"command": COMMAND, "date": DATE, "machine": MACHINE},
    }


def text(found: Estimate) -> str:
    """Return the lines that the command prints."""
    lines = [f"{name:<16}{words}" for name, words in _figures(found)]
    lines += [f"{'warning':<16}{words}" for words in (*found.warnings, *found.extrapolated)]
    lines += ["", f"Measured {DATE} on {MACHINE}. Not known:"]
    return "\n".join([*lines, *(f"- {words}" for words in found.not_known)])


def _figures(found: Estimate) -> Iterator[tuple[str, str]]:
    advised, term = found.recommended_interval_s, found.recovery
    recommended = "" if advised is None else f" (recommended: {advised:g} s)"
    yield "interval", f"{found.interval_s:g} s{recommended}"
    yield "batch", f"{found.batch_s:,.1f} s, {found.busy:.0%} of the interval"
    yield "state", f"{_size(found.state_bytes)} with {found.ids_open:,} ids"
    sizes = map(_size, (found.snapshot_bytes, found.changelog_bytes))
    yield "checkpoint", "snapshot {}, changelog {} a batch".format(*sizes)
    sizes = map(_size, (found.written_bytes_per_second, found.checkpoint_bytes))
    yield "", "{} written a second, {} kept at most".format(*sizes)
    sizes = map(_size, (found.java_bytes, found.python_bytes))
    yield "memory", "JVM {}, Python workers {}".format(*sizes)
    terms = f"detection {term.detection_s:,.0f} + restart {term.restart_s:,.0f}"
    terms += f" + restore {term.restore_s:,.1f} + reprocess {term.reprocess_s:,.1f}"
    yield "recovery time", f"{term.total_s:,.0f} s = {terms}"
    caught_up = "never" if found.caught_up_s is None else f"{found.caught_up_s:,.0f} s later"
    yield "caught up", caught_up


def _size(count: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:,.3g} TB"
