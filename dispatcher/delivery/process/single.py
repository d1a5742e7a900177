"""One dispatcher process: opens what a dispatcher needs, and runs it until it is stopped."""

import asyncio
import gc
import signal
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, contextmanager, suppress
from importlib import import_module

from tenacity import (
    AsyncRetrying,
    retry_if_exception_type,
    stop_after_delay,
    wait_random_exponential,
)

from holdfast.dispatcher.delivery.process.orders import Orders
from holdfast.dispatcher.delivery.repeat_check import RepeatChecker
from holdfast.dispatcher.delivery.service import Dispatcher, Report
from holdfast.dispatcher.delivery.settings import Settings
from holdfast.dispatcher.delivery.store.postgres import PostgresStore
from holdfast.dispatcher.delivery.store.session import pools
from holdfast.dispatcher.delivery.store.watch import Watch
from holdfast.dispatcher.delivery.telemetry.log import configure
from holdfast.dispatcher.delivery.telemetry.metrics import DispatcherCollector
from holdfast.dispatcher.delivery.web import served
from holdfast.dispatcher.outbound.transport.engines import open_transport
from holdfast.dispatcher.shared.errors import (
    StoreUnavailableError,
    UnservedCommandError,
    UnservedError,
)
from holdfast.sink.contract.exits import CommandError, ExitCode
from holdfast.sink.contract.trace_export import exported_spans

CONNECT_SECONDS = 5
"""How long the dispatcher waits for the database at its start."""


def deliver(settings: Settings, orders: Orders | None = None) -> None:
    """Deliver until stopped, or with `drain` until nothing more can be sent now.

    `orders` are those of a parent. Raises CommandError where the database cannot be used, where a
    loop failed, and, degraded, where a drained dispatcher leaves entries that cannot be sent;
    UnservedCommandError where the database does not serve this version, also any more.
    """
    with (
        exported_spans("holdfast-dispatcher"),
        asyncio.Runner(loop_factory=_fast_loop()) as runner,
    ):
        report = runner.run(_deliver(settings, orders))
    _raise_for(report, drain=settings.drain)


def _fast_loop() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Return uvloop's loop factory if it is installed; None: the standard loop."""
    with suppress(ModuleNotFoundError):
        loop: Callable[[], asyncio.AbstractEventLoop] = import_module("uvloop").new_event_loop
        return loop
    return None


async def _deliver(settings: Settings, orders: Orders | None) -> Report:
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
            _handle_signals(dispatcher, orders)
            return await dispatcher.run()
        except StoreUnavailableError as error:
            raise CommandError(
                f"the database cannot be used: {error}. Nothing was sent; check --dsn or"
                " HOLDFAST_DSN, or start one with `holdfast local up`.",
                code="database_unavailable",
            ) from None
        except UnservedError as error:
            raise UnservedCommandError(str(error), after="Nothing was sent.") from None


async def _open_with_retries(opening: Callable[[], Awaitable[None]]) -> None:
    """Retry `opening` for `CONNECT_SECONDS`; raises the last error."""
    async for attempt in AsyncRetrying(
        retry=retry_if_exception_type(StoreUnavailableError),
        stop=stop_after_delay(CONNECT_SECONDS),
        wait=wait_random_exponential(multiplier=0.2, max=3),
        reraise=True,
    ):
        with attempt:
            await opening()


def _handle_signals(dispatcher: Dispatcher, orders: Orders | None) -> None:
    loop = asyncio.get_running_loop()
    stop = dispatcher.stop
    if orders is not None:
        orders.follow(dispatcher)
        # Ctrl-C and systemd signal every process, and the parent then orders the same.
        stop = orders.stop
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    loop.add_signal_handler(signal.SIGHUP, dispatcher.reload)


def _raise_for(report: Report, *, drain: bool) -> None:
    if isinstance(report.failure, UnservedError):
        raise UnservedCommandError(
            str(report.failure),
            "the dispatcher stopped: ",
            "Nothing was lost: what it had sent is settled, or recorded as unknown when the lease"
            " ends, and the next version sends the rest.",
        )
    if report.failure is not None:
        raise CommandError(
            f"the dispatcher stopped: {report.failure}. Nothing was lost: unsettled requests are"
            " recorded as unknown when their lease ends. Start the dispatcher again.",
            code="dispatcher_stopped",
        )
    if drain and report.waiting:
        reasons = "; ".join(f"{name}: {reason}" for name, reason in report.waiting.items())
        raise CommandError(
            f"drained, but entries wait for endpoints that cannot be sent to ({reasons})."
            " None was lost; fix the cause and drain again.",
            ExitCode.DEGRADED,
            code="entries_waiting",
        )


YOUNG_MAX = 50_000
"""Number of new objects that starts a collection of the youngest generation.

A delivery leaves almost no cycles. Claimed lanes hold thousands of objects, so with CPython's
default of 700 nearly all objects that a collection visits are still in use.
"""


@contextmanager
def tuned_for_deliveries() -> Iterator[None]:
    """Set `YOUNG_MAX` and exempt already loaded objects while the block runs."""
    thresholds = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(YOUNG_MAX, *thresholds[1:])
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)
        gc.unfreeze()
