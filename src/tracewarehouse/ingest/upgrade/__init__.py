"""Stored ranks rebuilt from their events."""
