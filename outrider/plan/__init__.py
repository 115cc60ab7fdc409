"""`outrider plan`: the reliability arithmetic for one fleet, as a table, a plot or JSON."""
