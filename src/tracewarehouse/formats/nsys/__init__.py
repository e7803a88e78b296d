"""Nsight Systems reports, exported as SQLite databases."""
