"""What the pages of the runbook share: an outbox, its receiver, and somebody on call."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.documents.runbook import Reader, Site, running_site


@pytest.fixture
def site(dsn: str, make_database: Callable[[str | None], str], tmp_path: Path) -> Iterator[Site]:
    """A world with nothing in it."""
    with running_site(dsn, make_database(None), tmp_path) as site:
        yield site


@pytest.fixture
def reader(site: Site) -> Reader:
    """Somebody on call, who knows the merchant m_482."""
    return Reader(site.dsn, {"PAYOUTS_DSN": site.payouts_dsn}, {"SUBJECT": "m_482"})
