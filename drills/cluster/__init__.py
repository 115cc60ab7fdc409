"""A small cluster on one machine: nodes with addresses of their own, launchers, and a scheduler that speaks webhooks."""
