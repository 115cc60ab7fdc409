"""Grafana: dashboards written in Python, shipped as JSON; provisioning files; alert rules; a push through the API."""
