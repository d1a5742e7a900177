"""Dashboards of Grafana. `python -m holdfast.deploy.grafana` writes the JSON files here."""
