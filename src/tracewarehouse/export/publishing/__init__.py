"""Publishing: copies of tables for other engines."""
