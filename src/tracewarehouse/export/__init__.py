"""Exports of stored traces as files for other tools, with counters and overlays."""
