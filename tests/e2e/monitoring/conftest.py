"""What the alerts are fired on."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.deploy.local.ports import free_port
from tests.support.monitoring.prometheus import Watcher, watcher


@pytest.fixture
def watch(tmp_path: Path) -> Iterator[Watcher]:
    with watcher(tmp_path) as start:
        yield start


@pytest.fixture
def address() -> str:
    """Where a dispatcher or a job serves its metrics."""
    return f"127.0.0.1:{free_port()}"
