"""Modules that notebooks import from `hta.common`."""
