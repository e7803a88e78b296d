"""Redaction of secrets before data leaves the memory of a format reader."""

from tracewarehouse.formats.redact.rules import (
    NO_POLICY,
    POLICY_FILE,
    POLICY_VARIABLE,
    Policy,
    fingerprint,
    policy_of,
    rules,
    samples,
)
from tracewarehouse.formats.redact.text import Redaction, Redactor, check_text, clean_name, redactor_of

__all__ = [
    "NO_POLICY",
    "POLICY_FILE",
    "POLICY_VARIABLE",
    "Policy",
    "Redaction",
    "Redactor",
    "check_text",
    "clean_name",
    "fingerprint",
    "policy_of",
    "redactor_of",
    "rules",
    "samples",
]
