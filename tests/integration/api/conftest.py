"""One server for all reads: they change nothing but the audit trail."""

from collections.abc import Iterator

import pytest

from tests.support.console.admin_api import Api, world


@pytest.fixture(scope="package")
def reading(server_dsn: str, template_database: str) -> Iterator[Api]:
    """A server on a database with something of everything."""
    with world(server_dsn, template_database) as api:
        yield api
