"""`holdfast config`: what the commands would work with here, and whether that is sound."""

import os
from typing import Any

import typer

from dispatcher.cli.common.shared import AsJson, Dsn, print_json, print_rows
from dispatcher.cli.common.shown import plain, visible
from dispatcher.operators.config import environment as configuration
from dispatcher.operators.config import settings as config
from dispatcher.operators.config.rules import Check, Database, exit_code, judge
from dispatcher.operators.config.store import examine, libpq_version
from sink.contract.exits import ExitCode

app = typer.Typer(
    help="What the commands work with here: settings, versions, database.", no_args_is_help=True
)

CHECK_COLUMNS = ("level", "name", "detail", "advice")
SETTING_COLUMNS = ("name", "value", "from", "option", "what")


@app.command()
def show(context: typer.Context, dsn: Dsn = None, as_json: AsJson = False) -> None:
    """Show every setting and where it comes from, the versions, and the database.

    Passwords are hidden. Judges nothing, and always ends with exit code 0: see `config check`.
    """
    database, endpoints = examine(dsn)
    engine, fault = configuration.engine()
    content = {
        "settings": _settings(context, database),
        "libpq_variables": config.libpq_variables(os.environ),
        "unknown_variables": list(config.unknown(os.environ, configuration.variables(endpoints))),
        "versions": configuration.versions(libpq_version()),
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
def check(dsn: Dsn = None, as_json: AsJson = False) -> None:
    """Check settings, secrets, engine, database, role and clock, as seen from here.

    Run it where the dispatcher runs: secrets are read where they are used. Exit code 0: sound;
    4: something needs a person; 1: commands cannot work.
    """
    database, endpoints = examine(dsn)
    checks = judge(
        config.unknown(os.environ, configuration.variables(endpoints)),
        config.unfit(os.environ),
        configuration.engine(),
        database,
        configuration.references(endpoints),
    )
    if as_json:
        print_json({"checks": [_row(each) for each in checks]})
    else:
        print_rows([_row(each) for each in checks], CHECK_COLUMNS, "Configuration")
    if (code := exit_code(checks)) is not ExitCode.OK:
        raise typer.Exit(code)


def _settings(context: typer.Context, database: Database) -> list[dict[str, Any]]:
    source_of = context.get_parameter_source("dsn")
    given = source_of is not None and source_of.name == "COMMANDLINE"
    rows = []
    for value in config.values(os.environ):
        shown, source = value.shown, value.source
        if value.setting.name == config.DSN and (shown or given):
            shown = database.dsn or config.HIDDEN
            source = "option" if given else source
        setting = value.setting
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
    settings = [{**row, "value": plain(row["value"])} for row in content["settings"]]
    print_rows(settings, SETTING_COLUMNS, "Settings")
    for title, names in (
        ("filled up by libpq from", content["libpq_variables"]),
        ("read by nobody", content["unknown_variables"]),
    ):
        if names:
            typer.echo(f"{title}: {', '.join(visible(name) for name in names)}")
    versions = [
        {"part": part, "version": found or "not installed"}
        for part, found in content["versions"].items()
    ]
    print_rows(versions, ("part", "version"), "Versions")
    typer.echo(f"engine: {content['engine'] or content['engine_fault']}")
    database = content["database"]
    if database["fault"] is not None:
        typer.echo(f"database: {visible(database['fault'])}")
    else:
        typer.echo(
            f"database: {database['server']}, as {database['user']}, schema revision"
            f" {database['schema_revision'] or 'none'}"
        )
