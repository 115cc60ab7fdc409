"""Prometheus rules, their unit tests, and Alertmanager's configuration, all made from the catalogue."""
