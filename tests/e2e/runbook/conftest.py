"""What the pages of the runbook share: an outbox, its receiver, and somebody on call."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.runbook import Reader, World, world


@pytest.fixture
def here(dsn: str, make_database: Callable[[str | None], str], tmp_path: Path) -> Iterator[World]:
    """A world with nothing in it."""
    with world(dsn, make_database(None), tmp_path) as here:
        yield here


@pytest.fixture
def reader(here: World) -> Reader:
    """Somebody on call, who knows the merchant m_482."""
    return Reader(here.dsn, {"PAYOUTS_DSN": here.payouts_dsn}, {"SUBJECT": "m_482"})
