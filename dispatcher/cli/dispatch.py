"""`holdfast dispatch`: deliver the entries of the outbox."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.dispatcher.cli.options import Dsn
from holdfast.dispatcher.outbound.transport.transport import EngineName
from holdfast.sink.contract.exits import CommandError, ExitCode
from holdfast.sink.contract.numbers import whole_days

if TYPE_CHECKING:
    from holdfast.dispatcher.outbound.reference_rule import ReferenceRule

Drain = Annotated[bool, typer.Option("--drain", help="Exit once nothing is due or in flight.")]
Concurrency = Annotated[
    int, typer.Option("--concurrency", help="Maximum number of concurrent requests of a process.")
]
ClaimLanes = Annotated[
    int, typer.Option("--claim-lanes", help="Maximum number of lanes per claim.")
]
LeaseSeconds = Annotated[
    str,
    typer.Option("--lease-seconds", help="auto: the longest attempt of an endpoint plus 5 s."),
]
StopSeconds = Annotated[
    float, typer.Option("--stop-seconds", help="Time limit for requests in flight after SIGTERM.")
]
Retain = Annotated[
    str | None,
    typer.Option(
        "--retain", help="Once a day, drop daily partitions older than this: 90d. Keys stay."
    ),
]
CaFile = Annotated[
    Path | None,
    typer.Option(
        "--ca-file", help="Additional certificate authorities of receivers (PEM).", dir_okay=False
    ),
]
Engine = Annotated[
    EngineName, typer.Option("--engine", help="HTTP engine; auto: the fastest installed one.")
]
Doorbell = Annotated[
    bool,
    typer.Option(
        "--doorbell/--no-doorbell",
        help="Listen for notifications of new batches. Behind a pooler in transaction mode none"
        " arrive, and batches are looked for more often.",
    ),
]
SecretEnvPrefix = Annotated[
    list[str] | None,
    typer.Option(
        "--secret-env-prefix",
        help="Prefix of variables that hold secrets of endpoints; repeatable."
        " Default: HOLDFAST_SECRET_.",
    ),
]
SecretDir = Annotated[
    list[str] | None,
    typer.Option(
        "--secret-dir",
        help="Folder of files that hold secrets of endpoints; repeatable."
        " Default: /run/secrets/holdfast.",
    ),
]
ProcessCount = Annotated[
    int,
    typer.Option(
        "--processes",
        min=1,
        max=64,
        help="Number of dispatcher processes, each with these options and its own connections.",
    ),
]
Listen = Annotated[
    str | None,
    typer.Option(
        "--listen",
        help="HOST:PORT for /healthz and /metrics, such as 127.0.0.1:9464; further processes take"
        " the ports after it.",
    ),
]


def dispatch(
    drain: Drain = False,
    concurrency: Concurrency = 256,
    claim_lanes: ClaimLanes = 256,
    lease_seconds: LeaseSeconds = "auto",
    stop_seconds: StopSeconds = 20.0,
    retain: Retain = None,
    ca_file: CaFile = None,
    engine: Engine = "auto",
    doorbell: Doorbell = True,
    listen: Listen = None,
    processes: ProcessCount = 1,
    secret_env_prefix: SecretEnvPrefix = None,
    secret_dir: SecretDir = None,
    dsn: Dsn = None,
) -> None:
    """Deliver webhooks until stopped. SIGTERM or Ctrl-C stops gracefully, a second one at once.

    SIGHUP loads endpoints and secrets now; they are also loaded every six seconds
    at least, and when an operator changes something.
    """
    if not dsn:
        raise CommandError(
            "no database: pass --dsn, set HOLDFAST_DSN, or start one with `holdfast local up`.",
            ExitCode.USAGE,
            code="missing_dsn",
        )
    # Imported here, not at the top: other commands work without the `dispatcher` extra.
    from holdfast.dispatcher.delivery.settings import Settings  # noqa: PLC0415 - see above

    try:
        settings = Settings(
            dsn=dsn,
            drain=drain,
            concurrency=concurrency,
            claim_lanes=claim_lanes,
            lease_seconds=None if lease_seconds == "auto" else float(lease_seconds),
            stop_seconds=stop_seconds,
            retain_days=None if retain is None else whole_days(retain),
            ca_file=ca_file,
            engine=engine,
            doorbell=doorbell,
            listen=listen,
            references=_references(secret_env_prefix, secret_dir),
        )
    except ValueError as error:
        raise CommandError(
            f"{error}. Nothing was sent.", ExitCode.USAGE, code="invalid_setting"
        ) from None
    try:
        if processes == 1:
            from holdfast.dispatcher.delivery.process.single import deliver  # noqa: PLC0415 - see above

            deliver(settings)
        else:
            from holdfast.dispatcher.delivery.process.several import Processes  # noqa: PLC0415 - see above

            Processes(settings, processes).run()
    except ModuleNotFoundError as error:
        raise CommandError(
            f"`holdfast dispatch` needs the package {error.name}, which is not installed:"
            " pip install '/path/to/holdfast[dispatcher]'.",
            ExitCode.USAGE,
            code="package_missing",
        ) from None


def _references(prefixes: list[str] | None, folders: list[str] | None) -> "ReferenceRule":
    """Return the rule of the options or, without them, of the environment. Raises `ValueError`."""
    from holdfast.dispatcher.outbound.reference_rule import rule_of, rule_with  # noqa: PLC0415 - see above

    rule = rule_of(os.environ)
    return rule_with(prefixes or rule.env_prefixes, folders or rule.folders)
