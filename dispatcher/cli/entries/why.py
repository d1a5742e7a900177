"""`holdfast why`: one answer for an entry or a subject, and the command that resolves it."""

import json
from typing import Annotated, Any

import typer

from dispatcher.cli.common.shared import AsJson, Dsn, print_json
from dispatcher.cli.common.shown import plain, visible
from dispatcher.operators.why.rules import Answer, Verdict
from dispatcher.operators.why.store import Explained, Here, Why
from dispatcher.operators.why.views import as_row
from sink.contract.canonical import NotCanonical, canonical_json
from sink.contract.exits import CommandError, ExitCode
from sink.contract.key import Key


def explain(
    what: Annotated[
        str,
        typer.Argument(
            metavar="KEY|SUBJECT",
            help="A key as receivers get it (hf_...), its parts as a JSON list, or a subject.",
        ),
    ],
    sequence: Annotated[
        int | None,
        typer.Option("--sequence", min=1, max=2**63 - 1, help="Of the subject: this entry."),
    ] = None,
    endpoint: Annotated[
        str | None, typer.Option("--endpoint", help="Only at this endpoint.")
    ] = None,
    dsn: Dsn = None,
    as_json: AsJson = False,
) -> None:
    """Say when an entry was delivered, or what it waits for; of a subject, what is first in line.

    Exit code 0: delivered, or on its way; 4: a person is needed; 3: never seen.
    """
    key, named = _key_of(what) if sequence is None else (None, "")
    with Why.connect(dsn) as store:
        if key is not None:
            found = store.explain_key(key, named, endpoint)
        elif sequence is not None:
            found = store.explain_sequence(what, sequence, endpoint)
        else:
            found = store.explain_subject(what, endpoint)
    if as_json:
        print_json(as_row(what, found))
    else:
        _show(what, found)
    if found.needs_a_person:
        raise typer.Exit(ExitCode.DEGRADED)
    if found.verdict is Verdict.UNKNOWN:
        raise typer.Exit(ExitCode.NOTHING_MATCHED)


def _key_of(what: str) -> tuple[Key | None, str]:
    """Read what is a key, and its parts as the quarantine has them; a subject is none."""
    if what.startswith("hf_") and len(what) == 35:
        try:
            return Key.parse(what), ""
        except NotCanonical:
            return None, ""
    if not what.startswith("["):
        return None, ""
    try:
        parts = json.loads(what)
        return Key.of(parts), canonical_json(parts).decode()
    except (ValueError, TypeError, RecursionError) as error:
        raise CommandError(
            f"{what!r} begins like the parts of a key and is none ({error}). Nothing was changed;"
            ' they are a JSON list of strings, such as \'["payout-hold/v1", "m_482", "..."]\'.',
            ExitCode.USAGE,
        ) from None


def _show(what: str, found: Explained) -> None:
    if found.entry is not None:
        typer.echo(_entry(found.entry))
    elif found.answer is None or found.answer.verdict is Verdict.NO_ENDPOINT:
        typer.echo(f"subject {visible(what)}")
    else:
        typer.echo(visible(what))
    if found.answer is not None:
        _say("", found.answer)
    for each in found.at_endpoints:
        about = "" if found.entry is not None else _about(each)
        _say(f"{each.endpoint}: {about}", each.answer)
    for note in found.notes:
        typer.echo(f"note: {visible(note)}")


def _about(each: Here) -> str:
    return "" if each.entry is None else f"sequence {each.entry['sequence']} {each.entry['key']}, "


def _entry(entry: dict[str, Any]) -> str:
    return (
        f"{entry['key']}: {visible(entry['type'])} of {visible(entry['subject'])}, sequence"
        f" {entry['sequence']}, written {plain(entry['created_at'])} by batch {entry['batch_id']}"
        f" of stream {visible(entry['stream'])}"
    )


def _say(where: str, answer: Answer) -> None:
    typer.echo(f"  {where}{visible(answer.sentence)}")
    first = answer
    while first.behind is not None:
        first = first.behind.answer
        typer.echo(f"    that one: {visible(first.sentence)}")
    for each in first.also:
        typer.echo(f"    also: {visible(each)}")
    if answer.command is not None:
        typer.echo(f"    -> {answer.command}")
