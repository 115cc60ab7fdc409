"""Runs recorded traces through the very core that judges live: reading, the automatic signals of normal life, the loop."""
