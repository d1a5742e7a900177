"""Servers that tests share: one for all reads, as they change nothing but the audit trail."""

from collections.abc import Iterator

import pytest

from tests.support.console.admin_api import Api, serving, world
from tests.support.servers.databases import copy_of


@pytest.fixture(scope="package")
def reading(server_dsn: str, template_database: str) -> Iterator[Api]:
    """A server on a database with something of everything."""
    with world(server_dsn, template_database) as api:
        yield api


@pytest.fixture(scope="module")
def fresh_api(server_dsn: str, template_database: str) -> Iterator[Api]:
    """A server on a database of its own, with nothing in it."""
    with copy_of(server_dsn, template_database) as dsn, serving(dsn) as api:
        yield api
