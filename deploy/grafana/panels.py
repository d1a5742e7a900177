"""The kinds of panels that the catalogue has."""

from holdfast.deploy.local.stack.panels import Panel, Query, alert


def alerting(title: str, *, rule: str, legend: str, description: str, unit: str = "short") -> Panel:
    """Return a panel of exactly what an alert compares, with the alert's limit."""
    queries = tuple(Query(each.expression, legend) for each in alert(rule).conditions)
    return Panel(title, description, unit, queries, rule)


def quantiles(title: str, *, metric: str, description: str, by: str = "", where: str = "") -> Panel:
    """Return a panel of the median and the 95th percentile of a histogram over five minutes."""
    grouped = f"{by}, le" if by else "le"
    name = f"{{{{{by}}}}} " if by else ""
    queries = tuple(
        Query(
            f"histogram_quantile({share}, sum by ({grouped}) (rate({metric}_bucket{where}[5m])))",
            f"{name}p{round(share * 100)}",
        )
        for share in (0.5, 0.95)
    )
    return Panel(title, description, "s", queries)


def mean(title: str, *, metric: str, unit: str, description: str, by: str = "") -> Panel:
    """Return a panel of the mean of a histogram over five minutes, by labels."""
    group = f" by ({by})" if by else ""
    expression = f"sum{group} (rate({metric}_sum[5m])) / sum{group} (rate({metric}_count[5m]))"
    legend = " ".join(f"{{{{{label}}}}}" for label in by.split(", ")) if by else "mean"
    return Panel(title, description, unit, (Query(expression, legend),))


def value(
    title: str, *, expression: str, legend: str, description: str, unit: str = "short"
) -> Panel:
    """Return a panel of one expression."""
    return Panel(title, description, unit, (Query(expression, legend),))
