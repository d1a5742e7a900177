"""`holdfast endpoint`: the webhook targets."""

from collections.abc import Sequence
from typing import Annotated, Any

import typer

from holdfast.dispatcher.cli.endpoints import apply as endpoint_apply
from holdfast.dispatcher.cli.endpoints import settings
from holdfast.dispatcher.cli.endpoints import test as endpoint_test
from holdfast.dispatcher.cli.options import AsJson, Dsn, Reason, Wide, reason_of
from holdfast.dispatcher.cli.output import Page, print_json, print_page, print_rows, visible
from holdfast.dispatcher.operators.common.session import Row
from holdfast.dispatcher.operators.config.environment import references
from holdfast.dispatcher.operators.endpoints.actions import refuse_references
from holdfast.dispatcher.operators.endpoints.settings import DEFAULTS, option_of
from holdfast.dispatcher.operators.endpoints.store import Endpoints
from holdfast.dispatcher.outbound.operator_headers import LITERALS
from holdfast.sink.contract.numbers import counted
from holdfast.sink.contract.states import EndpointState

app = typer.Typer(
    help="Endpoints (webhook targets): add, apply, show, test, set, rotate secrets, pause.",
    no_args_is_help=True,
)
app.command("apply")(endpoint_apply.apply)
app.command("test")(endpoint_test.probe)

_UNREADABLE = (
    "If a dispatcher cannot read it either, it sends nothing to the endpoint and gives nothing"
    " up; `holdfast config check` on its machine reports that."
)

Name = Annotated[str, typer.Argument(help="The endpoint's name.")]
Url = Annotated[
    str,
    typer.Option(
        "--url", help="The URL to POST to; https, unless --allow-cidr covers its address."
    ),
]

SecretRef = Annotated[
    list[str],
    typer.Option(
        "--secret-ref", help="The signing secret: env:VAR or file:PATH; twice during a rotation."
    ),
]


@app.command()
@settings.with_settings
def add(
    name: Annotated[
        str, typer.Argument(help="Name of the endpoint: lower-case letters, digits, `.`, `_`, `-`.")
    ],
    url: Url,
    secret_ref: SecretRef,
    options: settings.Options,
    from_beginning: Annotated[
        bool,
        typer.Option(
            "--from-beginning/--from-now",
            help="Deliver stored entries too, or only those written from now on.",
        ),
    ] = False,
    reason: Reason = "added by command",
    dsn: Dsn = None,
    as_json: AsJson = False,
) -> None:
    """Add an endpoint. Secrets are given as references that the dispatcher resolves where it
    runs.
    """
    columns = settings.columns_of({"url": url, "secret_ref": secret_ref, **options})
    wanted = settings.complete({"name": name, **DEFAULTS, **columns})
    with Endpoints.connect(dsn) as store:
        settings.note_unknown(columns, store.known())
        row = store.add_endpoint(wanted, from_beginning=from_beginning, reason=reason_of(reason))
    if as_json:
        print_json(row)
    else:
        since = "the beginning" if from_beginning else "now on"
        typer.echo(f"endpoint {name} added: {url}, decisions from {since}")


@app.command("set")
@settings.with_settings
def set_(
    name: Name,
    reason: Reason,
    options: settings.Options,
    url: Annotated[str | None, typer.Option("--url", help="The URL to POST to.")] = None,
    all_types: Annotated[
        bool, typer.Option("--all-types", help="Deliver entries of every type.")
    ] = False,
    all_streams: Annotated[
        bool, typer.Option("--all-streams", help="Deliver entries of every stream.")
    ] = False,
    dsn: Dsn = None,
    as_json: AsJson = False,
) -> None:
    """Change the settings given and nothing else. `--header NAME=` removes a header.

    To change types or streams, pause the endpoint first. New ones apply to entries written from now
    on; a subject with pending entries continues from them, in order, with the new ones.
    """
    changes = settings.columns_of({"url": url, **options})
    for option, column, every in (("type", "types", all_types), ("stream", "streams", all_streams)):
        if every:
            if options[option]:
                raise settings.usage(
                    f"--{option} and --all-{column} exclude each other.",
                    code="conflicting_parameters",
                )
            changes[column] = []
    if not changes:
        raise settings.usage(
            "there is nothing to set: give at least one option.", code="missing_parameter"
        )
    with Endpoints.connect(dsn) as store:
        settings.note_unknown(changes, store.known())
        done = store.set_endpoint(
            name, lambda row: settings.complete(_merged(row, changes)), reason_of(reason)
        )
    if as_json:
        print_json({"name": name, **done})
        return
    for line in settings.differences(done["before"], done["after"]):
        typer.echo(line)
    if not done["before"]:
        typer.echo(f"endpoint {name} already has these settings; nothing was changed")


