"""`make dashboards-pictures`: draw every panel from a run of some minutes, into docs/operators.

Every service runs under load (`observed`). On the way the second receiver is down for a while, some
rows cannot be read, and others are dated ahead: so the panels have something to show.
"""

import os
import tempfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Event

import pytest

from holdfast.deploy.local.postgres import EmbeddedPostgres
from holdfast.deploy.local.stack.dashboards import drawn
from holdfast.deploy.local.stack.panels import dashboards
from tests.support.dispatch.dispatching import SECRET
from tests.support.dispatch.sender import secret_text
from tests.support.job.jobs import event
from tests.support.monitoring.observed import Observed, observed
from tests.support.monitoring.rules import ROOT
from tests.support.servers.databases import copy_of, server_directory, template_on

SECONDS = float(os.environ.get("HOLDFAST_PICTURE_SECONDS", "240"))
TO = ROOT / "docs" / "operators" / "dashboards"
PORTS = ("9464", "9465", "8640", "8099")
"""Those of deploy/prometheus/README.md, which stand for the ports of the run."""


def main() -> None:
    """Run everything, draw, and print the paths."""
    with (
        tempfile.TemporaryDirectory() as folder,
        pytest.MonkeyPatch.context() as patch,
        server_directory() as directory,
        EmbeddedPostgres(directory) as server,
        template_on(server.dsn) as template,
        copy_of(server.dsn, template) as dsn,
        copy_of(server.dsn, "template1") as payouts_dsn,
        observed(dsn, payouts_dsn, Path(folder)) as seen,
    ):
        patch.setenv(SECRET, secret_text())
        began = time.time()
        _live(seen)
        _draw(seen, began, time.time())


def _live(seen: Observed) -> None:
    """Let time pass, with what goes wrong on the way."""
    pause, part = Event(), SECONDS / 4
    pause.wait(part)
    seen.ledger.stop()
    ahead = (datetime.now(UTC) + timedelta(hours=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
    seen.load.file(b'{"event_id": "e-unreadable"}', event("e-ahead", "0:0", 1, occurred_at=ahead))
    pause.wait(part)
    seen.ledger.start()
    pause.wait(2 * part)


def _draw(seen: Observed, began: float, ended: float) -> None:
    TO.mkdir(exist_ok=True)
    known = dict(zip(seen.prometheus.targets(), PORTS, strict=True))
    for dashboard in dashboards():
        text = drawn(seen.prometheus, dashboard, began, ended)
        for address, port in known.items():
            text = text.replace(address, f"127.0.0.1:{port}")
        path = TO / f"{dashboard.name}.svg"
        path.write_text(text)
        print(path, len(text))  # noqa: T201 - what was drawn


if __name__ == "__main__":
    main()
