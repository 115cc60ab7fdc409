"""Rules, one file per family of faults; they never import quorum, blame or policy."""
