"""`holdfast subjects`: who decisions are about, and which of them are held up."""

from typing import Annotated

import typer

from dispatcher.cli.common.shared import AsJson, Dsn, Reason, print_json
from dispatcher.cli.common.shown import moment_of, reason_of, shortened, visible
from dispatcher.cli.subjects import shown as subjects_shown
from dispatcher.operators.common.session import Row
from dispatcher.operators.subjects.rules import By
from dispatcher.operators.subjects.skip_gap import Passing
from dispatcher.operators.subjects.store import Held, Repairs, Subjects, WantedSubjects
from dispatcher.shared.text import last_word
from sink.contract.exits import CommandError, ExitCode

app = typer.Typer(
    help="Subjects: list them, find those that are held up, show one, pass what is lost, repair.",
    no_args_is_help=True,
)


@app.command("list")
def list_(
    prefix: Annotated[
        str, typer.Option("--prefix", help="Only names that begin so, to the letter.")
    ] = "",
    held: Annotated[
        Held | None,
        typer.Option(
            "--held", help="Only those of which a lane is held up in this way, or in any."
        ),
    ] = None,
    silenced: Annotated[
        bool,
        typer.Option(
            "--silenced", help="Only those that a date more than a day ahead of the clock silences."
        ),
    ] = False,
    limit: Annotated[int, typer.Option("--limit", min=1, max=1000, help="As many at most.")] = 50,
    after: Annotated[
        str | None, typer.Option("--after", help="Only names behind this one.")
    ] = None,
    dsn: Dsn = None,
    as_json: AsJson = False,
) -> None:
    """List subjects by name, with how their lanes stand. Exit 3: none matches.

    A lane is `stopped` behind a dead letter, `retrying` what was tried, or `behind`: something was
    not tried yet, or is being sent.
    """
    for text in (prefix, after or ""):
        _sound(text)
    with Subjects.connect(dsn) as store:
        wanted = WantedSubjects(prefix, held, silenced)
        rows, further = store.subjects(wanted, limit=limit, after=after)
    if not rows and further is None:
        raise CommandError(
            "no subject matches. Nothing was changed; names are compared to the letter.",
            ExitCode.NOTHING_MATCHED,
        )
    if as_json:
        print_json({"subjects": rows, "next_after": further})
    else:
        subjects_shown.listed(rows, further)


@app.command()
def show(
    subject: Annotated[str, typer.Argument(metavar="SUBJECT", help="Its name, to the letter.")],
    dsn: Dsn = None,
    as_json: AsJson = False,
) -> None:
    """Show a subject: each lane with its order, and the last entries. Exit 3: there is none."""
    _sound(subject)
    with Subjects.connect(dsn) as store:
        found = store.subject(subject)
    if as_json:
        print_json(found)
    else:
        subjects_shown.shown(found)


@app.command("pass")
def pass_(
    subject: Annotated[str, typer.Argument(metavar="SUBJECT", help="Its name, to the letter.")],
    endpoint: Annotated[str, typer.Option("--endpoint", help="Where its lane stands still.")],
    reason: Reason,
    dsn: Dsn = None,
    as_json: AsJson = False,
) -> None:
    """Let a lane go on behind decisions that are not stored any more; they are never delivered.

    For a lane that `holdfast why` calls `gap`. What is missing may be in a backup: look there
    first. Exit 3: nothing is missing there.
    """
    _sound(subject)
    why = reason_of(reason)
    with Passing.connect(dsn) as store:
        done = store.pass_missing(subject, endpoint, why)
    if as_json:
        print_json(done)
        return
    first, last = done["passed_from"], done["passed_to"]
    which = f"sequence {first}" if first == last else f"sequences {first} to {last}"
    after = done["next_sequence"]
    then = "it is idle" if after is None else f"it goes on with {after}"
    typer.echo(f"{visible(subject)} at {endpoint}: {which} passed, {then}")


@app.command()
def repair(
    subject: Annotated[str, typer.Argument(metavar="SUBJECT", help="Its name, to the letter.")],
    reason: Reason,
    stream: Annotated[
        str | None, typer.Option("--stream", help="The stream whose decisions are overtaken.")
    ] = None,
    to_type: Annotated[
        str | None, typer.Option("--to-type", help="The new last type, where no entry says it.")
    ] = None,
    to_time: Annotated[
        str | None, typer.Option("--to-time", help="The new last time (RFC 3339), likewise.")
    ] = None,
    to_nothing: Annotated[
        bool,
        typer.Option("--to-nothing", help="No state at all, likewise: any decision comes next."),
    ] = False,
    proposal: Annotated[
        str | None, typer.Option("--proposal", help="Do what a second person approved.")
    ] = None,
    dsn: Dsn = None,
    as_json: AsJson = False,
) -> None:
    """Put a subject right that a decision dated more than a day ahead silences.

    Proposes the state that the stored entries say (exit 4); a second person approves it, and
    --proposal does it. It writes none of the decisions that were overtaken: they stay listed. Exit
    3: no such subject, or not silenced in this stream.
    """
    _sound(subject)
    why = reason_of(reason)
    by = By(to_type, moment_of("--to-time", to_time), to_nothing)
    if (stream is None) == (proposal is None) or (proposal is not None and by != By()):
        raise CommandError(
            "give --stream, or --proposal alone: what was approved says the rest. Nothing was"
            " changed.",
            ExitCode.USAGE,
        )
    with Repairs.connect(dsn) as store:
        if stream is None:
            _repaired(
                store.apply_repair(subject, store.find_proposal(str(proposal)), why),
                as_json=as_json,
            )
            return
        told = store.propose_repair(subject, stream, by, why)
    short = told["proposal"].hex[:8]
    approve = f"holdfast proposal approve {short} --reason TEXT"
    apply = f"holdfast subjects repair --proposal {short} --reason TEXT {last_word(subject)}"
    if as_json:
        print_json({**told, "approve": approve, "apply": apply})
    else:
        subjects_shown.repair_proposed(told, approve, apply)
    raise typer.Exit(ExitCode.DEGRADED)


def _repaired(done: Row, *, as_json: bool) -> None:
    if as_json:
        print_json(done)
    else:
        subjects_shown.repaired(done)


def _sound(text: str) -> None:
    if "\0" in text:
        raise CommandError(
            f"{shortened(text, 80)!r} has a NUL, which no name has. Nothing was changed.",
            ExitCode.USAGE,
        )
