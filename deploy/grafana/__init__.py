"""Dashboards of Grafana. `python -m deploy.grafana` writes the JSON files in this folder."""
