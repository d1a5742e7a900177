"""`holdfast endpoint`: the webhook targets."""

from typing import Annotated, Any

import typer

from dispatcher.cli.common.shared import AsJson, Dsn, Reason, print_json, print_rows
from dispatcher.cli.common.shown import reason_of, visible
from dispatcher.cli.endpoints import apply as endpoint_apply
from dispatcher.cli.endpoints import checks, options
from dispatcher.cli.endpoints import shown as endpoint_shown
from dispatcher.cli.endpoints import test as endpoint_test
from dispatcher.operators.config.environment import references
from dispatcher.operators.endpoints.store import DEFAULTS, Endpoints
from dispatcher.outbound.headers import LITERALS
from sink.contract.states import EndpointState

app = typer.Typer(
    help="Webhook targets: add, apply, show, test, change, rotate secrets, pause.",
    no_args_is_help=True,
)
app.command("apply")(endpoint_apply.apply)
app.command("test")(endpoint_test.probe)

_UNREADABLE = (
    "A dispatcher that cannot read it either sends nothing to the endpoint, and gives nothing up:"
    " `holdfast config check`, where it runs, says so."
)

Url = Annotated[str, typer.Option("--url", help="Where to POST; https unless a CIDR allows it.")]
SecretRef = Annotated[
    list[str],
    typer.Option("--secret-ref", help="env:VAR or file:PATH; twice while a secret is rotated."),
]


@app.command()
def add(
    name: Annotated[str, typer.Argument(help="Lower-case letters, digits, `.`, `_`, `-`.")],
    url: Url,
    secret_ref: SecretRef,
    type_: options.Types = None,
    allow_cidr: options.AllowCidr = None,
    header: options.Header = None,
    header_literal: options.HeaderLiteral = None,
    envelope: options.Envelope = None,
    ca: options.Ca = None,
    client_cert: options.ClientCert = None,
    client_key: options.ClientKey = None,
    total_timeout: options.TotalTimeout = None,
    connect_timeout: options.ConnectTimeout = None,
    concurrency: options.Concurrency = None,
    rate: options.Rate = None,
    schedule: options.Schedule = None,
    budget: options.Budget = None,
    breaker_threshold: options.BreakerThreshold = None,
    slow_start: options.SlowStart = None,
    order_policy: options.Order = None,
    inquiry: options.Inquiry = None,
    from_beginning: Annotated[
        bool, typer.Option("--from-beginning/--from-now", help="Deliver what is stored already.")
    ] = False,
    reason: Reason = "added by command",
    dsn: Dsn = None,
    as_json: AsJson = False,
) -> None:
    """Add an endpoint. Secrets are named, never given: the dispatcher reads them where it runs."""
    settings = checks.whole({"name": name, **DEFAULTS, **checks.given(locals())})
    with Endpoints.connect(dsn) as store:
        row = store.add_endpoint(settings, from_beginning=from_beginning, reason=reason_of(reason))
    if as_json:
        print_json(row)
    else:
        since = "the beginning" if from_beginning else "now on"
        typer.echo(f"endpoint {name} added: {url}, decisions from {since}")


@app.command("set")
def set_(
    name: str,
    reason: Reason,
    url: Annotated[str | None, typer.Option("--url", help="Where to POST.")] = None,
    type_: options.Types = None,
    all_types: Annotated[bool, typer.Option("--all-types", help="Deliver every type.")] = False,
    allow_cidr: options.AllowCidr = None,
    header: options.Header = None,
    header_literal: options.HeaderLiteral = None,
    envelope: options.Envelope = None,
    ca: options.Ca = None,
    client_cert: options.ClientCert = None,
    client_key: options.ClientKey = None,
    total_timeout: options.TotalTimeout = None,
    connect_timeout: options.ConnectTimeout = None,
    concurrency: options.Concurrency = None,
    rate: options.Rate = None,
    schedule: options.Schedule = None,
    budget: options.Budget = None,
    breaker_threshold: options.BreakerThreshold = None,
    slow_start: options.SlowStart = None,
    order_policy: options.Order = None,
    inquiry: options.Inquiry = None,
    dsn: Dsn = None,
    as_json: AsJson = False,
) -> None:
    """Change what is named and nothing else. `--header NAME=` removes a header.

    Other types need a paused endpoint, and count from now on. Only a subject that has something
    waiting goes on from there with the new types, in order.
    """
    changes = checks.given(locals())
    if all_types:
        if type_:
            raise checks.usage("--type and --all-types exclude each other.")
        changes["types"] = []
    if not changes:
        raise checks.usage("there is nothing to set: name an option.")
    with Endpoints.connect(dsn) as store:
        done = store.set_endpoint(
            name, lambda row: checks.whole(_merged(row, changes)), reason_of(reason)
        )
    if as_json:
        print_json({"name": name, **done})
        return
    for line in endpoint_shown.changes(done["before"], done["after"]):
        typer.echo(line)
    if not done["before"]:
        typer.echo(f"endpoint {name} is like this already; nothing was changed")


