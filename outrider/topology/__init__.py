"""The site as a graph: what hangs on what, from configuration or from what the fabric and the schedulers tell of themselves."""
