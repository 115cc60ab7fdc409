"""`outrider drill`: a real training job, a real fault, a real recovery; what happened is measured and compared."""
