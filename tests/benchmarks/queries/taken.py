"""Makes every request once in this process: the server in a thread, commands as functions."""

import httpx

from holdfast.dispatcher.operators.replays.rules import ReplayFilter
from holdfast.dispatcher.operators.replays.store import Replays
from holdfast.sink.contract.key import Key
from holdfast.sink.contract.states import AccessRole
from tests.benchmarks.queries.known import Known, known
from tests.benchmarks.queries.lists import lists
from tests.benchmarks.queries.pages import pages
from tests.benchmarks.queries.plans import Plans, explaining
from tests.benchmarks.queries.reads import reads
from tests.benchmarks.queries.server import come_in
from tests.support.command import holdfast
from tests.support.console.admin_api import serving


def redelivery(dsn: str, there: Known) -> str:
    """Plan to send one entry again, and return the plan's id; nothing is applied."""
    with Replays.connect(dsn) as store:
        digest = Key.parse(there.key).digest
        return str(store.plan(ReplayFilter(keys=(digest,)), reason="benchmark")["id"])


def plans_of_all(dsn: str, *, could: bool) -> Plans:
    """Take every query once and return the plans; see `explaining`.

    Raises RuntimeError for an answer that is not as it should be.
    """
    there = known(dsn)
    asked = [*pages(there, redelivery(dsn, there)), *reads(there)]
    for role in AccessRole:
        # The server of tests has a token a role; those of a run before are still there.
        holdfast("token", "revoke", role, "--reason", "benchmark", dsn=dsn)
    with explaining(could=could) as plans:
        with (
            serving(dsn) as api,
            httpx.Client(base_url=api.url) as browser,
            come_in(browser, api.secrets["admin"]) as served,
        ):
            for each in asked:
                served.query(each)
        for each in lists(there):
            done = holdfast(*each.ask, dsn=dsn)
            if done.returncode not in each.ends:
                raise RuntimeError(f"{each.shows} ended with {done.returncode}: {done.stderr}")
    return plans
