"""`holdfast why`: why an entry or a subject is where it is, and the command that resolves it."""

import json
from typing import Annotated, Any

import typer

from holdfast.dispatcher.cli.options import NUMBER_MAX, AsJson, Dsn, OfEndpoint
from holdfast.dispatcher.cli.output import display, print_json, visible
from holdfast.dispatcher.operators.why.rules import Answer, Verdict
from holdfast.dispatcher.operators.why.store import EndpointAnswer, Explanation, Why
from holdfast.dispatcher.operators.why.views import as_row
from holdfast.sink.contract.canonical import NotCanonical, canonical_json
from holdfast.sink.contract.exits import CommandError, ExitCode
from holdfast.sink.contract.key import Key


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
        typer.Option(
            "--sequence",
            min=1,
            max=NUMBER_MAX,
            help="With SUBJECT: explain the entry with this sequence.",
        ),
    ] = None,
    endpoint: OfEndpoint = None,
    dsn: Dsn = None,
    as_json: AsJson = False,
) -> None:
    """Explain when an entry was delivered, or what it or a subject waits for.

    Exit code 0: delivered or in progress; 4: a person is needed; 3: never seen.
    """
    key, named = _key_of(what) if sequence is None else (None, "")
    with Why.connect(dsn) as store:
        if key is not None:
            explanation = store.explain_key(key, named, endpoint)
        elif sequence is not None:
            explanation = store.explain_sequence(what, sequence, endpoint)
        else:
            explanation = store.explain_subject(what, endpoint)
    if as_json:
        print_json(as_row(what, explanation))
    else:
        _show(what, explanation)
    if explanation.needs_a_person:
        raise typer.Exit(ExitCode.DEGRADED)
    if explanation.verdict is Verdict.UNKNOWN:
        raise typer.Exit(ExitCode.NOTHING_MATCHED)


def _key_of(what: str) -> tuple[Key | None, str]:
    """Parse a key or its parts, also returned as the quarantine stores them; None for a subject."""
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
            f"{what!r} looks like the parts of a key but is not valid ({error}). Nothing was"
            " changed; give a JSON list of strings, such as"
            ' \'["payout-hold/v1", "m_482", "..."]\'.',
            ExitCode.USAGE,
            code="invalid_key",
        ) from None


def _show(what: str, explanation: Explanation) -> None:
    if explanation.entry is not None:
        typer.echo(_entry(explanation.entry))
    elif explanation.answer is None or explanation.answer.verdict is Verdict.NO_ENDPOINT:
        typer.echo(f"subject {visible(what)}")
    else:
        typer.echo(visible(what))
    if explanation.answer is not None:
        _print_answer("", explanation.answer)
    for each in explanation.at_endpoints:
        about = "" if explanation.entry is not None else _about(each)
        _print_answer(f"{each.endpoint}: {about}", each.answer)
    for note in explanation.notes:
        typer.echo(f"note: {visible(note)}")


def _about(each: EndpointAnswer) -> str:
    return "" if each.entry is None else f"sequence {each.entry['sequence']} {each.entry['key']}, "


def _entry(entry: dict[str, Any]) -> str:
    return (
        f"{entry['key']}: {visible(entry['type'])} of {visible(entry['subject'])}, sequence"
        f" {entry['sequence']}, written {display(entry['written_at'])} by batch {entry['batch_id']}"
        f" of stream {visible(entry['stream'])}"
    )


def _print_answer(where: str, answer: Answer) -> None:
    typer.echo(f"  {where}{visible(answer.sentence)}")
    first = answer
    while first.behind is not None:
        first = first.behind.answer
        typer.echo(f"    entry ahead: {visible(first.sentence)}")
    for each in first.also:
        typer.echo(f"    also: {visible(each)}")
    if answer.command is not None:
        typer.echo(f"    -> {answer.command}")
