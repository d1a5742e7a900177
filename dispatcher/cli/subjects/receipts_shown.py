"""The result of `holdfast receipts`, for a person."""

import typer

from dispatcher.cli.common.shown import plain, visible
from dispatcher.operators.receipts.rules import MEANING, Difference, Finding, Here, Tally
from dispatcher.operators.receipts.store import Wanted
from dispatcher.operators.receipts.views import PROOFS, findings_of, sequence_of, subject_of
from dispatcher.outbound.inquiry_answer import There

SIDES = {
    None: "the receipts that are stored here",
    "database": "the receiver's inbox",
    "inquiry": "the receiver's answers",
}


def show(endpoint: str, wanted: Wanted, side: str | None, tally: Tally) -> None:
    """Print the result for a person."""
    about = "" if wanted.subject is None else f", subject {visible(wanted.subject)}"
    typer.echo(f"{endpoint}{about}, {plain(wanted.since)} to {plain(wanted.until)}: {SIDES[side]}")
    receipts = ", ".join(f"{tally.receipts[each]} {each.value}" for each in PROOFS)
    typer.echo(
        f"  delivered {tally.delivered}: receipts {receipts},"
        f" {tally.delivered - tally.receipts.total()} without one"
    )
    typer.echo(f"  tried and not delivered {tally.undelivered}")
    for finding in findings_of(side):
        if tally.findings[finding]:
            typer.echo(f"\n{finding.value} {tally.findings[finding]}: {MEANING[finding]}")
            for each in tally.kept.get(finding, []):
                typer.echo(_line(each))
    if any(tally.findings[each] > tally.limit for each in tally.kept):
        typer.echo(f"\nof each kind {tally.limit} are shown; more with --limit")


def _line(difference: Difference) -> str:
    """Return a difference as one line, with its key in one piece: to be searched and copied."""
    hashed = difference.finding is Finding.OTHER_BODY
    return (
        f"  {visible(difference.key or '-')}  {visible(subject_of(difference) or '-')}"
        f" {plain(sequence_of(difference))}; here: {_here(difference.here, hashed=hashed)};"
        f" there: {_there(difference.there, hashed=hashed)}"
    )


def _here(here: Here | None, *, hashed: bool) -> str:
    if here is None:
        return "nothing"
    proof = here.proof
    receipt = f", receipt {proof.outcome.value} {visible(proof.applied_at)}" if proof else ""
    return here.last + receipt + (_hash(here.body_sha256) if hashed else "")


def _there(there: There | None, *, hashed: bool) -> str:
    if there is None:
        return "nothing"
    words = f"{there.outcome.value} {visible(there.applied_at)}"
    return words + (_hash(there.body_sha256) if hashed else "")


def _hash(body_sha256: bytes | None) -> str:
    return f", body SHA-256 {body_sha256.hex()[:16]}" if body_sha256 else ""
