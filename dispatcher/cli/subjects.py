"""`holdfast subjects`: the subjects of decisions, and which of them are held up."""

from collections.abc import Sequence
from typing import Annotated

import typer

from holdfast.dispatcher.cli.options import (
    AsJson,
    Dsn,
    Limit,
    Reason,
    Wide,
    exact_time_of,
    reason_of,
)
from holdfast.dispatcher.cli.output import (
    Page,
    display,
    print_facts,
    print_json,
    print_page,
    print_rows,
    shortened,
    visible,
)
from holdfast.dispatcher.operators.common.session import Row
from holdfast.dispatcher.operators.subjects.rules import By, repair_commands
from holdfast.dispatcher.operators.subjects.skip_gap import GapSkipper
from holdfast.dispatcher.operators.subjects.store import (
    WAITING_MAX,
    Held,
    Repairs,
    SubjectFilter,
    Subjects,
)
from holdfast.dispatcher.shared.text import last_word
from holdfast.sink.contract.exits import CommandError, ExitCode

app = typer.Typer(
    help="Subjects: list, find those that are held up, show, skip a gap, repair.",
    no_args_is_help=True,
)


SubjectName = Annotated[str, typer.Argument(metavar="SUBJECT", help="The exact name.")]


_LIST = (
    *("name", "last_sequence", "last_type", "last_written_at", "lanes"),
    *("stopped", "retrying", "behind", "undelivered", "oldest_due_at"),
)

_FACTS = ("last_sequence", "last_type", "last_occurred_at", "last_written_at")

_LANES = (
    *("endpoint", "state", "held", "delivered", "last", "waiting", "head", "attempt"),
    *("due_at", "lease_until", "stopped_by", "kept_by"),
)

_TRANSITIONS = ("stream", "last_type", "last_occurred_at", "updated_at", "ahead")

_OVERTAKEN = ("key", "type", "occurred_at", "suppressed_at", "stream", "batch_id")

_ENTRIES = ("sequence", "key", "type", "occurred_at", "written_at", "stream", "batch_id")


@app.command("list")
def list_(
    prefix: Annotated[
        str, typer.Option("--prefix", help="Only names with exactly this prefix.")
    ] = "",
    held: Annotated[
        Held | None,
        typer.Option(
            "--held", help="Only subjects with a lane held up in this way, or in any way."
        ),
    ] = None,
    silenced: Annotated[
        bool,
        typer.Option(
            "--silenced",
            help="Only subjects silenced by a decision dated more than a day ahead of the clock.",
        ),
    ] = False,
    limit: Limit = 50,
    after: Annotated[
        str | None, typer.Option("--after", help="Only names after this one, in byte order.")
    ] = None,
    dsn: Dsn = None,
    as_json: AsJson = False,
    _wide: Wide = False,
) -> None:
    """List subjects by name, with the state of their lanes. Exit code 3: none match.

    A lane is `stopped` behind a dead letter, `retrying` after a failed attempt, or `behind`: an
    entry was not attempted yet, or is in flight.
    """
    for text in (prefix, after or ""):
        _check_name(text)
    with Subjects.connect(dsn) as store:
        wanted = SubjectFilter(prefix, held, silenced)
        rows, further = store.subjects(wanted, limit=limit, after=after)
    nothing = "no subject matches. Nothing was changed; names are compared exactly."
    if not rows and further is not None and not as_json:
        typer.echo("no match up to here")
    page = Page("subjects", rows, further, option="after")
    print_page(page, print_list, nothing, as_json=as_json)


@app.command()
def show(
    subject: SubjectName,
    dsn: Dsn = None,
    as_json: AsJson = False,
    _wide: Wide = False,
) -> None:
    """Show a subject: its lanes and its newest entries. Exit code 3: no such subject."""
    _check_name(subject)
    with Subjects.connect(dsn) as store:
        found = store.subject(subject)
    if as_json:
        print_json(found)
    else:
        print_subject(found)


@app.command("pass")
def pass_(
    subject: SubjectName,
    endpoint: Annotated[
        str, typer.Option("--endpoint", help="The endpoint whose lane is blocked.")
    ],
    reason: Reason,
    dsn: Dsn = None,
    as_json: AsJson = False,
) -> None:
    """Let a lane skip decisions that are no longer stored; they are never delivered.

    For a lane that `holdfast why` reports as `gap`. The missing entries may be in a backup: check
    that first. Exit code 3: nothing is missing.
    """
    _check_name(subject)
    why = reason_of(reason)
    with GapSkipper.connect(dsn) as store:
        done = store.pass_missing(subject, endpoint, why)
    if as_json:
        print_json(done)
        return
    first, last = done["passed_from"], done["passed_to"]
    which = f"sequence {first}" if first == last else f"sequences {first} to {last}"
    after = done["next_sequence"]
    then = "it is idle" if after is None else f"it continues with {after}"
    typer.echo(f"{visible(subject)} at {endpoint}: skipped {which}; {then}")


