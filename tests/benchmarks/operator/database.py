"""A database for a benchmark, on the server of HOLDFAST_DSN or on a temporary embedded one."""

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from holdfast.deploy.local.postgres import EmbeddedPostgres
from tests.benchmarks.common.database import fresh


@contextmanager
def database(folder: Path) -> Iterator[str]:
    """Yield the DSN of a fresh database with Holdfast's tables."""
    with ExitStack() as stack:
        dsn = os.environ.get("HOLDFAST_DSN")
        if not dsn:
            dsn = stack.enter_context(EmbeddedPostgres(folder / "postgres", keep=False)).dsn
        yield stack.enter_context(fresh(dsn))
