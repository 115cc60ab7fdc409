"""The witness: the edge around the core, its ledger, its server."""
