"""Every expression of the dashboards has a value in a real Prometheus, on real services.

Real: Spark, Postgres, the dispatcher, the payouts service, the API, Prometheus.
"""

import math
from collections.abc import Callable

import pytest

from holdfast.deploy.local.stack.panels import dashboards
from tests.support.monitoring.observed import observed
from tests.support.monitoring.prometheus import MISSING, Prometheus, program
from tests.support.world import World

pytestmark = [
    pytest.mark.rest,
    pytest.mark.spark,
    pytest.mark.skipif(program("prometheus") is None, reason=MISSING.format("prometheus")),
]

EXPRESSIONS = {
    query.expression: f"{dashboard.name}: {panel.title}"
    for dashboard in dashboards()
    for panel in dashboard.panels
    for query in panel.queries
}


def _without_a_value(prometheus: Prometheus) -> list[str]:
    """The panels with an expression that has no sample, or none that is a number."""
    return [
        f"{panel}: {expression}"
        for expression, panel in EXPRESSIONS.items()
        if not any(not math.isnan(each.value) for each in prometheus.ask(expression))
    ]


@pytest.mark.long
@pytest.mark.timeout(600)
def test_every_expression_of_a_panel_has_a_value_under_load(
    world: World, make_database: Callable[[str | None], str]
) -> None:
    with observed(world.dsn, make_database(None), world.tmp_path) as seen:
        seen.shows("sum(rate(holdfast_job_entries_total[5m]))")
        seen.shows('sum(rate(holdfast_attempts_total{outcome="delivered"}[5m]))')
        assert set(seen.prometheus.targets().values()) == {"up"}
        seen.until(lambda: not _without_a_value(seen.prometheus))
