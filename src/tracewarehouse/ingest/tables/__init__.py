"""From the activities of a rank to its stored tables, one module per family of tables."""
