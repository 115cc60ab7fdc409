"""What leaves: rules, Alertmanager, webhooks, schedulers."""
