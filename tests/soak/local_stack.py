"""`make test-stack`: the stack with a Kafka broker, Alertmanager and its page in a real browser.

Real: every process of `holdfast local stack up`, the broker, Prometheus, Chromium. Pictures of the
page are kept in the folder that HOLDFAST_TEST_SCREENSHOTS names.
"""

import os
import shutil
import signal
from pathlib import Path

import httpx
import psutil
import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from holdfast.deploy.local.stack.panels import dashboards
from holdfast.deploy.local.stack.run import DATABASES
from holdfast.sink.contract.exits import ExitCode
from tests.e2e.test_local_stack import free_ports, read, stack
from tests.support.console.browser import NARROW, chromium
from tests.support.waiting import eventually

WIDTH, HEIGHT = 1040, 900
PANELS_WIDTH = 640


def _photographed(url: str) -> None:
    with chromium() as browser:
        page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT})
        page.goto(url, wait_until="networkidle")
        sizes = page.evaluate("[...document.images].map(each => each.naturalHeight)")
        assert len(sizes) == len(dashboards())
        assert all(sizes)
        if to := os.environ.get("HOLDFAST_TEST_SCREENSHOTS"):
            Path(to).mkdir(parents=True, exist_ok=True)
            page.screenshot(path=str(Path(to) / "stack.png"))
        # On a phone the page stays as wide as the screen, and the panels are large enough to read.
        page.set_viewport_size({"width": NARROW, "height": HEIGHT})
        assert not page.evaluate("document.documentElement.scrollWidth > innerWidth")
        widths = page.evaluate("[...document.images].map(each => each.clientWidth)")
        assert min(widths) >= PANELS_WIDTH


@pytest.mark.timeout(900)
def test_stack_reads_a_topic_shows_its_dashboards_and_ends_with_its_broker(tmp_path: Path) -> None:
    with stack(tmp_path / "stack", free_ports(), "topic") as process:
        started = read(process)
        parts = {part["name"]: part["address"] for part in started["parts"]}
        assert {"kafka", "prometheus", "dashboards"} <= parts.keys()
        installed = shutil.which("alertmanager") or shutil.which("prometheus-alertmanager")
        assert ("alertmanager" in parts) == bool(installed)
        if installed:
            assert httpx.get(f"{parts['alertmanager']}/-/ready").is_success
        with psycopg.connect(
            make_conninfo(started["dsn"], dbname=DATABASES[1]), autocommit=True
        ) as db:
            counted = "SELECT count(*) FROM payouts.hold_history"
            eventually(lambda: (db.execute(counted).fetchone() or (0,))[0] > 0, 300)
        drawn = f"{parts['dashboards']}/operators.svg"
        eventually(lambda: "payouts delivered" in httpx.get(drawn, timeout=60).text, 120)
        _photographed(parts["dashboards"])
        (broker,) = [
            each
            for each in psutil.Process(process.pid).children()
            if "kafka.Kafka" in each.cmdline()
        ]
        broker.send_signal(signal.SIGKILL)
        assert process.wait(timeout=120) == ExitCode.FAILED
