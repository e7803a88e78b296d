"""Bytes of a trace file to the raw relation."""
