"""Profiles of ROCm: rpd and rocpd databases, and JSON results of rocprofv3."""
