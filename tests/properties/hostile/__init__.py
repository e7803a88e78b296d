"""Hostile trace files: a corpus with expected outcomes, and a fuzzer that adds to it."""
