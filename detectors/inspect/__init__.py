"""`outrider inspect`: what does this log, dump, page or trace say? One finding an incident."""
