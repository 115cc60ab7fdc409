"""Fault injection, the simulator, the drill and its report."""
