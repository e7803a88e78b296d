"""Redaction of secrets before data leaves the memory of a format reader."""
