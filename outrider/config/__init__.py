"""Typed TOML configuration: every room has its own section, a frozen msgspec struct in a module of this package."""

from outrider.config.loader import load_sections, load_struct

__all__ = ["load_sections", "load_struct"]
