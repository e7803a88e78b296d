"""Runs and ranks to a DuckDB connection with views over just their files."""
