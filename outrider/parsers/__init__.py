"""Parsers of logs, dumps and pages: pure functions, text in, signals out. Used by collectors and by `inspect`."""
