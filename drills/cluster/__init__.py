"""A small cluster on one machine: nodes with addresses of their own, launchers, and a job scheduler that speaks the webhook contract."""
