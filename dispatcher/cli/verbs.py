"""Commands made from the declarations of verbs."""

from collections.abc import Callable
from typing import Annotated, Any

import typer

from holdfast.dispatcher.cli.options import (
    AsJson,
    DryRun,
    Dsn,
    Output,
    Wide,
    Yes,
    confirm,
    exact_time_of,
    reason_of,
    require_terminal,
    uuid_of,
    when_of,
)
from holdfast.dispatcher.cli.output import (
    Page,
    export_rows,
    help_of,
    print_facts,
    print_json,
    print_page,
    print_rows,
)
from holdfast.dispatcher.operators.common.session import (
    Row,
    operator_connection,
)
from holdfast.dispatcher.operators.common.times import When
from holdfast.dispatcher.operators.common.verbs import (
    NUMBER_MAX,
    REQUIRED,
    Aside,
    Export,
    Facts,
    Group,
    Kind,
    List,
    Member,
    Preview,
    Table,
    Text,
    Verb,
    signed,
)
from holdfast.dispatcher.operators.entries.rules import key_of
from holdfast.dispatcher.operators.proposals.store import Proposals
from holdfast.sink.contract.exits import CommandError, ExitCode

RANGES: dict[Kind, tuple[int | None, int | None]] = {
    Kind.ID: (1, NUMBER_MAX),
    Kind.IDS: (1, NUMBER_MAX),
    Kind.BEFORE_ID: (1, NUMBER_MAX),
    Kind.LIMIT: (1, 1000),
    Kind.BATCH: (0, NUMBER_MAX),
}

WRITTEN = {Kind.TIME, Kind.EXACT_TIME, Kind.KEY, Kind.UUID, Kind.PROPOSAL, Kind.SHORT_ID}
"""Kinds that a person writes as text, whatever type the verb takes."""


def add(app: typer.Typer, declared: Group, word: str, *, hidden: bool = False) -> None:
    """Add a declared group to the root under a word, or the command that it is."""
    if declared.is_command:
        [verb] = declared.verbs
        app.command(word, help=help_of(verb.help), hidden=hidden)(command(verb))
    else:
        app.add_typer(group(declared), name=word, hidden=hidden)


def group(declared: Group) -> typer.Typer:
    """Return the commands of a declared group."""
    app = typer.Typer(help=declared.help, no_args_is_help=True)
    for verb in declared.verbs:
        if verb.help:
            app.command(verb.word, help=help_of(verb.help))(command(verb))
    return app


def command(verb: Verb) -> Callable[..., None]:
    """Return the function of a verb's command; typer reads its signature."""

    def run(**given: Any) -> None:
        as_json = given.get("as_json", False)
        values = {each.name: _parsed(each, given[each.name]) for each in verb.members}
        verb.check(values, _spelled)
        with operator_connection(given["dsn"]) as connection:
            store = verb.group.store(connection)
            values = {each.name: _resolved(store, each, values) for each in verb.members}
            if verb.asks is not None:
                preview = verb.call(store, values, verb.asks)
                if given["dry_run"]:
                    print_json(preview.row) if as_json else show(preview.text)
                    return
                _ask(preview, yes=given["yes"], as_json=as_json)
                values |= preview.shown
            result = verb.call(store, values)
            if isinstance(verb, Export):
                with result as (count, rows):
                    _export(verb, count, rows, given["output"])
                return
        if isinstance(verb, List):
            if (note := verb.note(result, values)) is not None and not as_json:
                typer.echo(note)
            page = Page(verb.rows, result.rows, result.further, verb.option, result.about)
            print_page(page, lambda _: show(verb.text(result, values)), verb.empty, as_json=as_json)
        elif as_json:
            print_json(result)
        else:
            show(verb.text(result, values))
        if (code := verb.ends(result)) is not ExitCode.OK:
            raise typer.Exit(code)

    own: dict[str, tuple[Any, Any]] = {"dsn": (Dsn, None)}
    if isinstance(verb, Export):
        own["output"] = (Output, None)
    else:
        own |= {"as_json": (AsJson, False), "wide": (Wide, False)}
    if verb.asks is not None:
        own |= {"dry_run": (DryRun, False), "yes": (Yes, False)}
    return signed(
        run, {**{m.name: _parameter(m) for m in verb.members if m.name not in own}, **own}
    )


def _ask(preview: Preview, *, yes: bool, as_json: bool) -> None:
    if preview.question is not None:
        require_terminal(yes=yes)
    if not as_json:
        show(preview.text)
    if preview.question is not None:
        confirm(preview.question, yes=yes)


def show(text: Text) -> None:
    """Print what a verb shows, block by block."""
    for block in text:
        match block:
            case Table(rows, columns, title, leave_out):
                print_rows(rows, columns, title, leave_out)
            case Facts(values, width):
                print_facts(values, width)
            case Aside():
                typer.echo(block, err=True)
            case _:
                typer.echo(block)


def _export(verb: Export, count: int, rows: Any, output: Any) -> None:
    if not count:
        raise CommandError(verb.empty, ExitCode.NOTHING_MATCHED, code="nothing_matched")
    export_rows(rows, count, output, verb.group.noun)


def _parameter(member: Member) -> tuple[Any, Any]:
    param, default = member.param, member.default
    if param.command_default is not REQUIRED:
        default = param.command_default
    low, high = RANGES.get(param.kind) or (None, None)
    if param.limits is not None and param.kind is not Kind.TEXT:
        low, high = param.limits
    limits: dict[str, Any] = {"min": low, "max": high, "help": param.command_help or param.help}
    limits |= {"envvar": param.env} if param.env else {}
    if param.argument is not None:
        info = typer.Argument(metavar=param.argument, **limits)
    else:
        info = typer.Option(option_of(member), **limits)
    kind = member.type
    if param.kind in WRITTEN:
        kind = str | None if default is None else str
    return Annotated[kind, info], default


def option_of(member: Member) -> str:
    """Return how a command spells a parameter."""
    return member.param.option or "--" + member.name.rstrip("_").replace("_", "-")


def _spelled(member: Member) -> str:
    return member.param.argument or option_of(member)


def _parsed(member: Member, value: Any) -> Any:
    if value is None:
        return None
    match member.param.kind:
        case Kind.REASON:
            return reason_of(value)
        case Kind.TIME:
            return when_of(option_of(member), value)
        case Kind.EXACT_TIME:
            return exact_time_of(option_of(member), value)
        case Kind.KEY:
            return key_of(value)
        case Kind.UUID:
            return uuid_of(option_of(member), value)
        case Kind.TEXT if "\0" in value:
            raise CommandError(
                f"{option_of(member)} contains a NUL character, which no name does. Nothing was"
                " changed.",
                ExitCode.USAGE,
                code="invalid_text",
            )
        case _:
            return value


def _resolved(store: Any, member: Member, values: Row) -> Any:
    """Return a value that only the database knows: a time by its clock, an id of few digits."""
    value = values[member.name]
    if member.param.kind is Kind.SHORT_ID:
        return store.find(value)
    if member.param.kind is Kind.PROPOSAL and value is not None:
        return store.beside(Proposals).find_proposal(value)
    return store.moment(value) if isinstance(value, When) else value
