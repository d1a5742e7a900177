"""The receiving half of a run: the payouts service and its endpoint in Holdfast's database."""

import time
from collections.abc import Callable

from holdfast.deploy.local.demo.layout import Layout
from holdfast.deploy.local.demo.processes import Child, Interrupts, Processes

POLL_SECONDS = 0.1
START_SECONDS = 60.0

TOTAL_TIMEOUT_SECONDS = 4
"""Short, so that the lease of the killed dispatcher expires during the run."""


def start(
    processes: Processes, layout: Layout, payouts_dsn: str, interrupts: Interrupts
) -> tuple[Child, str]:
    """Start the payouts service, which creates its tables, and add it as an endpoint.

    Returns the service and its URL. Raises `Failed` if one of the two commands fails.
    """
    secret = f"file:{layout.secret}"
    service = processes.start(
        "payouts",
        [
            *("payouts", "serve", "--port", "0", "--port-file", str(layout.port)),
            *("--secret-ref", secret),
        ],
        {"PAYOUTS_DSN": payouts_dsn},
    )
    await_ready(layout.port.exists, service, START_SECONDS, interrupts)
    url = f"http://127.0.0.1:{layout.port.read_text().strip()}"
    adding = processes.start(
        "endpoint",
        [
            *("endpoint", "add", "payouts", "--url", f"{url}/webhooks"),
            *("--secret-ref", secret),
            *("--allow-cidr", "127.0.0.1/32"),
            *("--total-timeout", str(TOTAL_TIMEOUT_SECONDS)),
            *("--schedule", "1,1,2,2,5,5,5,5,5,5"),
        ],
    )
    await_end(adding, START_SECONDS, interrupts)
    return service, url


def await_ready(
    ready: Callable[[], bool], child: Child, seconds: float, interrupts: Interrupts
) -> None:
    """Wait until `child` is ready; raises `Failed` if it ends before or takes too long."""
    deadline = time.monotonic() + seconds
    while not ready():
        child.must_run()
        if time.monotonic() > deadline:
            raise child.failure(f"was not ready after {seconds:.0f} s")
        interrupts.pause(POLL_SECONDS)


def await_end(child: Child, seconds: float, interrupts: Interrupts) -> None:
    """Wait until `child` has ended by itself; raises `Failed` if not with exit code 0."""
    deadline = time.monotonic() + seconds
    while child.exit_code is None:
        if time.monotonic() > deadline:
            raise child.failure(f"did not end within {seconds:.0f} s")
        interrupts.pause(POLL_SECONDS)
    if child.exit_code != 0:
        child.must_run()
    child.kill()
