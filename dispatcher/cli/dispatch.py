"""`holdfast dispatch`: deliver what the outbox holds."""

import asyncio
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from tenacity import (
    AsyncRetrying,
    retry_if_exception_type,
    stop_after_delay,
    wait_random_exponential,
)

from dispatcher.cli.shared import Dsn
from sink.contract.exits import CommandError, ExitCode
from sink.contract.retention import whole_days

if TYPE_CHECKING:
    from dispatcher.service import Report
    from dispatcher.settings import Settings

CONNECT_SECONDS = 5
"""How long the database may take to appear when the dispatcher starts."""


def dispatch(
    drain: Annotated[
        bool, typer.Option("--drain", help="End when nothing is due or in flight.")
    ] = False,
    concurrency: Annotated[
        int, typer.Option("--concurrency", help="Requests at once in this process.")
    ] = 256,
    claim_lanes: Annotated[
        int, typer.Option("--claim-lanes", help="Lanes that one claim takes at most.")
    ] = 256,
    lease_seconds: Annotated[
        str,
        typer.Option(
            "--lease-seconds", help="auto: the longest total timeout of an endpoint and 5 s."
        ),
    ] = "auto",
    stop_seconds: Annotated[
        float, typer.Option("--stop-seconds", help="Time for requests in flight after SIGTERM.")
    ] = 20.0,
    retain: Annotated[
        str | None,
        typer.Option(
            "--retain",
            help="Once a day, drop days of which every row is older: 90d. Keys stay.",
        ),
    ] = None,
    ca_file: Annotated[
        Path | None,
        typer.Option(
            "--ca-file", help="Further certificate authorities of receivers (PEM).", dir_okay=False
        ),
    ] = None,
    dsn: Dsn = None,
) -> None:
    """Deliver webhooks until stopped. SIGTERM or Ctrl-C stops gracefully, a second one at once."""
    if not dsn:
        raise CommandError(
            "no database: pass --dsn, set HOLDFAST_DSN, or start one with `holdfast local up`.",
            ExitCode.USAGE,
        )
    # Here and below, not at the top: other commands work without the `dispatcher` extra installed.
    from dispatcher.settings import Settings  # noqa: PLC0415 - see above

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
        )
    except ValueError as error:
        raise CommandError(f"{error}. Nothing was sent.", ExitCode.USAGE) from None
    try:
        report = asyncio.run(_deliver(settings))
    except ModuleNotFoundError as error:
        raise CommandError(
            f"`holdfast dispatch` needs the package {error.name}, which is not installed:"
            " pip install 'holdfast[dispatcher]'.",
            ExitCode.USAGE,
        ) from None
    _judge(report, drain=drain)


async def _deliver(settings: "Settings") -> "Report":
    from dispatcher.errors import StoreUnavailableError  # noqa: PLC0415 - see above
    from dispatcher.service import Dispatcher  # noqa: PLC0415 - see above
    from dispatcher.store.postgres import PostgresStore  # noqa: PLC0415 - see above
    from dispatcher.telemetry import configure  # noqa: PLC0415 - see above
    from dispatcher.transport.httpx_engine import HttpxTransport  # noqa: PLC0415 - see above

    configure()
    store = PostgresStore(settings.dsn)
    transport = HttpxTransport(settings.ca_file)
    dispatcher = Dispatcher(settings, store, transport)
    try:
        async for attempt in AsyncRetrying(
            retry=retry_if_exception_type(StoreUnavailableError),
            stop=stop_after_delay(CONNECT_SECONDS),
            wait=wait_random_exponential(multiplier=0.2, max=3),
            reraise=True,
        ):
            with attempt:
                await store.open()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, dispatcher.stop)
        return await dispatcher.run()
    except StoreUnavailableError as error:
        raise CommandError(
            f"the database cannot be used: {error}. Nothing was sent; check --dsn or HOLDFAST_DSN,"
            " or start one with `holdfast local up`."
        ) from None
    finally:
        await transport.close()
        await store.close()


def _judge(report: "Report", *, drain: bool) -> None:
    if report.failure is not None:
        raise CommandError(
            f"the dispatcher stopped: {report.failure}. What was sent and not settled is booked as"
            " unknown when its lease ends; start the dispatcher again."
        )
    if drain and report.waiting:
        reasons = "; ".join(f"{name}: {reason}" for name, reason in report.waiting.items())
        raise CommandError(
            f"drained, but decisions wait for endpoints that nothing can be sent to ({reasons})."
            " None was lost; put that right and drain again.",
            ExitCode.DEGRADED,
        )
