"""Results as tables, CSV, JSON and Markdown, and progress bars."""
