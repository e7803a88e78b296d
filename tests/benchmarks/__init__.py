"""Benchmarks: each target measured against its peer in turn, with checked results."""
