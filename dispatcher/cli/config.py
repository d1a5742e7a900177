"""`holdfast config`: the effective settings on this machine, and a check of them."""

import os
from typing import Any

import typer

from holdfast.dispatcher.cli.options import AsJson, Dsn, Wide
from holdfast.dispatcher.cli.output import display, print_json, print_rows, visible
from holdfast.dispatcher.operators.config import environment, settings
from holdfast.dispatcher.operators.config.rules import Database, judge
from holdfast.dispatcher.operators.config.store import examine, libpq_version
from holdfast.sink.contract.checks import Check, exit_code
from holdfast.sink.contract.exits import ExitCode

app = typer.Typer(
    help="Effective settings, versions and database of this machine: show, check.",
    no_args_is_help=True,
)

_CHECKS = ("level", "name", "detail", "advice")
_SETTINGS = ("name", "value", "from", "option", "what")


@app.command()
def show(
    context: typer.Context, dsn: Dsn = None, as_json: AsJson = False, _wide: Wide = False
) -> None:
    """Show every setting and its source, the versions, and the database.

    Passwords are hidden. Checks nothing and always exits with code 0; see `config check`.
    """
    database, endpoints = examine(dsn)
    engine, fault = environment.engine()
    content = {
        "settings": _settings(context, database),
        "libpq_variables": settings.libpq_variables(os.environ),
        "unknown_variables": list(settings.unknown(os.environ, environment.variables(endpoints))),
        "versions": environment.versions(libpq_version()),
        "engine": engine,
        "engine_fault": fault,
        "database": {
            "dsn": database.dsn,
            "reachable": database.fault is None,
            "fault": database.fault,
            "server": database.server,
            "user": database.user,
            "schema_revision": database.revision,
        },
    }
    if as_json:
        print_json(content)
    else:
        _show(content)


@app.command()
def check(dsn: Dsn = None, as_json: AsJson = False, _wide: Wide = False) -> None:
    """Check settings, secrets, engine, database, role and clock on this machine.

    Run it where the dispatcher runs, because it reads the secrets. Exit code 0: valid; 4: something
    needs a person; 1: commands cannot work.
    """
    database, endpoints = examine(dsn)
    checks = judge(
        settings.unknown(os.environ, environment.variables(endpoints)),
        settings.unfit(os.environ),
        environment.engine(),
        database,
        environment.references(endpoints),
    )
    if as_json:
        print_json({"checks": [_row(each) for each in checks]})
    else:
        print_rows([_row(each) for each in checks], _CHECKS, "Configuration")
    if (code := exit_code(checks)) is not ExitCode.OK:
        raise typer.Exit(code)


def _settings(context: typer.Context, database: Database) -> list[dict[str, Any]]:
    source_of = context.get_parameter_source("dsn")
    from_option = source_of is not None and source_of.name == "COMMANDLINE"
    rows = []
    for value in settings.values(os.environ):
        shown, source, setting = value.shown, value.source, value.setting
        if setting.name == settings.DSN and (shown or from_option):
            shown = database.dsn or settings.HIDDEN
            source = "option" if from_option else source
        rows.append(
            {
                "name": setting.name,
                "value": shown,
                "default": setting.default,
                "from": source,
                "option": setting.option,
                "what": setting.what,
            }
        )
    return rows


def _row(each: Check) -> dict[str, str]:
    return {
        "name": each.name,
        "level": each.level.value,
        "detail": visible(each.detail),
        "advice": each.advice,
    }


def _show(content: dict[str, Any]) -> None:
    rows = [{**row, "value": display(row["value"])} for row in content["settings"]]
    print_rows(rows, _SETTINGS, "Settings")
    for title, names in (
        ("also read by libpq", content["libpq_variables"]),
        ("unknown variables, ignored", content["unknown_variables"]),
    ):
        if names:
            typer.echo(f"{title}: {', '.join(visible(name) for name in names)}")
    versions = [
        {"part": part, "version": version or "not installed"}
        for part, version in content["versions"].items()
    ]
    print_rows(versions, ("part", "version"), "Versions")
    typer.echo(f"engine: {content['engine'] or content['engine_fault']}")
    database = content["database"]
    if database["fault"] is not None:
        typer.echo(f"database: {visible(database['fault'])}")
    else:
        typer.echo(
            f"database: {database['server']}, role {database['user']}, schema revision"
            f" {database['schema_revision'] or 'none'}"
        )
