"""Grafana dashboards as code, and the built-in console."""
