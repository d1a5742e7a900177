"""Whatever a page, a read of the API or a list asks for, no large table has to be read whole.

The queries are those of the benchmark. A small database is read whole where that is cheaper, so the
test asserts that an index serves; the benchmark prints the plans of a large one.
"""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import psycopg
import pytest
from psycopg import ClientCursor

from holdfast.dispatcher.operators.check.rules import Checked
from holdfast.dispatcher.operators.check.store import Checks
from holdfast.dispatcher.operators.common.statements import statement
from holdfast.dispatcher.operators.common.times import When
from tests.benchmarks.common.filled import Filled, fill, trouble
from tests.benchmarks.queries.plans import missed, plans_of_all
from tests.benchmarks.queries.requests import known, pages, reads
from tests.support.refusal import raises_code
from tests.support.servers.databases import copy_of

pytestmark = pytest.mark.rest

ENTRIES = 6_000


@pytest.fixture(scope="module")
def busy(server_dsn: str, template_database: str) -> Iterator[str]:
    """6,000 entries of as many subjects, their attempts, and what goes wrong in a day."""
    with copy_of(server_dsn, template_database) as dsn:
        fill(dsn, Filled(ENTRIES, ENTRIES))
        trouble(dsn)
        yield dsn


def test_the_looks_go_to_every_page_and_every_read(busy: str) -> None:
    result = known(busy)
    assert missed([*pages(result, "0" * 32), *reads(result)]) == []
    assert missed(pages(result, "0" * 32))


def test_an_index_serves_every_statement_behind_a_look(busy: str) -> None:
    plans = plans_of_all(busy, could=True)
    known_ones = {"entries/list", "subjects/held_ids", "attempts/newest", "overview/status_totals"}
    assert known_ones | {"endpoints/show", "streams/undelivered", "why/standing"} <= plans.names
    assert not plans.whole, "\n\n".join(f"{name}:\n{plan}" for name, plan in plans.whole.items())


def test_changes_are_compared_with_the_trail_by_hashes(busy: str) -> None:
    """Each of 25,000 changes beside each of 125,000 actions took longer than a statement may."""
    with psycopg.connect(busy) as connection:
        values = {
            "since": datetime(2020, 1, 1, tzinfo=UTC),
            "until": datetime.now(UTC),
            "limit": 10,
        }
        text = b"EXPLAIN " + statement("check/audit")
        plan = [line for (line,) in ClientCursor(connection).execute(text, values)]
    assert any("Hash Anti Join" in line or "Hash Right Anti Join" in line for line in plan)
    assert not any("Nested Loop Anti Join" in line for line in plan if "acts" in line)


def test_too_much_for_the_audit_trail_is_reported_not_raised(busy: str) -> None:
    with Checks.connect(busy) as store:
        range_ = store.range(When(back=timedelta(days=1)), When(), endpoint=None, stream=None)
        store._connection.execute("SET statement_timeout = '1ms'")
        with raises_code("too_many_changes"):
            store.rest(range_, Checked(10))
