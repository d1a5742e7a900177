"""`holdfast trigger`: compose one real delivery, send it once, show what came back."""

from typing import TYPE_CHECKING, Any

import typer

from dispatcher.cli.options import AsJson, Dsn
from dispatcher.cli.output import print_json, shortened, visible
from dispatcher.cli.workbench import trigger_options as options
from dispatcher.cli.workbench import wire_options as wire
from sink.contract.exits import CommandError, ExitCode
from sink.contract.states import Outcome

if TYPE_CHECKING:
    from dispatcher.workbench.listen.one_delivery import Sent, Way
    from dispatcher.workbench.listen.sample_delivery import Specimen

TOTAL_SECONDS_MAX = 120


def trigger(
    type_: options.Type,
    url: options.Url = None,
    secret_ref: wire.SecretRefs = None,
    endpoint: options.Endpoint = None,
    subject: options.Subject = "m_test",
    sequence: options.Sequence = 1,
    data: options.Data = None,
    member: options.Member = None,
    key: options.Key = None,
    at: options.At = None,
    allow_cidr: options.AllowCidr = None,
    total_timeout: options.TotalTimeout = 30.0,
    ca_file: options.CaFile = None,
    engine: options.Engine = "auto",
    yes: options.Yes = False,
    dsn: Dsn = None,
    as_json: AsJson = False,
) -> None:
    """Send one delivery, once, with the dispatcher's own transport and limits.

    The same arguments make the same key and bytes: a second time is a duplicate, with other data
    a conflict. No database records it. Exit code 0: delivered; 1: not; 4: its receipt is forged.
    """
    with wire.installed("trigger"):
        from dispatcher.cli.workbench import trigger_way  # noqa: PLC0415 - see wire_options
        from dispatcher.workbench.listen import one_delivery  # noqa: PLC0415 - as above
    if (url is None) == (endpoint is None):
        raise wire.usage("name where to send: either --url or --endpoint.")
    specimen = _specimen(type_, subject, sequence, data, member, key, at)
    state = None
    if url is not None:
        if not 0.001 <= total_timeout <= TOTAL_SECONDS_MAX:
            raise wire.usage(f"--total-timeout must be 0.001 to {TOTAL_SECONDS_MAX} seconds.")
        way = trigger_way.way_to_url(url, secret_ref, allow_cidr or [], total_timeout)
    else:
        way, state = trigger_way.way_to_endpoint(str(endpoint), dsn)
    if not yes and not trigger_way.is_loopback(way.target.url):
        raise wire.usage(
            f"{way.target.url} is not this machine. Its receiver would act on this delivery as on"
            f" any other, and sequence {sequence} would be the newest of {visible(subject)} there:"
            " add --yes if that is what you want."
        )
    try:
        sent = one_delivery.send(way, specimen, engine, ca_file)
    except (ValueError, ImportError) as error:
        raise CommandError(f"this cannot be sent: {error}. Nothing was sent.") from None
    if as_json:
        print_json(_shown(way, state, specimen, sent, one_delivery.NEXT))
    else:
        _print(way, state, sent, one_delivery.NEXT)
    if sent.receipt == one_delivery.NOT_GENUINE:
        raise typer.Exit(ExitCode.DEGRADED)
    if sent.outcome is not Outcome.DELIVERED:
        raise typer.Exit(ExitCode.FAILED)


def _specimen(
    type_: str,
    subject: str,
    sequence: int,
    data: str | None,
    members: list[str] | None,
    key: str | None,
    at: str | None,
) -> "Specimen":
    from dispatcher.workbench.listen import sample_delivery as specimen  # noqa: PLC0415 - as above

    occurred_at = specimen.OCCURRED_AT if at is None else wire.moment_of("--at", at)
    try:
        given = None if data is None else specimen.data_of(wire.bytes_of(data, "--data"))
        return specimen.compose(
            type_,
            subject=subject,
            sequence=sequence,
            data=given,
            changes=members or [],
            key=key,
            occurred_at=occurred_at,
        )
    except specimen.SpecimenError as error:
        raise wire.usage(f"{visible(str(error))}.") from None


def _shown(
    way: "Way", state: str | None, specimen: "Specimen", sent: "Sent", next_: dict[Outcome, str]
) -> dict[str, Any]:
    return {
        "url": way.target.url,
        "endpoint_state": state,
        "key": specimen.key.text,
        "request": {"headers": [list(pair) for pair in sent.headers], "body": sent.body},
        "outcome": sent.outcome.value,
        "then": next_[sent.outcome],
        "status": sent.status,
        "duration_ms": sent.duration_ms,
        "error": sent.error,
        "response": sent.response,
        "retry_after_seconds": sent.asked_seconds,
        "receipt": sent.receipt,
        "receipt_outcome": sent.receipt_outcome,
    }


def _print(way: "Way", state: str | None, sent: "Sent", next_: dict[Outcome, str]) -> None:
    typer.echo(f"POST {visible(way.target.url)}" + (f"  (endpoint is {state})" if state else ""))
    for name, value in sent.headers:
        typer.echo(f"  {name}: {visible(value)}")
    typer.echo(f"  {shortened(sent.body)}")
    answered = "no answer" if sent.status is None else f"answered {sent.status}"
    typer.echo(f"{answered} after {sent.duration_ms} ms")
    for text in (sent.error, sent.response):
        if text:
            typer.echo(f"  {shortened(text)}")
    if sent.asked_seconds is not None:
        typer.echo(f"  it asks to wait {sent.asked_seconds:g} s")
    typer.echo(f"outcome {sent.outcome.value}: {next_[sent.outcome]}")
    said = f", and says {sent.receipt_outcome}" if sent.receipt_outcome else ""
    typer.echo(f"receipt {sent.receipt}{said}")