@app.command("rotate-secret")
def rotate_secret(
    name: Name,
    reason: Reason,
    to: Annotated[
        str | None, typer.Option("--to", help="The new secret: env:VAR or file:PATH.")
    ] = None,
    finish: Annotated[
        bool,
        typer.Option("--finish", help="Drop the old secret; with --to, drop all but the new one."),
    ] = False,
    dsn: Dsn = None,
    as_json: AsJson = False,
) -> None:
    """Sign with the old and a new secret (--to), later with the new one alone (--finish).

    Give every dispatcher the new secret before --to, and the receiver before --finish. In between,
    every request carries both signatures.
    """
    if to is None and not finish:
        raise settings.usage(
            "give --to with the new secret, or --finish to drop the old one.",
            code="missing_parameter",
        )
    if to is not None:
        refuse_references({"secret_refs": [settings.checked_secret_ref(to)]})
    with Endpoints.connect(dsn) as store:
        refs = store.rotate_secret(name, to, finish=finish, reason=reason_of(reason))
        row = store.endpoint(name)
    for each in references([row]):
        if each.fault is not None:
            note = f"note: on this machine {visible(each.fault)}. {_UNREADABLE}"
            typer.echo(note, err=True)
    if as_json:
        print_json({"name": name, "secret_refs": refs})
    else:
        typer.echo(f"endpoint {name} signs with {' and '.join(refs)}")


@app.command()
def show(name: Name, dsn: Dsn = None, as_json: AsJson = False) -> None:
    """Show an endpoint's settings and state. Secrets are shown as references, literal headers
    masked.
    """
    with Endpoints.connect(dsn) as store:
        row = store.endpoint(name, spell=option_of)
    if as_json:
        print_json(row)
        return
    typer.echo(f"endpoint {name}")
    for fact, value in row.items():
        if fact != "name":
            typer.echo(f"  {fact.replace('_', ' '):<20} {settings.setting_text(value)}")


@app.command()
def backfill(name: Name, dsn: Dsn = None, as_json: AsJson = False) -> None:
    """Create missing lanes of an endpoint: completes `add --from-beginning`, repairs routing.

    Idempotent.
    """
    with Endpoints.connect(dsn) as store:
        lanes = store.backfill(name)
    if as_json:
        print_json({"name": name, "lanes": lanes})
    else:
        typer.echo(f"endpoint {name}: {counted(lanes, 'lane')} created")


@app.command("list")
def list_(dsn: Dsn = None, as_json: AsJson = False, _wide: Wide = False) -> None:
    """List the endpoints with their backlog. Exit code 3: there are none."""
    with Endpoints.connect(dsn) as store:
        rows = store.endpoints()
    nothing = "there is no endpoint. Nothing was changed; `holdfast endpoint add` creates one."
    print_page(Page("endpoints", rows), _print_list, nothing, as_json=as_json)


def _print_list(rows: Sequence[Row]) -> None:
    columns = ("name", "state", "waiting_lanes", "leased_lanes", "dead_letters", "url")
    print_rows(rows, columns, "Endpoints")


@app.command()
def pause(name: Name, reason: Reason, dsn: Dsn = None, as_json: AsJson = False) -> None:
    """Stop sending to an endpoint. Its entries wait in order."""
    _set_state(name, EndpointState.PAUSED, reason, dsn, as_json)


@app.command()
def resume(name: Name, reason: Reason, dsn: Dsn = None, as_json: AsJson = False) -> None:
    """Resume sending to an endpoint."""
    _set_state(name, EndpointState.ACTIVE, reason, dsn, as_json)


@app.command()
def disable(name: Name, reason: Reason, dsn: Dsn = None, as_json: AsJson = False) -> None:
    """Stop sending until `resume`, as after a response 410. Its entries wait in order."""
    _set_state(name, EndpointState.DISABLED, reason, dsn, as_json)


def _set_state(
    name: str, state: EndpointState, reason: str, dsn: str | None, as_json: bool
) -> None:
    why = reason_of(reason)
    with Endpoints.connect(dsn) as store:
        row = store.set_endpoint_state(name, state.value, why)
    if as_json:
        print_json(row)
    else:
        typer.echo(f"endpoint {name} is {row['state']}")


def _merged(row: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """Return the settings `row` with `changes`; headers are merged one by one."""
    references, literals = changes.get("headers", {}), changes.get(LITERALS, {})
    named = {*references, *literals}
    kept = {
        column: {header: value for header, value in row[column].items() if header not in named}
        for column in ("headers", LITERALS)
    }
    set_ = {header: value for header, value in references.items() if value}
    return {
        **row,
        **changes,
        "headers": {**kept["headers"], **set_},
        LITERALS: {**kept[LITERALS], **literals},
    }