@app.command()
def repair(
    subject: SubjectName,
    reason: Reason,
    stream: Annotated[
        str | None, typer.Option("--stream", help="The stream whose decisions are overtaken.")
    ] = None,
    to_type: Annotated[
        str | None,
        typer.Option("--to-type", help="The new last type, if no stored entry determines it."),
    ] = None,
    to_time: Annotated[
        str | None,
        typer.Option(
            "--to-time", help="The new last time (RFC 3339), if no stored entry determines it."
        ),
    ] = None,
    to_nothing: Annotated[
        bool,
        typer.Option(
            "--to-nothing",
            help="Remove the state, if no stored entry determines it: any next decision is"
            " written.",
        ),
    ] = False,
    proposal: Annotated[
        str | None,
        typer.Option("--proposal", help="Apply the proposal that a second person approved."),
    ] = None,
    dsn: Dsn = None,
    as_json: AsJson = False,
    _wide: Wide = False,
) -> None:
    """Repair a subject that is silenced by a decision dated more than a day ahead.

    Proposes the state that the stored entries imply (exit code 4). After a second person has
    approved it, --proposal applies it. Overtaken decisions are not written; they stay listed. Exit
    code 3: no such subject, or not silenced in this stream.
    """
    _check_name(subject)
    why = reason_of(reason)
    by = By(to_type, exact_time_of("--to-time", to_time), to_nothing)
    if (stream is None) == (proposal is None) or (proposal is not None and by != By()):
        raise CommandError(
            "give --stream, or --proposal without other options. Nothing was changed.",
            ExitCode.USAGE,
            code="conflicting_parameters",
        )
    with Repairs.connect(dsn) as store:
        if stream is None:
            done = store.apply_repair(subject, store.find_proposal(str(proposal)), why)
            if as_json:
                print_json(done)
            else:
                _print_repaired(done)
            return
        proposed = store.propose_repair(subject, stream, by, why)
    short = proposed["proposal"].hex[:8]
    approve = f"holdfast proposal approve {short} --reason TEXT"
    apply = f"holdfast subjects repair --proposal {short} --reason TEXT {last_word(subject)}"
    if as_json:
        print_json({**proposed, "approve": approve, "apply": apply})
    else:
        _print_proposed(proposed, approve, apply)
    raise typer.Exit(ExitCode.DEGRADED)


def _check_name(text: str) -> None:
    if "\0" in text:
        raise CommandError(
            f"{shortened(text, 80)!r} contains a NUL character, which no name does. Nothing was"
            " changed.",
            ExitCode.USAGE,
            code="invalid_text",
        )


def print_list(rows: Sequence[Row]) -> None:
    texts = [{**row, "name": visible(row["name"])} for row in rows]
    print_rows(texts, _LIST, "Subjects", ("last_written_at",))


def print_subject(found: Row) -> None:
    typer.echo(f"subject {visible(found['name'])}")
    print_facts({name: found[name] for name in _FACTS}, 17)
    print_rows(found["transitions"], _TRANSITIONS, "Transition states")
    if found["lanes"]:
        print_rows([_lane(lane) for lane in found["lanes"]], _LANES, "Lanes")
    else:
        typer.echo("lanes: none; no entry of it has been routed yet")
    print_rows(found["entries"], _ENTRIES, "Newest entries")
    if any(lane["held"] for lane in found["lanes"]):
        typer.echo(f"to see what it waits for: holdfast why {last_word(found['name'])}")
    for command in repair_commands(found):
        typer.echo(f"it is silenced; to repair it: {command}")


def _print_proposed(proposed: Row, approve: str, apply: str) -> None:
    state, name = proposed["state"], proposed["subject"]
    now = {name: display(state[name]) for name in ("last_type", "last_occurred_at")}
    typer.echo(f"subject {visible(name)}, stream {proposed['stream']}")
    typer.echo(f"  state is  {_state(now)}, written {display(state['updated_at'])}")
    typer.echo(f"  becomes   {_state(proposed['after'])}")
    typer.echo(f"  overtaken {state['overtaken_count']:,} since then")
    if state["overtaken"]:
        print_rows(state["overtaken"], _OVERTAKEN, "Overtaken decisions")
        more = state["overtaken_count"] - len(state["overtaken"])
        typer.echo(
            f"{f'and {more:,} more. ' if more else ''}A repair writes none of them: they stay in"
            " `holdfast suppressed list`, and receivers never got them. After the repair,"
            " `holdfast suppressed write KEY --reason TEXT` proposes to write one."
        )
    typer.echo(
        "This is a proposal; nothing was changed."
        + (
            f" {proposed['approved_by']} approved it. Apply it with\n  {apply}"
            if proposed["approved_by"]
            else f" A second person approves it with\n  {approve}\nThen apply it with\n  {apply}"
        )
    )


def _print_repaired(done: Row) -> None:
    typer.echo(
        f"{visible(done['subject'])} in {done['stream']}: {_state(done['before'])} became"
        f" {_state(done['after'])}"
    )


def _state(state: Row | None) -> str:
    if state is None:
        return "no state: the next decision is always written"
    return f"{state['last_type']} of {state['last_occurred_at']}"


def _lane(lane: Row) -> Row:
    head, waiting = lane["head_sequence"], lane["waiting"]
    return {
        **lane,
        "delivered": lane["delivered_sequence"],
        "last": lane["last_sequence"],
        "waiting": f"{waiting - 1} or more" if waiting == WAITING_MAX else waiting,
        "head": None if head is None else f"{head} {display(lane['head_type'])}",
        "stopped_by": _stopped(lane),
        "kept_by": _kept(lane),
    }


def _stopped(lane: Row) -> str | None:
    if lane["dead_letter"] is None:
        return None
    return f"dead letter {lane['dead_letter']}, {lane['dead_reason']} {display(lane['died_at'])}"


def _kept(lane: Row) -> str | None:
    """Return what blocks every lane of the endpoint; None if nothing does."""
    if lane["endpoint_state"] != "active":
        return str(lane["endpoint_state"])
    if lane["breaker"] != "closed":
        return f"breaker {lane['breaker']} until {display(lane['breaker_until'])}"
    if lane["held_until"] is not None:
        return f"receiver, until {display(lane['held_until'])}"
    return None