@app.command("rotate-secret")
def rotate_secret(
    name: str,
    reason: Reason,
    to: Annotated[
        str | None, typer.Option("--to", help="The new secret: env:VAR or file:PATH.")
    ] = None,
    finish: Annotated[
        bool, typer.Option("--finish", help="Drop the old secret; with --to, all but that one.")
    ] = False,
    dsn: Dsn = None,
    as_json: AsJson = False,
) -> None:
    """Sign with the old and a new secret (--to), then with the new one alone (--finish).

    Each dispatcher needs the new secret before --to, the receiver before --finish. In between
    every request has both signatures.
    """
    if to is None and not finish:
        raise checks.usage("give --to with the new secret, or --finish to drop the old one.")
    if to is not None:
        checks.refuse_references({"secret_refs": [checks.checked_secret_ref(to)]})
    with Endpoints.connect(dsn) as store:
        refs = store.rotate_secret(name, to, finish=finish, reason=reason_of(reason))
        row = store.endpoint(name)
    for each in references([row]):
        if each.fault is not None:
            said = f"note: on this machine {visible(each.fault)}. {_UNREADABLE}"
            typer.echo(said, err=True)
    if as_json:
        print_json({"name": name, "secret_refs": refs})
    else:
        typer.echo(f"endpoint {name} signs with {' and '.join(refs)}")


@app.command()
def show(name: str, dsn: Dsn = None, as_json: AsJson = False) -> None:
    """Show everything about one endpoint. Secrets are named, literal headers are masked."""
    with Endpoints.connect(dsn) as store:
        row = store.endpoint(name)
    if as_json:
        print_json(row)
        return
    typer.echo(f"endpoint {name}")
    for fact, value in row.items():
        if fact != "name":
            typer.echo(f"  {fact.replace('_', ' '):<20} {endpoint_shown.said(value)}")


@app.command()
def backfill(name: str, dsn: Dsn = None, as_json: AsJson = False) -> None:
    """Make the lanes that an endpoint misses: finishes `add --from-beginning`, repairs routing.

    Doing it again changes nothing.
    """
    with Endpoints.connect(dsn) as store:
        lanes = store.backfill(name)
    if as_json:
        print_json({"name": name, "lanes": lanes})
    else:
        typer.echo(f"endpoint {name}: {lanes} lanes made")


@app.command("list")
def list_(dsn: Dsn = None, as_json: AsJson = False) -> None:
    """List the endpoints with their backlog."""
    with Endpoints.connect(dsn) as store:
        rows = store.endpoints()
    if as_json:
        print_json(rows)
        return
    columns = ("name", "url", "state", "waiting_lanes", "leased_lanes", "dead_letters")
    print_rows(rows, columns, "Endpoints")


@app.command()
def pause(name: str, reason: Reason, dsn: Dsn = None, as_json: AsJson = False) -> None:
    """Stop sending to an endpoint; its decisions wait in order."""
    _set_state(name, EndpointState.PAUSED, reason, dsn, as_json)


@app.command()
def resume(name: str, reason: Reason, dsn: Dsn = None, as_json: AsJson = False) -> None:
    """Send to an endpoint again."""
    _set_state(name, EndpointState.ACTIVE, reason, dsn, as_json)


@app.command()
def disable(name: str, reason: Reason, dsn: Dsn = None, as_json: AsJson = False) -> None:
    """Stop sending until `resume`, as after a 410; its decisions wait in order."""
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
    """Return the settings `row` with `changes`; headers are changed one by one."""
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
