"""What people look at: text for terminals, charts, and HTML pages."""
