"""Builders of the stored tables of a rank from its activities, one module per family of tables."""
