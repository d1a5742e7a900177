"""`holdfast db upgrade|downgrade|doctor|prune|stream-role`."""

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated

import psycopg
import typer
from rich.console import Console
from rich.markup import escape

from holdfast.migrations import prune as retention
from holdfast.migrations import roles
from holdfast.migrations.connect import NoAnswerError, connection, one_line
from holdfast.migrations.doctor import gather, judge
from holdfast.migrations.plan import Kind, Plan, UnitCosts
from holdfast.migrations.plan import plan as rehearse
from holdfast.migrations.upgrade import Upgraded, script, undo
from holdfast.migrations.upgrade import upgrade as run_upgrade
from holdfast.sink.contract.checks import Check, Level, exit_code
from holdfast.sink.contract.exits import CommandError, ExitCode
from holdfast.sink.contract.numbers import counted, whole_days

app = typer.Typer(help="The database schema.", no_args_is_help=True)

Dsn = Annotated[
    str | None,
    typer.Option("--dsn", envvar="HOLDFAST_DSN", help="The database.", show_envvar=True),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]

Force = Annotated[
    bool,
    typer.Option("--force", help="Go on although code ran within a day that cannot work then."),
]

_COLOURS = {
    Level.OK: "green",
    Level.WARN: "yellow",
    Level.FAIL: "bold red",
}


@app.command()
def upgrade(
    dsn: Dsn = None,
    as_json: AsJson = False,
    sql: Annotated[bool, typer.Option("--sql", help="Print the SQL and change nothing.")] = False,
    expand: Annotated[
        bool, typer.Option("--expand", help="Stop before the first contract revision.")
    ] = False,
    force: Force = False,
    plan: Annotated[
        bool,
        typer.Option("--plan", help="Print statements, locks and estimated times; change nothing."),
    ] = False,
) -> None:
    """Upgrade the database to the newest revision. Safe to repeat.

    A contract revision is refused while older code has run within a day. --sql starts from the
    revision of the database, or from an empty database if none is given; it checks for no running
    process. --plan runs it in an empty database of the same server, and estimates by the sizes of
    tables here; it ends with 3 if nothing is to do.
    """
    if sql and (as_json or expand or force or plan):
        raise CommandError(
            "--sql takes no other option but --dsn.", ExitCode.USAGE, code="conflicting_parameters"
        )
    if plan and force:
        raise CommandError(
            "--plan and --force cannot be combined.", ExitCode.USAGE, code="conflicting_parameters"
        )
    if plan:
        planned = rehearse(dsn or "", expand=expand)
        _print_plan(planned, as_json)
        raise typer.Exit(ExitCode.OK if planned.revisions else ExitCode.NOTHING_MATCHED)
    if sql:
        sys.stdout.write(script(dsn))
        return
    _print_done("Upgraded", run_upgrade(dsn or "", expand=expand, force=force), as_json)


@app.command()
def downgrade(
    revision: str,
    reason: Annotated[str, typer.Option("--reason", help="Why; kept in the audit trail.")],
    dsn: Dsn = None,
    as_json: AsJson = False,
    force: Force = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
) -> None:
    """Undo the expand revisions above REVISION. Possible until a contract revision has run.

    What newer code wrote into their columns is dropped. Refused while code that needs them has run
    within a day. Exit code 3: it has that revision.
    """
    if not reason.strip():
        raise CommandError(
            "--reason must not be empty. Nothing was changed.",
            ExitCode.USAGE,
            code="invalid_reason",
        )
    _confirm(f"Undo all revisions above {revision}, and drop what is in their columns?", yes=yes)
    done = undo(dsn or "", revision, reason.strip(), force=force)
    _print_done("Downgraded", done, as_json)
    raise typer.Exit(ExitCode.OK if done.changed else ExitCode.NOTHING_MATCHED)


@app.command()
def doctor(dsn: Dsn = None, as_json: AsJson = False) -> None:
    """Check server, schema and roles. Exit code 0: good; 4: warnings only; 1: a check failed."""
    checks = _examine(dsn)
    if as_json:
        _print_json(
            {
                "checks": [
                    {
                        "name": check.name,
                        "level": check.level,
                        "detail": check.detail,
                        "advice": check.advice,
                    }
                    for check in checks
                ]
            }
        )
    else:
        _print_checks(checks)
    raise typer.Exit(exit_code(checks))


@app.command()
def prune(
    older_than: Annotated[
        str,
        typer.Option("--older-than", help="Drop days on which all rows are older than this: 90d."),
    ],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be dropped and drop nothing.")
    ] = False,
    reason: Annotated[
        str, typer.Option("--reason", help="The reason, for the audit trail.")
    ] = "retention",
    dsn: Dsn = None,
    as_json: AsJson = False,
) -> None:
    """Drop whole days of entries and attempts, if everything in them is delivered.

    Keys, batches and subjects are kept forever, so that no decision is made twice. Exit code 0:
    dropped; 3: no day is old enough; 4: a day was refused, or in use.
    """
    try:
        days = whole_days(older_than)
    except ValueError as error:
        raise CommandError(
            f"--older-than: {error}. Nothing was dropped.", ExitCode.USAGE, code="invalid_duration"
        ) from None
    if not reason.strip():
        raise CommandError(
            "--reason must not be empty. Nothing was dropped.",
            ExitCode.USAGE,
            code="invalid_reason",
        )
    pruned = retention.prune(dsn, days=days, dry_run=dry_run, reason=reason)
    if as_json:
        _print_json(
            {
                "older_than_days": days,
                "dry_run": dry_run,
                "days": [
                    {"table": one.table, "day": one.day.isoformat(), **asdict(one.state)}
                    for one in pruned
                ],
            }
        )
    else:
        _print_pruned(pruned, days)
    raise typer.Exit(retention.exit_code(pruned))


