"""`holdfast endpoint`: the webhook targets."""

import ipaddress
import re
from typing import Annotated
from urllib.parse import urlsplit

import typer

from dispatcher.cli.shared import AsJson, Dsn, Reason, print_json, print_rows
from dispatcher.core.address import is_allowed, refusal
from dispatcher.store.operator import listed, operator_store
from sink.contract.exits import CommandError, ExitCode
from sink.contract.states import EndpointState, OrderPolicy

app = typer.Typer(help="Webhook targets: add, list, pause, resume, disable.", no_args_is_help=True)

DEFAULT_SCHEDULE = "5,30,120,600,1800,7200,18000,36000,50400,72000"
SCHEDULE_STEPS_MAX = 32
TIMEOUT_SECONDS_MAX = 120
KNOWN_TYPES = ("payout_hold.block", "payout_hold.release")


@app.command()
def add(
    name: Annotated[str, typer.Argument(help="Lower-case letters, digits, `.`, `_`, `-`.")],
    url: Annotated[
        str, typer.Option("--url", help="Where to POST; https unless a CIDR allows it.")
    ],
    secret_ref: Annotated[
        list[str],
        typer.Option("--secret-ref", help="env:VAR or file:PATH; twice while a secret is rotated."),
    ],
    type_: Annotated[
        list[str] | None, typer.Option("--type", help="Deliver only this type; repeatable.")
    ] = None,
    allow_cidr: Annotated[
        list[str] | None,
        typer.Option("--allow-cidr", help="Private addresses this endpoint may have; repeatable."),
    ] = None,
    total_timeout: Annotated[
        float, typer.Option("--total-timeout", help="Seconds for one whole attempt.")
    ] = 30.0,
    connect_timeout: Annotated[
        float, typer.Option("--connect-timeout", help="Seconds to connect.")
    ] = 5.0,
    concurrency: Annotated[
        int, typer.Option("--concurrency", min=1, max=1024, help="Requests at once.")
    ] = 64,
    schedule: Annotated[
        str, typer.Option("--schedule", help="Seconds before each retry, comma-separated.")
    ] = DEFAULT_SCHEDULE,
    order_policy: Annotated[
        OrderPolicy, typer.Option("--order-policy", help="What a lane does behind a dead letter.")
    ] = OrderPolicy.STOP,
    from_beginning: Annotated[
        bool, typer.Option("--from-beginning/--from-now", help="Deliver what is stored already.")
    ] = False,
    reason: Reason = "added by command",
    dsn: Dsn = None,
    as_json: AsJson = False,
) -> None:
    """Add an endpoint. Secrets are named, never given: the dispatcher reads them where it runs."""
    cidrs = _checked_cidrs(listed(allow_cidr))
    settings = {
        "name": name,
        "url": _reachable(_checked_url(url), cidrs),
        "types": _checked_types(listed(type_)),
        "secret_refs": _checked_secret_refs(secret_ref),
        "allow_cidrs": cidrs,
        "connect_timeout_ms": min(
            _checked_seconds("--connect-timeout", connect_timeout),
            _checked_seconds("--total-timeout", total_timeout),
        ),
        "total_timeout_ms": _checked_seconds("--total-timeout", total_timeout),
        "concurrency": concurrency,
        "schedule_seconds": _checked_schedule(schedule),
        "order_policy": order_policy.value,
    }
    with operator_store(dsn) as store:
        row = store.add_endpoint(settings, from_beginning=from_beginning, reason=reason)
    if as_json:
        print_json(row)
    else:
        since = "the beginning" if from_beginning else "now on"
        typer.echo(f"endpoint {name} added: {url}, decisions from {since}")


@app.command()
def backfill(name: str, dsn: Dsn = None, as_json: AsJson = False) -> None:
    """Finish `add --from-beginning` if it was interrupted; doing it again changes nothing."""
    with operator_store(dsn) as store:
        lanes = store.backfill(name)
    if as_json:
        print_json({"name": name, "lanes": lanes})
    else:
        typer.echo(f"endpoint {name}: {lanes} lanes made")


