"""Stored ranks rebuilt from their events: outdated tables, and warehouses of format 1."""
