"""The dashboards of Grafana on a page of the stack's own, drawn from its Prometheus."""