@app.command("list")
def list_(dsn: Dsn = None, as_json: AsJson = False) -> None:
    """List the endpoints with their backlog."""
    with operator_store(dsn) as store:
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
    with operator_store(dsn) as store:
        row = store.set_endpoint_state(name, state.value, reason)
    if as_json:
        print_json(row)
    else:
        typer.echo(f"endpoint {name} is {row['state']}")


def _usage(message: str) -> CommandError:
    return CommandError(f"{message} Nothing was changed.", ExitCode.USAGE)


def _checked_url(url: str) -> str:
    try:
        parts = urlsplit(url)
        _ = parts.port  # raises for a port that is no number
    except ValueError as error:
        raise _usage(f"--url is not a URL: {error}.") from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise _usage("--url must be http:// or https:// with a host.")
    if parts.username or parts.password or parts.fragment:
        raise _usage("--url must not hold a user, a password or a fragment.")
    if not url.isascii() or any(ord(c) <= 32 or ord(c) == 127 for c in url):
        raise _usage("--url must be ASCII without spaces or control characters.")
    return url


def _reachable(url: str, cidrs: list[str]) -> str:
    """Refuse a URL that the dispatcher's address guard would refuse at every attempt."""
    parts = urlsplit(url)
    if parts.scheme == "http" and not cidrs:
        raise _usage("--url is plain http://, which needs --allow-cidr for its network.")
    try:
        address = ipaddress.ip_address(parts.hostname or "")
    except ValueError:
        return url  # a name: it is resolved and judged at every attempt
    networks = [ipaddress.ip_network(cidr) for cidr in cidrs]
    why = refusal(str(address), networks)
    if why is None and parts.scheme == "http" and not is_allowed(str(address), networks):
        why = f"{address} is in no --allow-cidr, which plain http:// needs"
    if why is not None:
        raise _usage(f"every delivery to --url would be refused: {why}.")
    return url


def _checked_seconds(option: str, seconds: float) -> int:
    """Return milliseconds."""
    if not 0.001 <= seconds <= TIMEOUT_SECONDS_MAX:  # also refuses nan
        raise _usage(f"{option} must be 0.001 to {TIMEOUT_SECONDS_MAX} seconds.")
    return round(seconds * 1000)


def _checked_types(types: list[str]) -> list[str]:
    for type_ in types:
        if not re.fullmatch(r"[a-zA-Z0-9_.]{1,128}", type_):
            raise _usage(f"--type {type_!r} is no type: 1 to 128 of a-z A-Z 0-9 _ . are.")
        if type_ not in KNOWN_TYPES:
            typer.echo(
                f"note: {type_} is no type of the exposure job; only entries of exactly this type"
                " will be delivered.",
                err=True,
            )
    return types


def _checked_secret_refs(refs: list[str]) -> list[str]:
    for ref in refs:
        kind, _, name = ref.partition(":")
        if kind not in ("env", "file") or not name:
            raise _usage(
                "--secret-ref must be env:VAR or file:PATH; a secret itself never goes on a"
                " command line."
            )
    if len(refs) not in (1, 2):
        raise _usage("an endpoint has one secret, or two while one is rotated.")
    return refs


def _checked_cidrs(cidrs: list[str]) -> list[str]:
    try:
        return [str(ipaddress.ip_network(cidr)) for cidr in cidrs]
    except ValueError as error:
        raise _usage(f"--allow-cidr: {error}.") from None


def _checked_schedule(schedule: str) -> list[int]:
    try:
        seconds = [int(part) for part in schedule.split(",")]
    except ValueError:
        raise _usage("--schedule must be whole seconds, comma-separated.") from None
    if not 1 <= len(seconds) <= SCHEDULE_STEPS_MAX or min(seconds) < 0 or max(seconds) > 7 * 86400:
        raise _usage(f"--schedule must be 1 to {SCHEDULE_STEPS_MAX} steps of 0 s to 7 days.")
    return seconds
