"""What runs beside the GPUs: the node agent and its collectors."""
