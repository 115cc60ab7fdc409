"""The training SDK."""
