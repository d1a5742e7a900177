"""`holdfast trigger`: compose one real delivery, send it once, and show the answer."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.dispatcher.cli.options import AsJson, Dsn
from holdfast.dispatcher.cli.output import print_json, shortened, visible
from holdfast.dispatcher.cli.workbench import options
from holdfast.dispatcher.outbound.transport.transport import EngineName
from holdfast.sink.contract.exits import CommandError, ExitCode
from holdfast.sink.contract.states import Outcome

if TYPE_CHECKING:
    from holdfast.dispatcher.workbench.listen.one_delivery import Destination, Sent
    from holdfast.dispatcher.workbench.listen.sample import SampleDelivery


Type = Annotated[
    str, typer.Argument(metavar="TYPE", help="The event type, such as payout_hold.block.")
]
Url = Annotated[str | None, typer.Option("--url", help="Where to POST.")]
Endpoint = Annotated[
    str | None,
    typer.Option("--endpoint", help="The name of an endpoint in the database, in place of --url."),
]
Subject = Annotated[str, typer.Option("--subject", help="The ordering key.")]
Sequence = Annotated[
    int, typer.Option("--sequence", help="The sequence number within the subject.")
]
Data = Annotated[
    str | None, typer.Option("--data", help="A file with `data` as a JSON object; - is stdin.")
]
Member = Annotated[
    list[str] | None,
    typer.Option("-D", help="name=value to set in `data`, JSON or text; repeatable."),
]
Key = Annotated[
    str | None,
    typer.Option("--key", help="hf_...; default: derived from type, subject and sequence."),
]
At = Annotated[
    str | None,
    typer.Option(
        "--at", help="Time of the decision; default: a constant, so that the bytes repeat."
    ),
]
AllowCidr = Annotated[
    list[str] | None,
    typer.Option("--allow-cidr", help="Private networks that --url may resolve to; repeatable."),
]
TotalTimeout = Annotated[
    float, typer.Option("--total-timeout", help="Time limit in seconds for the attempt to --url.")
]
CaFile = Annotated[
    Path | None, typer.Option("--ca-file", help="Additional certificate authorities (PEM).")
]
Engine = Annotated[
    EngineName,
    typer.Option("--engine", help="The HTTP engine; auto chooses as the dispatcher does."),
]
Yes = Annotated[
    bool, typer.Option("--yes", help="Allow another machine: its receiver acts on the delivery.")
]


TOTAL_SECONDS_MAX = 120


def trigger(
    type_: Type,
    url: Url = None,
    secret_ref: options.SecretRefs = None,
    endpoint: Endpoint = None,
    subject: Subject = "m_test",
    sequence: Sequence = 1,
    data: Data = None,
    member: Member = None,
    key: Key = None,
    at: At = None,
    allow_cidr: AllowCidr = None,
    total_timeout: TotalTimeout = 30.0,
    ca_file: CaFile = None,
    engine: Engine = "auto",
    yes: Yes = False,
    dsn: Dsn = None,
    as_json: AsJson = False,
) -> None:
    """Send one delivery once, with the dispatcher's transport and limits.

    The same arguments give the same key and bytes: a second run is a duplicate; with other data, a
    conflict. Nothing is recorded. Exit code 0: delivered; 1: not delivered; 4: forged receipt.
    """
    with options.installed("trigger"):
        from holdfast.dispatcher.cli.workbench import destination  # noqa: PLC0415 - see options
        from holdfast.dispatcher.workbench.listen import one_delivery  # noqa: PLC0415 - as above
    if (url is None) == (endpoint is None):
        raise options.usage("pass either --url or --endpoint.", code="conflicting_parameters")
    delivery = _sample(type_, subject, sequence, data, member, key, at)
    state = None
    if url is not None:
        if not 0.001 <= total_timeout <= TOTAL_SECONDS_MAX:
            raise options.usage(
                f"--total-timeout must be 0.001 to {TOTAL_SECONDS_MAX} seconds.",
                code="invalid_value",
            )
        to = destination.from_url(url, secret_ref, allow_cidr or [], total_timeout)
    else:
        to, state = destination.from_endpoint(str(endpoint), dsn)
    if not yes and not destination.is_loopback(to.target.url):
        raise options.usage(
            f"{to.target.url} is not this machine. Its receiver would act on this delivery, and"
            f" sequence {sequence} would become the newest of {visible(subject)} there: add --yes"
            " to send it anyway.",
            code="confirmation_required",
        )
    try:
        sent = one_delivery.send(to, delivery, engine, ca_file)
    except (ValueError, ImportError) as error:
        raise CommandError(
            f"cannot send this delivery: {error}. Nothing was sent.", code="send_failed"
        ) from None
    if as_json:
        print_json(_shown(to, state, delivery, sent, one_delivery.NEXT))
    else:
        _print(to, state, sent, one_delivery.NEXT)
    if sent.receipt == one_delivery.NOT_GENUINE:
        raise typer.Exit(ExitCode.DEGRADED)
    if sent.outcome is not Outcome.DELIVERED:
        raise typer.Exit(ExitCode.FAILED)


def _sample(
    type_: str,
    subject: str,
    sequence: int,
    data: str | None,
    members: list[str] | None,
    key: str | None,
    at: str | None,
) -> "SampleDelivery":
    from holdfast.dispatcher.workbench.listen import sample  # noqa: PLC0415 - as above

    occurred_at = sample.OCCURRED_AT if at is None else options.moment_of("--at", at)
    try:
        content = None if data is None else sample.data_of(options.bytes_of(data, "--data"))
        return sample.compose(
            type_,
            subject=subject,
            sequence=sequence,
            data=content,
            changes=members or [],
            key=key,
            occurred_at=occurred_at,
        )
    except sample.SampleError as error:
        raise options.usage(f"{visible(str(error))}.", code="invalid_value") from None


def _shown(
    to: "Destination",
    state: str | None,
    delivery: "SampleDelivery",
    sent: "Sent",
    next_: dict[Outcome, str],
) -> dict[str, Any]:
    return {
        "url": to.target.url,
        "endpoint_state": state,
        "key": delivery.key.text,
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


def _print(to: "Destination", state: str | None, sent: "Sent", next_: dict[Outcome, str]) -> None:
    typer.echo(f"POST {visible(to.target.url)}" + (f"  (endpoint is {state})" if state else ""))
    for name, value in sent.headers:
        typer.echo(f"  {name}: {visible(value)}")
    typer.echo(f"  {shortened(sent.body)}")
    answered = "no answer" if sent.status is None else f"answered {sent.status}"
    typer.echo(f"{answered} after {sent.duration_ms} ms")
    for text in (sent.error, sent.response):
        if text:
            typer.echo(f"  {shortened(text)}")
    if sent.asked_seconds is not None:
        typer.echo(f"  Retry-After: {sent.asked_seconds:g} s")
    typer.echo(f"outcome {sent.outcome.value}: {next_[sent.outcome]}")
    outcome = f", and says {sent.receipt_outcome}" if sent.receipt_outcome else ""
    typer.echo(f"receipt {sent.receipt}{outcome}")
