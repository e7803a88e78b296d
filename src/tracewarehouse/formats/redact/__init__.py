"""Redaction of secrets before data leaves the memory of a format reader."""

from tracewarehouse.formats.redact.text import (
    clean_value,
    flagged,
    is_secret_key,
    redact,
    redact_events,
    suspects,
)

__all__ = ["clean_value", "flagged", "is_secret_key", "redact", "redact_events", "suspects"]
