"""The dashboards, a module each; `board()` makes it. Build time only."""
