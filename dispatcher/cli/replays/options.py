"""What the replay commands are told: filters, keys and the number of a replay."""

import re
from collections.abc import Sequence
from typing import Annotated

import typer

from dispatcher.cli.common.shown import moment_of
from dispatcher.operators.replays.rules import ReplayFilter, ReplayFilterError, ReplayScope, keys_of
from sink.contract.exits import CommandError, ExitCode

EXAMPLES = (
    "holdfast replay plan --endpoint payouts --state dead --reason 'receiver was repaired'",
    "holdfast replay plan --stream payouts --since 2026-11-02T06:00:00Z --reason 'database lost'",
    "holdfast replay plan --stream payouts --batch 120..125 --reason 'asked by payouts'",
)

OfEndpoint = Annotated[
    str | None, typer.Option("--endpoint", help="Only at this endpoint; all of them, if none.")
]
OfSubject = Annotated[str | None, typer.Option("--subject", help="Only entries of this subject.")]
OfStream = Annotated[str | None, typer.Option("--stream", help="Only entries of this stream.")]
OfBatch = Annotated[
    str | None, typer.Option("--batch", help="Only of this batch of --stream, or of N..M.")
]
Since = Annotated[
    str | None, typer.Option("--since", help="Only written then or later (RFC 3339).")
]
Until = Annotated[str | None, typer.Option("--until", help="Only written before then (RFC 3339).")]
States = Annotated[
    list[ReplayScope] | None,
    typer.Option("--state", help="Only what is so at its endpoint; may be repeated."),
]
Types = Annotated[
    list[str] | None, typer.Option("--type", help="Only entries of this type; may be repeated.")
]
KeyOptions = Annotated[
    list[str] | None, typer.Option("--key", help="Only the entry of this key; may be repeated.")
]
Keys = Annotated[list[str], typer.Argument(metavar="KEY...", help="As receivers get it: hf_...")]
ReplayId = Annotated[
    str, typer.Argument(metavar="ID", help="As `plan` and `list` show it: 8 hex digits suffice.")
]
Rate = Annotated[
    int | None,
    typer.Option(
        "--rate", min=1, max=1_000_000, help="Entries a second at most, over all dispatchers."
    ),
]
OutsideWindow = Annotated[
    bool,
    typer.Option(
        "--outside-window",
        help="Send also what the receiver may have forgotten: it may act on it again.",
    ),
]

_BATCHES = re.compile(r"(\d{1,18})(?:\.\.(\d{1,18}))?", re.ASCII)


def filter_of(
    *,
    endpoint: str | None,
    subject: str | None,
    stream: str | None,
    batch: str | None,
    since: str | None,
    until: str | None,
    states: Sequence[ReplayScope] | None,
    types: Sequence[str] | None,
    keys: Sequence[str] | None,
) -> ReplayFilter:
    """Return what the options say; raises `CommandError` (usage) for what cannot be used."""
    first, last = _batches(batch)
    wanted = ReplayFilter(
        endpoint=endpoint,
        subject=subject,
        stream=stream,
        first_batch=first,
        last_batch=last,
        since=moment_of("--since", since),
        until=moment_of("--until", until),
        states=tuple(dict.fromkeys(states or ())),
        types=tuple(dict.fromkeys(types or ())),
        keys=keys_of(keys or ()),
    )
    try:
        wanted.check()
    except ReplayFilterError as error:
        examples = "".join(f"\n  {each}" for each in EXAMPLES)
        raise CommandError(
            f"{error}. Nothing was planned. Examples:{examples}", ExitCode.USAGE
        ) from None
    return wanted


def _batches(text: str | None) -> tuple[int | None, int | None]:
    if text is None:
        return None, None
    found = _BATCHES.fullmatch(text)
    if found is None:
        raise CommandError(
            f"--batch {text!r} is neither a batch nor a range such as 120..125. Nothing was"
            " planned.",
            ExitCode.USAGE,
        )
    first, last = found.groups()
    return int(first), int(last or first)
