"""Each part that is killed is an alert in a real Prometheus, and a database that is away.

Real: Spark, Postgres, the dispatcher, the API, the payouts service, Prometheus.
"""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from holdfast.deploy.local.ports import free_port
from tests.support.dispatch.dispatching import dispatching
from tests.support.documents.runbook import running_site
from tests.support.job.job_process import QUICK, job_process
from tests.support.job.jobs import event, put
from tests.support.monitoring.prometheus import MISSING, Watcher, program
from tests.support.servers.fault_proxy import FaultProxy

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(program("prometheus") is None, reason=MISSING.format("prometheus")),
]


GONE = ("HoldfastJobGone", "HoldfastApiGone", "HoldfastPayoutsGone", "HoldfastNoDispatcher")


@contextmanager
def api_process(dsn: str, port: int) -> Iterator[subprocess.Popen[bytes]]:
    """Run the API in a process of its own; it is killed with the block."""
    command = [
        sys.executable,
        "-m",
        "holdfast.dispatcher.cli.main",
        "api",
        "serve",
        "--port",
        str(port),
    ]
    process = subprocess.Popen(command, env={**os.environ, "HOLDFAST_DSN": dsn})
    try:
        yield process
    finally:
        process.kill()
        process.wait()


@pytest.mark.spark
@pytest.mark.timeout(600)
def test_each_part_that_is_killed_is_an_alert(
    dsn: str, make_database: Callable[[str | None], str], tmp_path: Path, watch: Watcher
) -> None:
    dispatcher_port, api_port, job_port = free_port(), free_port(), free_port()
    put(tmp_path / "events", 0, [event("e1", "12:00", 1, "m_1")])
    with (
        running_site(dsn, make_database(None), tmp_path) as site,
        dispatching(dsn, tmp_path / "log", "--listen", f"127.0.0.1:{dispatcher_port}") as running,
        api_process(dsn, api_port) as api,
        job_process(tmp_path, dsn, *QUICK, "--metrics-port", str(job_port)) as job,
    ):
        payouts = site.serve()
        ports = (dispatcher_port, api_port, job_port, site.port)
        seen = watch(*(f"127.0.0.1:{port}" for port in ports))
        job.until(lambda: seen.prometheus.ask('sum(up{job="holdfast"}) == 4'))
        seen.sees('holdfast_job_state{state="running"}')
        seen.is_quiet("HoldfastTargetDown")
        seen.none_fires(*GONE)
        job.kill()
        seen.fires("HoldfastJobGone", stream="payouts")
        api.kill()
        seen.fires("HoldfastApiGone")
        payouts.kill()
        seen.fires("HoldfastPayoutsGone")
        running.process.kill()
        seen.fires("HoldfastNoDispatcher")
        for port in ports:
            seen.fires("HoldfastTargetDown", instance=f"127.0.0.1:{port}")


@pytest.mark.timeout(600)
def test_database_that_is_away_is_an_alert_until_it_is_back(
    dsn: str, tmp_path: Path, watch: Watcher
) -> None:
    addresses = [f"127.0.0.1:{free_port()}" for _ in range(2)]
    with FaultProxy.before_postgres(dsn) as proxy:
        through = proxy.dsn_of(dsn)
        with (
            dispatching(through, tmp_path / "log", "--listen", addresses[0]),
            api_process(through, int(addresses[1].partition(":")[2])),
        ):
            seen = watch(*addresses)
            seen.sees("holdfast_database_answer_age_seconds < 6")
            seen.sees("holdfast_api_database_answer_age_seconds < 6")
            seen.none_fires("HoldfastDatabaseAway")
            proxy.refuse()
            for address in addresses:
                seen.fires("HoldfastDatabaseAway", instance=address)
            proxy.heal()
            seen.is_quiet("HoldfastDatabaseAway")
