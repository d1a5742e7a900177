"""A dashboard as Grafana reads it, by Grafana's own SDK, which knows every field and its type."""

import json
from itertools import count

from grafana_foundation_sdk.builders.common import (
    GraphThresholdsStyleConfig,
    VizLegendOptions,
    VizTooltipOptions,
)
from grafana_foundation_sdk.builders.dashboard import Dashboard as Built
from grafana_foundation_sdk.builders.dashboard import (
    DatasourceVariable,
    ThresholdsConfig,
)
from grafana_foundation_sdk.builders.dashboard import Row as BuiltRow
from grafana_foundation_sdk.builders.prometheus import Dataquery
from grafana_foundation_sdk.builders.timeseries import Panel as TimeSeries
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.common import (
    GraphTresholdsStyleMode,
    LegendDisplayMode,
    LegendPlacement,
    SortOrder,
    TooltipDisplayMode,
)
from grafana_foundation_sdk.models.dashboard import (
    DashboardCursorSync,
    DataSourceRef,
    Threshold,
    ThresholdsMode,
)

from holdfast.deploy.local.stack.panels import Condition, Dashboard, Panel, alert

_SOURCE = DataSourceRef(type_val="prometheus", uid="${datasource}")
_COLOURS = {"page": "red", "ticket": "orange"}
_FINE = "green"
_ABOVE = 1e-9
"""Grafana colours from a step on, and an alert compares strictly: `> 0` begins just above 0."""


def rendered(dashboard: Dashboard) -> str:
    """Return the text of a dashboard's file: the same for the same dashboard."""
    built = (
        Built(dashboard.title)
        .uid(f"holdfast-{dashboard.name}")
        .description(dashboard.description)
        .tags(["holdfast"])
        .time("now-1h", "now")
        .refresh("30s")
        .timezone("browser")
        .tooltip(DashboardCursorSync.CROSSHAIR)
        .with_variable(DatasourceVariable("datasource").label("Prometheus").type("prometheus"))
    )
    number = count(1)
    for row in dashboard.rows:
        built = built.with_row(BuiltRow(row.title).id(next(number)))
        for panel in row.panels:
            built = built.with_panel(_panel(panel).id(next(number)))
    return json.dumps(built.build(), cls=JSONEncoder, indent=1, sort_keys=True) + "\n"


def described(panel: Panel) -> str:
    """Return what is said of a panel, with the name of its alert."""
    if panel.alert is None:
        return panel.description
    return f"{panel.description} Alert {panel.alert} ({alert(panel.alert).severity})."


def _panel(panel: Panel) -> TimeSeries:
    built = (
        TimeSeries()
        .title(panel.title)
        .description(described(panel))
        .unit(panel.unit)
        .datasource(_SOURCE)
        .span(8)
        .height(8)
        .fill_opacity(8)
        .legend(
            VizLegendOptions()
            .display_mode(LegendDisplayMode.LIST)
            .placement(LegendPlacement.BOTTOM)
            .show_legend(show_legend=True)
        )
        .tooltip(VizTooltipOptions().mode(TooltipDisplayMode.MULTI).sort(SortOrder.DESCENDING))
    )
    for letter, query in zip("ABCDEF", panel.queries, strict=False):
        built = built.with_target(
            Dataquery()
            .ref_id(letter)
            .datasource(_SOURCE)
            .expr(query.expression)
            .legend_format(query.legend)
        )
    if panel.limit is None or panel.alert is None:
        return built
    colour = _COLOURS[alert(panel.alert).severity]
    return built.thresholds(
        ThresholdsConfig().mode(ThresholdsMode.ABSOLUTE).steps(steps(panel.limit, colour))
    ).thresholds_style(GraphThresholdsStyleConfig().mode(GraphTresholdsStyleMode.LINE))


def steps(limit: Condition, colour: str) -> list[Threshold]:
    """Return the steps of a comparison: `colour` where the alert's condition holds."""
    if limit.comparison == "<":
        return [Threshold(None, colour), Threshold(limit.limit, _FINE)]
    strictly = limit.comparison == ">" and limit.limit == 0
    return [Threshold(None, _FINE), Threshold(_ABOVE if strictly else limit.limit, colour)]