@app.command("stream-role")
def stream_role(stream: str, dsn: Dsn = None, as_json: AsJson = False) -> None:
    """Create a role for a stream; from then on only its members can write the stream.

    Stop the stream's job first, grant the role to its login as printed, and restart the job.
    """
    with connection(dsn) as session:
        made = roles.make_stream_role(session, stream)
    if as_json:
        _print_json(asdict(made))
        return
    _print(escape(f"role {made.role}: {'created' if made.made else 'already exists'}. Next:"))
    for grant in made.grants:
        _print(escape(f"  {grant};"))


def _confirm(question: str, *, yes: bool) -> None:
    if yes:
        return
    if not sys.stdin.isatty():
        raise CommandError(
            "this command asks for confirmation, but standard input is not a terminal. Nothing was"
            " changed; pass --yes to confirm.",
            ExitCode.USAGE,
            code="confirmation_required",
        )
    if not typer.confirm(question):
        raise CommandError(
            "nothing was changed, because it was not confirmed.", code="not_confirmed"
        )


_DOES = {
    Kind.READ: "reads",
    Kind.INDEX: "builds an index of",
    Kind.CHANGE: "changes rows of",
    Kind.REWRITE: "rewrites",
}


def _print_plan(planned: Plan, as_json: bool) -> None:
    if as_json:
        _print_json(asdict(planned))
        return
    if not planned.revisions:
        _print(f"The schema has revision {planned.before}; nothing is to be done.")
        return
    _print(
        f"From revision {planned.before or 'none'} to {planned.after}: {_about(planned.seconds)},"
        " an estimate. Nothing was changed or locked."
    )
    for revision in planned.revisions:
        phase = revision.phase or "no phase"
        _print(escape(f"{revision.name}  {phase}  {_about(revision.seconds)}"))
        for each in revision.statements:
            cost = "catalogue only" if each.catalogue_only else _about(each.seconds)
            _print(escape(f"  {cost:<14}  {' '.join(each.sql.split())[:100]}"))
            for lock in each.locks:
                _print(escape(f"    locks {lock.table}: {lock.mode}"))
            for work in each.work:
                rows = "unknown rows" if work.rows is None else counted(work.rows, "row")
                _print(
                    escape(
                        f"    {_DOES[work.kind]} {work.table}: {rows},"
                        f" {work.bytes / 1e6:,.2f} MB, {work.total_bytes / 1e6:,.2f} MB with"
                        f" indexes: {_about(work.seconds)}"
                    )
                )
    _print_basis(planned.unit_costs)


def _print_basis(costs: UnitCosts) -> None:
    _print(
        "Based on the sizes of the tables now, and on unit costs of another server:"
        f" {costs.catalogue_ms:g} ms a statement, {costs.read_ms_per_mb:g} ms per MB read,"
        f" {costs.index_ms_per_million_rows:,g} ms per million rows of an index,"
        f" {costs.change_ms_per_mb:g} ms per MB changed, {costs.rewrite_ms_per_mb:g} ms per MB"
        f" rewritten, both with indexes ({costs.measured}). `{costs.command}` measures a server's."
        " Waits for locks are not in it."
    )


def _about(seconds: float) -> str:
    return f"about {seconds * 1000:,.3g} ms" if seconds < 1 else f"about {seconds:,.1f} s"


def _print_done(what: str, done: Upgraded, as_json: bool) -> None:
    if as_json:
        _print_json({"before": done.before, "after": done.after, "changed": done.changed})
    elif done.changed:
        _print(f"{what} the schema from revision {done.before or 'none'} to {done.after}.")
    else:
        _print(f"The schema already has revision {done.after}; nothing was changed.")


def _examine(dsn: str | None) -> list[Check]:
    try:
        with connection(dsn) as raw:
            try:
                return judge(gather(raw))
            except psycopg.Error as error:
                raise CommandError(
                    f"the database could not be examined: {one_line(error, dsn or '')}."
                    " Nothing was changed.",
                    code="database_error",
                ) from error
    except NoAnswerError as error:
        return [Check("reachable", Level.FAIL, str(error))]


def _print_checks(checks: Sequence[Check]) -> None:
    width = max(len(check.name) for check in checks)
    for check in checks:
        colour = _COLOURS[check.level]
        advice = f" [dim]->[/] {escape(check.advice)}" if check.advice else ""
        _print(
            f"[{colour}]{check.level:<4}[/]  {check.name:<{width}}  {escape(check.detail)}{advice}"
        )


def _print_pruned(pruned: Sequence[retention.Day], days: int) -> None:
    if not pruned:
        _print(f"No day is older than {days} days; nothing was dropped.")
    for one in pruned:
        state, because = one.state, retention.why(one.state)
        size = f"{state.row_count or 0:,} rows, {(state.bytes or 0) / 1e6:,.1f} MB"
        match one.outcome:
            case retention.Outcome.REFUSED:
                result = f"[yellow]refused[/]: {escape(because)}"
            case retention.Outcome.BUSY:
                result = "[yellow]in use[/], or endpoints are being changed: run it again"
            case _:
                result = f"[green]{one.outcome}[/]: {size}{f' ({escape(because)})' * bool(because)}"
        _print(f"{one.table:<7}  {one.day}  {result}")
    if any(one.outcome is retention.Outcome.REFUSED for one in pruned):
        _print(
            "Nothing undelivered was dropped. Let a dispatcher deliver it, resolve the dead"
            " letters, or disable an endpoint that does not need it; then run this again."
        )


def _print(line: str) -> None:
    Console(highlight=False, soft_wrap=True).print(line)


def _print_json(value: object) -> None:
    json.dump(value, sys.stdout, indent=2)
    sys.stdout.write("\n")
