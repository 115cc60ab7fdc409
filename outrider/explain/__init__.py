"""`outrider explain` and the runbook pages: what the catalogue says, for people."""
