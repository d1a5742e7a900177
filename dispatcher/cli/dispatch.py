"""`holdfast dispatch`: deliver the entries of the outbox."""

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from tenacity import (
    AsyncRetrying,
    retry_if_exception_type,
    stop_after_delay,
    wait_random_exponential,
)

from dispatcher.cli.options import Dsn
from dispatcher.outbound.transport.transport import EngineName
from sink.contract.exits import CommandError, ExitCode
from sink.contract.retention import whole_days

if TYPE_CHECKING:
    from dispatcher.delivery.service import Dispatcher, Report
    from dispatcher.delivery.settings import Settings
    from dispatcher.outbound.reference_rule import ReferenceRule

CONNECT_SECONDS = 5
"""How long the dispatcher waits for the database at its start."""


Drain = Annotated[bool, typer.Option("--drain", help="Exit once nothing is due or in flight.")]
Concurrency = Annotated[
    int, typer.Option("--concurrency", help="Maximum number of concurrent requests.")
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
        "--doorbell",
        help="Listen for notifications of new batches (needs a connection without a pooler).",
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
Listen = Annotated[
    str | None,
    typer.Option("--listen", help="HOST:PORT for /healthz and /metrics, such as 127.0.0.1:9464."),
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
    doorbell: Doorbell = False,
    listen: Listen = None,
    secret_env_prefix: SecretEnvPrefix = None,
    secret_dir: SecretDir = None,
    dsn: Dsn = None,
) -> None:
    """Deliver webhooks until stopped. SIGTERM or Ctrl-C stops gracefully, a second one at once.

    SIGHUP loads endpoints and secrets now; they are also loaded every second.
    """
    if not dsn:
        raise CommandError(
            "no database: pass --dsn, set HOLDFAST_DSN, or start one with `holdfast local up`.",
            ExitCode.USAGE,
        )
    # Imported here, not at the top: other commands work without the `dispatcher` extra.
    from dispatcher.delivery.settings import Settings  # noqa: PLC0415 - see above

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
        raise CommandError(f"{error}. Nothing was sent.", ExitCode.USAGE) from None
    try:
        with asyncio.Runner(loop_factory=_fast_loop()) as runner:
            report = runner.run(_deliver(settings))
    except ModuleNotFoundError as error:
        raise CommandError(
            f"`holdfast dispatch` needs the package {error.name}, which is not installed:"
            " pip install '/path/to/holdfast[dispatcher]'.",
            ExitCode.USAGE,
        ) from None
    _raise_for(report, drain=drain)


def _references(prefixes: list[str] | None, folders: list[str] | None) -> "ReferenceRule":
    """Return the rule of the options or, without them, of the environment. Raises `ValueError`."""
    from dispatcher.outbound.reference_rule import rule_of, rule_with  # noqa: PLC0415 - see above

    given = rule_of(os.environ)
    return rule_with(prefixes or given.env_prefixes, folders or given.folders)


def _fast_loop() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Return uvloop's loop factory if it is installed; None: the standard loop."""
    with suppress(ModuleNotFoundError):
        loop: Callable[[], asyncio.AbstractEventLoop] = import_module("uvloop").new_event_loop
        return loop
    return None


async def _deliver(settings: "Settings") -> "Report":
    from dispatcher.delivery.gc_tuning import tuned_for_deliveries  # noqa: PLC0415 - see above
    from dispatcher.delivery.repeat_check import RepeatChecker  # noqa: PLC0415 - see above
    from dispatcher.delivery.service import Dispatcher  # noqa: PLC0415 - see above
    from dispatcher.delivery.store.postgres import PostgresStore  # noqa: PLC0415 - see above
    from dispatcher.delivery.store.session import pools  # noqa: PLC0415 - see above
    from dispatcher.delivery.store.watch import Watch  # noqa: PLC0415 - see above
    from dispatcher.delivery.telemetry.log import configure  # noqa: PLC0415 - see above
    from dispatcher.delivery.telemetry.metrics import DispatcherCollector  # noqa: PLC0415 - see above
    from dispatcher.delivery.web import served  # noqa: PLC0415 - see above
    from dispatcher.outbound.transport.engines import open_transport  # noqa: PLC0415 - see above
    from dispatcher.shared.errors import StoreUnavailableError  # noqa: PLC0415 - see above

    configure()
    async with AsyncExitStack() as stack:
        store = PostgresStore(settings.dsn)
        stack.push_async_callback(store.close)
        watch = Watch(settings.dsn) if settings.doorbell or settings.listen else None
        if watch is not None:
            stack.push_async_callback(watch.close)
        transport = open_transport(settings.engine, settings.ca_file)
        stack.push_async_callback(transport.close)
        checker = RepeatChecker(settings.ca_file)
        stack.push_async_callback(checker.close)
        dispatcher = Dispatcher(settings, store, transport, watch, checker.check)
        collector = DispatcherCollector(
            dispatcher.measures,
            counts=dispatcher.counts,
            in_flight=dispatcher.in_flight,
            pool=pools,
        )
        stack.enter_context(tuned_for_deliveries())
        stack.enter_context(served(settings.listen, dispatcher.health, collector))
        try:
            await _open_with_retries(store.open)
            if watch is not None:
                await watch.open()
            _handle_signals(dispatcher)
            return await dispatcher.run()
        except StoreUnavailableError as error:
            raise CommandError(
                f"the database cannot be used: {error}. Nothing was sent; check --dsn or"
                " HOLDFAST_DSN, or start one with `holdfast local up`."
            ) from None


async def _open_with_retries(opening: Callable[[], Awaitable[None]]) -> None:
    """Retry `opening` for `CONNECT_SECONDS`; raises the last error."""
    from dispatcher.shared.errors import StoreUnavailableError  # noqa: PLC0415 - see above

    async for attempt in AsyncRetrying(
        retry=retry_if_exception_type(StoreUnavailableError),
        stop=stop_after_delay(CONNECT_SECONDS),
        wait=wait_random_exponential(multiplier=0.2, max=3),
        reraise=True,
    ):
        with attempt:
            await opening()


def _handle_signals(dispatcher: "Dispatcher") -> None:
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, dispatcher.stop)
    loop.add_signal_handler(signal.SIGHUP, dispatcher.reload)


def _raise_for(report: "Report", *, drain: bool) -> None:
    if report.failure is not None:
        raise CommandError(
            f"the dispatcher stopped: {report.failure}. Nothing was lost: unsettled requests are"
            " recorded as unknown when their lease ends. Start the dispatcher again."
        )
    if drain and report.waiting:
        reasons = "; ".join(f"{name}: {reason}" for name, reason in report.waiting.items())
        raise CommandError(
            f"drained, but entries wait for endpoints that cannot be sent to ({reasons})."
            " None was lost; fix the cause and drain again.",
            ExitCode.DEGRADED,
        )
