"""Results to tables, CSV, JSON and Markdown."""
