"""`holdfast endpoint test`: send one signed request that receivers do not act on, and report each
step.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.dispatcher.cli.options import AsJson, Dsn, confirm, reason_of, require_terminal
from holdfast.dispatcher.cli.output import print_json, shortened, visible
from holdfast.dispatcher.cli.workbench import options as wire
from holdfast.dispatcher.operators.endpoints.store import Endpoints
from holdfast.dispatcher.outbound.transport.transport import EngineName
from holdfast.sink.contract.exits import CommandError, ExitCode

if TYPE_CHECKING:
    from holdfast.dispatcher.workbench.listen.endpoint_test import Tested
    from holdfast.dispatcher.workbench.listen.one_delivery import Destination

Name = Annotated[str, typer.Argument(help="The endpoint, in any state.")]
Why = Annotated[str, typer.Option("--reason", help="Why; kept in the audit trail.")]
CaFile = Annotated[
    Path | None,
    typer.Option(
        "--ca-file",
        exists=True,
        dir_okay=False,
        help="Additional certificate authorities (PEM), as for `dispatch`.",
    ),
]
Engine = Annotated[EngineName, typer.Option("--engine", help="The HTTP engine.")]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask.")]

_TITLES = {"dns": "name", "address": "address", "connect": "connection", "tls": "TLS"}


def probe(
    name: Name,
    reason: Why = "tested by command",
    ca_file: CaFile = None,
    engine: Engine = "auto",
    yes: Yes = False,
    dsn: Dsn = None,
    as_json: AsJson = False,
) -> None:
    """Send an endpoint one signed request as the dispatcher would, and report each step.

    Its type is holdfast.test, its subject holdfast_test: a conforming receiver verifies it, rejects
    the unknown type and does not act on it. No attempt is recorded and no lane changes; breaker,
    rate and state are ignored. Run it where the dispatcher runs. Exit code 0: the receiver accepts
    the signature; 1: it does not, or is unreachable; 4: unknown.
    """
    why = reason_of(reason)
    with wire.installed("endpoint test"):
        from holdfast.dispatcher.cli.workbench.destination import from_endpoint  # noqa: PLC0415 - see options
        from holdfast.dispatcher.workbench.listen import endpoint_test  # noqa: PLC0415 - as above
    way, state = from_endpoint(name, dsn)
    require_terminal(yes=yes)
    confirm(
        f"Send one real request to {visible(way.target.url)}? A conforming receiver does not act"
        " on it.",
        yes=yes,
    )
    delivery = endpoint_test.sample(name)
    with Endpoints.connect(dsn) as store:
        at = store.record_test(name, why, {"url": way.target.url, "key": delivery.key.text})
    try:
        tested = endpoint_test.send(way, delivery, engine, ca_file, at)
    except (ValueError, ImportError) as error:
        raise CommandError(
            f"no request can be sent to endpoint {name}: {error}. Nothing was sent; correct it"
            f" with `holdfast endpoint set {name} --help`.",
            code="send_failed",
        ) from None
    if as_json:
        print_json(_content(name, state, way, delivery.key.text, tested))
    else:
        _show(name, state, way, tested)
    if tested.verdict.exit_code is not ExitCode.OK:
        raise typer.Exit(tested.verdict.exit_code)


def _content(
    name: str, state: str, way: "Destination", key: str, tested: "Tested"
) -> dict[str, Any]:
    sent, verdict = tested.sent, tested.verdict
    return {
        "name": name,
        "state": state,
        "url": way.target.url,
        "key": key,
        "steps": [
            {"step": step.name, "end": step.end, "detail": step.detail, "ms": step.ms}
            for step in tested.steps
        ],
        "request": None
        if sent is None
        else {
            "outcome": sent.outcome.value,
            "status": sent.status,
            "reason": tested.reason,
            "ms": sent.duration_ms,
            "error": sent.error,
            "response": sent.response,
            "receipt": sent.receipt,
            "receipt_outcome": sent.receipt_outcome,
        },
        "verdict": verdict.word,
        "means": verdict.means,
        "advice": verdict.advice,
    }


def _show(name: str, state: str, way: "Destination", tested: "Tested") -> None:
    typer.echo(f"endpoint {name} ({state}): POST {visible(way.target.url)}")
    for step in tested.steps:
        _line(_TITLES[step.name], f"{step.end}: {step.detail}", step.ms)
    sent, verdict = tested.sent, tested.verdict
    if sent is not None:
        answered = sent.error or f"{sent.status}"
        _line(
            "answer", f"{answered}{f' {tested.reason}' if tested.reason else ''}", sent.duration_ms
        )
        if sent.response and tested.reason is None:
            typer.echo(f"  {'':<11} {shortened(sent.response)}")
        outcome = f", outcome {sent.receipt_outcome}" if sent.receipt_outcome else ""
        _line("receipt", f"{sent.receipt}{outcome}", None)
    typer.echo(f"{verdict.word}: {verdict.means}")
    if verdict.advice:
        typer.echo(f"  {verdict.advice.replace('NAME', name)}")


def _line(title: str, text: str, ms: float | None) -> None:
    took = "" if ms is None else f" ({ms:g} ms)"
    typer.echo(f"  {title:<11} {visible(text)}{took}")
