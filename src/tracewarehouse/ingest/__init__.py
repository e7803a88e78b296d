"""Ingest: from trace files to published versions of runs."""
